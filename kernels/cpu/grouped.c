/*
 * One product per group: bf16 by tiles where the processor multiplies it (grouped.h), else a oneDNN gemm that
 * takes any shape and strides without a primitive per shape, since group sizes differ in every microbatch.
 * f16, and bf16 on other processors, are widened group by group.
 */
#include "kernels/cpu/grouped.h"

/* A matrix inside another, as gemm takes it: rows x cols, row stride ld. */
struct mat {
	char *p;
	enum dt_dtype type;
	int64_t rows, cols, ld;
};

static struct mat part(struct dt_tensor t, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
	const int64_t ld = t.data ? dt_cols(t) : 0;

	return (struct mat){dt_at(t, row * ld + col), t.dtype, rows, cols, ld};
}

static int64_t room_of(struct mat m)
{
	return m.type == DT_F32 ? 0 : dt_grouped_wide(m.rows, m.cols);
}

static DT_SIMD void widen_row(float *to, const void *from, enum dt_dtype t, int64_t n)
{
	const float *f = dt_load(to, from, t, n);

	if (f != to)
		memcpy(to, f, (size_t)n * sizeof *to);
}

static DT_SIMD void narrow_row(void *to, enum dt_dtype t, const float *from, int64_t n)
{
	dt_store(to, t, from, n);
}

/* m in f32: itself, or a copy at *at, with m's contents if fill is set. */
static struct mat wide(struct dt_dev *dev, struct mat m, float **at, bool fill)
{
	struct mat w = {(char *)*at, DT_F32, m.rows, m.cols, m.cols};

	if (m.type == DT_F32)
		return m;
	*at += room_of(m);
#pragma omp parallel for num_threads(dev->nthreads) if (fill && m.rows * m.cols > DT_SERIAL)
	for (int64_t i = 0; i < (fill ? m.rows : 0); i++)
		widen_row((float *)w.p + i * w.ld, m.p + i * m.ld * dt_dtype_size(m.type), m.type, m.cols);
	return w;
}

static void narrow(struct dt_dev *dev, struct mat to, struct mat from)
{
#pragma omp parallel for num_threads(dev->nthreads) if (to.rows * to.cols > DT_SERIAL)
	for (int64_t i = 0; i < to.rows; i++)
		narrow_row(to.p + i * to.ld * dt_dtype_size(to.type), to.type, (float *)from.p + i * from.ld,
			   to.cols);
}

struct term {
	struct mat a, b;
};

/* wc (+)= op(a) op(b), all f32. */
static int product(struct mat wc, struct mat a, struct mat b, bool ta, bool tb, bool accumulate)
{
	const dnnl_status_t s =
		dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', wc.rows, wc.cols, ta ? a.rows : a.cols, 1,
			   (float *)a.p, a.ld, (float *)b.p, b.ld, accumulate, (float *)wc.p, wc.ld);

	return s == dnnl_success ? 0 : s == dnnl_out_of_memory ? -ENOMEM : -EIO;
}

/* The same with a and b bf16, on a processor that multiplies them. */
static int product_bf16(struct dt_dev *dev, struct mat wc, struct mat a, struct mat b, bool ta, bool tb,
			bool accumulate)
{
	const struct dt_ragged r = {.c = (float *)wc.p,
				    .a = a.p,
				    .b = b.p,
				    .m = wc.rows,
				    .n = wc.cols,
				    .k = ta ? a.rows : a.cols,
				    .lda = a.ld,
				    .ldb = b.ld,
				    .ldc = wc.ld,
				    .ta = ta,
				    .tb = tb,
				    .accumulate = accumulate};

	return dt_cpu_ragged(dev, &r);
}

/* c (+)= the sum of op(a) op(b) over n terms, one or two; ta, tb: a, b are transposed. plain: operands are
 * used without conversion. */
