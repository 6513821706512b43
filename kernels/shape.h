/* Helpers on the shapes of tensors, for the ops of every device. */
#ifndef DT_KERNELS_SHAPE_H
#define DT_KERNELS_SHAPE_H

#include "kernels/attention.h"

#include <errno.h>

/*
 * Columns of the last dimension, and rows of all others. No index is a variable: in a loop, compilers would
 * store the tensor to memory for it and copy it in each iteration, for some 15 cycles.
 */
static inline int64_t dt_cols(struct dt_tensor t)
{
	return t.ndim == 2   ? t.dim[1]
	       : t.ndim == 1 ? t.dim[0]
	       : t.ndim == 3 ? t.dim[2]
	       : t.ndim == 4 ? t.dim[3]
			     : 1;
}

static inline int64_t dt_rows(struct dt_tensor t)
{
	int64_t n = 1;

	for (int i = 0; i + 1 < t.ndim; i++)
		n *= t.dim[i];
	return n;
}

/* Elements between the starts of two rows. */
static inline int64_t dt_stride(struct dt_tensor t)
{
	return t.ld ? t.ld : dt_cols(t);
}

static inline bool dt_is_dense(struct dt_tensor t)
{
	return dt_stride(t) == dt_cols(t);
}

/* Elements of the memory, padding between rows included. */
static inline int64_t dt_extent(struct dt_tensor t)
{
	return dt_rows(t) * dt_stride(t);
}

static inline bool dt_is_compute(enum dt_dtype t)
{
	return t == DT_F32 || t == DT_BF16 || t == DT_F16;
}

/* Whether t is present, of this type, with n elements. */
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

/* Whether two tensors share memory. */
static inline bool dt_overlap(struct dt_tensor a, struct dt_tensor b)
{
	const char *pa = (const char *)a.data, *pb = (const char *)b.data;

	return pa < pb + dt_extent(b) * dt_dtype_size(b.dtype) &&
	       pb < pa + dt_extent(a) * dt_dtype_size(a.dtype);
}

/* Whether all n indices in host memory are in [0, end). */
static inline bool dt_within(const int32_t *p, int64_t n, int64_t end)
{
	int out = 0;

	for (int64_t i = 0; i < n; i++)
		out |= p[i] < 0 || p[i] >= end;
	return !out;
}

static inline DT_HOST_DEVICE int64_t dt_min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline DT_HOST_DEVICE int64_t dt_ceil_div(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

/* Row of the cache that holds key j of sequence i; the tables are in host memory. */
static inline int64_t dt_paged_row(const struct dt_paged *g, int i, int64_t j)
{
	const uint32_t size = (uint32_t)g->block_size, at = (uint32_t)j; /* 32-bit division is faster */

	return (int64_t)g->block_table[(int64_t)i * g->max_blocks + at / size] * size + at % size;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
