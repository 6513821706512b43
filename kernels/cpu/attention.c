/* Forward: tiles of 64 queries against tiles of 64 keys; keys and values of a head are packed once. */
#include "kernels/cpu/attention.h"
#include "kernels/cpu/vec.h"

#include <math.h>

/* Sets the scores of keys that a row does not see to -Inf. Only tiles on an edge need it. */
void dt_attn_mask(float *s, const struct dt_attn_row *row, int64_t rows, int64_t key)
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
		/* A row that has seen no key yet: avoids exp(-Inf + Inf) below. */
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
	if (p->softcap > 0) /* before the mask, as the cap would make -Inf finite */
		dt_attn_cap(s, rows * DT_TILE, p);
	if (DT_ATTN_PAIRS(t) && !weight) {
		dt_attn_softmax_bf16(pw, DT_TILE / 2, s, o, row, rows, pad, key,
				     p->softcap > 0 ? 1 : p->scale);
		return;
	}
	dt_attn_mask(s, row, rows, key);
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
			const float *oi = o + i * pad + c, all = dt_attn_sum(&row[i]);
			const float sum = all > 0 ? all : 1; /* a row that sees no key gives 0 */

#pragma omp simd
			for (int64_t j = 0; j < n; j++)
				f[j] = oi[j] / sum;
			dt_store(out, type, f, n);
		}
}

void dt_attn_finish(const struct dt_tile *t, void *const *where, enum dt_dtype type, const float *o,
		    const struct dt_attn_row *row, int64_t rows, int64_t d, int64_t pad)
{
	if (DT_ATTN_PAIRS(t) && type == DT_BF16)
		dt_attn_finish_bf16(where, o, row, rows, d, pad);
	else
		finish_rows(where, type, o, row, rows, d, pad);
}

/* Working memory of one thread; sizes in 4-byte words. */
struct space {
	uint32_t *k, *v; /* the head's keys and values, packed in tiles */
	uint32_t *q, *pw;
	float *s, *o;
	int64_t k_tile, v_tile;
};

static struct space space_at(const struct dt_attn_in *a, uint32_t *base)
{
	const int64_t tiles = dt_ceil_div(dt_attn_keys(a->s), DT_TILE), pad = dt_attn_value_pad(a->p);
	struct space s = {.k_tile = DT_TILE * dt_tile_words(a->t, a->p->head_dim),
			  .v_tile = dt_tile_depth(a->t) * pad};

	s.o = (float *)base;
	s.s = s.o + DT_TILE * pad;
	s.pw = (uint32_t *)s.s + (a->t->pairs ? DT_TILE * DT_TILE : 0); /* f32 words are computed in place */
	s.q = (uint32_t *)s.s + 2 * DT_TILE * DT_TILE;
	s.k = s.q + s.k_tile;
	s.v = s.k + tiles * s.k_tile;
	return s;
}

struct forward {
	struct dt_attn_in in;
	struct dt_tensor o;
	float *lse;
};

/* Rows i .. i + n - 1 of a tile of queries: row 0 of `row` is row i. */
struct band {
	struct dt_attn_row *row;
	int64_t i, n;
};

/* s = q . k for the keys of tile j that the band reaches. */
static void scores(const struct forward *a, const struct space *w, float *s, struct band b, int64_t j)
{
	const int64_t words = dt_tile_words(a->in.t, a->in.p->head_dim);

	a->in.t->mul(s, DT_TILE, w->q + b.i * words, words, 1, w->k + j * w->k_tile, DT_TILE, b.n,
		     dt_attn_reach(b.row, b.n, j * DT_TILE), words, false);
}

/* o += p . v for the first `keys` keys from tile j on; pw has rows of ldp words. */
static void add_values(const struct forward *a, const struct space *w, int64_t ldp, struct band b, int64_t j,
		       int64_t keys)
{
	const int64_t pad = dt_attn_value_pad(a->in.p);

	a->in.t->mul(w->o + b.i * pad, pad, w->pw, ldp, 1, w->v + j * w->v_tile, pad, b.n, pad,
		     keys * dt_tile_depth(a->in.t) / DT_TILE, true);
}

