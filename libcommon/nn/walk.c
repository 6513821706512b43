#include "nn/walk.h"

#include "nn/infer_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct dt_walk {
	struct dt_infer *m;
	const int32_t *ids;
	int64_t nseq, len;
	int32_t *pos, *table;
	int64_t *slot;
	char *kept; /* [nseq, kept_bytes] values passed to the next unit */
	size_t kept_bytes;
	dt_walk_fn *seen; /* callback of the current unit */
	void *arg;
};

static const struct dt_prog *prog_of(const struct dt_walk *w)
{
	return &w->m->plan.stage.chunk[0];
}

int dt_walk_units(const struct dt_walk *w)
{
	return prog_of(w)->segment_start[DT_LIST_FORWARD + 1];
}

int dt_walk_layer(const struct dt_walk *w, int unit)
{
	return prog_of(w)->segment[unit].unit;
}

const struct dt_prog *dt_walk_program(const struct dt_walk *w, int unit, int *first, int *end)
{
	const struct dt_segment *s = &prog_of(w)->segment[unit];

	*first = s->first;
	*end = s->first + s->n;
	return prog_of(w);
}

int dt_walk_param(const struct dt_walk *w, int local)
{
	return local < 0 ? -1 : w->m->plan.stage.local.p[local].index;
}

/* Whether v is written before step `at` and read at or after it. */
static bool crosses(const struct dt_prog *p, int v, int at)
{
	bool written = false, read = false;

	for (int k = 0; k < p->nstep; k++) {
		const struct dt_node *n = &p->step[k].n;

		for (int i = 0; i < DT_NODE_OUT && k < at; i++)
			written |= n->out[i] == v;
		for (int i = 0; i < DT_NODE_IN && k >= at; i++)
			read |= n->in[i] == v;
	}
	return written && read;
}

/* Copies a sequence's values that cross into unit `unit`; returns their bytes. kept NULL: only counts. */
static size_t copy_crossing(const struct dt_walk *w, int unit, char *kept, bool back)
{
	const struct dt_prog *p = prog_of(w);
	size_t at = 0;

	for (int v = 0; v < p->nvalue; v++) {
		size_t n = (size_t)dt_value_numel(p, v) * (size_t)dt_dtype_size(p->value[v].dtype);
		char *value;

		if (!crosses(p, v, p->segment[unit].first))
			continue;
		value = dt_exec_value(&w->m->x, &w->m->flight, v);
		if (kept)
			memcpy(back ? value : kept + at, back ? kept + at : value, n);
		at += n;
	}
	return at;
}

static int look(void *arg, struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_walk *w = arg;
	struct dt_walk_seen s = {.node = n};

	if (!w->seen || (n->op != DT_OP_LINEAR && n->op != DT_OP_LINEAR_GATED))
		return 0;
	for (int i = 0; i < 3; i++)
		s.param[i] = dt_walk_param(w, n->param[i]);
	s.x = dt_call_mat(x, n->in[0]);
	return w->seen(w->arg, &s, err);
}

int dt_walk_open(struct dt_walk **ret, struct dt_infer *m, const int32_t *ids, int64_t nseq, int64_t len,
		 struct dt_err *err)
{
	struct dt_walk *w = calloc(1, sizeof(*w));
	struct dt_prog *p = &m->plan.stage.chunk[0];
	int64_t blocks = (len + m->p.block_size - 1) / m->p.block_size;

	if (!w)
		return dt_err_sys(err, -ENOMEM, "cannot read the text");
	*w = (struct dt_walk){.m = m, .ids = ids, .nseq = nseq, .len = len};
	if (!dt_dev_is_host(m->dev) || m->p.ranks || len > m->p.max_tokens || blocks > m->p.blocks) {
		free(w);
		return dt_err_set(err, -EINVAL, "the model is not open for passes of %lld tokens",
				  (long long)len);
	}
	p->rows[DT_ROWS_ALL] = p->rows[DT_ROWS_STREAM] = len;
	for (int u = 1; u < dt_walk_units(w); u++) {
		size_t n = copy_crossing(w, u, NULL, false);

		w->kept_bytes = n > w->kept_bytes ? n : w->kept_bytes;
	}
	w->pos = malloc((size_t)len * sizeof(*w->pos));
	w->slot = malloc((size_t)len * sizeof(*w->slot));
	w->table = malloc((size_t)blocks * sizeof(*w->table));
	w->kept = malloc((size_t)nseq * w->kept_bytes + 1);
	if (!w->pos || !w->slot || !w->table || !w->kept) {
		dt_walk_close(w);
		return dt_err_sys(err, -ENOMEM, "cannot keep the states of %lld tokens",
				  (long long)(nseq * len));
	}
	for (int64_t i = 0; i < len; i++)
		w->slot[i] = w->pos[i] = (int32_t)i;
	for (int64_t i = 0; i < blocks; i++)
		w->table[i] = (int32_t)i;
	m->x.ahead = look;
	m->x.ahead_arg = w;
	*ret = w;
	return 0;
}

void dt_walk_close(struct dt_walk *w)
{
	if (!w)
		return;
	w->m->x.ahead = NULL;
	free(w->pos);
	free(w->slot);
	free(w->table);
	free(w->kept);
	free(w);
}

int dt_walk_unit(struct dt_walk *w, int unit, bool keep, dt_walk_fn *seen, void *arg, struct dt_err *err)
{
	const int32_t start[2] = {0, (int32_t)w->len}, kv_len = (int32_t)w->len, state = 0;
	struct dt_infer_batch b = {.nseq = 1,
				   .ntokens = (int)w->len,
				   .pos = w->pos,
				   .slot = w->slot,
				   .q_start = start,
				   .kv_len = &kv_len,
				   .block_table = w->table,
				   .state = &state,
				   .max_blocks =
					   (int)((w->len + w->m->p.block_size - 1) / w->m->p.block_size)};
	int rc = 0;

	w->m->batch = &b;
	w->m->x.pos = w->pos;
	w->seen = seen;
	w->arg = arg;
	for (int64_t s = 0; s < w->nseq && rc == 0; s++) {
		char *kept = w->kept + (size_t)s * w->kept_bytes;

		b.ids = w->ids + s * w->len;
		if (unit > 0)
			copy_crossing(w, unit, kept, true);
		rc = dt_exec_run_segment(&w->m->x, &w->m->flight, unit, NULL, err);
		if (rc == 0 && keep && unit + 1 < dt_walk_units(w))
			copy_crossing(w, unit + 1, kept, false);
	}
	w->m->batch = NULL;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
