/* Element types, as data. */
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
	DT_DTYPE_N,
};

static inline int dt_dtype_size(enum dt_dtype t)
{
	static const int size[DT_DTYPE_N] = {4, 2, 2, 8, 4, 8, 1, 2, 1};

	return size[t];
}

static inline const char *dt_dtype_name(enum dt_dtype t)
{
	static const char *const name[DT_DTYPE_N] = {"f32", "bf16", "f16", "f64", "i32",
						     "i64", "u8",   "u16", "i8"};

	return name[t];
}

/* -1: no such type. */
static inline int dt_dtype_parse(const char *s)
{
	for (int i = 0; i < DT_DTYPE_N; i++)
		if (!strcmp(s, dt_dtype_name((enum dt_dtype)i)))
			return i;
	if (!strcmp(s, "fp32"))
		return DT_F32;
	return strcmp(s, "fp16") ? -1 : DT_F16;
}

/* bfloat16 is the upper half of an IEEE single; rounding is to nearest even, NaN stays NaN. */
static inline DT_HOST_DEVICE float dt_bf16_to_f32(uint16_t h)
{
	uint32_t u = (uint32_t)h << 16;
	float f;

	memcpy(&f, &u, 4);
	return f;
}

static inline DT_HOST_DEVICE uint16_t dt_f32_to_bf16(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	if ((u & 0x7fffffffu) > 0x7f800000u)
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

/* IEEE binary16, denormals included; rounding is to nearest even, too large becomes infinite. */
static inline DT_HOST_DEVICE float dt_f16_to_f32(uint16_t h)
{
	uint32_t mag = (uint32_t)(h & 0x7fff) << 13;
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, u;
	float f;

	/* Bits of f16 read as f32 are the value times 2^-112; the multiplication also normalises denormals.
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
	/* Below 2^-14: adding 1/2 leaves the value as a multiple of 2^-24 in the low bits, correctly rounded.
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

#endif
