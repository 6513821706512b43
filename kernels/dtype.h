/* Element types. */
#ifndef DT_KERNELS_DTYPE_H
#define DT_KERNELS_DTYPE_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define DT_HOST_DEVICE __host__ __device__
#else
#define DT_HOST_DEVICE
#endif

enum dt_dtype {
	DT_F32 = 0,
	DT_BF16,
	DT_F16,
	DT_F64,
	DT_I32,
	DT_I64,
	DT_U8,
	DT_U16,
	DT_I8,
	DT_DTYPE_N, /* number of types that are stored and sent; those below are for products only (fp8.h) */
	DT_E4M3 = DT_DTYPE_N,
	DT_E5M2,
	DT_DTYPES,
};

static inline int dt_dtype_size(enum dt_dtype t)
{
	static const int size[DT_DTYPES] = {4, 2, 2, 8, 4, 8, 1, 2, 1, 1, 1};

	return size[t];
}

static inline const char *dt_dtype_name(enum dt_dtype t)
{
	static const char *const name[DT_DTYPES] = {"f32", "bf16", "f16", "f64",  "i32", "i64",
						    "u8",  "u16",  "i8",  "e4m3", "e5m2"};

	return name[t];
}

/* -1: no such type, or one that tensors are not stored in. */
static inline int dt_dtype_parse(const char *s)
{
	for (int i = 0; i < DT_DTYPE_N; i++)
		if (!strcmp(s, dt_dtype_name((enum dt_dtype)i)))
			return i;
	if (!strcmp(s, "fp32"))
		return DT_F32;
	return strcmp(s, "fp16") ? -1 : DT_F16;
}

/* bfloat16 is the upper half of an IEEE single. Rounds to nearest even; NaN stays NaN. */
static inline DT_HOST_DEVICE float dt_bf16_to_f32(uint16_t h)
{
	uint32_t u = (uint32_t)h << 16;
	float f;

	memcpy(&f, &u, 4);
	return f;
}

/* Bits of |f|. As integers they are in the order of the floats, followed by Inf and then NaN. */
static inline DT_HOST_DEVICE uint32_t dt_magnitude(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	return u & 0x7fffffffu;
}

static inline DT_HOST_DEVICE uint16_t dt_f32_to_bf16(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	if ((u & 0x7fffffffu) > 0x7f800000u)
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

/* IEEE binary16 with denormals. Rounds to nearest even; overflow gives infinity. */
static inline DT_HOST_DEVICE float dt_f16_to_f32(uint16_t h)
{
	uint32_t mag = (uint32_t)(h & 0x7fff) << 13;
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, u;
	float f;

	/*
	 * Bits of f16 read as f32 are the value times 2^-112; the multiplication also normalises denormals.
	 */
	memcpy(&f, &mag, 4);
	f *= 0x1p112f;
	memcpy(&u, &f, 4);
	u |= (h & 0x7c00) == 0x7c00 ? 0x7f800000u | mag : 0;
	u |= sign;
	memcpy(&f, &u, 4);
	return f;
}

static inline DT_HOST_DEVICE uint16_t dt_f32_to_f16(float f)
{
	uint32_t u, mag, sub;
	float a;

	memcpy(&u, &f, 4);
	mag = u & 0x7fffffffu;
	/*
	 * Below 2^-14: adding 1/2 leaves the value as a multiple of 2^-24 in the low bits, correctly rounded.
	 */
	memcpy(&a, &mag, 4);
	a += 0.5f;
	memcpy(&sub, &a, 4);
	sub -= 0x3f000000u;
	mag = mag > 0x7f800000u	   ? 0x7e00u
	      : mag >= 0x477ff000u ? 0x7c00u
	      : mag < 0x38800000u  ? sub
				   : (mag - 0x38000000u + 0xfffu + (mag >> 13 & 1)) >> 13;
	return (uint16_t)(mag | (u >> 16 & 0x8000u));
}

/*
 * 8-bit floats (Micikevicius et al. 2022; OCP 8-bit floating point specification 1.0). E4M3: 4 exponent bits,
 * bias 7, largest 448, no infinity, one NaN per sign. E5M2: 5 exponent bits, bias 15, largest 57344: the
 * upper half of an f16. Rounds to nearest even; overflow, infinity included, saturates to the largest value.
 */
static inline DT_HOST_DEVICE float dt_e4m3_to_f32(uint8_t h)
{
	uint32_t mag = (uint32_t)(h & 0x7f) << 20, u;
	float f;

	/* The bits read as f32 are the value times 2^-120; the multiplication also normalises denormals. */
	memcpy(&f, &mag, 4);
	f *= 0x1p120f;
	memcpy(&u, &f, 4);
	u |= (h & 0x7f) == 0x7f ? 0x7fc00000u : 0;
	u |= (uint32_t)(h & 0x80) << 24;
	memcpy(&f, &u, 4);
	return f;
}

static inline DT_HOST_DEVICE float dt_e5m2_to_f32(uint8_t h)
{
	return dt_f16_to_f32((uint16_t)(h << 8));
}

/*
 * mant: mantissa bits; 2^low: smallest normal number; most: largest code; nan: code of NaN. Below 2^low
 * adding 2^(23 + low - mant) leaves the value as a multiple of 2^(low - mant) in the low bits, correctly
 * rounded.
 */
static inline DT_HOST_DEVICE uint8_t dt_f32_to_8(float f, int mant, int low, uint32_t most, uint32_t nan)
{
	const uint32_t magic = (uint32_t)(127 + 23 + low - mant) << 23, drop = (uint32_t)(23 - mant);
	uint32_t u, mag, sub, code;
	float a, big;

	memcpy(&u, &f, 4);
	mag = u & 0x7fffffffu;
	memcpy(&a, &mag, 4);
	memcpy(&big, &magic, 4);
	a += big;
	memcpy(&sub, &a, 4);
	sub -= magic;
	code = ((mag + (1u << (drop - 1)) - 1 + (mag >> drop & 1)) >> drop) - ((uint32_t)(126 + low) << mant);
	code = mag < (uint32_t)(127 + low) << 23 ? sub : code > most ? most : code;
	code = mag > 0x7f800000u ? nan : code;
	return (uint8_t)(code | (u >> 24 & 0x80u));
}

static inline DT_HOST_DEVICE uint8_t dt_f32_to_e4m3(float f)
{
	return dt_f32_to_8(f, 3, -6, 0x7e, 0x7f);
}

static inline DT_HOST_DEVICE uint8_t dt_f32_to_e5m2(float f)
{
	return dt_f32_to_8(f, 2, -14, 0x7b, 0x7f);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
