/* Activations of f32, and of rows of bf16 as pairs (pair.h), for loops compiled per instruction set. */
#ifndef DT_KERNELS_CPU_ACT_H
#define DT_KERNELS_CPU_ACT_H

#include "kernels/act_point.h"
#include "kernels/cpu/pair.h"
#include "kernels/cpu/vec.h"

#define LOG2_E 1.44269504f

/*
 * act: f(x), and f'(x) where the caller uses d; act_up: what a gate multiplies. f is a constant after
 * inlining.
 */
DT_ACT_POINT(DT_INLINE, act, dt_expf, dt_erff)

/* Calls loop(..., F) with F a constant equal to f, so that the switch on f is outside the loop. */
#define WITH_CONSTANT(f, loop, ...)                                                                          \
	((f) == DT_ACT_GELU_TANH      ? loop(__VA_ARGS__, DT_ACT_GELU_TANH)                                  \
	 : (f) == DT_ACT_GELU_ERF     ? loop(__VA_ARGS__, DT_ACT_GELU_ERF)                                   \
	 : (f) == DT_ACT_SILU	      ? loop(__VA_ARGS__, DT_ACT_SILU)                                       \
	 : (f) == DT_ACT_SILU_CLAMPED ? loop(__VA_ARGS__, DT_ACT_SILU_CLAMPED)                               \
	 : (f) == DT_ACT_TANH	      ? loop(__VA_ARGS__, DT_ACT_TANH)                                       \
				      : loop(__VA_ARGS__, DT_ACT_RELU))

/*
 * For bf16 a sigmoid does not need full f32 precision: PAIRS pairs are processed at a time, in three loops
 * (vec.h), whose buffer holds 2^-t of each element's sigmoid.
 *
 * On AVX2 gelu_tanh takes 24 operations per vector of 8 (5 before the sigmoid, 11 and a division for it, 1
 * after it, 6 to unpack, round and pack), its derivative 31. Zen 3 has four pipes: at least 6 cycles per 32
 * bytes, which one thread copies in 3; measured 9.5. A single fused loop takes 14, four vectors side by side
 * in registers 12. A table of all 65,536 results (128 KiB, in L2) takes 8 with single loads and 10 with
 * gathers, but often 13; a derivative from an f32 table is as slow as the loops.
 */
#define PAIRS 128

struct powers {
	float lo[PAIRS], hi[PAIRS];
};

DT_INLINE bool quick(enum dt_act_fn f)
{
	return f == DT_ACT_GELU_TANH || f == DT_ACT_SILU;
}

