/*
 * Frozen linears in blocks (kernels/unpack.h). They are the blocks of a base's file, or packed once from its
 * values; whenever a layer is about to compute, they are unpacked into one of two slots of the compute type.
 */
#include "train/init.h"

#include "ckpt/source.h"
#include "kernels/nf4.h"
#include "kernels/quant_formats.h"
#include "train/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint8_t *packed_at(const struct trainer *t, const struct dt_local_param *lp)
{
	return (uint8_t *)dt_plan_address(&t->plan, t->arena.base, DT_B_PACKED, -1) + lp->packed;
}

static enum dt_block_kind kind_of(const struct trainer *t, const struct dt_local_param *lp)
{
	return (enum dt_block_kind)t->table.p[lp->index].blocks;
}

int packed_fetch(struct trainer *t, int u, struct dt_err *err)
{
	int slot = dt_unit_slot(&t->local, u, t->config.layers), rc = 0;

	if (t->store.held[slot] == u)
		return 0;
	t->store.held[slot] = u;
	for (int i = 0; i < t->local.n && rc == 0; i++) {
		const struct dt_local_param *lp = &t->local.p[i];
		const struct dt_param *p = &t->table.p[lp->index];
		const struct dt_blocks_part part = {
			.kind = kind_of(t, lp),
			.data = packed_at(t, lp),
			.bytes = dt_blocks_bytes(kind_of(t, lp), lp->numel, dt_param_numel(p)),
			.first = lp->off[0] * p->shape[1] + lp->off[1],
			.cols = p->shape[1],
			.whole = dt_param_numel(p)};

		if (lp->unit == u)
			rc = dt_kernel_check(t->dev->ops->unpack(t->dev, t->exec.w[i], &part), "->unpack(",
					     err);
	}
	return rc;
}

void packed_forget(struct trainer *t)
{
	for (int k = DT_UNIT_SLOT_PACKED; k < DT_UNIT_SLOTS; k++)
		t->store.held[k] = -1;
}

/* Rows of a tensor that are processed at a time. */
static int64_t piece_rows(int64_t cols)
{
	int64_t n = (1 << 20) / cols;

	return n > 0 ? n : 1;
}

/* Finds the scales of the whole tensor: every rank reads all of it, so that all have the same scales. */
static int nf4_scales(struct trainer *t, const struct dt_local_param *lp, float *x, float *scale,
		      struct dt_err *err)
{
	const struct dt_param *p = &t->table.p[lp->index];
	const struct dt_local_param whole = {
		.index = lp->index, .shape = {p->shape[0], p->shape[1]}, .numel = dt_param_numel(p)};
	int64_t step = piece_rows(p->shape[1]) * p->shape[1];
	int rc = 0;

	for (int64_t i = 0; i < whole.numel && rc == 0; i += step) {
		int64_t n = whole.numel - i < step ? whole.numel - i : step;

		rc = init_values(t, &whole, i, n, x, err);
		if (rc == 0)
			dt_nf4_scales(x, n, scale + i / DT_NF4_BLOCK);
	}
	return rc;
}

/* The block index in the whole tensor of block b of this rank's part. */
static int64_t whole_block(const struct trainer *t, const struct dt_local_param *lp, int64_t b)
{
	int64_t i = b * DT_NF4_BLOCK, row = lp->off[0] + i / lp->shape[1],
		col = lp->off[1] + i % lp->shape[1];

	return (row * t->table.p[lp->index].shape[1] + col) / DT_NF4_BLOCK;
}

static int pack_nf4(struct trainer *t, const struct dt_local_param *lp, float *x, uint8_t *out,
		    struct dt_err *err)
{
	int64_t whole = dt_param_numel(&t->table.p[lp->index]), blocks = whole / DT_NF4_BLOCK,
		mine = lp->numel / DT_NF4_BLOCK, step = piece_rows(lp->shape[1]) * lp->shape[1];
	float *scale = malloc((size_t)(blocks + mine) * sizeof(*scale)), *own = scale + blocks;
	uint8_t *code = malloc((size_t)blocks + 1), *to = out + dt_nf4_scales_at(whole);
	float *head = (float *)out;
	int rc = scale && code ? nf4_scales(t, lp, x, scale, err)
			       : dt_err_sys(err, -ENOMEM, "cannot pack the base");

