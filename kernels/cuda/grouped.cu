/*
 * Grouped products for training, in 64 x 64 tiles (product.h). By rows: the host does not know where groups
 * begin, so each block finds its own tile (sorted.h). Weight gradients: a block has one tile of an expert,
 * over the rows of all its groups in order.
 */
#include "kernels/cuda/product.h"
#include "kernels/cuda/sorted.h"

#define TILE DT_PRODUCT_TILE
#define DEEP DT_PRODUCT_DEEP

/* `depth` columns of a from `at` on, and b, which has `each` elements per expert. */
struct term {
	const void *b;
	int64_t at, depth, each;
	bool fast_a, fast_b;
};

struct by_rows {
	void *c; /* n columns of it from c_at on */
	const void *a;
	int64_t c_at, c_ld, n, a_ld, experts;
	struct term t[2];
	int terms, type;
	bool tb; /* b [n, depth]; else [depth, n] */
	struct dt_sorted set;
};

/* Rows [row, end) of a group, their expert (-1: no rows), and columns from col on. */
struct tile {
	int64_t row, end, col;
	int expert;
};

DT_DEVICE struct tile tile_of(const struct by_rows &p)
{
	struct tile t;

	dt_sorted_look(p.set);
	t.col = (int64_t)blockIdx.y * TILE;
	t.expert = dt_sorted_find<TILE>(p.set, blockIdx.x, &t.row, &t.end);
	t.expert = t.expert < 0 ? -1 : t.expert % (int)p.experts;
	return t;
}

DT_DEVICE void put(const struct by_rows &p, const struct tile &t, int i, int j, float v)
{
	if (t.row + i < t.end && t.col + j < p.n)
		dt_st1(p.c, p.type, (t.row + i) * p.c_ld + p.c_at + t.col + j, v);
}

template <class T> __global__ void __launch_bounds__(128, 5) rows_kernel(struct by_rows p)
{
	const struct tile t = tile_of(p);
	float d[2][4][4];

	if (t.expert < 0)
		return;
	DT_UNROLL
	for (int i = 0; i < 32; i++)
		d[i / 16][i / 4 % 4][i % 4] = 0;
	for (int k = 0; k < p.terms; k++) {
		const struct term &u = p.t[k];
		const uint16_t *a = (const uint16_t *)p.a + u.at,
			       *b = (const uint16_t *)u.b + t.expert * u.each;

		dt_product_add<T>(d, false, p.tb, u.depth, [&](uint16_t *to_a, uint16_t *to_b, int64_t i) {
			dt_product_load<TILE, DEEP>(to_a, a, t.end, u.depth, t.row, i, u.fast_a,
						    [&](int64_t r) { return r * p.a_ld; });
			if (p.tb)
				dt_product_load<TILE, DEEP>(to_b, b, p.n, u.depth, t.col, i, u.fast_b,
							    [&](int64_t r) { return r * u.depth; });
			else
				dt_product_load<DEEP, TILE>(to_b, b, u.depth, p.n, i, t.col, u.fast_b,
							    [&](int64_t r) { return r * p.n; });
		});
	}
	dt_product_each(d, [&](int i, int j, float v) { put(p, t, i, j, v); });
}

__global__ void __launch_bounds__(256, 3) rows_f32_kernel(struct by_rows p)
{
	const struct tile t = tile_of(p);
	float d[4][4];

	if (t.expert < 0)
		return;
	dt_zero(d);
	for (int k = 0; k < p.terms; k++) {
		const struct term &u = p.t[k];
		const float *b = (const float *)u.b + t.expert * u.each;

		dt_product_add(
			d, true, p.tb, u.depth,
			[&](int i, int64_t at) {
				const int64_t row = t.row + i;

				return row >= t.end ? 0.f : dt_ld1(p.a, DT_F32, row * p.a_ld + u.at + at);
			},
			[&](int j, int64_t at) {
				const int64_t col = t.col + j;

				return col >= p.n ? 0.f
						  : dt_ld1(b, DT_F32,
							   p.tb ? col * u.depth + at : at * p.n + col);
			});
	}
	dt_product_each(d, [&](int i, int j, float v) { put(p, t, i, j, v); });
}

