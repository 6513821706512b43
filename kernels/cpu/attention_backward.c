/*
 * Backward. One thread processes a whole key/value head. If that leaves most threads without work, all
 * threads share each head, in two passes: dq by query tiles, then dk and dv by key tiles. The second pass
 * computes p and ds again: 7 products in place of 5. A tile's sums have the same order in both, and so the
 * same bits.
 */
#include "kernels/cpu/attention_backward.h"

/* Packs key tiles first .. last - 1 of a key/value head, and sets their sums to 0. */
static void begin_keys(const struct dt_attn_backward *a, const struct dt_attn_space *w, int64_t b, int64_t kv,
		       int64_t first, int64_t last)
{
	const struct dt_attn_in *in = &a->in;
	const int64_t d = in->p->head_dim, vd = dt_attn_value_dim(in->p), pad = dt_attn_pad(in->p) * DT_TILE,
		      vpad = dt_attn_value_pad(in->p) * DT_TILE;
	const void *row[DT_TILE];

	memset(w->dk + first * pad, 0, (size_t)((last - first) * pad) * 4);
	memset(w->dv + first * vpad, 0, (size_t)((last - first) * vpad) * 4);
	for (int64_t j = first; j < last; j++) {
		int64_t n = dt_attn_key_rows(row, in->kv, in->s, b, j * DT_TILE, in->s->k_col + kv * d);

		dt_tile_pack_lanes(in->t, w->k_lanes + j * w->lanes_n, row, in->kv.dtype, n, d);
		dt_tile_pack_depth(in->t, w->k_depth + j * w->depth_n, row, in->kv.dtype, n, d);
		n = dt_attn_key_rows(row, in->kv, in->s, b, j * DT_TILE, in->s->v_col + kv * vd);
		dt_tile_pack_lanes(in->t, w->v_lanes + j * w->value_lanes_n, row, in->kv.dtype, n, vd);
	}
}

/* All queries of the heads that read key/value head kv against its key tiles first .. last - 1. */
static void all_queries(const struct dt_attn_backward *a, struct dt_attn_space *w, int64_t b, int64_t kv,
			int64_t first, int64_t last, int what)
{
	const int64_t group = a->in.p->heads / a->in.p->kv_heads;

	dt_tile_begin(a->in.t, DT_TILE);
	for (int64_t h = kv * group; h < (kv + 1) * group; h++)
		for (int64_t i = 0; i < a->in.s->rows; i += DT_TILE)
			dt_attn_query_gradients(a, w, b, h, i, first, last, what);
	dt_tile_end(a->in.t);
}

static void store_keys(const struct dt_attn_backward *a, const struct dt_attn_space *w, int64_t b, int64_t kv,
		       int64_t first, int64_t last)
{
	const struct dt_attn_span *s = a->in.s;
	const int64_t d = a->in.p->head_dim, vd = dt_attn_value_dim(a->in.p), pad = dt_attn_pad(a->in.p),
		      vpad = dt_attn_value_pad(a->in.p), width = dt_cols(a->dkv),
		      end = dt_min64(last * DT_TILE, dt_attn_keys(s));

	for (int64_t j = first * DT_TILE; j < end; j++) {
		const int64_t at = dt_attn_key_row(s, b, j) * width;

		dt_attn_store_row(dt_at(a->dkv, at + s->k_col + kv * d), a->dkv.dtype, w->dk + j * pad, d,
				  s->add);
		dt_attn_store_row(dt_at(a->dkv, at + s->v_col + kv * vd), a->dkv.dtype, w->dv + j * vpad, vd,
				  s->add);
	}
}

/* Memory for all heads and threads. */
static uint32_t *room_for(struct dt_dev *dev, const struct dt_attn_backward *a)
{
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);

	return dt_cpu_scratch(dev, dt_attention_backward_scratch(&on, a->in.q.dtype, a->in.p, a->in.s->rows,
								 dt_attn_keys(a->in.s)));
}