/* Processes a band against the keys that it sees, tile by tile. */
static void band_plainly(const struct forward *a, const struct space *w, struct band b)
{
	const int64_t pad = dt_attn_value_pad(a->in.p);

	for (int64_t j = b.row->first / DT_TILE, reach; (reach = dt_attn_reach(b.row, b.n, j * DT_TILE));
	     j++) {
		scores(a, w, w->s, b, j);
		dt_attn_softmax(a->in.t, w->pw, w->s, w->o + b.i * pad, b.row, b.n, pad, j * DT_TILE, a->in.p,
				NULL);
		add_values(a, w, dt_tile_depth(a->in.t), b, j, reach);
	}
}

static bool all_begun(const struct dt_attn_row *row)
{
	bool all = true;

	for (int i = 0; i < DT_BAND; i++)
		all &= row[i].max > -INFINITY;
	return all;
}

/*
 * The same for a whole band of pairs: each tile's softmax in the middle of the next tile's products, and the
 * values of two tiles at a time, as sums are then loaded and stored half as often.
 */
static void band_between(const struct forward *a, const struct space *w, struct band b)
{
	const struct dt_attn *p = a->in.p;
	const int64_t pad = dt_attn_value_pad(p), words = dt_tile_words(a->in.t, p->head_dim);
	float *s = w->s, *next = s + DT_BAND * DT_TILE;
	int64_t j = b.row->first / DT_TILE, held = 0; /* tiles in pw whose values have not been added */
	bool begun = false;

	if (dt_attn_reach(b.row, b.n, j * DT_TILE))
		scores(a, w, s, b, j);
	for (int64_t reach; (reach = dt_attn_reach(b.row, b.n, j * DT_TILE)); j++) {
		const int64_t key = j * DT_TILE, more = dt_attn_reach(b.row, b.n, key + DT_TILE);
		const bool between = begun && more == DT_TILE;
		float *done = s;

		if (!between ||
		    !dt_attn_between_bf16(next, w->q + b.i * words, w->k + (j + 1) * w->k_tile, words,
					  w->pw + held * DT_TILE / 2, s, b.row, key, p->scale)) {
			if (held)
				add_values(a, w, DT_TILE, b, j - 1, DT_TILE);
			held = 0;
			dt_attn_softmax_bf16(w->pw, DT_TILE, s, w->o + b.i * pad, b.row, b.n, pad, key,
					     p->scale);
			begun = begun || all_begun(b.row);
		}
		if (!between && more)
			scores(a, w, next, b, j + 1);
		held++;
		if (held == 2 || !more) {
			add_values(a, w, DT_TILE, b, j + 1 - held, (held - 1) * DT_TILE + reach);
			held = 0;
		}
		s = next;
		next = done;
	}
}

static void query_tile(const struct forward *a, const struct space *w, int64_t b, int64_t h, int64_t q0)
{
	const struct dt_attn *p = a->in.p;
	const struct dt_tile *t = a->in.t;
	const int64_t d = p->head_dim, vd = dt_attn_value_dim(p), pad = dt_attn_value_pad(p),
		      rows = a->in.s->rows, base = b * rows;
	const void *from[DT_TILE] = {NULL};
	void *to[DT_TILE];
	struct dt_attn_row row[DT_TILE];
	const int64_t n = dt_attn_rows(from, a->in.q, base + q0, base + rows, h * d);

	for (int64_t i = 0; i < n; i++) {
		row[i] = (struct dt_attn_row){.max = -INFINITY};
		dt_attn_sees(&a->in, b, q0 + i, &row[i].first, &row[i].last);
		to[i] = dt_at(a->o, ((base + q0 + i) * p->heads + h) * vd);
	}
	dt_tile_pack_rows(t, w->q, from, a->in.q.dtype, n, d);
	memset(w->o, 0, (size_t)(n * pad) * 4);
	for (int64_t i = 0; i < n; i += DT_BAND) {
		const struct band band = {row + i, i, dt_min64(DT_BAND, n - i)};

		if (DT_ATTN_BETWEEN(t) && band.n == DT_BAND && !(p->softcap > 0) &&
		    dt_tile_words(t, d) % 4 == 0)
			band_between(a, w, band);
		else
			band_plainly(a, w, band);
	}
	dt_attn_finish(t, to, a->o.dtype, w->o, row, n, vd, pad);
	for (int64_t i = 0; i < n; i++)
		a->lse[(b * p->heads + h) * rows + q0 + i] = row[i].max + logf(dt_attn_sum(&row[i]));
}

