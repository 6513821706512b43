#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pair.h"
#include "kernels/cpu/vec.h"

#define GELU_K 0.79788456080286536f /* sqrt(2 / pi) */
#define GELU_C 0.044715f
#define LOG2_E 1.44269504f
#define PAIRS  128
#define AHEAD                                                                                                \
	256 /* columns of the next row that are asked for at a time: gate and up are streams with gaps */

/* f(x), and with it f'(x) where the caller uses d. f is a constant where this is inlined. */
DT_INLINE float act(float x, enum dt_act_fn f, float *d)
{
	float s, c;

	switch (f) {
	case DT_ACT_GELU_TANH:
		s = 1.f / (1.f + dt_expf(-2.f * GELU_K * (x + GELU_C * x * x * x)));
		*d = s + x * s * (1.f - s) * 2.f * GELU_K * (1.f + 3.f * GELU_C * x * x);
		break;
	case DT_ACT_GELU_ERF:
		s = 0.5f + 0.5f * dt_erff(x * 0.70710678118654752f);
		*d = s + x * 0.39894228040143268f * dt_expf(-0.5f * x * x);
		break;
	case DT_ACT_SILU:
		s = 1.f / (1.f + dt_expf(-x));
		*d = s + x * s * (1.f - s);
		break;
	default:
		c = x < 0 ? 0.f : x; /* NaN stays NaN */
		*d = x > 0 ? 1.f : 0.f;
		return c;
	}
	/* The slope far out, also where the formula would be zero times Inf. */
	*d = x < -88.f ? 0.f : x > 88.f ? 1.f : *d;
	return x * s;
}

DT_INLINE void act_loop(float *y, const float *x, const float *gate, int64_t n, enum dt_act_fn f)
{
	float unused;

#pragma omp simd private(unused)
	for (int64_t j = 0; j < n; j++)
		y[j] = act(x[j], f, &unused) * (gate ? gate[j] : 1.f);
}

DT_INLINE void act_grad_loop(float *dx, float *dgate, const float *dy, const float *x, const float *gate,
			     int64_t n, enum dt_act_fn f)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++) {
		float d, a = act(x[j], f, &d), g = dy[j];

		dx[j] = g * d * (gate ? gate[j] : 1.f);
		if (dgate)
			dgate[j] = g * a;
	}
}

/* loop(..., F) with F the constant that f is, so that the choice is outside of the loop. */
#define WITH_CONSTANT(f, loop, ...)                                                                          \
	((f) == DT_ACT_GELU_TANH  ? loop(__VA_ARGS__, DT_ACT_GELU_TANH)                                      \
	 : (f) == DT_ACT_GELU_ERF ? loop(__VA_ARGS__, DT_ACT_GELU_ERF)                                       \
	 : (f) == DT_ACT_SILU	  ? loop(__VA_ARGS__, DT_ACT_SILU)                                           \
				  : loop(__VA_ARGS__, DT_ACT_RELU))

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

/*
 * Likewise for bf16, where a sigmoid need not have all bits of f32: PAIRS pairs at a time, in three loops
 * (vec.h). Room of theirs: 2^-t of the sigmoid of each element.
 */
struct powers {
	float lo[PAIRS], hi[PAIRS];
};

DT_INLINE bool quick(enum dt_act_fn f)
{
	return f == DT_ACT_GELU_TANH || f == DT_ACT_SILU;
}

/* What the sigmoid of 1 / (1 + 2^-t) is taken of. */
DT_INLINE float act_exponent(float x, enum dt_act_fn f)
{
	return f == DT_ACT_SILU ? x * LOG2_E
				: x * (2.f * GELU_K * LOG2_E + 2.f * GELU_K * LOG2_E * GELU_C * x * x);
}

DT_INLINE void act_powers(struct powers *e, const dt_pair *x, int64_t n, enum dt_act_fn f)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++) {
		const struct dt_two v = dt_pair_get(x[j]);

		e->lo[j] = dt_sigmoid2_bounded(act_exponent(v.lo, f));
		e->hi[j] = dt_sigmoid2_bounded(act_exponent(v.hi, f));
	}
#pragma omp simd
	for (int64_t j = 0; j < n; j++) {
		e->lo[j] = dt_sigmoid2_power(e->lo[j]);
		e->hi[j] = dt_sigmoid2_power(e->hi[j]);
	}
}

DT_INLINE float act_quick(float x, float power, enum dt_act_fn f, float *d)
{
	const float slope = f == DT_ACT_SILU ? 1.f : 2.f * GELU_K + 2.f * GELU_K * 3.f * GELU_C * x * x;
	float s;

	if (!quick(f))
		return act(x, f, d);
	s = dt_sigmoid2_of(power);
	*d = s + x * s * (1.f - s) * slope;
	*d = x < -88.f ? 0.f : x > 88.f ? 1.f : *d;
	return x * s;
}

DT_INLINE uint32_t act_two(uint32_t x, struct dt_two power, uint32_t gate, bool gated, enum dt_act_fn f)
{
	const struct dt_two a = dt_pair_get(x), g = dt_pair_get(gate);
	float unused;

	return dt_pair_of(act_quick(a.lo, power.lo, f, &unused) * (gated ? g.lo : 1.f),
			  act_quick(a.hi, power.hi, f, &unused) * (gated ? g.hi : 1.f));
}

