/* The products of a task with one tile of keys, which the cache holds as rows (paged.h). */
#include "kernels/cpu/paged.h"

/* Finds the key rows from j on, at most one tile of the sequence; none before `first` is seen. */
static void find_rows(const struct dt_paged_run *a, struct dt_paged_rows *r, int seq, int64_t kv, int64_t j,
		      int64_t first)
{
	const int64_t width = dt_kv_row(a->p, a->k.dtype), size = a->g->block_size;
	const int64_t step = width * dt_dtype_size(a->k.dtype);
	const struct dt_tensor values = a->v.data ? a->v : a->k;
	const int64_t v = a->p->head_dim - dt_attn_value_dim(a->p); /* offset of a value in its row */
	int64_t i = first > j ? dt_min64(DT_TILE, first - j) : 0, end;

	r->n = dt_min64(DT_TILE, a->g->kv_len[seq] - j);
	memset(r->k, 0, (size_t)i * sizeof(*r->k));
	memset(r->v, 0, (size_t)i * sizeof(*r->v));
	for (; i < r->n; i = end) { /* rows of a block are contiguous */
		const int64_t at = dt_paged_row(a->g, seq, j + i) * width + kv * (width / a->p->kv_heads);
		const char *k = dt_at(a->k, at), *value = dt_at(values, at + v);

		end = dt_min64(r->n, i + size - (j + i) % size);
		for (int64_t e = i; e < end; e++, k += step, value += step) {
			r->k[e] = k;
			r->v[e] = value;
		}
	}
}

/* Prefetches `bytes` of the rows [from, to): hardware does not predict scattered pieces of rows. */
static void ask_rows(const void *const *row, int64_t from, int64_t to, int64_t bytes)
{
	for (int64_t i = from; i < to; i++)
		if (row[i])
			dt_prefetch_lines(row[i], bytes);
}

/* Scales of int8 rows: each is stored `at` bytes after the beginning of its row. */
static void scales_of_rows(float to[DT_TILE], const void *const *row, int64_t n, int64_t at)
{
	memset(to, 0, DT_TILE * 4);
	for (int64_t i = 0; i < n; i++)
		if (row[i])
			memcpy(&to[i], (const char *)row[i] + at, 4);
}

bool dt_paged_as_they_lie(const struct dt_paged_run *a, int64_t n)
{
	const int64_t d = a->p->head_dim;

	return !a->grouped && a->t->across_rows && (a->halves || n <= DT_TILE_ROWS_FEW) &&
	       d <= DT_TILE_ROWS_DIM &&
	       (a->k.dtype == DT_BF16 || a->k.dtype == DT_I8 || a->k.dtype == DT_F32) && d % 16 == 0 &&
	       d * dt_dtype_size(a->k.dtype) % 32 == 0 && dt_attn_value_dim(a->p) % 16 == 0;
}

enum { LINES = 2 * DT_TILE * DT_TILE_ROWS_DIM * 4 / 64 };

/*
 * Lists the cache lines of `bytes` of rows, those of share h of w->kvs: up to `room` in line, for a product
 * to prefetch (NULL: there are none); prefetches any others here. Where a row ends inside a line, the next
 * one begins there.
 */
static const void *const *lines_of(const void *line[LINES], int64_t room, const struct dt_paged_work *w,
				   const void *const *row, int64_t rows, int64_t bytes, int64_t h)
{
	const int64_t each = bytes < 64 ? 1 : (bytes + 32) / 64;
	int64_t n = 0;

	for (int64_t i = h * rows / w->kvs; i < (h + 1) * rows / w->kvs; i++) {
		if (!row[i])
			continue;
		for (int64_t c = 0; c < each; c++)
			line[n + c] = (const char *)row[i] + 64 * c;
		n += each;
	}
	for (int64_t i = room; i < n; i++)
		dt_prefetch_ahead(line[i]);
	for (int64_t i = n; n && i < room; i++)
		line[i] = line[n - 1];
	return n ? line : NULL;
}

/*
 * Loads the lines in the order of their addresses, at the memory's full rate. Of that many prefetches at
 * once processors drop some, and the product loads pieces of eight rows in turn, which hardware does not
 * predict.
 */
void dt_paged_fetch(const struct dt_paged_run *a, const struct dt_paged_work *w)
{
	const int64_t bytes =
		w->kvs * (dt_kv_row(a->p, a->k.dtype) / a->p->kv_heads) * dt_dtype_size(a->k.dtype);

	if (!dt_paged_as_they_lie(a, w->n))
		return;
	for (int64_t i = 0; i < w->here->rows.n; i++)
		if (w->here->rows.k[i])
			dt_fetch_lines(w->here->rows.k[i], bytes);
}

