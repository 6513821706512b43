/* Backward of a tile of queries: tiles of keys in the inner loop; dk and dv of the head accumulate in f32. */
#include "kernels/cpu/attention_backward.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/vec.h"

#include <math.h>

/* s = q . k becomes p, and ds = do . v becomes scale p (ds - D); both 0 for masked keys. */
static DT_SIMD void probabilities(float *s, float *ds, const float *lse, const float *dot, float scale,
				  int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		float *si = s + i * DT_TILE, *di = ds + i * DT_TILE, l = lse[i], D = dot[i];

#pragma omp simd
		for (int64_t j = 0; j < DT_TILE; j++) {
			si[j] = dt_expf_bounded(scale * si[j] - l);
			di[j] = scale * si[j] * (di[j] - D);
		}
	}
}

/* The same for capped scores s (-Inf where masked): ds is also multiplied by the derivative of the cap. */
static DT_SIMD void capped_probabilities(float *s, float *ds, const float *lse, const float *dot, float scale,
					 float cap, int64_t n)
{
	const float inverse = 1.f / cap;

	for (int64_t i = 0; i < n; i++) {
		float *si = s + i * DT_TILE, *di = ds + i * DT_TILE, l = lse[i], D = dot[i];

#pragma omp simd
		for (int64_t j = 0; j < DT_TILE; j++) {
			const float t = si[j] * inverse, slope = si[j] == -INFINITY ? 0 : 1.f - t * t;

			si[j] = dt_expf_bounded(si[j] - l);
			di[j] = scale * si[j] * (di[j] - D) * slope;
		}
	}
}

/* c [64, pad] += p^T b, p packed along the queries: starts at the first query that reaches the keys of the
 * band. */
static void mul_back(const struct dt_tile *t, float *c, int64_t pad, const uint32_t *p, const uint32_t *b,
		     const struct dt_attn_row *row, int64_t n, int64_t key)
{
	const int64_t depth = dt_tile_depth(t);
	int64_t from = 0;

	if (dt_attn_reach(row, dt_min64(DT_BAND, n), key) == DT_TILE) {
		t->mul(c, pad, p, 1, DT_TILE, b, pad, DT_TILE, pad, depth, true);
		return;
	}
	for (int64_t j = 0; j < DT_TILE; j += DT_BAND) {
		while (from < n && dt_attn_reach(row, dt_min64(from + DT_BAND, n), key) <= j)
			from += DT_BAND;
		const int64_t w = from * depth / DT_TILE;

		t->mul(c + j * pad, pad, p + w * DT_TILE + j, 1, DT_TILE, b + w * pad, pad, DT_BAND, pad,
		       depth - w, true);
	}
}

/* Offset of the scores of the band of queries from i on: f32 words are kept until all bands are done. */
static int64_t band_at(const struct dt_tile *t, int64_t i)
{
	return t->pairs ? 0 : i * DT_TILE;
}

/* Computes p and ds, as words, from s = q . k and ds = do . v of a band of n rows from i on. */
static void slopes(const struct dt_attn_backward *a, const struct dt_attn_space *w,
		   const struct dt_attn_row *row, int64_t n, int64_t i, int64_t key)
{
	const struct dt_attn *p = a->in.p;
	float *s = w->s + band_at(a->in.t, i), *ds = w->ds + band_at(a->in.t, i);
	const int64_t at = i * DT_TILE / 2;

	if (p->softcap > 0)
		dt_attn_cap(s, n * DT_TILE, p);
	if (DT_ATTN_PAIRS(a->in.t)) {
		const struct dt_attn_slopes to = {
			s,	    ds,	      w->lse + i, w->dot + i, w->p_cols + at, w->ds_cols + at,
			w->ds_rows, p->scale, p->softcap};

		dt_attn_slopes_bf16(&to, row, n, key);
		return;
	}
	dt_attn_mask(s, row, n, key);
	if (p->softcap > 0)
		capped_probabilities(s, ds, w->lse + i, w->dot + i, p->scale, p->softcap, n);
	else
		probabilities(s, ds, w->lse + i, w->dot + i, p->scale, n);
}

/* A band against a key tile: p and ds as words, and with DT_ATTN_DQ its contribution to dq. */
static void key_band(const struct dt_attn_backward *a, const struct dt_attn_space *w,
		     const struct dt_attn_row *row, int64_t n, int64_t i, int64_t tile, int what)
{
	const struct dt_tile *t = a->in.t;
	const struct dt_attn *p = a->in.p;
	const int64_t words = dt_tile_words(t, p->head_dim), vwords = dt_tile_words(t, dt_attn_value_dim(p)),
		      depth = dt_tile_depth(t), pad = dt_attn_pad(p), at = band_at(t, i),
		      reach = dt_attn_reach(row, n, tile * DT_TILE);

	t->mul(w->s + at, DT_TILE, w->q_rows + i * words, words, 1, w->k_lanes + tile * w->lanes_n, DT_TILE,
	       n, reach, words, false);
	t->mul(w->ds + at, DT_TILE, w->g_rows + i * vwords, vwords, 1, w->v_lanes + tile * w->value_lanes_n,
	       DT_TILE, n, reach, vwords, false);
	slopes(a, w, row, n, i, tile * DT_TILE);
	if (what & DT_ATTN_DQ)
		t->mul(w->dq + i * pad, pad, w->ds_rows + at, depth, 1, w->k_depth + tile * w->depth_n, pad,
		       n, pad, reach * depth / DT_TILE, true);
}

