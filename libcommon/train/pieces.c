/*
 * What of a run is in checkpoints, by parameter. Parameters and optimizer states are cut as the layout cuts
 * them; what several data-parallel ranks hold alike is written once, each rank an equal range of its flat
 * buffer.
 */
#include "train/pieces.h"

#include "kernels/blocks8.h"
#include "train/snapshot.h"
#include "train/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Kinds of values: the parameters, the optimizer's states, the outer momentum, the average, the gradients. */
enum { KIND_MODEL, KIND_OUTER = KIND_MODEL + DT_OPTIM_STATES + 1, KIND_EMA, KIND_GRAD, KINDS };

static const char *kind_name(const struct trainer *t, int kind)
{
	return kind == KIND_MODEL   ? "model"
	       : kind == KIND_GRAD  ? "grad"
	       : kind == KIND_OUTER ? "outer"
	       : kind == KIND_EMA   ? "ema"
				    : dt_optim_rule(t->run.optim.kind)->state[kind - 1].name;
}

/* The optimizer's state of that kind; NULL: it is none. */
static const struct dt_optim_state *kind_state(const struct trainer *t, int kind)
{
	return kind == KIND_MODEL || kind >= KIND_OUTER ? NULL
							: &dt_optim_rule(t->run.optim.kind)->state[kind - 1];
}

/* Whether local parameter i has values of a kind. */
static bool kind_has(const struct trainer *t, int kind, int i)
{
	if (t->table.p[t->local.p[i].index]
		    .frozen) /* beside adapters that is a base, with files of its own */
		return kind == KIND_MODEL && !t->config.lora.rank;
	if (kind == KIND_MODEL)
		return true;
	if (kind == KIND_GRAD)
		return t->run.save.grads;
	if (kind == KIND_OUTER)
		return t->outer.momentum.p != NULL;
	if (kind == KIND_EMA)
		return t->ema.flat.p != NULL;
	return kind_state(t, kind)->shape == DT_STATE_EACH ||
	       (t->optim.place[kind - 1] && t->optim.place[kind - 1][i] >= 0);
}

/* Values of these are decoded to be written, and encoded when they are read. */
static bool in_blocks(const struct trainer *t, int kind)
{
	const struct dt_optim_state *s = kind_state(t, kind);

	return s && s->shape == DT_STATE_BLOCKS;
}

static bool by_line(const struct trainer *t, int kind)
{
	const struct dt_optim_state *s = kind_state(t, kind);

	return s && (s->shape == DT_STATE_ROWS || s->shape == DT_STATE_COLS);
}

/* The values of a parameter: what is frozen has no master. */
static const struct flat *values_of(const struct trainer *t, const struct dt_local_param *lp)
{
	return t->local.unit[lp->unit].frozen ? &t->store.weights : &t->store.master;
}

/* Which is not at hand where it is offloaded. */
static const void *flat_place(const struct trainer *t, const struct flat *f, int u, int64_t i)
{
	return f->p + flat_index(t, f, u, i) * dt_dtype_size(f->dtype);
}

/* Where element `at` of a parameter is, one of this rank's; wide: where the first of them is, decoded. */
static const void *kind_at(const struct trainer *t, int kind, int i, int64_t at, const float *wide)
{
	const struct dt_local_param *lp = &t->local.p[i];
	int64_t start = lp->flat - t->local.unit[lp->unit].flat, first;

	if (kind == KIND_MODEL)
		return flat_place(t, values_of(t, lp), lp->unit, start + at);
	if (kind == KIND_OUTER)
		return flat_place(t, &t->outer.momentum, lp->unit, start + at);
	if (kind == KIND_EMA)
		return flat_place(t, &t->ema.flat, lp->unit, start + at);
	if (kind == KIND_GRAD) /* reduced gradients lie at the start of the share */
		return grad_part(t, lp->unit, start + at, 1).data;
	if (kind_state(t, kind)->shape == DT_STATE_EACH)
		return flat_place(t, &t->optim.state[kind - 1], lp->unit, start + at);
	dt_states_share(&t->optim.of, i, &first);
	return (const float *)(wide ? wide : optim_state(t, kind - 1, i).data) + (at - first);
}

/* The part of a parameter in elements [lo, hi) of its unit: [*first, *last) of the parameter. */
static void part_of(const struct trainer *t, const struct dt_local_param *lp, int64_t lo, int64_t hi,
		    int64_t *first, int64_t *last)
{
	int64_t start = lp->flat - t->local.unit[lp->unit].flat;

	*first = lo > start ? lo - start : 0;
	*last = hi < start + lp->numel ? hi - start : lp->numel;
}

/*
 * The part of parameter i in elements [lo, hi) of its unit, as at most 2 ndim + 1 pieces with their
 * addresses; wide: of decoded values, the address of the first.
 */
