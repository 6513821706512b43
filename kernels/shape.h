/* What the ops of every device ask of their tensors. */
#ifndef DT_KERNELS_SHAPE_H
#define DT_KERNELS_SHAPE_H

#include "kernels/attention.h"

#include <errno.h>

/* Columns of the last dimension, and rows of all others. */
static inline int64_t dt_cols(struct dt_tensor t)
{
	return t.ndim ? t.dim[t.ndim - 1] : 1;
}

static inline int64_t dt_rows(struct dt_tensor t)
{
	int64_t n = 1;

	for (int i = 0; i + 1 < t.ndim; i++)
		n *= t.dim[i];
	return n;
}

static inline bool dt_is_compute(enum dt_dtype t)
{
	return t == DT_F32 || t == DT_BF16 || t == DT_F16;
}

/* Present, of this type, with n elements. */
static inline bool dt_is(struct dt_tensor t, enum dt_dtype type, int64_t n)
{
	return t.data && t.dtype == type && dt_numel(t) == n;
}

static inline bool dt_is_or_absent(struct dt_tensor t, enum dt_dtype type, int64_t n)
{
	return !t.data || dt_is(t, type, n);
}

static inline void *dt_at(struct dt_tensor t, int64_t i)
{
	return t.data ? (char *)t.data + i * dt_dtype_size(t.dtype) : NULL;
}

/* Whether the host's indices all lie in [0, end). */
static inline bool dt_within(const int32_t *p, int64_t n, int64_t end)
{
	int out = 0;

	for (int64_t i = 0; i < n; i++)
		out |= p[i] < 0 || p[i] >= end;
	return !out;
}

static inline DT_HOST_DEVICE int64_t dt_min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline DT_HOST_DEVICE int64_t dt_ceil_div(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

/* Row of the cache that holds key j of sequence i; the tables are the host's. */
static inline int64_t dt_paged_row(const struct dt_paged *g, int i, int64_t j)
{
	const uint32_t size = (uint32_t)g->block_size, at = (uint32_t)j; /* short divisions */

	return (int64_t)g->block_table[(int64_t)i * g->max_blocks + at / size] * size + at % size;
}

/* Whether attention_paged can do this: 0 or -EINVAL. most: q heads that may share a key/value head. */
static inline int dt_paged_check(struct dt_tensor o, struct dt_tensor qkv, struct dt_tensor k,
				 struct dt_tensor v, const struct dt_attn *p, const struct dt_paged *g,
				 int64_t most)
{
	const int64_t d = p->head_dim, group = p->kv_heads > 0 ? p->heads / p->kv_heads : 0;

	if (!dt_is_compute(qkv.dtype) || o.dtype != qkv.dtype || k.dtype != v.dtype ||
	    (k.dtype != qkv.dtype && k.dtype != DT_F32 && k.dtype != DT_I8) || group < 1 || group > most ||
	    p->heads % p->kv_heads || d < 1 || !(p->scale > 0) || dt_cols(k) != dt_kv_row(p, k.dtype) ||
	    dt_cols(v) != dt_cols(k) || dt_rows(qkv) < g->q_start[g->nseq] ||
	    dt_rows(o) < g->q_start[g->nseq] || dt_cols(qkv) != (p->heads + 2 * p->kv_heads) * d ||
	    dt_cols(o) != p->heads * d || g->block_size < 1 || k.ndim != v.ndim ||
	    (k.ndim == 3 && (k.dim[1] != g->block_size || v.dim[1] != g->block_size)))
		return -EINVAL;
	for (int i = 0; i < g->nseq; i++) {
		const int64_t rows = g->q_start[i + 1] - g->q_start[i];
		const int64_t seen = p->window > 0 ? g->kv_len[i] - rows + 1 - p->window : 0;
		const int64_t first = seen > 0 ? seen : 0; /* key that any row sees */

		if (rows < 0 || g->kv_len[i] < rows || g->kv_len[i] > (int64_t)g->max_blocks * g->block_size)
			return -EINVAL;
		for (int64_t j = first / g->block_size * g->block_size; rows && j < g->kv_len[i];
		     j += g->block_size)
			if (dt_paged_row(g, i, j) < 0 || dt_paged_row(g, i, j) + g->block_size > dt_rows(k))
				return -EINVAL;
	}
	return 0;
}

#endif