static int sum_of(struct dt_dev *dev, struct mat c, const struct term *t, int n, bool ta, bool tb,
		  bool accumulate, bool plain)
{
	float *room = NULL, *at;
	int64_t need = room_of(c);
	struct mat wc;
	int rc = 0;

	for (int i = 0; i < n && !plain; i++)
		need += room_of(t[i].a) + room_of(t[i].b);
	if (need && !(room = dt_cpu_scratch(dev, (size_t)need * sizeof *room)))
		return -ENOMEM;
	at = room;
	wc = wide(dev, c, &at, accumulate);
	for (int i = 0; i < n && rc == 0; i++) {
		const bool add = accumulate || i > 0;

		if (plain) {
			rc = product_bf16(dev, wc, t[i].a, t[i].b, ta, tb, add);
		} else {
			const struct mat a = wide(dev, t[i].a, &at, true), b = wide(dev, t[i].b, &at, true);

			rc = product(wc, a, b, ta, tb, add);
		}
	}
	if (rc == 0 && c.type != DT_F32)
		narrow(dev, c, wc);
	return rc;
}

static int gemm(struct dt_dev *dev, struct mat c, const struct term *t, int n, bool ta, bool tb,
		bool accumulate)
{
	const bool plain = t[0].a.type == DT_BF16 && !dt_cpu_widens(DT_BF16);

	return sum_of(dev, c, t, n, ta, tb, accumulate, plain);
}

size_t dt_grouped_bytes(const struct dt_grouped_call *c, const struct dt_grouped *g, enum dt_grouped_of of)
{
	const struct dt_scratch_on on = dt_cpu_scratch_on(c->dev);
	const struct dt_grouped_shape s = {
		.m = dt_rows(c->x), .n = c->n, .n2 = c->n2, .k = c->k, .groups = g->n, .experts = g->experts};
	const enum dt_dtype t = c->x.dtype;

	return of == DT_GROUPED_Y    ? dt_grouped_matmul_scratch(&on, t, &s)
	       : of == DT_GROUPED_DX ? dt_grouped_matmul_dx_scratch(&on, t, &s)
				     : dt_grouped_matmul_dw_scratch(&on, t, &s);
}

/* Takes the scratch of any groups at once, so that it does not grow with those of a later call. */
static int reserve(const struct dt_grouped_call *c, const struct dt_grouped *g, enum dt_grouped_of of)
{
	const size_t n = dt_grouped_bytes(c, g, of);

	return n && !dt_cpu_scratch(c->dev, n) ? -ENOMEM : 0;
}

static bool ascends(const struct dt_grouped *g, int64_t rows)
{
	bool ok = g->first[0] == 0 && g->first[g->n] <= rows;

	for (int64_t i = 0; i < g->n; i++)
		ok &= g->first[i] <= g->first[i + 1];
	return ok;
}

static struct dt_grouped_call call_of(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
				      struct dt_tensor w, struct dt_tensor w2, const struct dt_grouped *g)
{
	return (struct dt_grouped_call){
		dev,	   y, x, w, w2, dt_rows(w) / g->experts, w2.data ? dt_rows(w2) / g->experts : 0,
		dt_cols(x)};
}

static int forward(const struct dt_grouped_call *c, int64_t row, int64_t rows, int64_t e)
{
	const struct mat x = part(c->x, row, rows, 0, c->k);
	const struct term t[] = {{x, part(c->w, e * c->n, c->n, 0, c->k)},
				 {x, part(c->w2, e * c->n2, c->n2, 0, c->k)}};
	int rc = gemm(c->dev, part(c->y, row, rows, 0, c->n), t, 1, false, true, false);

	if (rc == 0 && c->n2)
		rc = gemm(c->dev, part(c->y, row, rows, c->n, c->n2), t + 1, 1, false, true, false);
	return rc;
}

static int inputs(const struct dt_grouped_call *c, int64_t row, int64_t rows, int64_t e)
{
	const struct term t[] = {
		{part(c->y, row, rows, 0, c->n), part(c->w, e * c->n, c->n, 0, c->k)},
		{part(c->y, row, rows, c->n, c->n2), part(c->w2, e * c->n2, c->n2, 0, c->k)}};

	return gemm(c->dev, part(c->x, row, rows, 0, c->k), t, c->n2 ? 2 : 1, false, false, false);
}