static int pieces_of(const struct trainer *t, int i, int kind, int64_t lo, int64_t hi, const float *wide,
		     struct dt_piece *ret)
{
	const struct dt_local_param *lp = &t->local.p[i];
	const struct dt_param *p = &t->table.p[lp->index];
	struct dt_piece box = {.dtype = kind == KIND_MODEL ? values_of(t, lp)->dtype : DT_F32,
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
		wide -= first - from; /* as if all of this rank's were there */
	/* Addresses come out relative to the box, of which a shared buffer holds only a part. */
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

/* A value a row, or a column, of this rank's box. */
static struct dt_piece line_of(const struct trainer *t, int i, int kind)
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

/* Whether this rank writes it: of ranks that have the same line, one. */
static bool writes_line(const struct trainer *t, int i, int kind)
{
	const struct dt_local_param *lp = &t->local.p[i];
	const struct dt_param *p = &t->table.p[lp->index];
	const int d = kind_state(t, kind)->shape == DT_STATE_COLS;
	const bool cut = p->cut != DT_CUT_NONE && p->cut_dim == d;

	return dt_unit_copy(&t->run.layout, &t->local.unit[lp->unit], t->mesh.at) == 0 && counts(t, lp) &&
	       (cut || t->mesh.at.tp == 0);
}

/* Elements of parameter i's unit that this rank writes: its equal part. */
static void my_part(const struct trainer *t, int i, int64_t *lo, int64_t *hi)
{
	const struct dt_local_unit *u = &t->local.unit[t->local.p[i].unit];
	int64_t copies = dt_unit_copies(&t->run.layout, u), r = dt_unit_copy(&t->run.layout, u, t->mesh.at);

	*lo = u->numel * r / copies;
	*hi = u->numel * (r + 1) / copies;
}

/* Of a state in blocks: elements of parameter i that this rank writes, from the one of that number on. */
static int64_t blocks_part(const struct trainer *t, int i, int64_t *ret_first)
{
	int64_t lo, hi, first, last, from;

	dt_states_share(&t->optim.of, i, &from);
	my_part(t, i, &lo, &hi);
	part_of(t, &t->local.p[i], lo, hi, &first, &last);
	*ret_first = first - from;
	return first < last ? last - first : 0;
}

/* The same, decoded. */
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
				  kind == KIND_MODEL + 1);
	if (here != state.data)
		free(here);
	return rc;
}

/*
 * Decoded values of all states in blocks, in the order of pieces; *ret is malloc'd, NULL where there
 * are none.
 */