/* s [n, DT_TILE] = the queries of head h of the task . its keys. ask: lines to prefetch, as in tile.h. */
static void keys_where_they_lie(const struct dt_paged_run *a, const struct dt_paged_work *w, int64_t h,
				int64_t at, float *s, const void *const *ask)
{
	const struct dt_paged_rows *r = &w->here->rows;
	const int64_t d = a->p->head_dim, n = w->n;
	float scale[DT_TILE];

	if (a->k.dtype == DT_I8)
		scales_of_rows(scale, r->k, r->n, at + d);
	if (a->halves) {
		a->t->halves_across(s, w->halves + h * n * d, w->scale + h * n, r->k, at, scale, r->n, n, d,
				    ask);
		return;
	}
	a->t->across_rows(s, DT_TILE, w->q + h * n * w->q_row, w->q_row, r->k, a->k.dtype, at, r->n, n, d,
			  ask);
	if (a->k.dtype == DT_I8)
		dt_attn_weigh(s, n, scale);
}

/* o [n, pad] += weights s . values. For integers, quantised weights are stored in the memory of k. */
static void values_where_they_lie(const struct dt_paged_run *a, struct dt_paged_work *w, int64_t at, float *s,
				  float *o, const void *const *ask)
{
	const struct dt_paged_rows *r = &w->here->rows;
	const int64_t vd = dt_attn_value_dim(a->p), n = w->n;
	const void *weights[DT_TILE];
	int16_t *halves = (int16_t *)w->k;
	float scale[DT_TILE];

	if (a->k.dtype == DT_I8) { /* not earlier: values are being prefetched */
		scales_of_rows(scale, r->v, r->n, at + vd);
		dt_attn_weigh(s, n, scale);
	}
	if (!a->halves) {
		a->t->down_rows(o, w->pad, (uint32_t *)s, DT_TILE, r->v, a->k.dtype, at, r->n, n, vd, ask);
		return;
	}
	for (int64_t i = 0; i < n; i++)
		weights[i] = s + i * DT_TILE;
	a->t->halves_of(halves, scale, weights, DT_F32, n, DT_TILE);
	a->t->halves_down(o, w->pad, halves, scale, r->v, at, r->n, n, vd, ask);
}

/*
 * Processes a tile of cache rows in place. Values are prefetched during the keys, and the next keys during
 * the values.
 */
static void tile_as_it_lies(const struct dt_paged_run *a, struct dt_paged_work *w, int64_t j)
{
	const struct dt_paged_rows *r = &w->here->rows, *next = &w->next->rows;
	const enum dt_dtype type = a->k.dtype;
	const int64_t d = a->p->head_dim, vd = dt_attn_value_dim(a->p), n = w->n, size = dt_dtype_size(type);
	const int64_t step = dt_kv_row(a->p, type) / a->p->kv_heads * size, wide = w->kvs * step,
		      keys = (r->n + 15) / 16 * 16;
	const void *line[LINES];

	for (int64_t h = 0; h < w->kvs; h++) {
		float *s = w->s + h * n * DT_TILE;

		keys_where_they_lie(a, w, h, h * step, s,
				    lines_of(line, keys * d * size / 64, w, r->v, r->n, wide, h));
		dt_attn_softmax(a->t, NULL, s, w->o + h * n * w->pad, w->row + h * n, n, w->pad, j, a->p,
				NULL);
	}
	for (int64_t h = 0; h < w->kvs; h++) {
		/* At once, and during the product again: see paged_groups.c. */
		ask_rows(next->k, h * next->n / w->kvs, (h + 1) * next->n / w->kvs, wide);
		values_where_they_lie(a, w, h * step, w->s + h * n * DT_TILE, w->o + h * n * w->pad,
				      lines_of(line, keys * vd * size / 64, w, next->k, next->n, wide, h));
	}
}

/*
 * Processes a band, rows i .. i + n, against the cache rows from j on, with keys packed in w->k. pack: also
 * packs the values, while scores are computed.
 */
