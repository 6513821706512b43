#include "kernels/cpu/act.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"

/* Columns of the next row that are prefetched at a time: gate and up are strided streams. */
#define AHEAD 256

DT_INLINE void act_loop(float *y, const float *x, const float *gate, int64_t n, enum dt_act_fn f)
{
	float unused;

#pragma omp simd private(unused)
	for (int64_t j = 0; j < n; j++)
		y[j] = act(x[j], f, &unused) * (gate ? act_up(gate[j], f, &unused) : 1.f);
}

static DT_SIMD void act_chunk(float *y, const float *x, const float *gate, int64_t n, enum dt_act_fn f)
{
	gate ? WITH_CONSTANT(f, act_loop, y, x, gate, n) : WITH_CONSTANT(f, act_loop, y, x, NULL, n);
}

static DT_SIMD void act_grad_chunk(float *dx, const float *dy, const float *x, int64_t n, enum dt_act_fn f)
{
	WITH_CONSTANT(f, act_grad_loop, dx, NULL, dy, x, NULL, n);
}

static DT_SIMD void gated_grad_chunk(float *dx, float *dgate, const float *dy, const float *x,
				     const float *gate, int64_t n, enum dt_act_fn f)
{
	WITH_CONSTANT(f, act_grad_loop, dx, dgate, dy, x, gate, n);
}

static DT_SIMD void act_words(void *y, const void *x, const void *gate, int64_t n, enum dt_act_fn f)
{
	gate ? WITH_CONSTANT(f, act_pairs, y, x, gate, n) : WITH_CONSTANT(f, act_pairs, y, x, NULL, n);
}

static DT_SIMD void act_grad_words(void *dx, const void *dy, const void *x, int64_t n, enum dt_act_fn f)
{
	WITH_CONSTANT(f, act_grad_pairs, dx, NULL, dy, x, NULL, n);
}

static DT_SIMD void gated_grad_words(void *dx, void *dgate, const void *dy, const void *x, const void *gate,
				     int64_t n, enum dt_act_fn f)
{
	WITH_CONSTANT(f, act_grad_pairs, dx, dgate, dy, x, gate, n);
}

static DT_SIMD const float *act_load(float *buf, const void *p, enum dt_dtype t, int64_t n)
{
	return dt_load(buf, p, t, n);
}

static DT_SIMD void act_store(void *p, enum dt_dtype t, const float *buf, int64_t n)
{
	dt_store(p, t, buf, n);
}

static void act_at(struct dt_tensor y, struct dt_tensor x, enum dt_act_fn f, int64_t i, int64_t n)
{
	float b[DT_CHUNK], *out = dt_stage(b, dt_at(y, i), y.dtype);

	if (x.dtype == DT_BF16) {
		act_words(dt_at(y, i), dt_at(x, i), NULL, n, f);
		return;
	}
	act_chunk(out, act_load(b, dt_at(x, i), x.dtype, n), NULL, n, f);
	act_store(dt_at(y, i), y.dtype, out, n);
}

struct forward {
	struct dt_tensor y, x;
	enum dt_act_fn f;
};

static void act_some_chunks(void *arg, int t, int64_t first, int64_t last)
{
	const struct forward *a = arg;
	const int64_t end = dt_min64(dt_numel(a->x), last * DT_CHUNK);

	for (int64_t i = first * DT_CHUNK; i < end; i += DT_CHUNK)
		act_at(a->y, a->x, a->f, i, dt_min64(DT_CHUNK, end - i));
}

int dt_cpu_act_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, enum dt_act_fn f)
{
	struct forward a = {y, x, f};

	dt_cpu_rows(dev, dt_ceil_div(dt_numel(x), DT_CHUNK), DT_CHUNK, act_some_chunks, &a);
	return 0;
}

static void act_grad_at(struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor x, enum dt_act_fn f,
			int64_t i, int64_t n)
{
	float bx[DT_CHUNK], by[DT_CHUNK];
	float *out = dt_stage(bx, dt_at(dx, i), dx.dtype);

	if (x.dtype == DT_BF16) {
		act_grad_words(dt_at(dx, i), dt_at(dy, i), dt_at(x, i), n, f);
		return;
	}
	act_grad_chunk(out, act_load(by, dt_at(dy, i), dy.dtype, n), act_load(bx, dt_at(x, i), x.dtype, n), n,
		       f);
	act_store(dt_at(dx, i), dx.dtype, out, n);
}

int dt_cpu_act_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor x,
			enum dt_act_fn f)
{
	const int64_t n = dt_numel(x);

#pragma omp parallel for num_threads(dev->nthreads) if (n > DT_SERIAL)
	for (int64_t i = 0; i < n; i += DT_CHUNK)
		act_grad_at(dx, dy, x, f, i, dt_min64(DT_CHUNK, n - i));
	return 0;
}

