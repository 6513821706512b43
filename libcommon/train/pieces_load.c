/* Reads a checkpoint's values into this rank's buffers: in memory, on the device, or offloaded. */
#include "train/pieces_priv.h"

#include "kernels/blocks8.h"
#include "train/snapshot.h"
#include "train/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Encodes the values of a state in blocks and stores them. */
static int encode_state(struct trainer *t, int i, int kind, const float *wide, int64_t n, struct dt_err *err)
{
	struct dt_tensor state = optim_state(t, kind - 1, i);
	void *here = dt_dev_is_host(t->dev) ? state.data : malloc((size_t)dt_numel(state));
	int rc = 0;

	if (!here)
		return dt_err_sys(err, -ENOMEM, "cannot read the optimizer's states");
	dt_blocks8_encode(here, n, 0, wide, n, kind == PIECES_MODEL + 1);
	if (here != state.data) {
		rc = device_put(t, state.data, here, (size_t)dt_numel(state), err);
		free(here);
	}
	return rc;
}

/* Reads a piece of an offloaded buffer, in parts that fit into memory. */
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

/* Reads a piece into its buffer. */
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
	/* Frozen weights are not gathered later: each rank reads all, unless weights are sharded. */
	const bool whole = t->local.unit[lp->unit].frozen && !t->store.weights.shared;
	int64_t first = whole ? 0 : share_first(t, lp->unit), from,
		mine = dt_states_share(&t->optim.of, i, &from),
		held = whole ? t->local.unit[lp->unit].numel : share_n(t, lp->unit);
	float *wide = NULL;
	int n, rc;

	if (pieces_by_line(t, kind)) {
		piece[0] = pieces_line(t, i, kind);
		return load_pieces(t, ck, piece, 1, err);
	}
	if (pieces_in_blocks(t, kind) && !(wide = malloc((size_t)(mine + 1) * sizeof(*wide))))
		return dt_err_sys(err, -ENOMEM, "cannot read the optimizer's states");
	n = pieces_of_range(t, i, kind, first, first + held, wide, piece);
	rc = load_pieces(t, ck, piece, n, err);
	if (rc == 0 && wide && mine)
		rc = encode_state(t, i, kind, wide, mine, err);
	free(wide);
	return rc;
}

/* Whether the checkpoint has averaged weights; a run may start averaging later (--accept-change ema). */
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
	for (int kind = 0; kind < PIECES_GRAD; kind++)
		for (int i = 0; i < t->local.n && rc == 0; i++)
			if (pieces_kind_has(t, kind, i) && (kind != PIECES_EMA || t->ema.loaded))
				rc = load_param(t, ck, i, kind, err);
	return rc < 0 ? rc : compressed_load(t, ck, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
