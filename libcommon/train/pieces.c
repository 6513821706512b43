/*
 * The pieces of a checkpoint, by parameter. Parameters and optimizer states are sharded as the layout shards
 * them. State that data-parallel ranks replicate is written once: each rank writes an equal range of its flat
 * buffer.
 */
#include "train/pieces_priv.h"

#include "kernels/blocks8.h"
#include "train/snapshot.h"
#include "train/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *kind_name(const struct trainer *t, int kind)
{
	return kind == PIECES_MODEL   ? "model"
	       : kind == PIECES_GRAD  ? "grad"
	       : kind == PIECES_OUTER ? "outer"
	       : kind == PIECES_EMA   ? "ema"
				      : dt_optim_rule(t->run.optim.kind)->state[kind - 1].name;
}

/* The optimizer state of a kind; NULL: the kind is not an optimizer state. */
static const struct dt_optim_state *kind_state(const struct trainer *t, int kind)
{
	return kind == PIECES_MODEL || kind >= PIECES_OUTER
		       ? NULL
		       : &dt_optim_rule(t->run.optim.kind)->state[kind - 1];
}

bool pieces_kind_has(const struct trainer *t, int kind, int i)
{
	if (t->table.p[t->local.p[i].index]
		    .frozen) /* with LoRA a frozen parameter is the base's, which has its own files */
		return kind == PIECES_MODEL && !t->config.lora.rank;
	if (kind == PIECES_MODEL)
		return true;
	if (kind == PIECES_GRAD)
		return t->run.save.grads;
	if (kind == PIECES_OUTER)
		return t->outer.momentum.p != NULL;
	if (kind == PIECES_EMA)
		return t->ema.flat.p != NULL;
	return kind_state(t, kind)->shape == DT_STATE_EACH ||
	       (t->optim.place[kind - 1] && t->optim.place[kind - 1][i] >= 0);
}

bool pieces_in_blocks(const struct trainer *t, int kind)
{
	const struct dt_optim_state *s = kind_state(t, kind);

	return s && s->shape == DT_STATE_BLOCKS;
}

bool pieces_by_line(const struct trainer *t, int kind)
{
	const struct dt_optim_state *s = kind_state(t, kind);

	return s && (s->shape == DT_STATE_ROWS || s->shape == DT_STATE_COLS);
}

/* The buffer with a parameter's values: frozen parameters have no master. */
static const struct flat *values_of(const struct trainer *t, const struct dt_local_param *lp)
{
	return t->local.unit[lp->unit].frozen ? &t->store.weights : &t->store.master;
}

/* The address of an element. An offloaded element's must not be dereferenced. */
static const void *flat_place(const struct trainer *t, const struct flat *f, int u, int64_t i)
{
	return f->p + flat_index(t, f, u, i) * dt_dtype_size(f->dtype);
}

/* The address of element `at` of parameter i in this rank's shard. wide: the decoded values of that shard. */
static const void *kind_at(const struct trainer *t, int kind, int i, int64_t at, const float *wide)
{
	const struct dt_local_param *lp = &t->local.p[i];
	int64_t start = lp->flat - t->local.unit[lp->unit].flat, first;

	if (kind == PIECES_MODEL)
		return flat_place(t, values_of(t, lp), lp->unit, start + at);
	if (kind == PIECES_OUTER)
		return flat_place(t, &t->outer.momentum, lp->unit, start + at);
	if (kind == PIECES_EMA)
		return flat_place(t, &t->ema.flat, lp->unit, start + at);
	if (kind == PIECES_GRAD) /* reduced gradients lie at the start of the share */
		return grad_part(t, lp->unit, start + at, 1).data;
	if (kind_state(t, kind)->shape == DT_STATE_EACH)
		return flat_place(t, &t->optim.state[kind - 1], lp->unit, start + at);
	dt_states_share(&t->optim.of, i, &first);
	return (const float *)(wide ? wide : optim_state(t, kind - 1, i).data) + (at - first);
}

/* Elements [*first, *last) of the parameter are elements [lo, hi) of its unit. */
static void part_of(const struct trainer *t, const struct dt_local_param *lp, int64_t lo, int64_t hi,
		    int64_t *first, int64_t *last)
{
	int64_t start = lp->flat - t->local.unit[lp->unit].flat;

	*first = lo > start ? lo - start : 0;
	*last = hi < start + lp->numel ? hi - start : lp->numel;
}

int pieces_of_range(const struct trainer *t, int i, int kind, int64_t lo, int64_t hi, const float *wide,
		    struct dt_piece *ret)
{
	const struct dt_local_param *lp = &t->local.p[i];
	const struct dt_param *p = &t->table.p[lp->index];
	struct dt_piece box = {.dtype = kind == PIECES_MODEL ? values_of(t, lp)->dtype : DT_F32,
			       .ndim = p->ndim};
	int64_t first, last, from;
	int n;

	part_of(t, lp, lo, hi, &first, &last);
	if (first >= last)
		return 0;
	snprintf(box.name, sizeof(box.name), "%s/%s", kind_name(t, kind), p->name);
	for (int d = 0; d < p->ndim; d++) {
		box.global[d] = p->shape[d];
		box.off[d] = lp->off[d];
		box.shape[d] = lp->shape[d];
	}
	dt_states_share(&t->optim.of, i, &from);
	if (wide)
		wide -= first - from; /* as if it began with this rank's first element */
	/* Addresses are relative to the box; a sharded buffer holds only part of it. */
	n = dt_pieces_of_range(&box, first, last - first, ret);
	for (int64_t k = 0, at = first; k < n; k++) {
		int64_t count = 1;

		for (int d = 0; d < ret[k].ndim; d++)
			count *= ret[k].shape[d];
		ret[k].data = kind_at(t, kind, i, at, wide);
		at += count;
	}
	return n;
}