DT_INLINE void gate_rows(float *x, int64_t ld, int64_t up, int64_t rows, int64_t n, enum dt_act_fn f)
{
	for (int64_t r = 0; r < rows; r++, x += ld)
		act_loop(x, x, x + up, n, f);
}

static DT_SIMD void gate_tile(float *x, int64_t ld, int64_t up, int64_t rows, int64_t n, enum dt_act_fn f)
{
	n == 32 ? WITH_CONSTANT(f, gate_rows, x, ld, up, rows, 32)
		: WITH_CONSTANT(f, gate_rows, x, ld, up, rows, n);
}

void dt_cpu_gate(float *x, int64_t ld, int64_t up, int64_t rows, int64_t n, enum dt_act_fn f)
{
	gate_tile(x, ld, up, rows, n, f);
}

/* Computes columns c .. c + n of row r; the gate is at column c, up at width + c. */
static void gated_at(struct dt_tensor y, struct dt_tensor x, enum dt_act_fn f, int64_t r, int64_t c,
		     int64_t n)
{
	const int64_t width = dt_cols(y), at = r * 2 * width + c;
	float bx[DT_CHUNK], bu[DT_CHUNK], *out = dt_stage(bx, dt_at(y, r * width + c), y.dtype);

	for (int64_t k = 0; x.dtype == DT_BF16 && y.dtype == DT_BF16 && k < n; k += AHEAD) {
		const int64_t m = dt_min64(AHEAD, n - k), next = at + k + 2 * width;

		dt_prefetch(dt_at(x, next), 2 * m);
		dt_prefetch(dt_at(x, next + width), 2 * m);
		act_words(dt_at(y, r * width + c + k), dt_at(x, at + k), dt_at(x, at + width + k), m, f);
	}
	if (x.dtype == DT_BF16 && y.dtype == DT_BF16)
		return;
	act_chunk(out, act_load(bx, dt_at(x, at), x.dtype, n), act_load(bu, dt_at(x, at + width), x.dtype, n),
		  n, f);
	act_store(dt_at(y, r * width + c), y.dtype, out, n);
}

/* Chunks [first, last) of all rows'. */
static void gated_some(void *arg, int t, int64_t first, int64_t last)
{
	const struct forward *a = arg;
	const int64_t width = dt_cols(a->y), parts = dt_ceil_div(width, DT_CHUNK);

	for (int64_t i = first; i < last; i++)
		gated_at(a->y, a->x, a->f, i / parts, i % parts * DT_CHUNK,
			 dt_min64(DT_CHUNK, width - i % parts * DT_CHUNK));
}

int dt_cpu_gated_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, enum dt_act_fn f)
{
	const int64_t width = dt_cols(y), parts = dt_ceil_div(width, DT_CHUNK);
	struct forward a = {y, x, f};

	dt_cpu_rows(dev, dt_rows(y) * parts, dt_ceil_div(width, parts), gated_some, &a);
	return 0;
}

static void gated_grad_at(struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor x, enum dt_act_fn f,
			  int64_t r, int64_t c, int64_t n)
{
	const int64_t width = dt_cols(dy), at = r * 2 * width + c;
	float bx[DT_CHUNK], bu[DT_CHUNK], by[DT_CHUNK];
	float *og = dt_stage(bx, dt_at(dx, at), dx.dtype),
	      *ou = dt_stage(bu, dt_at(dx, at + width), dx.dtype);

	for (int64_t k = 0; x.dtype == DT_BF16 && k < n; k += AHEAD) {
		const int64_t m = dt_min64(AHEAD, n - k), g = at + k, top = r * width + c + k;

		dt_prefetch(dt_at(x, g + 2 * width), 2 * m);
		dt_prefetch(dt_at(x, g + 3 * width), 2 * m);
		gated_grad_words(dt_at(dx, g), dt_at(dx, g + width), dt_at(dy, top), dt_at(x, g),
				 dt_at(x, g + width), m, f);
	}
	if (x.dtype == DT_BF16)
		return;
	gated_grad_chunk(og, ou, act_load(by, dt_at(dy, r * width + c), dy.dtype, n),
			 act_load(bx, dt_at(x, at), x.dtype, n),
			 act_load(bu, dt_at(x, at + width), x.dtype, n), n, f);
	act_store(dt_at(dx, at), dx.dtype, og, n);
	act_store(dt_at(dx, at + width), dx.dtype, ou, n);
}

int dt_cpu_gated_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dy, struct dt_tensor x,
			  enum dt_act_fn f)
{
	const int64_t rows = dt_rows(dy), width = dt_cols(dy), parts = dt_ceil_div(width, DT_CHUNK);

#pragma omp parallel for num_threads(dev->nthreads) if (rows * width > DT_SERIAL)
	for (int64_t i = 0; i < rows * parts; i++)
		gated_grad_at(dx, dy, x, f, i / parts, i % parts * DT_CHUNK,
			      dt_min64(DT_CHUNK, width - i % parts * DT_CHUNK));
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