static int by_rows(const struct dt_cuda *c, const struct by_rows &p)
{
	const dim3 grid((unsigned)dt_sorted_tiles<TILE>(p.set), (unsigned)dt_ceil_div(p.n, TILE));

	if (p.type == DT_F32)
		return DT_LAUNCH(c, rows_f32_kernel, grid, 256, DT_PRODUCT_ROOM_F32, p);
	if (p.type == DT_BF16)
		return DT_LAUNCH(c, rows_kernel<struct dt_bf16>, grid, 128, DT_PRODUCT_ROOM, p);
	return DT_LAUNCH(c, rows_kernel<struct dt_f16>, grid, 128, DT_PRODUCT_ROOM, p);
}

static struct dt_sorted groups_of(const struct dt_cuda *c, const struct dt_grouped *g, int64_t rows)
{
	struct dt_sorted s = {};

	s.first = g->first;
	s.n = (int)g->n;
	s.rows = rows;
	s.bad = c->bad;
	return s;
}

/* The term for an expert's `depth` rows of w and a's columns from `at` on. */
static struct term term_of(struct dt_tensor w, const struct by_rows &p, int64_t at, int64_t depth)
{
	const int64_t each = dt_numel(w) / p.experts, along = p.tb ? depth : p.n;

	return {w.data,
		at,
		depth,
		each,
		at % 8 == 0 && depth % 8 == 0 && dt_by_8(p.a_ld, p.a),
		dt_by_8(along, w.data)};
}

int dt_cuda_grouped_matmul(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, struct dt_tensor w,
			   struct dt_tensor w2, const struct dt_grouped *g)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const struct dt_tensor both[] = {w, w2};
	const int64_t k = dt_cols(x);
	int64_t at = 0;
	int rc = c ? 0 : -ENODEV;

	for (int i = 0; i < 2 && both[i].data && rc == 0; i++) {
		struct by_rows p = {};

		p.c = y.data;
		p.a = x.data;
		p.c_at = at;
		p.c_ld = dt_cols(y);
		p.n = dt_rows(both[i]) / g->experts;
		p.a_ld = k;
		p.experts = g->experts;
		p.type = x.dtype;
		p.tb = true;
		p.set = groups_of(c, g, dt_rows(x));
		p.t[p.terms++] = term_of(both[i], p, 0, k);
		rc = by_rows(c, p);
		at += p.n;
	}
	return rc;
}

int dt_cuda_grouped_matmul_dx(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy,
			      struct dt_tensor w, struct dt_tensor w2, const struct dt_grouped *g)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t n = dt_rows(w) / g->experts;
	struct by_rows p = {};

	if (!c)
		return -ENODEV;
	p.c = dx.data;
	p.a = dy.data;
	p.c_ld = p.n = dt_cols(dx);
	p.a_ld = dt_cols(dy);
	p.experts = g->experts;
	p.type = dx.dtype;
	p.set = groups_of(c, g, dt_rows(dx));
	p.t[p.terms++] = term_of(w, p, 0, n);
	if (w2.data)
		p.t[p.terms++] = term_of(w2, p, n, dt_cols(dy) - n);
	return by_rows(c, p);
}

struct by_weights {
	float *c; /* [experts * m, n] */
	const void *a, *b;
	int64_t m, n, a_at, a_ld, experts; /* m columns of a from a_at on */
	int type;
	bool accumulate, fast_a, fast_b;
	struct dt_sorted set;
};

/* Rows of group g, restricted to existing ones. */
DT_DEVICE int64_t group_rows(const struct dt_sorted &s, int64_t g, int64_t *first)
{
	dt_touch(s.first + g, 4);
	dt_touch(s.first + g + 1, 4);
	const int64_t from = s.first[g], to = dt_min64(s.first[g + 1], s.rows);

	*first = from;
	return from >= 0 && to > from ? to - from : 0;
}

DT_DEVICE void put(const struct by_weights &p, int64_t i, int64_t j, bool any, float v)
{
	float *to = p.c + ((int64_t)blockIdx.z * p.m + i) * p.n + j;

	if (i >= p.m || j >= p.n || (p.accumulate && !any))
		return;
	dt_st1(to, DT_F32, 0, p.accumulate ? dt_ld1(to, DT_F32, 0) + v : v);
}

