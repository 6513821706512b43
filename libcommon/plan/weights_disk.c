#include "plan/weights_disk.h"

#include "base/arena.h"
#include "base/units.h"
#include "plan/inferplan.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

bool dt_weights_disk_has(const struct dt_config *c, const struct dt_param *p)
{
	if (c->experts)
		return p->experts > 0;
	return dt_infer_packs(p) && p->role != DT_W_KV_B && p->layer >= 0 && p->layer < c->layers;
}

static uint64_t blocks(uint64_t n)
{
	return (n + DT_WEIGHTS_BLOCK - 1) / DT_WEIGHTS_BLOCK * DT_WEIGHTS_BLOCK;
}

/* By layer: bytes of its pieces in memory of their own, and of one piece in a slot. */
struct sizes {
	uint64_t *own, *slot;
	int64_t *pieces;
};

static void add(const struct dt_config *c, const struct dt_param *p, enum dt_format f, struct sizes *s)
{
	const int64_t parts = p->experts ? p->experts : 1;

	s->own[p->layer] += dt_infer_packed(c, p, f);
	s->slot[p->layer] += dt_panels_close_bytes(f, p->shape[0] / parts, p->shape[1]);
	s->pieces[p->layer] = parts;
}

/* Bytes with w->kept layers in memory and slots for the others. */
static uint64_t with_kept(const struct dt_weights_disk *w, const struct dt_config *c, const struct sizes *s)
{
	const int64_t read = w->pieces - w->kept;
	uint64_t sum = w->stays_bytes;
	int64_t i = 0;

	for (int64_t l = 0; l < c->layers; l++)
		if (s->pieces[l] && dt_weights_disk_keeps(w, i++))
			sum += s->own[l];
	return sum + (uint64_t)(read < DT_WEIGHTS_AHEAD + 1 ? read : DT_WEIGHTS_AHEAD + 1) * w->slot_bytes;
}

static int too_little(const struct dt_weights_disk *w, uint64_t memory, uint64_t least, struct dt_err *err)
{
	char text[3][24];

	dt_err_set(err, -ENOSPC,
		   "%s of memory for weights is too little: %s is needed, for %s that always stays in "
		   "memory and for %s",
		   dt_format_size(memory, text[0], sizeof(text[0])),
		   dt_format_size_up(least, text[1], sizeof(text[1])),
		   dt_format_size(w->stays_bytes, text[2], sizeof(text[2])),
		   w->experts ? "all experts of a layer and one more" : "three layers");
	dt_err_hint(err, "raise --weights-memory");
	return -ENOSPC;
}

static int share_layers(struct dt_weights_disk *w, const struct dt_config *c, const struct sizes *s,
			uint64_t memory, struct dt_err *err)
{
	int64_t i = 0;

	for (w->kept = w->pieces; w->kept > 0 && with_kept(w, c, s) > memory; w->kept--)
		;
	if (with_kept(w, c, s) > memory)
		return too_little(w, memory, with_kept(w, c, s), err);
	w->memory_bytes = with_kept(w, c, s);
	for (int64_t l = 0; l < c->layers; l++)
		if (s->pieces[l] && dt_weights_disk_keeps(w, i++))
			w->stays_bytes += s->own[l];
	w->slots = w->pieces - w->kept < DT_WEIGHTS_AHEAD + 1 ? w->pieces - w->kept : DT_WEIGHTS_AHEAD + 1;
	return 0;
}

static int share_experts(struct dt_weights_disk *w, int64_t a_layer, uint64_t memory, struct dt_err *err)
{
	int64_t least = a_layer + 1 < w->pieces ? a_layer + 1 : w->pieces, room;

	if (memory < w->stays_bytes + (uint64_t)least * w->slot_bytes)
		return too_little(w, memory, w->stays_bytes + (uint64_t)least * w->slot_bytes, err);
	room = (int64_t)((memory - w->stays_bytes) / (w->slot_bytes ? w->slot_bytes : 1));
	w->slots = room < w->pieces ? room : w->pieces;
	w->memory_bytes = w->stays_bytes + (uint64_t)w->slots * w->slot_bytes;
	return 0;
}