/* One thread per key/value head. */
static int by_heads(struct dt_dev *dev, const struct dt_attn_backward *a, int64_t tiles)
{
	const struct dt_attn *p = a->in.p;
	struct dt_attn_space unused;
	const int64_t head = dt_attn_lay_head(&unused, &a->in, NULL),
		      words = head + dt_attn_lay_thread(&unused, &a->in, NULL);
	uint32_t *buf = room_for(dev, a);

	if (!buf)
		return -ENOMEM;
#pragma omp parallel for num_threads(dev->nthreads) schedule(dynamic)
	for (int64_t i = 0; i < p->batch * p->kv_heads; i++) {
		const int64_t b = i / p->kv_heads, kv = i % p->kv_heads;
		uint32_t *at = buf + omp_get_thread_num() * words;
		struct dt_attn_space w;

		dt_attn_lay_head(&w, &a->in, at);
		dt_attn_lay_thread(&w, &a->in, at + head);
		begin_keys(a, &w, b, kv, 0, tiles);
		all_queries(a, &w, b, kv, 0, tiles, DT_ATTN_DQ | DT_ATTN_DKV);
		store_keys(a, &w, b, kv, 0, tiles);
	}
	return 0;
}

/* All threads on each of fewer key/value heads. */
static int by_tiles(struct dt_dev *dev, const struct dt_attn_backward *a, int64_t tiles)
{
	const struct dt_attn *p = a->in.p;
	const int64_t n = p->batch * p->kv_heads, group = p->heads / p->kv_heads;
	/* more parts would balance better, but each packs all queries */
	const int64_t parts = dt_min64(tiles, dt_ceil_div(2 * dev->nthreads, n)),
		      each = dt_ceil_div(tiles, parts);
	const int64_t queries = dt_ceil_div(a->in.s->rows, DT_TILE);
	struct dt_attn_space unused;
	const int64_t head = dt_attn_lay_head(&unused, &a->in, NULL),
		      thread = dt_attn_lay_thread(&unused, &a->in, NULL);
	uint32_t *buf = room_for(dev, a);

	if (!buf)
		return -ENOMEM;
#pragma omp parallel num_threads(dev->nthreads)
	{
		struct dt_attn_space w;

		dt_attn_lay_thread(&w, &a->in, buf + n * head + omp_get_thread_num() * thread);
#pragma omp for schedule(dynamic)
		for (int64_t i = 0; i < n * tiles; i++) {
			dt_attn_lay_head(&w, &a->in, buf + i / tiles * head);
			begin_keys(a, &w, i / tiles / p->kv_heads, i / tiles % p->kv_heads, i % tiles,
				   i % tiles + 1);
		}
#pragma omp for schedule(dynamic) nowait
		for (int64_t i = 0; i < n * group * queries; i++) { /* queries that see most keys first */
			const int64_t h = i % (n * group), q = queries - 1 - i / (n * group);

			dt_attn_lay_head(&w, &a->in, buf + h / group * head);
			dt_tile_begin(a->in.t, DT_TILE);
			dt_attn_query_gradients(a, &w, h / p->heads, h % p->heads, q * DT_TILE, 0, tiles,
						DT_ATTN_DQ);
			dt_tile_end(a->in.t);
		}
#pragma omp for schedule(dynamic)
		for (int64_t i = 0; i < n * parts; i++) { /* keys that most queries see first */
			const int64_t b = i % n / p->kv_heads, kv = i % n % p->kv_heads;
			const int64_t first = i / n * each, last = dt_min64(tiles, first + each);

			if (first >= tiles)
				continue;
			dt_attn_lay_head(&w, &a->in, buf + i % n * head);
			all_queries(a, &w, b, kv, first, last, DT_ATTN_DKV);
			store_keys(a, &w, b, kv, first, last);
		}
	}
	return 0;
}

int dt_cpu_attention_span_backward(struct dt_dev *dev, struct dt_tensor dq, struct dt_tensor dkv,
				   struct dt_tensor dout, struct dt_tensor o, struct dt_tensor lse,
				   struct dt_tensor q, struct dt_tensor kv, const struct dt_attn *p,
				   const struct dt_attn_span *s)
{
	const struct dt_attn_backward a = {
		{dt_tile_with_amx(q.dtype), p, s, q, kv}, dq, dkv, dout, o, lse.data};
	const int64_t tiles = dt_ceil_div(dt_attn_keys(s), DT_TILE);

	return dt_attn_by_tiles(dev->nthreads, p, tiles) ? by_tiles(dev, &a, tiles)
							 : by_heads(dev, &a, tiles);
}

int dt_cpu_attention_backward(struct dt_dev *dev, struct dt_tensor dqkv, struct dt_tensor dout,
			      struct dt_tensor o, struct dt_tensor lse, struct dt_tensor qkv,
			      const struct dt_attn *p)
{
	const struct dt_attn_span s = dt_attn_self(p);

	return dt_cpu_attention_span_backward(dev, dqkv, dqkv, dout, o, lse, qkv, qkv, p, &s);
}
/* SPDX-License-Identifier: Apache-2.0 */
