/* Forward: a tile of 64 queries against tiles of 64 keys, the keys and values of a head packed once. */
#include "kernels/cpu/attention.h"
#include "kernels/cpu/vec.h"

#include <math.h>

/* Keys a row does not see become -Inf. Only tiles on an edge need it. */
static void mask(float *s, const struct dt_attn_row *row, int64_t rows, int64_t key)
{
	for (int64_t i = 0; i < rows; i++) {
		if (row[i].first <= key && row[i].last >= key + DT_TILE - 1)
			continue;
		for (int64_t j = 0; j < dt_min64(DT_TILE, row[i].first - key); j++)
			s[i * DT_TILE + j] = -INFINITY;
		for (int64_t j = row[i].last >= key ? row[i].last + 1 - key : 0; j < DT_TILE; j++)
			s[i * DT_TILE + j] = -INFINITY;
	}
}

DT_INLINE float larger(float a, float b)
{
	return a > b ? a : b;
}

DT_INLINE float row_max(const float *s)
{
	float lane[16];

#pragma omp simd
	for (int k = 0; k < 16; k++)
		lane[k] = larger(larger(s[k], s[k + 16]), larger(s[k + 32], s[k + 48]));
#pragma omp simd
	for (int k = 0; k < 8; k++)
		lane[k] = larger(lane[k], lane[k + 8]);
#pragma omp simd
	for (int k = 0; k < 4; k++)
		lane[k] = larger(lane[k], lane[k + 4]);
	return larger(larger(lane[0], lane[2]), larger(lane[1], lane[3]));
}

static DT_SIMD void softmax_rows(float *s, float *o, struct dt_attn_row *row, int64_t rows, int64_t pad,
				 float scale)
{
	for (int64_t i = 0; i < rows; i++) {
		float *si = s + i * DT_TILE, *oi = o + i * pad, *sum = row[i].sum;
		const float m = larger(scale * row_max(si), row[i].max);
		/* A row that has seen no key yet: every exp below is of -Inf, not of -Inf + Inf. */
		const float base = m == -INFINITY ? 0 : m;

		if (m != row[i].max) {
			const float shrink = dt_expf_bounded(row[i].max - base);

#pragma omp simd
			for (int64_t j = 0; j < pad; j++)
				oi[j] *= shrink;
#pragma omp simd
			for (int k = 0; k < 16; k++)
				sum[k] *= shrink;
			row[i].max = m;
		}
#pragma omp simd
		for (int k = 0; k < 16; k++) {
			float a = dt_expf_bounded(scale * si[k] - base),
			      b = dt_expf_bounded(scale * si[k + 16] - base);
			float c = dt_expf_bounded(scale * si[k + 32] - base),
			      d = dt_expf_bounded(scale * si[k + 48] - base);

			si[k] = a;
			si[k + 16] = b;
			si[k + 32] = c;
			si[k + 48] = d;
			sum[k] += (a + b) + (c + d);
		}
	}
}

static DT_SIMD void weigh_rows(float *s, int64_t rows, const float *weight)
{
	for (int64_t i = 0; i < rows; i++)
#pragma omp simd
		for (int64_t j = 0; j < DT_TILE; j++)
			s[i * DT_TILE + j] *= weight[j];
}

void dt_attn_weigh(float *s, int64_t rows, const float *weight)
{
	weigh_rows(s, rows, weight);
}

static DT_SIMD void cap_scores(float *s, int64_t n, float scale, float cap)
{
	const float inverse = 1.f / cap;

#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		s[i] = dt_softcapf(scale * s[i], cap, inverse);
}

void dt_attn_cap(float *s, int64_t n, const struct dt_attn *p)
{
	cap_scores(s, n, p->scale, p->softcap);
}

void dt_attn_softmax(const struct dt_tile *t, uint32_t *pw, float *s, float *o, struct dt_attn_row *row,
		     int64_t rows, int64_t pad, int64_t key, const struct dt_attn *p, const float *weight)
{
	if (p->softcap > 0) /* before the mask, whose -Inf it would make a number */
		dt_attn_cap(s, rows * DT_TILE, p);
	mask(s, row, rows, key);
	softmax_rows(s, o, row, rows, pad, p->softcap > 0 ? 1 : p->scale);
	if (weight)
		dt_attn_weigh(s, rows, weight);
	if (t->pairs)
		t->along(pw, s, rows * DT_TILE / 2);
}

static DT_SIMD void finish_rows(void *const *where, enum dt_dtype type, const float *o,
				const struct dt_attn_row *row, int64_t rows, int64_t d, int64_t pad)
{
	float buf[DT_CHUNK];

	for (int64_t i = 0; i < rows; i++)
		for (int64_t c = 0; c < d; c += DT_CHUNK) {
			const int64_t n = dt_min64(DT_CHUNK, d - c);
			char *out = (char *)where[i] + c * dt_dtype_size(type);
			float *f = dt_stage(buf, out, type);
			const float *oi = o + i * pad + c, sum = dt_attn_sum(&row[i]);

#pragma omp simd
			for (int64_t j = 0; j < n; j++)
				f[j] = oi[j] / sum;
			dt_store(out, type, f, n);
		}
}

void dt_attn_finish(void *const *where, enum dt_dtype type, const float *o, const struct dt_attn_row *row,
		    int64_t rows, int64_t d, int64_t pad)
{
	finish_rows(where, type, o, row, rows, d, pad);
}

/* What one thread works in; sizes in 4-byte words. */
struct space {
	uint32_t *k, *v; /* the head's keys and values, packed by tiles */
	uint32_t *q, *pw;
	float *s, *o;
	int64_t k_tile, v_tile;
};

