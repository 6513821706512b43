/*
 * Backward: one thread processes a whole key/value head, so that dk and dv are summed in a fixed order. Query
 * tiles in the outer loop, key tiles in the inner; dk and dv of the head accumulate in f32.
 */
#include "kernels/cpu/attention.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/vec.h"

#include <math.h>

struct backward {
	struct dt_attn_in in;
	struct dt_tensor dq, dkv, dout, o;
	const float *lse;
};

/* Working memory of one thread. Rows: along the sequence; words: along d; lanes and depth: see tile.h. */
struct space {
	float *dk, *dv;				 /* [tiles * 64, pad] */
	uint32_t *k_lanes, *v_lanes;		 /* one tile each: words x 64 */
	uint32_t *k_depth;			 /* depth x pad */
	uint32_t *q_rows, *g_rows;		 /* 64 x words; g is do */
	uint32_t *q_depth, *g_depth;		 /* depth x pad */
	uint32_t *p_cols, *ds_cols;		 /* p and ds packed along the queries: depth x 64 */
	uint32_t *ds_rows;			 /* packed along the keys: 64 x depth */
	float *s, *ds;				 /* [64, 64] */
	float *dq;				 /* [64, pad] */
	float lse[DT_TILE], dot[DT_TILE];	 /* per query row: log sum exp, do . o */
	int64_t lanes_n, value_lanes_n, depth_n; /* words per tile */
};

struct lay {
	uint32_t *base; /* NULL: only count words */
	int64_t used;
};

static uint32_t *take(struct lay *at, int64_t n)
{
	uint32_t *p = at->base ? at->base + at->used : NULL;

	at->used += n;
	return p;
}

/* Lays out w from base on; returns the number of words. */
static int64_t space_lay(struct space *w, const struct dt_attn_in *a, uint32_t *base)
{
	const struct dt_tile *t = a->t;
	const int64_t tiles = dt_ceil_div(dt_attn_keys(a->s), DT_TILE), pad = dt_attn_pad(a->p),
		      vpad = dt_attn_value_pad(a->p);
	const int64_t lanes = DT_TILE * dt_tile_words(t, a->p->head_dim), depth = dt_tile_depth(t) * pad,
		      vlanes = DT_TILE * dt_tile_words(t, dt_attn_value_dim(a->p));
	const int64_t square = DT_TILE * DT_TILE;
	struct lay at = {base, 0};

	w->lanes_n = lanes;
	w->value_lanes_n = vlanes;
	w->depth_n = depth;
	w->dk = (float *)take(&at, tiles * DT_TILE * pad);
	w->dv = (float *)take(&at, tiles * DT_TILE * vpad);
	w->k_lanes = take(&at, tiles * lanes);
	w->v_lanes = take(&at, tiles * vlanes);
	w->k_depth = take(&at, tiles * depth);
	w->q_rows = take(&at, lanes);
	w->g_rows = take(&at, vlanes);
	w->q_depth = take(&at, depth);
	w->g_depth = take(&at, dt_tile_depth(t) * vpad);
	w->dq = (float *)take(&at, DT_TILE * pad);
	w->s = (float *)take(&at, square);
	w->ds = (float *)take(&at, square);
	/* Pairs: s, ds and ds_rows hold one band after another. With f32 words they are s and ds themselves,
	 * read transposed. */
	w->p_cols = t->pairs ? take(&at, square / 2) : (uint32_t *)w->s;
	w->ds_cols = t->pairs ? take(&at, square / 2) : (uint32_t *)w->ds;
	w->ds_rows = t->pairs ? take(&at, square / 2) : (uint32_t *)w->ds;
	return at.used;
}

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
static void slopes(const struct backward *a, const struct space *w, const struct dt_attn_row *row, int64_t n,
		   int64_t i, int64_t key)
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

/* A band against a key tile: p and ds as words, and its contribution to dq. */
static void key_band(const struct backward *a, const struct space *w, const struct dt_attn_row *row,
		     int64_t n, int64_t i, int64_t tile)
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
	t->mul(w->dq + i * pad, pad, w->ds_rows + at, depth, 1, w->k_depth + tile * w->depth_n, pad, n, pad,
	       reach * depth / DT_TILE, true);
}

/* Zeroes queries past the end, whose words are next to or below those of others. */
static void clear_rest(const struct dt_tile *t, const struct space *w, int64_t n)
{
	const int64_t from = t->pairs ? (n + DT_BAND - 1) / DT_BAND * DT_BAND / 2 : n;
	const size_t bytes = (size_t)((dt_tile_depth(t) - from) * DT_TILE) * 4;

	memset(w->p_cols + from * DT_TILE, 0, bytes);
	memset(w->ds_cols + from * DT_TILE, 0, bytes);
}