/* The last of an odd number of elements, as a pair with zero. */
DT_INLINE uint32_t last_of(const void *x, int64_t n)
{
	return ((const uint16_t *)x)[n - 1];
}

DT_INLINE void act_some(dt_pair *y, const dt_pair *x, const dt_pair *gate, int64_t n, enum dt_act_fn f)
{
	struct powers e;

	if (quick(f))
		act_powers(&e, x, n, f);
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		y[j] = act_two(x[j], quick(f) ? (struct dt_two){e.lo[j], e.hi[j]} : (struct dt_two){0, 0},
			       gate ? gate[j] : 0, gate, f);
}

DT_INLINE void act_pairs(void *y, const void *x, const void *gate, int64_t n, enum dt_act_fn f)
{
	const dt_pair *px = x, *pg = gate;
	dt_pair *py = y;

	for (int64_t j = 0; j < n / 2; j += PAIRS)
		act_some(py + j, px + j, pg ? pg + j : NULL, dt_min64(PAIRS, n / 2 - j), f);
	if (n & 1) {
		const uint32_t one = last_of(x, n), g = pg ? last_of(gate, n) : 0;
		uint32_t out;

		act_some(&out, &one, pg ? &g : NULL, 1, f);
		((uint16_t *)y)[n - 1] = (uint16_t)out;
	}
}

struct act_slopes {
	uint32_t dx, dgate;
};

DT_INLINE struct act_slopes act_grad_two(uint32_t dy, uint32_t x, struct dt_two power, uint32_t gate,
					 bool gated, enum dt_act_fn f)
{
	const struct dt_two v = dt_pair_get(x), g = dt_pair_get(gate), top = dt_pair_get(dy);
	struct dt_two d, a;

	a.lo = act_quick(v.lo, power.lo, f, &d.lo);
	a.hi = act_quick(v.hi, power.hi, f, &d.hi);
	return (struct act_slopes){
		dt_pair_of(top.lo * d.lo * (gated ? g.lo : 1.f), top.hi * d.hi * (gated ? g.hi : 1.f)),
		gated ? dt_pair_of(top.lo * a.lo, top.hi * a.hi) : 0};
}

DT_INLINE void act_grad_some(dt_pair *dx, dt_pair *dgate, const dt_pair *dy, const dt_pair *x,
			     const dt_pair *gate, int64_t n, enum dt_act_fn f)
{
	struct powers e;

	if (quick(f))
		act_powers(&e, x, n, f);
#pragma omp simd
	for (int64_t j = 0; j < n; j++) {
		const struct act_slopes s = act_grad_two(
			dy[j], x[j], quick(f) ? (struct dt_two){e.lo[j], e.hi[j]} : (struct dt_two){0, 0},
			gate ? gate[j] : 0, gate, f);

		dx[j] = s.dx;
		if (dgate)
			dgate[j] = s.dgate;
	}
}

/* dgate and gate: both or neither. */
DT_INLINE void act_grad_pairs(void *dx, void *dgate, const void *dy, const void *x, const void *gate,
			      int64_t n, enum dt_act_fn f)
{
	const dt_pair *px = x, *pg = gate, *py = dy;
	dt_pair *px_out = dx, *pg_out = dgate;

	for (int64_t j = 0; j < n / 2; j += PAIRS)
		act_grad_some(px_out + j, pg_out ? pg_out + j : NULL, py + j, px + j, pg ? pg + j : NULL,
			      dt_min64(PAIRS, n / 2 - j), f);
	if (n & 1) {
		const uint32_t top = last_of(dy, n), one = last_of(x, n), g = pg ? last_of(gate, n) : 0;
		uint32_t out, out_gate;

		act_grad_some(&out, pg_out ? &out_gate : NULL, &top, &one, pg ? &g : NULL, 1, f);
		((uint16_t *)dx)[n - 1] = (uint16_t)out;
		if (pg_out)
			((uint16_t *)dgate)[n - 1] = (uint16_t)out_gate;
	}
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

int dt_cpu_act_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, enum dt_act_fn f)
{
	const int64_t n = dt_numel(x);

#pragma omp parallel for num_threads(dev->nthreads) if (n > DT_SERIAL)
	for (int64_t i = 0; i < n; i += DT_CHUNK)
		act_at(y, x, f, i, dt_min64(DT_CHUNK, n - i));
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

void dt_cpu_gate(float *y, const float *gate, const float *up, int64_t n, enum dt_act_fn f)
{
	act_chunk(y, gate, up, n, f);
}

/* Columns c .. c + n of row r: gate at c, up at width + c. */
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

int dt_cpu_gated_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, enum dt_act_fn f)
{
	const int64_t rows = dt_rows(y), width = dt_cols(y), parts = dt_ceil_div(width, DT_CHUNK);

#pragma omp parallel for num_threads(dev->nthreads) if (rows * width > DT_SERIAL)
	for (int64_t i = 0; i < rows * parts; i++)
		gated_at(y, x, f, i / parts, i % parts * DT_CHUNK,
			 dt_min64(DT_CHUNK, width - i % parts * DT_CHUNK));
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
