/*
 * Local reductions. A block of accumulators that fits in the L1 cache is loaded from the first source, then
 * the other sources are added one by one: every source is read once, and additions are in the order of the
 * sources for any number of elements.
 */
#include "base/clones.h"
#include "comm/internal.h"

#include <string.h>

#define BLOCK 1024

static inline float f16_to_f32(uint16_t h)
{
	uint32_t u = (uint32_t)(h & 0x7fff) << 13, special = (h & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
	float f;

	/* as an f32 exponent it is 112 too small; the product is exact, subnormals included */
	memcpy(&f, &u, 4);
	f *= 0x1p112f;
	memcpy(&u, &f, 4);
	u |= special | (uint32_t)(h & 0x8000) << 16;
	memcpy(&f, &u, 4);
	return f;
}

static inline uint16_t f32_to_f16(float f)
{
	uint32_t u, sign, normal, small, r;
	float g;

	memcpy(&u, &f, 4);
	sign = u >> 16 & 0x8000;
	u &= 0x7fffffff;
	normal = (u + 0xc8000fffu + (u >> 13 & 1)) >> 13; /* exponent moved by 112, to nearest even */
	memcpy(&g, &u, 4);
	g += 0.5f; /* the unit of 0.5 is 2^-24, that of the smallest f16 */
	memcpy(&small, &g, 4);
	small -= 0x3f000000u;
	r = u < 0x38800000u ? small : normal;
	r = u >= 0x477ff000u ? 0x7c00 : r; /* 65520 and above */
	r = u > 0x7f800000u ? 0x7e00 : r;
	return (uint16_t)(sign | r);
}

/* NAME_pair: y = a op x over a run of elements; y may be a or x. */
#define PAIR(name, T, SUM)                                                                                   \
	DT_CLONES static void name##_pair(T *y, const T *a, const T *x, size_t n, enum dt_redop op)          \
	{                                                                                                    \
		if (op == DT_MAX)                                                                            \
			for (size_t i = 0; i < n; i++)                                                       \
				y[i] = x[i] > a[i] ? x[i] : a[i];                                            \
		else if (op == DT_MIN)                                                                       \
			for (size_t i = 0; i < n; i++)                                                       \
				y[i] = x[i] < a[i] ? x[i] : a[i];                                            \
		else                                                                                         \
			for (size_t i = 0; i < n; i++)                                                       \
				y[i] = (T)(SUM);                                                             \
	}

PAIR(f32, float, a[i] + x[i])
PAIR(f64, double, a[i] + x[i])
PAIR(i32, int32_t, (uint32_t)a[i] + (uint32_t)x[i])
PAIR(i64, int64_t, (uint64_t)a[i] + (uint64_t)x[i])
PAIR(u8, uint8_t, a[i] + x[i])
PAIR(u16, uint16_t, a[i] + x[i])
PAIR(i8, int8_t, a[i] + x[i])

DT_CLONES static void widen(float *restrict y, const uint16_t *restrict x, size_t n, bool f16)
{
	if (f16)
		for (size_t i = 0; i < n; i++)
			y[i] = f16_to_f32(x[i]);
	else
		for (size_t i = 0; i < n; i++)
			y[i] = dt_bf16_to_f32(x[i]);
}

DT_CLONES static void narrow(uint16_t *restrict y, const float *restrict x, size_t n, bool f16)
{
	if (f16)
		for (size_t i = 0; i < n; i++)
			y[i] = f32_to_f16(x[i]);
	else
		for (size_t i = 0; i < n; i++)
			y[i] = dt_f32_to_bf16(x[i]);
}

DT_CLONES static void divide_f32(float *x, size_t n, float p)
{
	for (size_t i = 0; i < n; i++)
		x[i] /= p;
}

static void many_half(uint16_t *dst, const void *const *src, int p, size_t n, bool f16, enum dt_redop op)
{
	float acc[BLOCK], x[BLOCK];

	for (size_t at = 0; at < n; at += BLOCK) {
		size_t m = n - at < BLOCK ? n - at : BLOCK;

		widen(acc, (const uint16_t *)src[0] + at, m, f16);
		for (int r = 1; r < p; r++) {
			widen(x, (const uint16_t *)src[r] + at, m, f16);
			f32_pair(acc, acc, x, m, op);
		}
		if (op == DT_AVG)
			divide_f32(acc, m, (float)p);
		narrow(dst + at, acc, m, f16);
	}
}

#define MANY(name, T)                                                                                        \
	static void many_##name(T *dst, const void *const *src, int p, size_t n, enum dt_redop op)           \
	{                                                                                                    \
		T acc[BLOCK];                                                                                \
                                                                                                             \
		for (size_t at = 0; at < n; at += BLOCK) {                                                   \
			size_t m = n - at < BLOCK ? n - at : BLOCK;                                          \
			const T *sum = (const T *)src[0] + at;                                               \
                                                                                                             \
			for (int r = 1; r < p; r++) {                                                        \
				T *to = r == p - 1 ? dst + at : acc;                                         \
                                                                                                             \
				name##_pair(to, sum, (const T *)src[r] + at, m, op);                         \
				sum = to;                                                                    \
			}                                                                                    \
			if (p == 1 && dst != src[0])                                                         \
				memcpy(dst + at, sum, m * sizeof(T));                                        \
			if (op == DT_AVG)                                                                    \
				for (size_t i = 0; i < m; i++)                                               \
					dst[at + i] = (T)(dst[at + i] / p);                                  \
		}                                                                                            \
	}

MANY(f32, float)
MANY(f64, double)
MANY(i32, int32_t)
MANY(i64, int64_t)
MANY(u8, uint8_t)
MANY(u16, uint16_t)
MANY(i8, int8_t)

void dt_comm_reduce_many(void *dst, const void *const *src, int p, size_t n, enum dt_dtype t,
			 enum dt_redop op)
{
	switch (t) {
	case DT_F32:
		many_f32(dst, src, p, n, op);
		break;
	case DT_BF16:
	case DT_F16:
		many_half(dst, src, p, n, t == DT_F16, op);
		break;
	case DT_F64:
		many_f64(dst, src, p, n, op);
		break;
	case DT_I32:
		many_i32(dst, src, p, n, op);
		break;
	case DT_I64:
		many_i64(dst, src, p, n, op);
		break;
	case DT_U8:
		many_u8(dst, src, p, n, op);
		break;
	case DT_U16:
		many_u16(dst, src, p, n, op);
		break;
	case DT_I8:
		many_i8(dst, src, p, n, op);
		break;
	default:
		break;
	}
}

void dt_comm_reduce_divide(void *x, int p, size_t n, enum dt_dtype t)
{
	switch (t) {
	case DT_F32:
		divide_f32(x, n, (float)p);
		break;
	case DT_BF16:
		for (size_t i = 0; i < n; i++)
			((uint16_t *)x)[i] = dt_f32_to_bf16(dt_bf16_to_f32(((uint16_t *)x)[i]) / (float)p);
		break;
	case DT_F16:
		for (size_t i = 0; i < n; i++)
			((uint16_t *)x)[i] = f32_to_f16(f16_to_f32(((uint16_t *)x)[i]) / (float)p);
		break;
	case DT_F64:
		for (size_t i = 0; i < n; i++)
			((double *)x)[i] /= p;
		break;
	case DT_I32:
		for (size_t i = 0; i < n; i++)
			((int32_t *)x)[i] /= p;
		break;
	case DT_I64:
		for (size_t i = 0; i < n; i++)
			((int64_t *)x)[i] /= p;
		break;
	case DT_U8:
		for (size_t i = 0; i < n; i++)
			((uint8_t *)x)[i] = (uint8_t)(((uint8_t *)x)[i] / p);
		break;
	case DT_U16:
		for (size_t i = 0; i < n; i++)
			((uint16_t *)x)[i] = (uint16_t)(((uint16_t *)x)[i] / p);
		break;
	case DT_I8:
		for (size_t i = 0; i < n; i++)
			((int8_t *)x)[i] = (int8_t)(((int8_t *)x)[i] / p);
		break;
	default:
		break;
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
