/* The products of a task with one tile of keys that the cache holds in groups (paged.h, kv.h). */
#include "kernels/cpu/paged.h"

/* Copies a group's last pair of values, with zero for its second key, which is not written yet. */
static const void *last_pair(uint32_t *buf, const void *group, int64_t pair, int64_t d)
{
	memcpy(buf, group, (size_t)((pair + 1) * d) * 4);
	for (int64_t i = pair * d; i < (pair + 1) * d; i++)
		buf[i] &= 0xffff;
	return buf;
}

void dt_paged_find_groups(const struct dt_paged_run *a, struct dt_paged_groups *g, int seq, int64_t kv,
			  int64_t j, int64_t first)
{
	const int64_t keys = dt_min64(DT_TILE, a->g->kv_len[seq] - j);

	g->skip = first > j ? (first - j) / DT_KV_GROUP : 0;
	g->n = dt_ceil_div(keys, DT_KV_GROUP);
	for (int64_t i = g->skip; i < g->n; i++) {
		const int64_t at =
			dt_kv_group(a->p, a->k.dtype, dt_paged_row(a->g, seq, j + i * DT_KV_GROUP), kv);

		g->k[i] = dt_at(a->k, at);
		g->v[i] = dt_at(a->v, at);
	}
	for (int64_t i = 0; i < DT_TILE / DT_KV_GROUP; i++) /* any others: softmax masks them */
		if (i < g->skip || i >= g->n) {
			g->k[i] = g->k[g->skip];
			g->v[i] = g->v[g->skip];
		}
}

/* Joins groups of values to one operand of 32 pairs, with zeros for missing or unseen keys. */
static DT_SIMD void join(uint32_t *to, const struct dt_paged_groups *g, const struct dt_paged_groups *next,
			 int64_t keys, int64_t d)
{
	const int64_t words = DT_KV_GROUP / 2 * d;

	for (int64_t i = 0; i < DT_TILE / DT_KV_GROUP; i++, to += words) {
		const int64_t there = i < g->skip ? 0 : dt_min64(keys - i * DT_KV_GROUP, DT_KV_GROUP);
		const int64_t pairs = there < 0 ? 0 : (there + 1) / 2;

		for (int64_t w = 0; w < words; w += 16) {
			dt_prefetch_ahead((const uint32_t *)next->k[i] + w);
			dt_prefetch_ahead((const uint32_t *)next->v[i] + w);
		}
		memcpy(to, g->v[i], (size_t)(pairs * d) * 4);
		memset(to + pairs * d, 0, (size_t)(words - pairs * d) * 4);
		for (int64_t c = 0; there % 2 && c < d; c++) /* the pair's second key is not written yet */
			to[(pairs - 1) * d + c] &= 0xffff;
	}
}

/* Keys or values of head h of the task, from those of its first head. */
struct groups {
	const void *at[DT_TILE / DT_KV_GROUP];
};
static struct groups of_head(const struct dt_paged_work *w, const void *const *first, int64_t h)
{
	struct groups g;

	for (int64_t i = 0; i < DT_TILE / DT_KV_GROUP; i++)
		g.at[i] = (const char *)first[i] + h * w->group;
	return g;
}

/*
 * Prefetches the next tile's keys or values. The products prefetch them too, a few lines per step, but memory
 * would be idle during the softmax, and processors drop some of that many requests. On Zen 5, 32 sequences of
 * 160 keys in bf16 take 0.76 of the time that they take without this.
 */
static void ask_groups(const struct dt_paged_run *a, const struct dt_paged_work *w, const struct groups *g)
{
	const int64_t bytes = DT_KV_GROUP * a->p->head_dim * dt_dtype_size(a->k.dtype);

	for (int64_t i = w->next->groups.skip; i < w->next->groups.n; i++)
		dt_prefetch_lines(g->at[i], bytes);
}

/*
 * The same with AMX for many rows, in bands: scores stay in L1 together with keys and values, which are
 * joined once. With longer heads they do not fit, and tile_of_groups is faster.
 */
static void tile_of_joined(const struct dt_paged_run *a, struct dt_paged_work *w, int64_t j, int64_t keys)
{
	const struct dt_paged_groups *g = &w->here->groups;

	join(w->v, g, &w->next->groups, keys, a->p->head_dim);
	for (int64_t i = 0; i < w->n; i += DT_BAND) {
		const int64_t n = dt_min64(DT_BAND, w->n - i), reach = dt_attn_reach(w->row + i, n, j);
		float *o = w->o + i * w->pad;

		if (!reach)
			continue;
		a->t->mul_across(w->s, DT_TILE, w->q + i * w->q_row, w->q_row, (const uint32_t *const *)g->k,
				 NULL, n, w->words);
		dt_attn_softmax(a->t, w->pw, w->s, o, w->row + i, n, w->pad, j, a->p, NULL);
		/* Uses a full tile of rows, whatever follows the last; a partial tile is copied first. */
		a->t->mul(o, w->pad, w->pw, w->depth, 1, w->v, w->pad, DT_BAND, w->pad,
			  (reach + 31) / 32 * 16, true);
	}
}

/*
 * Keys [j, j + keys) from groups of the cache in place; prefetches those of the next tile. A step is done for
 * all heads before the next: with few rows each has to wait for its own results.
 */