static int64_t space_words(const struct dt_tile *t, const struct dt_attn *p)
{
	const int64_t tiles = dt_ceil_div(p->seq, DT_TILE), words = dt_tile_words(t, p->head_dim);

	return DT_TILE * (tiles * (words + dt_attn_pad(p)) + words + dt_attn_pad(p) + 2 * DT_TILE);
}

static struct space space_at(const struct dt_tile *t, const struct dt_attn *p, uint32_t *base)
{
	const int64_t tiles = dt_ceil_div(p->seq, DT_TILE), words = dt_tile_words(t, p->head_dim);
	struct space s = {.k_tile = DT_TILE * words, .v_tile = dt_tile_depth(t) * dt_attn_pad(p)};

	s.o = (float *)base;
	s.s = s.o + DT_TILE * dt_attn_pad(p);
	s.pw = (uint32_t *)s.s + (t->pairs ? DT_TILE * DT_TILE : 0); /* f32 words are made in place */
	s.q = (uint32_t *)s.s + 2 * DT_TILE * DT_TILE;
	s.k = s.q + s.k_tile;
	s.v = s.k + tiles * s.k_tile;
	return s;
}

struct forward {
	const struct dt_tile *t;
	const struct dt_attn *p;
	struct dt_tensor o, qkv;
	float *lse;
};

static void query_tile(const struct forward *a, const struct space *w, int64_t b, int64_t h, int64_t q0)
{
	const struct dt_attn *p = a->p;
	const int64_t d = p->head_dim, pad = dt_attn_pad(p), words = dt_tile_words(a->t, d),
		      depth = dt_tile_depth(a->t);
	const int64_t base = b * p->seq;
	const void *from[DT_TILE];
	void *to[DT_TILE];
	struct dt_attn_row row[DT_TILE];
	const int64_t n = dt_attn_rows(from, a->qkv, base + q0, base + p->seq, h * d);
	int64_t first_tile = 0;

	for (int64_t i = 0; i < n; i++) {
		const int64_t first = p->window > 0 && q0 + i >= p->window ? q0 + i - p->window + 1 : 0;

		row[i] = (struct dt_attn_row){first, q0 + i, -INFINITY, {0}};
		to[i] = dt_at(a->o, (base + q0 + i) * p->heads * d + h * d);
	}
	first_tile = row[0].first / DT_TILE;
	dt_tile_pack_rows(a->t, w->q, from, a->qkv.dtype, n, d);
	memset(w->o, 0, (size_t)(n * pad) * 4);
	for (int64_t j = first_tile; j * DT_TILE <= q0 + n - 1; j++) {
		a->t->mul(w->s, DT_TILE, w->q, words, 1, w->k + j * w->k_tile, DT_TILE, n, DT_TILE, words,
			  false);
		dt_attn_softmax(a->t, w->pw, w->s, w->o, row, n, pad, j * DT_TILE, p, NULL);
		a->t->mul(w->o, pad, w->pw, depth, 1, w->v + j * w->v_tile, pad, n, pad, depth, true);
	}
	dt_attn_finish(to, a->o.dtype, w->o, row, n, d, pad);
	for (int64_t i = 0; i < n; i++)
		a->lse[(b * p->heads + h) * p->seq + q0 + i] = row[i].max + logf(dt_attn_sum(&row[i]));
}

/* Query tiles first .. last of head h of sequence b, and every key they see. */
static void forward_part(const struct forward *a, uint32_t *buf, int64_t b, int64_t h, int64_t first,
			 int64_t last)
{
	const struct dt_attn *p = a->p;
	const struct space w = space_at(a->t, p, buf);
	const int64_t d = p->head_dim, kv = h / (p->heads / p->kv_heads), q0 = first * DT_TILE;
	const int64_t seen = p->window > 0 && q0 >= p->window ? q0 - p->window + 1 : 0;

	for (int64_t j = seen / DT_TILE; j < last; j++) {
		const void *row[DT_TILE];
		const int64_t at = b * p->seq + j * DT_TILE, end = (b + 1) * p->seq;
		int64_t n = dt_attn_rows(row, a->qkv, at, end, (p->heads + kv) * d);

		dt_tile_pack_lanes(a->t, w.k + j * w.k_tile, row, a->qkv.dtype, n, d);
		n = dt_attn_rows(row, a->qkv, at, end, (p->heads + p->kv_heads + kv) * d);
		dt_tile_pack_depth(a->t, w.v + j * w.v_tile, row, a->qkv.dtype, n, d);
	}
	for (int64_t i = first; i < last; i++)
		query_tile(a, &w, b, h, i * DT_TILE);
}

int dt_cpu_attention_forward(struct dt_dev *dev, struct dt_tensor o, struct dt_tensor lse,
			     struct dt_tensor qkv, const struct dt_attn *p)
{
	const struct forward a = {dt_tile(qkv.dtype), p, o, qkv, lse.data};
	const int64_t tiles = dt_ceil_div(p->seq, DT_TILE);
	int64_t heads, parts, each, words;
	uint32_t *buf;

	/* A head is one task, or several where there are few heads for the threads. */
	heads = p->batch * p->heads;
	parts = dt_min64(tiles, dt_ceil_div(4 * dev->nthreads, heads));
	each = dt_ceil_div(tiles, parts);
	words = space_words(a.t, p);
	buf = dt_cpu_scratch(dev, (size_t)(dev->nthreads * words) * 4);
	if (!buf)
		return -ENOMEM;
#pragma omp parallel for num_threads(dev->nthreads) schedule(dynamic)
	for (int64_t i = 0; i < heads * parts; i++) {
		const int64_t part = parts - 1 - i / heads, h = i % heads; /* the longest first */

		if (part * each < tiles)
			forward_part(&a, buf + omp_get_thread_num() * words, h / p->heads, h % p->heads,
				     part * each, dt_min64(tiles, (part + 1) * each));
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
