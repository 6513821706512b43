/*
 * quant.h on a card: selects the kernel by the number of rows of x. Quantised weights are in the CPU's panels
 * of 16 rows (kernels/cpu/quant.h); x is quantised once, then packed_rows.cu handles few rows and
 * packed_tiles.cu many. Float weights are row-major: packed_numbers.cu handles few rows, matmul.cu many.
 */
#include "kernels/cuda/packed.h"
#include "kernels/step.h"

#define FEW	    16 /* fewer rows of x do not fill tiles */
#define FEW_NUMBERS 4

struct round_job {
	int8_t *q;
	struct xblock *b;
	const void *x;
	int t;
	int64_t all, blocks; /* blocks in all rows of x, and per row */
	const int32_t *at;   /* NULL: rows keep their order; else row i is copied to at[i used] and
			      * following */
	int64_t used, rows;
	int32_t *bad;
};

/* One block of 32 elements per warp, stored wherever its row goes. */
__global__ void __launch_bounds__(256) round_kernel(struct round_job a)
{
	const int lane = (int)threadIdx.x % 32;
	const int64_t b = (int64_t)blockIdx.x * 8 + threadIdx.x / 32, row = b / a.blocks;
	float v, scale, inverse;
	int q, sum;

	if (b >= a.all)
		return;
	v = dt_ld1(a.x, a.t, b * DT_QK + lane);
	dt_int8_scale(dt_warp_largest(dt_magnitude(v), 32), &scale, &inverse);
	q = inverse != 0 ? (int)rintf(v * inverse) : 0;
	sum = dt_warp_sum(q);
	for (int64_t i = 0; i < a.used; i++) {
		int64_t to = row;

		if (a.at) {
			dt_touch(a.at + row * a.used + i, 4);
			to = a.at[row * a.used + i];
		}
		if (to < 0 || to >= a.rows) {
			*a.bad = 1;
			continue;
		}
		to = to * a.blocks + b % a.blocks;
		a.q[to * DT_QK + lane] = (int8_t)q;
		if (lane == 0)
			a.b[to] = xblock{scale, scale * (float)sum};
	}
}

/* Up to FEW_NUMBERS rows, w is read once for all; above that cuBLASLt, or our own tiles from FEW rows on. */
static bool numbers_by_rows(const struct dt_dev *dev, const struct numbers &a)
{
	const struct dt_cuda *c = (const struct dt_cuda *)dev->impl;
	const bool plain = !dev->batch_invariant && a.ld == a.rows && a.tx == a.tw &&
			   (a.ty == a.tw || a.ty == DT_F32) && (!a.bias || a.tb == a.tw);

	if (a.set.n)
		return !plain || a.set.rows <= FEW * a.set.n;
	return !plain || a.m <= (c->blas ? FEW_NUMBERS : FEW - 1);
}

static bool quants_by_rows(int64_t m, const struct dt_sorted &set)
{
	return set.n ? set.rows <= FEW * set.n : m < FEW;
}

/* Adds parts after part i that the same launch can multiply; returns their number. */
template <class J> static int take_beside(J &a, const struct dt_packed *w, int i)
{
	while (a.nmore < DT_BESIDE && i + 1 + a.nmore < w->nparts &&
	       w->part[i + 1 + a.nmore].format == w->part[i].format) {
		const struct dt_packed_part *p = &w->part[i + 1 + a.nmore];

		a.more[a.nmore++] = beside{p->data, p->rows, p->first};
	}
	return a.nmore;
}

/* Splits a float part into gate and up. */
static void halve(struct numbers &a)
{
	a.rows /= 2;
	a.more[a.nmore++] =
		beside{(const char *)a.w + a.rows * a.k * dt_dtype_size((enum dt_dtype)a.tw), a.rows, a.rows};
}

/* Quantises x, placing its rows where the product needs them. */
static int round_rows(struct dt_dev *dev, const struct dt_cuda *c, struct round_job *a)
{
	const int64_t room = a->rows * a->blocks;

	a->q = (int8_t *)dt_cuda_scratch(dev, (size_t)room * (DT_QK + sizeof(struct xblock)));
	if (!a->q)
		return -ENOMEM;
	a->b = (struct xblock *)(a->q + room * DT_QK);
	return DT_LAUNCH(c, round_kernel, (unsigned)dt_ceil_div(a->all, 8), 256, 0, *a);
}