static int fill(struct dt_weights_disk *w, const struct dt_config *c, const struct dt_param *part,
		const enum dt_format *format, int n, enum dt_dtype compute, struct sizes *s)
{
	uint64_t plain = 0;
	int most = 0;

	for (int i = 0; i < n; i++) {
		dt_infer_place(c, &part[i], compute, &plain);
		if (dt_weights_disk_has(c, &part[i]))
			add(c, &part[i], format[i], s);
		else
			w->stays_bytes += dt_infer_packed(c, &part[i], format[i]);
	}
	w->stays_bytes += plain ? plain : DT_ALIGN;
	for (int64_t l = 0; l < c->layers; l++) {
		w->pieces += s->pieces[l];
		most = s->pieces[l] > most ? (int)s->pieces[l] : most;
		w->slot_bytes = blocks(s->slot[l]) > w->slot_bytes ? blocks(s->slot[l]) : w->slot_bytes;
	}
	return most;
}

int dt_weights_disk_plan(const struct dt_config *c, const struct dt_param *part, const enum dt_format *format,
			 int n, enum dt_dtype compute, uint64_t memory, struct dt_weights_disk *ret,
			 struct dt_err *err)
{
	struct dt_weights_disk w = {.experts = c->experts > 0};
	struct sizes s = {.own = calloc((size_t)c->layers + 1, sizeof(*s.own)),
			  .slot = calloc((size_t)c->layers + 1, sizeof(*s.slot)),
			  .pieces = calloc((size_t)c->layers + 1, sizeof(*s.pieces))};
	int rc = -ENOMEM, most;

	if (w.experts)
		w.chosen = (double)c->experts_used / (double)c->experts;
	if (s.own && s.slot && s.pieces) {
		most = fill(&w, c, part, format, n, compute, &s);
		rc = w.experts ? share_experts(&w, most, memory, err) : share_layers(&w, c, &s, memory, err);
	} else {
		dt_err_sys(err, rc, "cannot plan the weights");
	}
	free(s.own);
	free(s.slot);
	free(s.pieces);
	if (rc < 0)
		return rc;
	w.file_bytes = (uint64_t)(w.pieces - w.kept) * w.slot_bytes;
	*ret = w;
	return 0;
}

double dt_weights_disk_read(const struct dt_weights_disk *w, int64_t tokens)
{
	const double here = (double)(w->pieces - w->kept), each = (double)w->slot_bytes;
	double chosen;

	if (!w->experts)
		return w->slots == w->pieces - w->kept ? 0 : here * each;
	if (w->slots >= w->pieces)
		return 0;
	/* a layer's experts that some token chooses, less those already in a slot */
	chosen = here * (1 - pow(1 - w->chosen, (double)tokens));
	return chosen * each * (1 - (double)w->slots / here);
}

double dt_weights_disk_steps(const struct dt_weights_disk *w, int64_t tokens, double bw)
{
	const double bytes = dt_weights_disk_read(w, tokens);

	return bytes > 0 ? bw / bytes : 0;
}

const char *dt_weights_disk_text(const struct dt_weights_disk *w, double bw, bool measured, char *buf,
				 size_t n)
{
	const double read = dt_weights_disk_read(w, 1), steps = dt_weights_disk_steps(w, 1, bw);
	char text[3][24];

	if (read <= 0) {
		snprintf(buf, n, "weights: all fit into %s of memory, none are read while serving",
			 dt_format_size(w->memory_bytes, text[0], sizeof(text[0])));
		return buf;
	}
	snprintf(buf, n,
		 "weights: %s in memory, %s %s; a step with one sequence reads %s%s, so that %.2g GB/s%s "
		 "allow %.*f tokens/s",
		 dt_format_size(w->memory_bytes, text[0], sizeof(text[0])),
		 dt_format_size(w->file_bytes, text[1], sizeof(text[1])),
		 w->host ? "in host memory" : "on disk",
		 dt_format_size((uint64_t)read, text[2], sizeof(text[2])),
		 w->experts ? " (if experts are chosen evenly)" : "", bw / 1e9, measured ? " (measured)" : "",
		 steps < 10    ? 2
		 : steps < 100 ? 1
			       : 0,
		 steps);
	return buf;
}
/* SPDX-License-Identifier: Apache-2.0 */