/* Zeroes queries past the end, whose words are next to or below those of others. */
static void clear_rest(const struct dt_tile *t, const struct dt_attn_space *w, int64_t n)
{
	const int64_t from = t->pairs ? (n + DT_BAND - 1) / DT_BAND * DT_BAND / 2 : n;
	const size_t bytes = (size_t)((dt_tile_depth(t) - from) * DT_TILE) * 4;

	memset(w->p_cols + from * DT_TILE, 0, bytes);
	memset(w->ds_cols + from * DT_TILE, 0, bytes);
}

static void key_tile(const struct dt_attn_backward *a, const struct dt_attn_space *w,
		     const struct dt_attn_row *row, int64_t n, int64_t tile, int what)
{
	const int64_t pad = dt_attn_pad(a->in.p), vpad = dt_attn_value_pad(a->in.p), key = tile * DT_TILE;

	for (int64_t i = 0; i < n; i += DT_BAND)
		key_band(a, w, row + i, dt_min64(DT_BAND, n - i), i, tile, what);
	if (!(what & DT_ATTN_DKV))
		return;
	clear_rest(a->in.t, w, n);
	mul_back(a->in.t, w->dv + key * vpad, vpad, w->p_cols, w->g_depth, row, n, key);
	mul_back(a->in.t, w->dk + key * pad, pad, w->ds_cols, w->q_depth, row, n, key);
}

static DT_SIMD float row_dot(const void *x, const void *y, enum dt_dtype t, int64_t d)
{
	float bx[DT_CHUNK], by[DT_CHUNK], s = 0;

	for (int64_t c = 0; c < d; c += DT_CHUNK) {
		const int64_t n = dt_min64(DT_CHUNK, d - c), at = c * dt_dtype_size(t);

		s += dt_dot(dt_load(bx, (const char *)x + at, t, n), dt_load(by, (const char *)y + at, t, n),
			    n);
	}
	return s;
}

static DT_SIMD void store_gradients(void *to, enum dt_dtype type, const float *x, int64_t d, bool add)
{
	float *f = to;

	if (type != DT_F32) {
		dt_store(to, type, x, d);
	} else if (add) {
#pragma omp simd
		for (int64_t j = 0; j < d; j++)
			f[j] += x[j];
	} else {
		memcpy(to, x, (size_t)d * 4);
	}
}

void dt_attn_store_row(void *to, enum dt_dtype type, const float *x, int64_t d, bool add)
{
	store_gradients(to, type, x, d, add);
}

void dt_attn_query_gradients(const struct dt_attn_backward *a, struct dt_attn_space *w, int64_t b, int64_t h,
			     int64_t q0, int64_t first, int64_t last, int what)
{
	const struct dt_attn *p = a->in.p;
	const struct dt_tile *t = a->in.t;
	const enum dt_dtype type = a->in.q.dtype;
	const int64_t d = p->head_dim, vd = dt_attn_value_dim(p), pad = dt_attn_pad(p), rows = a->in.s->rows,
		      base = b * rows, end = base + rows;
	const void *q[DT_TILE] = {NULL}, *g[DT_TILE], *o[DT_TILE]; /* gcc for arm64 cannot tell that n > 0 */
	struct dt_attn_row row[DT_TILE];
	const int64_t n = dt_attn_rows(q, a->in.q, base + q0, end, h * d);

	for (int64_t i = 0; i < n; i++)
		dt_attn_sees(&a->in, b, q0 + i, &row[i].first, &row[i].last);
	if (first < row[0].first / DT_TILE)
		first = row[0].first / DT_TILE;
	last = dt_min64(last, (row[n - 1].last + DT_TILE) / DT_TILE);
	if (first >= last && !(what & DT_ATTN_DQ)) /* dq is stored even where it is 0 */
		return;
	dt_attn_rows(g, a->dout, base + q0, end, h * vd);
	dt_attn_rows(o, a->o, base + q0, end, h * vd);
	dt_tile_pack_rows(t, w->q_rows, q, type, n, d);
	dt_tile_pack_rows(t, w->g_rows, g, type, n, vd);
	if (what & DT_ATTN_DKV) {
		dt_tile_pack_depth(t, w->q_depth, q, type, n, d);
		dt_tile_pack_depth(t, w->g_depth, g, type, n, vd);
	}
	for (int64_t i = 0; i < n; i++) {
		const float lse = a->lse[(b * p->heads + h) * rows + q0 + i];

		w->dot[i] =
			DT_ATTN_PAIRS(t) ? dt_attn_dot_bf16(g[i], o[i], vd) : row_dot(g[i], o[i], type, vd);
		w->lse[i] = lse == -INFINITY ? 0 : lse; /* a row that sees no key */
	}
	memset(w->dq, 0, (size_t)(n * pad) * 4);
	for (int64_t j = first; j < last; j++)
		key_tile(a, w, row, n, j, what);
	for (int64_t i = 0; what & DT_ATTN_DQ && i < n; i++)
		dt_attn_store_row(dt_at(a->dq, (base + q0 + i) * dt_cols(a->dq) + h * d), a->dq.dtype,
				  w->dq + i * pad, d, a->in.s->add);
}
/* SPDX-License-Identifier: Apache-2.0 */