/* One call: all parts of w, or of a set whose weights have the same parts as w. */
struct job {
	struct dt_dev *dev;
	struct dt_cuda *c;
	struct dt_tensor y, x, bias;
	const struct dt_packed *w;
	const struct dt_packed_set *of;
	const struct dt_meet *meet;
	int gate;
	struct residual add;
	struct round_job round;
};

/* Whether the epilogue (gate, residual) is fused, which only products by rows support. */
static bool goes_on(const struct job &j)
{
	return j.gate || j.add.sum;
}

#define FRONT (32 << 10) /* limit of shared memory for the rows of a fused norm */

/* Takes the pending norm if it produces x and the next launch can fuse it (`can`); otherwise launches it. */
static int take_late(const struct job &j, bool can, struct dt_late_norm *ret)
{
	struct dt_late_norm *a = &j.c->late;
	const size_t row = (size_t)(a->n * dt_dtype_size((enum dt_dtype)a->t));

	*ret = {};
	if (!a->y || !can || j.of || a->y != j.x.data || a->t != (int)j.x.dtype || a->n != j.w->k ||
	    a->rows != dt_rows(j.x) || 4 * row > FRONT)
		return dt_cuda_settle(j.c);
	*ret = *a;
	a->y = NULL;
	return 0;
}

static struct dt_sorted set_of(const struct job &j, int i)
{
	if (!j.of)
		return {};
	return {j.meet->first, j.of->there + (int64_t)i * j.of->n, j.of->n,
		dt_rows(j.y),  j.meet->used ? j.meet->from : NULL, j.meet->used,
		j.c->bad};
}

/* Multiplies float part i and *taken parts after it. */
static int multiply_numbers(struct job &j, int i, int *taken)
{
	const struct dt_packed_part *p = &j.w->part[i];
	const int tw = p->format == DT_FMT_F32 ? DT_F32 : DT_BF16;
	struct numbers a = {p->data,  j.x.data,	    j.bias.data, j.y.data,
			    tw,	      j.x.dtype,    j.y.dtype,	 j.bias.dtype,
			    p->rows,  dt_rows(j.y), j.w->k,	 dt_cols(j.y),
			    p->first, set_of(j, i), {},		 0,
			    j.gate,   j.add,	    {}};

	if (j.gate && j.w->nparts == 1)
		halve(a);
	const bool by_rows = numbers_by_rows(j.dev, a), fast = by_rows && dt_numbers_fast(a);

	if (!j.of && fast && a.nmore == 0)
		*taken = take_beside(a, j.w, i);
	if ((goes_on(j) && !fast) || (j.gate && a.nmore != 1))
		return -ENOTSUP;
	const int rc = take_late(j, fast, &a.front);

	if (rc < 0)
		return rc;
	if (by_rows)
		return dt_number_rows(j.c, a);
	if (j.of)
		return dt_cuda_matmul_sorted(j.c, j.y, j.x, a.rows, a.set);
	return dt_cuda_matmul(j.dev, j.y, j.x, false, dt_t2(p->data, (enum dt_dtype)tw, a.rows, a.k), true,
			      j.bias, false);
}

/* The same for a quantised part. */
static int multiply_quants(struct job &j, int i, int *taken)
{
	const struct dt_packed_part *p = &j.w->part[i];
	const struct dt_quant_shape *s = dt_quant_shape(p->format);
	const struct dt_sorted set = set_of(j, i);
	const int64_t m = dt_rows(j.y);
	const bool by_rows = quants_by_rows(m, set), wants = dt_quant_wants_x(m, set);
	int rc;

	if (goes_on(j) && !by_rows)
		return -ENOTSUP;
	struct quant a = {p->data,
			  p->panel_bytes,
			  p->format,
			  s->quants,
			  s->scales,
			  s->supers,
			  s->offset,
			  p->rows,
			  j.w->blocks,
			  m,
			  dt_cols(j.y),
			  p->first,
			  j.x.data,
			  j.x.dtype,
			  dt_aligned(j.x.data),
			  NULL,
			  NULL,
			  j.y.data,
			  j.bias.data,
			  j.y.dtype,
			  j.bias.dtype,
			  set,
			  {},
			  0,
			  j.gate,
			  j.add,
			  {}};

	if (!j.of && by_rows)
		*taken = take_beside(a, j.w, i);
	if (j.gate && a.nmore != 1)
		return -ENOTSUP;
	rc = take_late(j, by_rows && !wants && a.fast, &a.front);
	if (rc == 0 && !j.round.q && wants)
		rc = round_rows(j.dev, j.c, &j.round);
	if (rc < 0)
		return rc;
	a.q = j.round.q;
	a.x = j.round.b;
	return by_rows ? dt_quant_rows(j.c, a) : dt_quant_tiles(j.c, a);
}