/* The t of the sigmoid 1 / (1 + 2^-t) in f. */
DT_INLINE float act_exponent(float x, enum dt_act_fn f)
{
	return f == DT_ACT_SILU
		       ? x * LOG2_E
		       : x * (2.f * DT_GELU_K * LOG2_E + 2.f * DT_GELU_K * LOG2_E * DT_GELU_C * x * x);
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

/* f(x), given 2^-t of its sigmoid. */
DT_INLINE float act_quick(float x, float power, enum dt_act_fn f)
{
	float unused;

	return quick(f) ? x * dt_sigmoid2_of(power) : act(x, f, &unused);
}

/*
 * f'(x) from the sigmoid s: s + x s (1 - s) times the derivative of the sigmoid's argument. The order of
 * operations needs no clamping: where x or x^2 would overflow f32, s (1 - s) is 0 and stays so. NaN for Inf.
 */
DT_INLINE float act_slope(float x, float s, enum dt_act_fn f)
{
	const float u = (s - s * s) * x;

	return f == DT_ACT_SILU ? s + u
				: s + u * (2.f * DT_GELU_K) + u * x * (x * (6.f * DT_GELU_K * DT_GELU_C));
}

DT_INLINE uint32_t act_two(uint32_t x, struct dt_two power, uint32_t gate, bool gated, enum dt_act_fn f)
{
	const struct dt_two a = dt_pair_get(x), g = dt_pair_get(gate);
	float unused;

	return dt_pair_of(act_quick(a.lo, power.lo, f) * (gated ? act_up(g.lo, f, &unused) : 1.f),
			  act_quick(a.hi, power.hi, f) * (gated ? act_up(g.hi, f, &unused) : 1.f));
}

/* The last element of an odd number n, paired with zero. */
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

DT_INLINE uint32_t act_slopes(struct dt_two top, struct dt_two d, struct dt_two gate)
{
	return dt_pair_of(top.lo * d.lo * gate.lo, top.hi * d.hi * gate.hi);
}

/* gate and dgate: both or neither. dx may alias dy or x, dgate gate. */
DT_INLINE void act_grad_quick(dt_pair *dx, dt_pair *dgate, const dt_pair *dy, const dt_pair *x,
			      const dt_pair *gate, int64_t n, enum dt_act_fn f)
{
	struct powers e;

	act_powers(&e, x, n, f);
#pragma omp simd
	for (int64_t j = 0; j < n; j++) {
		const struct dt_two v = dt_pair_get(x[j]), top = dt_pair_get(dy[j]),
				    g = gate ? dt_pair_get(gate[j]) : (struct dt_two){1, 1};
		const struct dt_two s = {dt_sigmoid2_of(e.lo[j]), dt_sigmoid2_of(e.hi[j])};
		const struct dt_two d = {act_slope(v.lo, s.lo, f), act_slope(v.hi, s.hi, f)};

		dx[j] = act_slopes(top, d, g);
		if (dgate)
			dgate[j] = dt_pair_of(top.lo * (v.lo * s.lo), top.hi * (v.hi * s.hi));
	}
}

DT_INLINE void act_grad_loop(float *dx, float *dgate, const float *dy, const float *x, const float *gate,
			     int64_t n, enum dt_act_fn f)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++) {
		float d, slope = 1.f, a = act(x[j], f, &d), g = dy[j];

		dx[j] = g * d * (gate ? act_up(gate[j], f, &slope) : 1.f);
		if (dgate)
			dgate[j] = g * a * slope;
	}
}

DT_INLINE void act_widen(struct powers *to, const dt_pair *from, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++) {
		const struct dt_two v = dt_pair_get(from[j]);

		to->lo[j] = v.lo;
		to->hi[j] = v.hi;
	}
}

DT_INLINE void act_narrow(dt_pair *to, const struct powers *from, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		to[j] = dt_pair_of(from->lo[j], from->hi[j]);
}

/* Functions with branches: gcc vectorises their derivatives over arrays of f32, not over pairs. */
DT_INLINE void act_grad_widened(dt_pair *dx, dt_pair *dgate, const dt_pair *dy, const dt_pair *x,
				const dt_pair *gate, int64_t n, enum dt_act_fn f)
{
	struct powers top, v, g, out, out_gate;

	act_widen(&top, dy, n);
	act_widen(&v, x, n);
	if (gate)
		act_widen(&g, gate, n);
	act_grad_loop(out.lo, dgate ? out_gate.lo : NULL, top.lo, v.lo, gate ? g.lo : NULL, n, f);
	act_grad_loop(out.hi, dgate ? out_gate.hi : NULL, top.hi, v.hi, gate ? g.hi : NULL, n, f);
	act_narrow(dx, &out, n);
	if (dgate)
		act_narrow(dgate, &out_gate, n);
}

DT_INLINE void act_grad_some(dt_pair *dx, dt_pair *dgate, const dt_pair *dy, const dt_pair *x,
			     const dt_pair *gate, int64_t n, enum dt_act_fn f)
{
	if (quick(f)) {
		act_grad_quick(dx, dgate, dy, x, gate, n, f);
		return;
	}
	act_grad_widened(dx, dgate, dy, x, gate, n, f);
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

#endif
/* SPDX-License-Identifier: Apache-2.0 */