	for (int64_t b = 0; b < mine && rc == 0; b++)
		own[b] = scale[whole_block(t, lp, b)];
	if (rc == 0) {
		dt_nf4_code(head);
		head[256] = dt_nf4_mean(scale, blocks);
		dt_nf4_quantize_scales(scale, blocks, head[256], head, code, head + 257);
		for (int64_t b = 0; b < mine; b++)
			to[b] = code[whole_block(t, lp, b)];
	}
	to = out + dt_nf4_nibbles_at(lp->numel, whole);
	for (int64_t i = 0; i < lp->numel && rc == 0; i += step) {
		int64_t n = lp->numel - i < step ? lp->numel - i : step;

		rc = init_values(t, lp, i, n, x, err);
		if (rc == 0)
			dt_nf4_encode(x, n, own + i / DT_NF4_BLOCK, to + i / 2);
	}
	free(scale);
	free(code);
	return rc;
}

/*
 * Rows of this rank's part as the base's file has them, where they are blocks of format f there: most formats
 * find other scales for the numbers that their own blocks hold. False where the file has no such blocks.
 */
static bool copy_rows(struct trainer *t, const struct dt_local_param *lp, enum dt_format f, int64_t row,
		      int64_t rows, uint8_t *out)
{
	const struct dt_param *p = &t->table.p[lp->index];
	const int i = t->init ? dt_params_find(dt_source_params(t->init), p->name) : -1;
	const uint8_t *raw;

	if (i < 0 || dt_source_format(t->init, i) != f)
		return false;
	raw = dt_source_raw(t->init, i, lp->off[0] + row, rows);
	for (int64_t r = 0; raw && r < rows; r++)
		memcpy(out + dt_format_bytes(f, r * lp->shape[1]),
		       raw + dt_format_bytes(f, r * p->shape[1] + lp->off[1]),
		       (size_t)dt_format_bytes(f, lp->shape[1]));
	return raw != NULL;
}

static int pack_rows(struct trainer *t, const struct dt_local_param *lp, float *x, uint8_t *out,
		     struct dt_err *err)
{
	enum dt_format f = dt_blocks_format(kind_of(t, lp));
	int64_t step = piece_rows(lp->shape[1]) * lp->shape[1];
	int rc = 0;

	for (int64_t i = 0; i < lp->numel && rc == 0; i += step) {
		int64_t n = lp->numel - i < step ? lp->numel - i : step, cols = lp->shape[1];

		if (copy_rows(t, lp, f, i / cols, n / cols, out + dt_format_bytes(f, i)))
			continue;
		rc = init_values(t, lp, i, n, x, err);
		if (rc == 0)
			dt_quantize(f, x, n, out + dt_format_bytes(f, i));
	}
	return rc;
}

int packed_init(struct trainer *t, const struct dt_local_param *lp, struct dt_err *err)
{
	const struct dt_param *p = &t->table.p[lp->index];
	size_t n = (size_t)dt_blocks_bytes(kind_of(t, lp), lp->numel, dt_param_numel(p));
	bool host = dt_dev_is_host(t->dev);
	float *x = malloc((size_t)(piece_rows(1) + p->shape[1]) * sizeof(*x));
	uint8_t *out = host ? packed_at(t, lp) : calloc(1, n);
	int rc = x && out ? 0 : dt_err_sys(err, -ENOMEM, "cannot pack '%s'", p->name);

	if (rc == 0 && host)
		memset(out, 0, n);
	if (rc == 0)
		rc = kind_of(t, lp) == DT_BLOCKS_NF4 ? pack_nf4(t, lp, x, out, err)
						     : pack_rows(t, lp, x, out, err);
	if (rc == 0 && !host)
		rc = device_put(t, packed_at(t, lp), out, n, err);
	free(x);
	if (!host)
		free(out);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