static void tile_of_groups(const struct dt_paged_run *a, struct dt_paged_work *w, int64_t j, int64_t keys)
{
	const struct dt_paged_groups *here = &w->here->groups, *next = &w->next->groups;
	const int64_t d = a->p->head_dim, n = w->n, seen = dt_min64(keys, dt_attn_reach(w->row, n, j));

	for (int64_t h = 0; h < w->kvs; h++) {
		const struct groups k = of_head(w, here->k, h), then = of_head(w, next->k, h),
				    values = of_head(w, next->v, h);

		a->t->mul_across(w->s + h * n * DT_TILE, DT_TILE, w->q + h * n * w->q_row, w->q_row,
				 (const uint32_t *const *)k.at, (const uint32_t *const *)then.at, n,
				 w->words);
		ask_groups(a, w, &values);
	}
	dt_attn_softmax(a->t, w->pw, w->s, w->o, w->row, n * w->kvs, w->pad, j, a->p, NULL);
	for (int64_t h = 0; h < w->kvs; h++) {
		struct groups v = of_head(w, here->v, h);
		const struct groups then = of_head(w, next->v, h), k = of_head(w, next->k, h);

		ask_groups(a, w, &k);
		if (seen % 2)
			v.at[seen / 16] = last_pair(w->v, v.at[seen / 16], seen % 16 / 2, d);
		a->t->mul_down(w->o + h * n * w->pad, d, w->pw + h * n * w->depth, w->depth,
			       (const uint32_t *const *)v.at, (const uint32_t *const *)then.at, n, d,
			       here->skip * DT_KV_GROUP / 2, (seen + 1) / 2);
	}
}

/* The scales of a tile's keys or values; 0 for unseen keys, whose scales may be anything. */
static void scales_of(float to[DT_TILE], const struct dt_paged_work *w, const void *const *group, int64_t d,
		      int64_t j, int64_t keys)
{
	for (int64_t g = 0; g < DT_TILE / DT_KV_GROUP; g++)
		memcpy(to + g * DT_KV_GROUP, (const char *)group[g] + DT_KV_GROUP * d, DT_KV_GROUP * 4);
	if (j >= w->first && keys == DT_TILE)
		return;
	for (int64_t i = 0; i < DT_TILE; i++)
		if (j + i < w->first || i >= keys)
			to[i] = 0;
}

/* Prefetches the scales of the next tile, which the products do not. */
static void ask_scales(const struct dt_paged_work *w, const struct groups *g, int64_t d)
{
	for (int64_t i = w->next->groups.skip; i < w->next->groups.n; i++)
		dt_prefetch_ahead((const char *)g->at[i] + DT_KV_GROUP * d);
}

/* The same for int8, by dot products of bytes. */
static void tile_of_bytes(const struct dt_paged_run *a, struct dt_paged_work *w, int64_t j, int64_t keys)
{
	const struct dt_paged_groups *here = &w->here->groups, *next = &w->next->groups;
	const int64_t d = a->p->head_dim, n = w->n;
	float scale[DT_TILE];

	for (int64_t h = 0; h < w->kvs; h++) {
		const struct groups k = of_head(w, here->k, h), then = of_head(w, next->k, h),
				    values = of_head(w, next->v, h);

		ask_scales(w, &then, d);
		ask_scales(w, &values, d);
		scales_of(scale, w, k.at, d, j, keys);
		dt_tile_int8_across(w->s + h * n * DT_TILE, &w->bytes[h][0], k.at, then.at, scale, n, d / 4);
		ask_groups(a, w, &values);
	}
	for (int64_t h = 0; h < w->kvs; h++) {
		const struct groups v = of_head(w, here->v, h);
		float *s = w->s + h * n * DT_TILE;

		scales_of(scale, w, v.at, d, j, keys);
		dt_attn_softmax(dt_tile(DT_F32), NULL, s, w->o + h * n * w->pad, w->row + h * n, n, w->pad, j,
				a->p, scale);
		dt_tile_bytes_of_weights(&w->bytes[h][1], s, n);
	}
	for (int64_t h = 0; h < w->kvs; h++) {
		const struct groups v = of_head(w, here->v, h), then = of_head(w, next->v, h);

		dt_tile_int8_down(w->o + h * n * w->pad, w->pad, &w->bytes[h][1], v.at, then.at, n, d);
	}
}

void dt_paged_bytes_of(const struct dt_paged_run *a, struct dt_paged_work *w, const void *const *from)
{
	const int64_t words = a->p->head_dim / 4, n = w->n;
	const int parts = a->qkv.dtype == DT_F32 ? 3 : 2;

	for (int64_t h = 0; h < w->kvs; h++) {
		struct dt_tile_bytes *q = w->bytes[h];

		q[0].parts = q[1].parts = parts;
		for (int i = 0; i < parts; i++) {
			q[0].part[i] = w->packed + (i * DT_TILE + h * n) * words;
			q[1].part[i] =
				w->packed + parts * DT_TILE * words + (i * DT_TILE + h * n) * DT_TILE / 4;
		}
		dt_tile_bytes_of(&q[0], from + h * n, a->qkv.dtype, n, a->p->head_dim);
	}
}

void dt_paged_groups_tile(const struct dt_paged_run *a, struct dt_paged_work *w, int64_t j)
{
	const int64_t keys = dt_min64(DT_TILE, a->g->kv_len[w->seq] - j);

	if (a->k.dtype == DT_I8)
		tile_of_bytes(a, w, j, keys);
	else if (a->t->begin && w->n > DT_BAND && a->p->head_dim <= DT_TILE)
		tile_of_joined(a, w, j, keys);
	else
		tile_of_groups(a, w, j, keys);
}
/* SPDX-License-Identifier: Apache-2.0 */
