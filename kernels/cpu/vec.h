/*
 * exp, erf and tanh in f32, written so that loops over them vectorise. The polynomials are minimax fits
 * (iteratively reweighted least squares at Chebyshev nodes) of (exp(r) - 1 - r) / r^2 on |r| <= ln 2 / 2,
 * erf(x) / x in x^2 on |x| < 1,   log erfc(x) on 1 <= x <= 4. Largest errors, measured by
 * tests/kernels/test_vec.c: exp 2 ulp; erf 2e-7 absolute; tanh 4 ulp; the others
 * as stated there.
 */
#ifndef DT_KERNELS_CPU_VEC_H
#define DT_KERNELS_CPU_VEC_H

#include "kernels/cpu/cpu.h"

/* exp(x) for x <= 88.7: zero below -86.6 (where 2^(n - 1) below would be denormal), NaN for NaN. */
DT_INLINE float dt_expf_bounded(float x)
{
	const float round = 0x1.8p23f; /* adding it leaves the nearest integer in the low bits */
	float t = x * 1.44269504f + round, n = t - round;
	float r = (x - n * 0.693359375f) + n * 2.12194440e-4f; /* ln 2 in two parts, the first exact */
	float p, f;
	uint32_t u;

	p = 0.00138144649f;
	p = p * r + 0.00836878084f;
	p = p * r + 0.0416683927f;
	p = p * r + 0.166665196f;
	p = p * r + 0.49999994f;
	p = p * (r * r) + r;
	memcpy(&u, &t, 4);
	/* 2^(n - 1) first: n reaches 128, which f32 cannot hold, while the product still can. */
	u = (u - 0x4b400000u + 126u) << 23;
	memcpy(&f, &u, 4);
	f = (f + f * p) * 2.f;
	return x < -86.6f ? 0.f : f;
}

DT_INLINE float dt_expf(float x)
{
	float f = dt_expf_bounded(x);

	return x > 88.72283f ? __builtin_inff() : f;
}

DT_INLINE float dt_erff(float x)
{
	float a = __builtin_fabsf(x), s = x * x, p, q;

	p = 7.8891193e-05f;
	p = p * s - 0.000802084105f;
	p = p * s + 0.00518953521f;
	p = p * s - 0.0268544443f;
	p = p * s + 0.112836003f;
	p = p * s - 0.37612626f;
	p = p * s + 1.12837911f;
	p *= x;

	a = a > 4.f ? 4.f : a;
	q = 0.0001855749f;
	q = q * a - 0.00293961563f;
	q = q * a + 0.0218053516f;
	q = q * a - 0.103037432f;
	q = q * a - 0.638225615f;
	q = q * a - 1.12704003f;
	q = q * a - 0.000353708921f;
	q = 1.f - dt_expf(q);
	return a < 1.f ? p : __builtin_copysignf(q, x);
}

/* Near 0 by its series up to x^11, elsewhere from exp. NaN for NaN. */
DT_INLINE float dt_tanhf(float x)
{
	float a = __builtin_fabsf(x), s = x * x, p, q;

	p = -0.00886323553f;
	p = p * s + 0.0218694885f;
	p = p * s - 0.0539682540f;
	p = p * s + 0.133333333f;
	p = p * s - 0.333333333f;
	p = x + x * s * p;

	q = a > 20.f ? 20.f : a;
	q = 1.f - 2.f / (dt_expf_bounded(2.f * q) + 1.f);
	return a < 0.4f ? p : __builtin_copysignf(q, x);
}

/*
 * 2^t for t <= 0: relative error 2e-7 down to 2^-126, 0 for t <= -127, in between less than 2^-126. NaN for a
 * NaN whose low 9 bits are 0, as arithmetic on bf16 gives. In two steps, like dt_sigmoid2_bounded.
 */
DT_INLINE float dt_exp2f_bound(float t)
{
	return t < -127.f ? -127.f : t;
}

/* 2^r on |r| <= 1/2, the highest power first */
static const float dt_exp2f_terms[] = {0.00132647273f, 0.00967151299f, 0.0555073358f,
				       0.240222424f,   0.693147004f,   1.f};
#define DT_EXP2F_ROUND 0x1.8p23f /* adding it leaves the nearest integer in the low bits */

DT_INLINE float dt_exp2f_bounded(float t)
{
	const float n = t + DT_EXP2F_ROUND, r = t - (n - DT_EXP2F_ROUND);
	float p = dt_exp2f_terms[0];
	uint32_t u, v;

	DT_FOR (5, int i = 1; i < 6; i++)
		p = p * r + dt_exp2f_terms[i];
	memcpy(&u, &n, 4);
	memcpy(&v, &p, 4);
	v += u << 23;
	memcpy(&p, &v, 4);
	return p;
}

DT_INLINE float dt_exp2f_negative(float t)
{
	return dt_exp2f_bounded(dt_exp2f_bound(t));
}

/*
 * 1 / (1 + 2^-t), for results in bf16: relative error 4e-6, 0 for t <= -128; unspecified for NaN. In three
 * steps, so that a loop can do each step for many numbers before the next: as one chain, fewer than two
 * vectors would be in flight in a scheduler of 64 operations. This step clamps t by minima of its bits:
 * negative floats are in the order of unsigned integers, positive ones in that of signed integers.
 */
DT_INLINE float dt_sigmoid2_bounded(float t)
{
	uint32_t u;
	int32_t i;

	memcpy(&u, &t, 4);
	u = u > 0xc3000000u ? 0xc3000000u : u; /* -128 */
	memcpy(&i, &u, 4);
	i = i > 0x42f00000 ? 0x42f00000 : i; /* 120 */
	memcpy(&t, &i, 4);
	return t;
}

/* 2^-t of the clamped t, Inf's bits at t = -128; 2^r by a minimax polynomial on |r| <= 1/2. */
DT_INLINE float dt_sigmoid2_power(float t)
{
	const float round = 0x1.8p23f, n = round - t, r = (round - n) - t;
	float p;
	uint32_t u, v;

	memcpy(&u, &n, 4);
	p = 0.00958285294f;
	p = p * r + 0.0559064262f;
	p = p * r + 0.240240991f;
	p = p * r + 0.693124175f;
	p = p * r + 1.f;
	memcpy(&v, &p, 4);
	v += u << 23;
	memcpy(&p, &v, 4);
	return p;
}

DT_INLINE float dt_sigmoid2_of(float power)
{
	return 1.f / (1.f + power);
}

/* cap tanh(x / cap); inverse is 1 / cap */
DT_INLINE float dt_softcapf(float x, float cap, float inverse)
{
	return cap * dt_tanhf(x * inverse);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