/* Processes query tiles first .. last of head h of sequence b, with every key they see. */
static void forward_part(const struct forward *a, uint32_t *buf, int64_t b, int64_t h, int64_t first,
			 int64_t last)
{
	const struct dt_attn_in *in = &a->in;
	const struct space w = space_at(in, buf);
	const int64_t d = in->p->head_dim, vd = dt_attn_value_dim(in->p),
		      kv = h / (in->p->heads / in->p->kv_heads);
	const int64_t k_bytes = d * dt_dtype_size(in->kv.dtype), v_bytes = vd * dt_dtype_size(in->kv.dtype);
	int64_t from, to, none;

	dt_attn_sees(in, b, first * DT_TILE, &from, &none);
	dt_attn_sees(in, b, dt_min64(last * DT_TILE, in->s->rows) - 1, &none, &to);
	for (int64_t j = from / DT_TILE; j * DT_TILE <= to; j++) {
		const void *row[DT_TILE];
		int64_t n;

		/* Rows are far apart: hardware prefetching does not find those of the next tile. */
		if ((j + 1) * DT_TILE <= to) {
			n = dt_attn_key_rows(row, in->kv, in->s, b, (j + 1) * DT_TILE, in->s->k_col + kv * d);
			dt_attn_ask(row, n, k_bytes);
			n = dt_attn_key_rows(row, in->kv, in->s, b, (j + 1) * DT_TILE,
					     in->s->v_col + kv * vd);
			dt_attn_ask(row, n, v_bytes);
		}
		n = dt_attn_key_rows(row, in->kv, in->s, b, j * DT_TILE, in->s->k_col + kv * d);

		dt_tile_pack_lanes(in->t, w.k + j * w.k_tile, row, in->kv.dtype, n, d);
		n = dt_attn_key_rows(row, in->kv, in->s, b, j * DT_TILE, in->s->v_col + kv * vd);
		dt_tile_pack_depth(in->t, w.v + j * w.v_tile, row, in->kv.dtype, n, vd);
	}
	dt_tile_begin(in->t, DT_TILE);
	for (int64_t i = first; i < last; i++)
		query_tile(a, &w, b, h, i * DT_TILE);
	dt_tile_end(in->t);
}

int dt_cpu_attention_span_forward(struct dt_dev *dev, struct dt_tensor o, struct dt_tensor lse,
				  struct dt_tensor q, struct dt_tensor kv, const struct dt_attn *p,
				  const struct dt_attn_span *s)
{
	const struct forward a = {{dt_tile_with_amx(q.dtype), p, s, q, kv}, o, lse.data};
	const int64_t tiles = dt_ceil_div(s->rows, DT_TILE);
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	int64_t heads, parts, each, words;
	uint32_t *buf;

	/* A head is one task, or several if there are few heads per thread. */
	heads = p->batch * p->heads;
	parts = dt_min64(tiles, dt_ceil_div(4 * dev->nthreads, heads));
	each = dt_ceil_div(tiles, parts);
	words = dt_attn_forward_words(a.in.t, p, dt_attn_keys(s));
	buf = dt_cpu_scratch(dev, dt_attention_forward_scratch(&on, q.dtype, p, s->rows, dt_attn_keys(s)));
	if (!buf)
		return -ENOMEM;
#pragma omp parallel for num_threads(dev->nthreads) schedule(dynamic)
	for (int64_t i = 0; i < heads * parts; i++) {
		const int64_t part = parts - 1 - i / heads, h = i % heads; /* longest first */

		if (part * each < tiles)
			forward_part(&a, buf + omp_get_thread_num() * words, h / p->heads, h % p->heads,
				     part * each, dt_min64(tiles, (part + 1) * each));
	}
	return 0;
}

int dt_cpu_attention_forward(struct dt_dev *dev, struct dt_tensor o, struct dt_tensor lse,
			     struct dt_tensor qkv, const struct dt_attn *p)
{
	const struct dt_attn_span s = dt_attn_self(p);

	return dt_cpu_attention_span_forward(dev, o, lse, qkv, qkv, p, &s);
}
/* SPDX-License-Identifier: Apache-2.0 */