static void key_tile(const struct backward *a, const struct space *w, const struct dt_attn_row *row,
		     int64_t n, int64_t tile)
{
	const int64_t pad = dt_attn_pad(a->in.p), vpad = dt_attn_value_pad(a->in.p), key = tile * DT_TILE;

	for (int64_t i = 0; i < n; i += DT_BAND)
		key_band(a, w, row + i, dt_min64(DT_BAND, n - i), i, tile);
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

static DT_SIMD void store_row(void *to, enum dt_dtype type, const float *x, int64_t d, bool add)
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

static void query_tile(const struct backward *a, struct space *w, int64_t b, int64_t h, int64_t q0)
{
	const struct dt_attn *p = a->in.p;
	const struct dt_tile *t = a->in.t;
	const enum dt_dtype type = a->in.q.dtype;
	const int64_t d = p->head_dim, vd = dt_attn_value_dim(p), pad = dt_attn_pad(p), rows = a->in.s->rows,
		      base = b * rows, end = base + rows;
	const void *q[DT_TILE] = {NULL}, *g[DT_TILE], *o[DT_TILE]; /* gcc for arm64 cannot tell that n > 0 */
	struct dt_attn_row row[DT_TILE];
	const int64_t n = dt_attn_rows(q, a->in.q, base + q0, end, h * d);

	dt_attn_rows(g, a->dout, base + q0, end, h * vd);
	dt_attn_rows(o, a->o, base + q0, end, h * vd);
	dt_tile_pack_rows(t, w->q_rows, q, type, n, d);
	dt_tile_pack_rows(t, w->g_rows, g, type, n, vd);
	dt_tile_pack_depth(t, w->q_depth, q, type, n, d);
	dt_tile_pack_depth(t, w->g_depth, g, type, n, vd);
	for (int64_t i = 0; i < n; i++) {
		const float lse = a->lse[(b * p->heads + h) * rows + q0 + i];

		dt_attn_sees(&a->in, b, q0 + i, &row[i].first, &row[i].last);
		w->dot[i] =
			DT_ATTN_PAIRS(t) ? dt_attn_dot_bf16(g[i], o[i], vd) : row_dot(g[i], o[i], type, vd);
		w->lse[i] = lse == -INFINITY ? 0 : lse; /* a row that sees no key */
	}
	memset(w->dq, 0, (size_t)(n * pad) * 4);
	for (int64_t j = row[0].first / DT_TILE; j * DT_TILE <= row[n - 1].last; j++)
		key_tile(a, w, row, n, j);
	for (int64_t i = 0; i < n; i++)
		store_row(dt_at(a->dq, (base + q0 + i) * dt_cols(a->dq) + h * d), a->dq.dtype,
			  w->dq + i * pad, d, a->in.s->add);
}

static void kv_head(const struct backward *a, uint32_t *buf, int64_t b, int64_t kv)
{
	const struct dt_attn_in *in = &a->in;
	const struct dt_attn_span *s = in->s;
	const int64_t d = in->p->head_dim, vd = dt_attn_value_dim(in->p), pad = dt_attn_pad(in->p),
		      vpad = dt_attn_value_pad(in->p), group = in->p->heads / in->p->kv_heads;
	const int64_t keys = dt_attn_keys(s), tiles = dt_ceil_div(keys, DT_TILE), width = dt_cols(a->dkv);
	const int64_t kcol = s->k_col + kv * d, vcol = s->v_col + kv * vd;
	struct space w;

	space_lay(&w, in, buf);
	memset(w.dk, 0, (size_t)(tiles * DT_TILE * pad) * 4);
	memset(w.dv, 0, (size_t)(tiles * DT_TILE * vpad) * 4);
	for (int64_t j = 0; j < tiles; j++) {
		const void *row[DT_TILE];
		int64_t n = dt_attn_key_rows(row, in->kv, s, b, j * DT_TILE, kcol);

		dt_tile_pack_lanes(in->t, w.k_lanes + j * w.lanes_n, row, in->kv.dtype, n, d);
		dt_tile_pack_depth(in->t, w.k_depth + j * w.depth_n, row, in->kv.dtype, n, d);
		n = dt_attn_key_rows(row, in->kv, s, b, j * DT_TILE, vcol);
		dt_tile_pack_lanes(in->t, w.v_lanes + j * w.value_lanes_n, row, in->kv.dtype, n, vd);
	}
	dt_tile_begin(in->t, DT_TILE);
	for (int64_t h = kv * group; h < (kv + 1) * group; h++)
		for (int64_t i = 0; i < s->rows; i += DT_TILE)
			query_tile(a, &w, b, h, i);
	dt_tile_end(in->t);
	for (int64_t j = 0; j < keys; j++) {
		const int64_t at = dt_attn_key_row(s, b, j) * width;

		store_row(dt_at(a->dkv, at + kcol), a->dkv.dtype, w.dk + j * pad, d, s->add);
		store_row(dt_at(a->dkv, at + vcol), a->dkv.dtype, w.dv + j * vpad, vd, s->add);
	}
}

int dt_cpu_attention_span_backward(struct dt_dev *dev, struct dt_tensor dq, struct dt_tensor dkv,
				   struct dt_tensor dout, struct dt_tensor o, struct dt_tensor lse,
				   struct dt_tensor q, struct dt_tensor kv, const struct dt_attn *p,
				   const struct dt_attn_span *s)
{
	const struct backward a = {{dt_tile_with_amx(q.dtype), p, s, q, kv}, dq, dkv, dout, o, lse.data};
	struct space w;
	int64_t words;
	uint32_t *buf;

	words = space_lay(&w, &a.in, NULL);
	buf = dt_cpu_scratch(dev, (size_t)(dev->nthreads * words) * 4);
	if (!buf)
		return -ENOMEM;
#pragma omp parallel for num_threads(dev->nthreads) schedule(dynamic)
	for (int64_t i = 0; i < p->batch * p->kv_heads; i++)
		kv_head(&a, buf + omp_get_thread_num() * words, i / p->kv_heads, i % p->kv_heads);
	return 0;
}

int dt_cpu_attention_backward(struct dt_dev *dev, struct dt_tensor dqkv, struct dt_tensor dout,
			      struct dt_tensor o, struct dt_tensor lse, struct dt_tensor qkv,
			      const struct dt_attn *p)
{
	const struct dt_attn_span s = dt_attn_self(p);

	return dt_cpu_attention_span_backward(dev, dqkv, dqkv, dout, o, lse, qkv, qkv, p, &s);
}
/* SPDX-License-Identifier: Apache-2.0 */