static int weights(const struct dt_grouped_call *c, int64_t row, int64_t rows, int64_t e, bool accumulate)
{
	const struct mat x = part(c->x, row, rows, 0, c->k);
	const struct term t[] = {{part(c->y, row, rows, 0, c->n), x},
				 {part(c->y, row, rows, c->n, c->n2), x}};
	int rc = gemm(c->dev, part(c->w, e * c->n, c->n, 0, c->k), t, 1, true, false, accumulate);

	if (rc == 0 && c->n2)
		rc = gemm(c->dev, part(c->w2, e * c->n2, c->n2, 0, c->k), t + 1, 1, true, false, accumulate);
	return rc;
}

static int each(const struct dt_grouped_call *c, const struct dt_grouped *g, enum dt_grouped_of of,
		int (*fn)(const struct dt_grouped_call *c, int64_t row, int64_t rows, int64_t e))
{
	int threads = dt_cpu_set_threads(c->dev->nthreads), rc = reserve(c, g, of);

	for (int64_t i = 0; i < g->n && rc == 0; i++)
		if (g->first[i + 1] > g->first[i])
			rc = fn(c, g->first[i], g->first[i + 1] - g->first[i], i % g->experts);
	omp_set_num_threads(threads);
	return rc;
}

int dt_cpu_grouped_matmul(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, struct dt_tensor w,
			  struct dt_tensor w2, const struct dt_grouped *g)
{
	const struct dt_grouped_call c = call_of(dev, y, x, w, w2, g);
	const int rc = ascends(g, dt_rows(x)) ? dt_grouped_tiles(&c, g, DT_GROUPED_Y, false) : -EINVAL;

	return rc == -ENOTSUP ? each(&c, g, DT_GROUPED_Y, forward) : rc;
}

int dt_cpu_grouped_matmul_dx(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor w,
			     struct dt_tensor w2, const struct dt_grouped *g)
{
	const struct dt_grouped_call c = call_of(dev, dy, dx, w, w2, g);
	const int rc = ascends(g, dt_rows(dx)) ? dt_grouped_tiles(&c, g, DT_GROUPED_DX, false) : -EINVAL;

	return rc == -ENOTSUP ? each(&c, g, DT_GROUPED_DX, inputs) : rc;
}

static void clear(struct dt_tensor w, int64_t e, int64_t n, int64_t k)
{
	if (w.data)
		memset((float *)w.data + e * n * k, 0, (size_t)(n * k) * sizeof(float));
}

static int each_expert(const struct dt_grouped_call *c, const struct dt_grouped *g, bool accumulate)
{
	int threads = dt_cpu_set_threads(c->dev->nthreads), rc = reserve(c, g, DT_GROUPED_DW);

	for (int64_t e = 0; e < g->experts && rc == 0; e++) {
		bool add = accumulate;

		for (int64_t i = e; i < g->n && rc == 0; i += g->experts) {
			const int64_t rows = g->first[i + 1] - g->first[i];

			if (!rows)
				continue;
			rc = weights(c, g->first[i], rows, e, add);
			add = true;
		}
		if (!add) {
			clear(c->w, e, c->n, c->k);
			clear(c->w2, e, c->n2, c->k);
		}
	}
	omp_set_num_threads(threads);
	return rc;
}

int dt_cpu_grouped_matmul_dw(struct dt_dev *dev, struct dt_tensor dw, struct dt_tensor dw2,
			     struct dt_tensor dy, struct dt_tensor x, const struct dt_grouped *g,
			     bool accumulate)
{
	const struct dt_grouped_call c = call_of(dev, dy, x, dw, dw2, g);
	const int rc = ascends(g, dt_rows(x)) ? dt_grouped_tiles(&c, g, DT_GROUPED_DW, accumulate) : -EINVAL;

	return rc == -ENOTSUP ? each_expert(&c, g, accumulate) : rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
