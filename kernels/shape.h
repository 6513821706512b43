/* What the ops of every device ask of their tensors. */
#ifndef DT_KERNELS_SHAPE_H
#define DT_KERNELS_SHAPE_H

#include "kernels/device.h"

/* Columns of the last dimension, and rows of all others. */
static inline int64_t dt_cols(struct dt_tensor t)
{
	return t.ndim ? t.dim[t.ndim - 1] : 1;
}

static inline int64_t dt_rows(struct dt_tensor t)
{
	int64_t n = 1;

	for (int i = 0; i + 1 < t.ndim; i++)
		n *= t.dim[i];
	return n;
}

static inline bool dt_is_compute(enum dt_dtype t)
{
	return t == DT_F32 || t == DT_BF16 || t == DT_F16;
}

/* Present, of this type, with n elements. */
static inline bool dt_is(struct dt_tensor t, enum dt_dtype type, int64_t n)
{
	return t.data && t.dtype == type && dt_numel(t) == n;
}

static inline bool dt_is_or_absent(struct dt_tensor t, enum dt_dtype type, int64_t n)
{
	return !t.data || dt_is(t, type, n);
}

static inline void *dt_at(struct dt_tensor t, int64_t i)
{
	return t.data ? (char *)t.data + i * dt_dtype_size(t.dtype) : NULL;
}

static inline DT_HOST_DEVICE int64_t dt_min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline DT_HOST_DEVICE int64_t dt_ceil_div(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

#endif