/*
 * Multiplies each row by w, or by its weight of the set. gate: 0, or 1 + f of packed_gated; add: residual
 * added to the results. -ENOTSUP, and nothing is written: rows or formats do not allow the fusion.
 */
static int multiply(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const struct dt_packed *w,
		    struct dt_tensor bias, const struct dt_packed_set *of, const struct dt_meet *meet,
		    int gate, struct residual add)
{
	struct dt_cuda *c = dt_cuda_enter_late(dev);
	const bool moved = of && meet->used;
	struct job j = {dev, c, y, x, bias, w, of, meet, gate, add, {}};
	int rc = 0;

	if (!c)
		return -ENODEV;
	j.round = {NULL,
		   NULL,
		   x.data,
		   x.dtype,
		   dt_rows(x) * w->blocks,
		   w->blocks,
		   moved ? meet->at : NULL,
		   moved ? meet->used : 1,
		   dt_rows(y),
		   c->bad};
	for (int i = 0, taken = 0; i < w->nparts && rc == 0; i += 1 + taken) {
		taken = 0;
		rc = dt_is_float(w->part[i].format) ? multiply_numbers(j, i, &taken)
						    : multiply_quants(j, i, &taken);
	}
	return rc;
}

int dt_cuda_packed_matmul(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			  const struct dt_packed *w, struct dt_tensor bias)
{
	return multiply(dev, y, x, w, bias, NULL, NULL, 0, {});
}

int dt_cuda_packed_gated(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			 const struct dt_packed *w, struct dt_tensor bias, enum dt_act_fn f)
{
	return multiply(dev, y, x, w, bias, NULL, NULL, 1 + (int)f, {});
}

int dt_cuda_step_norm(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor sum, struct dt_tensor delta,
		      struct dt_tensor x, struct dt_tensor in, const struct dt_packed *w,
		      struct dt_tensor bias, struct dt_tensor g, bool plus_one, float eps)
{
	const int64_t rows = dt_rows(delta), n = dt_cols(delta);
	struct dt_cuda *c = (struct dt_cuda *)dev->impl;
	int rc;

	if (w->nparts != 1 || !dt_by_8(n, y.data, sum.data, x.data, delta.data, g.data))
		return -ENOTSUP;
	if (dt_overlap(sum, in)) { /* other blocks of the product may still read in */
		rc = multiply(dev, delta, in, w, bias, NULL, NULL, 0, {});
		return rc < 0 ? rc
			      : dt_cuda_rmsnorm_forward(dev, y, DT_NONE, sum, x, delta, g, plus_one, eps);
	}
	rc = multiply(dev, delta, in, w, bias, NULL, NULL, 0, {x.data, sum.data, x.dtype});
	if (rc < 0)
		return rc;
	c->late = {y.data, sum.data, g.data, x.dtype, g.dtype, rows, n, eps, plus_one};
	return c->recording ? 0 : dt_cuda_settle(c);
}

/* All weights of the set, one launch per part. */
int dt_cuda_packed_set_matmul(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			      const struct dt_packed_set *s, const struct dt_meet *meet)
{
	return multiply(dev, y, x, s->w[0], DT_NONE, s, meet, 0, {});
}

struct embed {
	const uint8_t *w;
	void *y;
	const int32_t *ids;
	struct quant a; /* describes the panels: format and planes */
	int64_t n, k, rows;
	int64_t first, of; /* first row of the shard, and rows of the whole table */
	float scale;
	int32_t *bad;
};