struct dt_piece pieces_line(const struct trainer *t, int i, int kind)
{
	const struct dt_local_param *lp = &t->local.p[i];
	const struct dt_param *p = &t->table.p[lp->index];
	const int d = kind_state(t, kind)->shape == DT_STATE_COLS;
	struct dt_piece line = {.dtype = DT_F32,
				.ndim = 1,
				.global = {p->shape[d]},
				.off = {lp->off[d]},
				.shape = {lp->shape[d]},
				.data = optim_state(t, kind - 1, i).data};

	snprintf(line.name, sizeof(line.name), "%s/%s", kind_name(t, kind), p->name);
	return line;
}

/* Whether this rank writes the row or column state; one of the ranks that hold it does. */
static bool writes_line(const struct trainer *t, int i, int kind)
{
	const struct dt_local_param *lp = &t->local.p[i];
	const struct dt_param *p = &t->table.p[lp->index];
	const int d = kind_state(t, kind)->shape == DT_STATE_COLS;
	const bool cut = p->cut != DT_CUT_NONE && p->cut_dim == d;

	return dt_unit_copy(&t->run.layout, &t->local.unit[lp->unit], t->mesh.at) == 0 && counts(t, lp) &&
	       (cut || t->mesh.at.tp == 0);
}

/* The elements of parameter i's unit that this rank writes: an equal part. */
static void my_part(const struct trainer *t, int i, int64_t *lo, int64_t *hi)
{
	const struct dt_local_unit *u = &t->local.unit[t->local.p[i].unit];
	int64_t copies = dt_unit_copies(&t->run.layout, u), r = dt_unit_copy(&t->run.layout, u, t->mesh.at);

	*lo = u->numel * r / copies;
	*hi = u->numel * (r + 1) / copies;
}

/* State in blocks: returns how many elements of parameter i this rank writes; *ret_first: the first one. */
static int64_t blocks_part(const struct trainer *t, int i, int64_t *ret_first)
{
	int64_t lo, hi, first, last, from;

	dt_states_share(&t->optim.of, i, &from);
	my_part(t, i, &lo, &hi);
	part_of(t, &t->local.p[i], lo, hi, &first, &last);
	*ret_first = first - from;
	return first < last ? last - first : 0;
}

/* Decodes the elements that this rank writes into `to`. */
static int decode_part(struct trainer *t, int i, int kind, float *to, struct dt_err *err)
{
	struct dt_tensor state = optim_state(t, kind - 1, i);
	int64_t first, from, part = blocks_part(t, i, &first);
	void *here = state.data;
	int rc = 0;

	if (part && !dt_dev_is_host(t->dev)) {
		here = malloc((size_t)dt_numel(state));
		rc = here ? device_get(t, here, state.data, (size_t)dt_numel(state), err)
			  : dt_err_sys(err, -ENOMEM, "cannot decode the optimizer's states");
	}
	if (rc == 0 && part)
		dt_blocks8_decode(to, here, dt_states_share(&t->optim.of, i, &from), first, part,
				  kind == PIECES_MODEL + 1);
	if (here != state.data)
		free(here);
	return rc;
}

/* Decodes all states in blocks, in the order of pieces. *ret is malloc'd; NULL if there are none. */
static int decode_all(struct trainer *t, float **ret, struct dt_err *err)
{
	float *to = NULL;
	int64_t n = 0, first;
	int rc = 0;

	for (int pass = 0; pass < 2; pass++) {
		n = 0;
		for (int kind = 0; kind < PIECES_KINDS; kind++)
			for (int i = 0; i < t->local.n && pieces_in_blocks(t, kind) && rc == 0; i++) {
				if (!pieces_kind_has(t, kind, i) || !counts(t, &t->local.p[i]))
					continue;
				if (to)
					rc = decode_part(t, i, kind, to + n, err);
				n += blocks_part(t, i, &first);
			}
		if (pass == 0 && n > 0 && !(to = malloc((size_t)n * sizeof(*to))))
			return dt_err_sys(err, -ENOMEM, "cannot decode the optimizer's states");
	}
	if (rc < 0)
		free(to);
	else
		*ret = to;
	return rc;
}

int pieces_mine(struct trainer *t, struct dt_piece **ret, int *ret_n, float **ret_wide, struct dt_err *err)
{
	struct dt_piece *out =
		malloc(sizeof(*out) * (size_t)(t->local.n * PIECES_KINDS * (2 * DT_CKPT_MAX_DIM + 1) +
					       buffers_count(t) + compressed_count(t)));
	float *wide = NULL;
	int n = 0;

	if (!out)
		return dt_err_sys(err, -ENOMEM, "cannot list the checkpoint's pieces");
	*ret = out;
	if (decode_all(t, ret_wide, err) < 0)
		return err->code;
	wide = *ret_wide;
	for (int kind = 0; kind < PIECES_KINDS; kind++)
		for (int i = 0; i < t->local.n; i++) {
			int64_t lo, hi, first;

			if (!pieces_kind_has(t, kind, i) || !counts(t, &t->local.p[i]))
				continue;
			my_part(t, i, &lo, &hi);
			if (pieces_by_line(t, kind) && writes_line(t, i, kind))
				out[n++] = pieces_line(t, i, kind);
			else if (!pieces_by_line(t, kind))
				n += pieces_of_range(t, i, kind, lo, hi,
						     pieces_in_blocks(t, kind) ? wide : NULL, out + n);
			if (pieces_in_blocks(t, kind))
				wide += blocks_part(t, i, &first);
		}
	n += buffers_pieces(t, out + n);
	*ret_n = n + compressed_pieces(t, out + n);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