static int decode_all(struct trainer *t, float **ret, struct dt_err *err)
{
	float *to = NULL;
	int64_t n = 0, first;
	int rc = 0;

	for (int pass = 0; pass < 2; pass++) {
		n = 0;
		for (int kind = 0; kind < KINDS; kind++)
			for (int i = 0; i < t->local.n && in_blocks(t, kind) && rc == 0; i++) {
				if (!kind_has(t, kind, i) || !counts(t, &t->local.p[i]))
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

/* Decoded values of a state in blocks to where it lies. */
static int encode_state(struct trainer *t, int i, int kind, const float *wide, int64_t n, struct dt_err *err)
{
	struct dt_tensor state = optim_state(t, kind - 1, i);
	void *here = dt_dev_is_host(t->dev) ? state.data : malloc((size_t)dt_numel(state));
	int rc = 0;

	if (!here)
		return dt_err_sys(err, -ENOMEM, "cannot read the optimizer's states");
	dt_blocks8_encode(here, n, 0, wide, n, kind == KIND_MODEL + 1);
	if (here != state.data) {
		rc = device_put(t, state.data, here, (size_t)dt_numel(state), err);
		free(here);
	}
	return rc;
}

int pieces_mine(struct trainer *t, struct dt_piece **ret, int *ret_n, float **ret_wide, struct dt_err *err)
{
	struct dt_piece *out = malloc(sizeof(*out) * (size_t)(t->local.n * KINDS * (2 * DT_CKPT_MAX_DIM + 1) +
							      buffers_count(t) + compressed_count(t)));
	float *wide = NULL;
	int n = 0;

	if (!out)
		return dt_err_sys(err, -ENOMEM, "cannot list the checkpoint's pieces");
	*ret = out;
	if (decode_all(t, ret_wide, err) < 0)
		return err->code;
	wide = *ret_wide;
	for (int kind = 0; kind < KINDS; kind++)
		for (int i = 0; i < t->local.n; i++) {
			int64_t lo, hi, first;

			if (!kind_has(t, kind, i) || !counts(t, &t->local.p[i]))
				continue;
			my_part(t, i, &lo, &hi);
			if (by_line(t, kind) && writes_line(t, i, kind))
				out[n++] = line_of(t, i, kind);
			else if (!by_line(t, kind))
				n += pieces_of(t, i, kind, lo, hi, in_blocks(t, kind) ? wide : NULL, out + n);
			if (in_blocks(t, kind))
				wide += blocks_part(t, i, &first);
		}
	n += buffers_pieces(t, out + n);
	*ret_n = n + compressed_pieces(t, out + n);
	return 0;
}

/* A piece of what is offloaded, so much at a time as there is room for. */
static int load_away(struct trainer *t, struct dt_ckpt *ck, int at, const struct dt_piece *p,
		     struct dt_err *err)
{
	struct dt_piece part = *p;
	char *to = (char *)p->data;
	int64_t most;
	int d = 0, rc = 0;

	while (d < p->ndim - 1 && p->shape[d] == 1)
		d++;
	most = (int64_t)(t->offload.tiles.piece_bytes / (piece_bytes(p) / (size_t)p->shape[d]));
	if (most < 1)
		return dt_err_set(err, -E2BIG,
				  "'%s' has rows that are larger than what checkpoints write at a time",
				  p->name);
	for (int64_t i = 0; i < p->shape[d] && rc == 0; i += most) {
		part.off[d] = p->off[d] + i;
		part.shape[d] = p->shape[d] - i < most ? p->shape[d] - i : most;
		rc = dt_ckpt_read(ck, at, part.off, part.shape, p->dtype, t->offload.piece, err);
		if (rc == 0)
			rc = offload_put(t, to, t->offload.piece, piece_bytes(&part), err);
		to += piece_bytes(&part);
	}
	return rc;
}

/* Reads a piece to where it belongs. */
static int load_piece(struct trainer *t, struct dt_ckpt *ck, int at, const struct dt_piece *p,
		      struct dt_err *err)
{
	size_t n = piece_bytes(p);
	void *copy;
	int rc;

	if (n && offload_has(t, p->data))
		return load_away(t, ck, at, p, err);
	if (dt_dev_is_host(t->dev) || !arena_has(t, p->data))
		return dt_ckpt_read(ck, at, p->off, p->shape, p->dtype, (void *)p->data, err);
	copy = malloc(n ? n : 1);
	if (!copy)
		return dt_err_sys(err, -ENOMEM, "cannot read '%s'", p->name);
	rc = dt_ckpt_read(ck, at, p->off, p->shape, p->dtype, copy, err);
	if (rc == 0)
		rc = device_put(t, (void *)p->data, copy, n, err);
	free(copy);
	return rc;
}

static int load_pieces(struct trainer *t, struct dt_ckpt *ck, const struct dt_piece *piece, int n,
		       struct dt_err *err)
{
	struct dt_ckpt_tensor have;
	int rc = 0;

	for (int i = 0; i < n && rc == 0; i++) {
		int at = dt_ckpt_find(ck, piece[i].name);

		if (at < 0)
			return dt_err_set(err, -ENOENT, "checkpoint '%s' has no tensor '%s'",
					  dt_ckpt_path(ck), piece[i].name);
		dt_ckpt_tensor(ck, at, &have);
		if (have.ndim != piece[i].ndim ||
		    memcmp(have.shape, piece[i].global, sizeof(int64_t) * (size_t)have.ndim))
			return dt_err_set(err, -EINVAL,
					  "checkpoint '%s': '%s' has another shape than model '%s'",
					  dt_ckpt_path(ck), piece[i].name, t->config.name);
		rc = load_piece(t, ck, at, &piece[i], err);
	}
	return rc;
}

static int load_param(struct trainer *t, struct dt_ckpt *ck, int i, int kind, struct dt_err *err)
{
	const struct dt_local_param *lp = &t->local.p[i];
	struct dt_piece piece[2 * DT_CKPT_MAX_DIM + 1];
	/* Nobody gathers what is frozen, but where it is gathered for every use. */
	const bool whole = t->local.unit[lp->unit].frozen && !t->store.weights.shared;
	int64_t first = whole ? 0 : share_first(t, lp->unit), from,
		mine = dt_states_share(&t->optim.of, i, &from),
		held = whole ? t->local.unit[lp->unit].numel : share_n(t, lp->unit);
	float *wide = NULL;
	int n, rc;

	if (by_line(t, kind)) {
		piece[0] = line_of(t, i, kind);
		return load_pieces(t, ck, piece, 1, err);
	}
	if (in_blocks(t, kind) && !(wide = malloc((size_t)(mine + 1) * sizeof(*wide))))
		return dt_err_sys(err, -ENOMEM, "cannot read the optimizer's states");
	n = pieces_of(t, i, kind, first, first + held, wide, piece);
	rc = load_pieces(t, ck, piece, n, err);
	if (rc == 0 && wide && mine)
		rc = encode_state(t, i, kind, wide, mine, err);
	free(wide);
	return rc;
}

/* Whether the checkpoint has averaged weights: a run may begin with them later (--accept-change ema). */
static bool has_average(const struct trainer *t, struct dt_ckpt *ck)
{
	struct dt_ckpt_tensor have;
	bool any = false;

	for (int i = 0; i < dt_ckpt_ntensors(ck) && !any; i++) {
		dt_ckpt_tensor(ck, i, &have);
		any = !strncmp(have.name, "ema/", 4);
	}
	return any;
}

int pieces_load(struct trainer *t, struct dt_ckpt *ck, struct dt_err *err)
{
	int rc = 0;

	t->ema.loaded = has_average(t, ck);
	for (int kind = 0; kind < KIND_GRAD; kind++)
		for (int i = 0; i < t->local.n && rc == 0; i++)
			if (kind_has(t, kind, i) && (kind != KIND_EMA || t->ema.loaded))
				rc = load_param(t, ck, i, kind, err);
	return rc < 0 ? rc : compressed_load(t, ck, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