template <class T> __global__ void __launch_bounds__(128, 5) weights_kernel(struct by_weights p)
{
	const int64_t m0 = (int64_t)blockIdx.x * TILE, n0 = (int64_t)blockIdx.y * TILE;
	bool any = false;
	float d[2][4][4];

	dt_sorted_look(p.set);
	DT_UNROLL
	for (int i = 0; i < 32; i++)
		d[i / 16][i / 4 % 4][i % 4] = 0;
	for (int64_t g = blockIdx.z; g < p.set.n; g += p.experts) {
		int64_t first;
		const int64_t rows = group_rows(p.set, g, &first);
		const uint16_t *a = (const uint16_t *)p.a + first * p.a_ld + p.a_at,
			       *b = (const uint16_t *)p.b + first * p.n;

		any |= rows > 0;
		dt_product_add<T>(d, true, false, rows, [&](uint16_t *to_a, uint16_t *to_b, int64_t k) {
			dt_product_load<DEEP, TILE>(to_a, a, rows, p.m, k, m0, p.fast_a,
						    [&](int64_t r) { return r * p.a_ld; });
			dt_product_load<DEEP, TILE>(to_b, b, rows, p.n, k, n0, p.fast_b,
						    [&](int64_t r) { return r * p.n; });
		});
	}
	dt_product_each(d, [&](int i, int j, float v) { put(p, m0 + i, n0 + j, any, v); });
}

__global__ void __launch_bounds__(256, 3) weights_f32_kernel(struct by_weights p)
{
	const int64_t m0 = (int64_t)blockIdx.x * TILE, n0 = (int64_t)blockIdx.y * TILE;
	bool any = false;
	float d[4][4];

	dt_sorted_look(p.set);
	dt_zero(d);
	for (int64_t g = blockIdx.z; g < p.set.n; g += p.experts) {
		int64_t first;
		const int64_t rows = group_rows(p.set, g, &first);

		any |= rows > 0;
		dt_product_add(
			d, false, false, rows,
			[&](int i, int64_t k) {
				return m0 + i >= p.m
					       ? 0.f
					       : dt_ld1(p.a, DT_F32, (first + k) * p.a_ld + p.a_at + m0 + i);
			},
			[&](int j, int64_t k) {
				return n0 + j >= p.n ? 0.f : dt_ld1(p.b, DT_F32, (first + k) * p.n + n0 + j);
			});
	}
	dt_product_each(d, [&](int i, int j, float v) { put(p, m0 + i, n0 + j, any, v); });
}

static int by_weights(const struct dt_cuda *c, const struct by_weights &p)
{
	const dim3 grid((unsigned)dt_ceil_div(p.m, TILE), (unsigned)dt_ceil_div(p.n, TILE),
			(unsigned)p.experts);

	if (p.type == DT_F32)
		return DT_LAUNCH(c, weights_f32_kernel, grid, 256, DT_PRODUCT_ROOM_F32, p);
	if (p.type == DT_BF16)
		return DT_LAUNCH(c, weights_kernel<struct dt_bf16>, grid, 128, DT_PRODUCT_ROOM, p);
	return DT_LAUNCH(c, weights_kernel<struct dt_f16>, grid, 128, DT_PRODUCT_ROOM, p);
}

int dt_cuda_grouped_matmul_dw(struct dt_dev *dev, struct dt_tensor dw, struct dt_tensor dw2,
			      struct dt_tensor dy, struct dt_tensor x, const struct dt_grouped *g,
			      bool accumulate)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const struct dt_tensor both[] = {dw, dw2};
	int64_t at = 0;
	int rc = c ? 0 : -ENODEV;

	for (int i = 0; i < 2 && both[i].data && rc == 0; i++) {
		struct by_weights p = {};

		p.c = (float *)both[i].data;
		p.a = dy.data;
		p.b = x.data;
		p.m = dt_rows(both[i]) / g->experts;
		p.n = dt_cols(x);
		p.a_at = at;
		p.a_ld = dt_cols(dy);
		p.experts = g->experts;
		p.type = x.dtype;
		p.accumulate = accumulate;
		p.fast_a = at % 8 == 0 && p.m % 8 == 0 && dt_by_8(p.a_ld, p.a);
		p.fast_b = dt_by_8(p.n, p.b);
		p.set = groups_of(c, g, dt_rows(x));
		rc = by_weights(c, p);
		at += p.m;
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