/* Element j of row r of a panel, without its offset. */
DT_DEVICE int integer_at(const struct quant &a, const uint8_t *q, int r, int j)
{
	const int c = j / 4, byte = 4 * r + j % 4, bits = dt_panel_bits(a.format), high = bits & 4;
	int v = 0;

	if (bits == 8)
		return q[c * 64 + byte] - 128;
	if (bits & 4)
		v = q[c / 2 * 64 + byte] >> (c & 1 ? 4 : 0) & 15;
	if (bits & 2)
		v |= (q[(high + c / 4) * 64 + byte] >> c % 4 * 2 & 3) << high;
	if (bits & 1)
		v |= (q[(bits - 1) * 64 + byte] >> c & 1) << (bits - 1);
	return dt_panel_table(a.format) ? (int8_t)(table_bytes(a.format, (uint32_t)v) & 255) : v - a.offset;
}

/* Element j of row r of a panel. */
DT_DEVICE float element_at(const struct quant &a, const uint8_t *panel, int r, int64_t j)
{
	const int64_t b = j / DT_QK;
	const uint8_t *s = scales_of(a, panel, b), *u = supers_of(a, panel, b);
	const int half = (int)(j / 16 % 2);
	const float q = (float)integer_at(a, panel + b * a.quants, r, (int)(j % DT_QK));
	float f[2];

	if (dt_panel_joined(a.format)) {
		const uint8_t by = s[16 * half + r];

		return dt_plus(half_at(u + 2 * r) * (float)(by & 15) * q,
			       -(half_at(u + 32 + 2 * r) * (float)(by >> 4)));
	}
	factors(a.format, s, u, r, f);
	if (dt_panel_halves(a.format))
		return f[half] * q;
	return dt_panel_minimum(a.format) ? dt_plus(f[0] * q, f[1]) : f[0] * q;
}

/* Rows [first, first + rows) of the table. */
__global__ void __launch_bounds__(256) embed_kernel(struct embed e)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < e.n * e.k; i += step) {
		const int64_t t = i / e.k, j = i % e.k, row = (int64_t)e.ids[t] - e.first,
			      id = row - e.a.first;
		float v;

		if (e.ids[t] < 0 || e.ids[t] >= e.of)
			*e.bad = 1;
		else if ((row < 0 || row >= e.rows) && e.a.first == 0) /* the id belongs to another rank */
			dt_st1(e.y, e.a.ty, i, 0.f);
		if (id < 0 || id >= e.a.rows)
			continue;
		if (e.a.format == DT_FMT_F32 || e.a.format == DT_FMT_BF16) {
			v = dt_ld1(e.a.w, e.a.format == DT_FMT_F32 ? DT_F32 : DT_BF16, id * e.k + j);
		} else {
			v = element_at(e.a, e.a.w + id / DT_PANEL * e.a.panel_bytes, (int)(id % DT_PANEL), j);
		}
		dt_st1(e.y, e.a.ty, i, v * e.scale);
	}
}

int dt_cuda_packed_embed(struct dt_dev *dev, struct dt_tensor y, const struct dt_packed *w,
			 const int32_t *ids, int64_t first, int64_t of, float scale)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	int rc = c ? 0 : -ENODEV;

	for (int i = 0; i < w->nparts && rc == 0; i++) {
		const struct dt_packed_part *p = &w->part[i];
		const struct dt_quant_shape *s = dt_quant_shape(p->format);
		struct embed e = {p->data, y.data, ids, {},    dt_rows(y), w->k,
				  w->rows, first,  of,	scale, c->bad};

		e.a.w = p->data;
		e.a.panel_bytes = p->panel_bytes;
		e.a.format = p->format;
		e.a.quants = s->quants;
		e.a.scales = s->scales;
		e.a.supers = s->supers;
		e.a.offset = s->offset;
		e.a.blocks = w->blocks;
		e.a.rows = p->rows;
		e.a.first = p->first;
		e.a.ty = y.dtype;
		rc = DT_LAUNCH(c, embed_kernel, dt_blocks(c, e.n * e.k, 256), 256, 0, e);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