static void band(const struct dt_paged_run *a, struct dt_paged_work *w, int64_t i, int64_t n, int64_t j,
		 bool pack)
{
	const int64_t reach = dt_attn_reach(w->row + i, n, j);
	const struct dt_paged_rows *r = &w->here->rows;
	float *o = w->o + i * w->pad;
	void (*mul)(float *, int64_t, const uint32_t *, int64_t, int64_t, const uint32_t *, int64_t, int64_t,
		    int64_t, int64_t, bool) = n == 1 && a->t->mul_few ? a->t->mul_few : a->t->mul;

	if (!reach)
		return;
	mul(w->s, DT_TILE, w->q + i * w->q_row, w->q_row, 1, w->k, DT_TILE, n, reach, w->words, false);
	dt_attn_softmax(a->t, w->pw, w->s, o, w->row + i, n, w->pad, j, a->p, NULL);
	if (pack)
		dt_tile_pack_depth(a->t, w->v, r->v, a->k.dtype, r->n, dt_attn_value_dim(a->p));
	mul(o, w->pad, w->pw, w->depth, 1, w->v, w->pad, n, w->pad, reach * w->depth / DT_TILE, true);
}

/* Processes a tile of cache rows, packed for the many rows of a task. */
static void tile_of_rows(const struct dt_paged_run *a, struct dt_paged_work *w, int64_t j)
{
	const struct dt_paged_rows *r = &w->here->rows;
	const enum dt_dtype type = a->k.dtype;
	const int64_t d = a->p->head_dim, vd = dt_attn_value_dim(a->p);
	const bool scaled = type == DT_I8; /* values have scales, too */
	float scale[DT_TILE];

	ask_rows(r->k, 0, r->n, d * dt_dtype_size(type));
	ask_rows(r->v, 0, r->n, d * dt_dtype_size(type));
	dt_tile_pack_lanes(a->t, w->k, r->k, type, r->n, d);
	if (!scaled) { /* the last band sees at least these keys, whichever others do */
		for (int64_t i = (w->n - 1) / DT_BAND * DT_BAND; i >= 0; i -= DT_BAND)
			band(a, w, i, dt_min64(DT_BAND, w->n - i), j, i + DT_BAND >= w->n);
		return;
	}
	a->t->mul(w->s, DT_TILE, w->q, w->q_row, 1, w->k, DT_TILE, w->n, (r->n + 15) / 16 * 16, w->words,
		  false);
	scales_of_rows(scale, r->k, r->n, d);
	dt_attn_weigh(w->s, w->n, scale);
	scales_of_rows(scale, r->v, r->n, vd);
	dt_attn_softmax(a->t, w->pw, w->s, w->o, w->row, w->n, w->pad, j, a->p, scale);
	dt_tile_pack_depth(a->t, w->v, r->v, type, r->n, vd);
	a->t->mul(w->o, w->pad, w->pw, w->depth, 1, w->v, w->pad, w->n, w->pad, dt_tile_words(a->t, r->n),
		  true);
}

void dt_paged_queries(const struct dt_paged_run *a, struct dt_paged_work *w, const void *const *from,
		      bool one_token)
{
	const int64_t rows = w->n * w->kvs, d = a->p->head_dim;

	if (!a->grouped || a->k.dtype != DT_I8)
		dt_tile_begin(a->t, w->n);
	w->q = w->packed;
	w->halves = (int16_t *)w->packed;
	if (a->grouped && a->k.dtype == DT_I8)
		dt_paged_bytes_of(a, w, from);
	else if (a->grouped && one_token && a->qkv.dtype == DT_BF16 && (!a->t->begin || w->n <= 16))
		w->q = from[0]; /* in place, one head after another */
	else if (a->halves && dt_paged_as_they_lie(a, w->n))
		a->t->halves_of(w->halves, w->scale, from, a->qkv.dtype, rows, d);
	else
		dt_tile_pack_rows(a->t, w->packed, from, a->qkv.dtype, rows, d);
}

void dt_paged_find(const struct dt_paged_run *a, union dt_paged_keys *keys, int seq, int64_t kv, int64_t j,
		   int64_t first)
{
	if (a->grouped)
		dt_paged_find_groups(a, &keys->groups, seq, kv, j, first);
	else
		find_rows(a, &keys->rows, seq, kv, j, first);
}

void dt_paged_tile(const struct dt_paged_run *a, struct dt_paged_work *w, int64_t j)
{
	if (a->grouped)
		dt_paged_groups_tile(a, w, j);
	else if (!dt_paged_as_they_lie(a, w->n))
		tile_of_rows(a, w, j);
	else
		tile_as_it_lies(a, w, j);
}
/* SPDX-License-Identifier: Apache-2.0 */
