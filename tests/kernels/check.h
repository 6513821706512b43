/*
 * What the kernel tests share: deterministic data, f32 or bf16 tensors that know their f64 values, poison,
 * and a comparison that prints both values. Include it after cmocka.
 */
#ifndef DT_TESTS_KERNELS_CHECK_H
#define DT_TESTS_KERNELS_CHECK_H

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kernels/ops.h"
#include "kernels/philox.h"
#include "kernels/shape.h"

#include "on_device.h"

#define BF16_EPS 0x1p-8	 /* half a unit in the last place, relative: 8 significant bits */
#define F16_EPS	 0x1p-11 /* 11 */

static inline double rnd(uint32_t stream, int64_t i)
{
	struct dt_philox r =
		dt_philox4x32((struct dt_philox){{(uint32_t)i, (uint32_t)(i >> 32), stream, 7}}, 1, 2);

	return (r.v[0] + (double)r.v[1] / 4294967296.) / 2147483648. - 1; /* uniform on [-1, 1) */
}

static inline double get(struct dt_tensor t, int64_t i)
{
	switch (t.dtype) {
	case DT_F32:
		return ((float *)t.data)[i];
	case DT_BF16:
		return dt_bf16_to_f32(((uint16_t *)t.data)[i]);
	case DT_F16:
		return dt_f16_to_f32(((uint16_t *)t.data)[i]);
	default:
		fail_msg("no such type here: %s", dt_dtype_name(t.dtype));
		return 0;
	}
}

static inline void put(struct dt_tensor t, int64_t i, double v)
{
	if (t.dtype == DT_F32)
		((float *)t.data)[i] = (float)v;
	else if (t.dtype == DT_BF16)
		((uint16_t *)t.data)[i] = dt_f32_to_bf16((float)v);
	else
		((uint16_t *)t.data)[i] = dt_f32_to_f16((float)v);
}

static inline size_t bytes_of(struct dt_tensor t)
{
	return (size_t)(dt_extent(t) * dt_dtype_size(t.dtype));
}

/* A tensor of its own, exactly as large as it says (so that a sanitizer sees a step too far), all NaN. */
static inline struct dt_tensor tensor(enum dt_dtype type, int64_t rows, int64_t cols)
{
	struct dt_tensor t = dt_t2(NULL, type, rows, cols);

	t.data = malloc(bytes_of(t) + !bytes_of(t));
	assert_non_null(t.data);
	memset(t.data, 0xff, bytes_of(t));
	return t;
}

/* Uniform on [-scale, scale), rounded to the type. */
static inline struct dt_tensor random_tensor(enum dt_dtype type, int64_t rows, int64_t cols, uint32_t stream,
					     double scale)
{
	struct dt_tensor t = tensor(type, rows, cols);

	for (int64_t i = 0; i < rows * cols; i++)
		put(t, i, scale * rnd(stream, i));
	return t;
}

static inline struct dt_tensor copy_of(struct dt_tensor t)
{
	struct dt_tensor c = tensor(t.dtype, t.dim[0], t.dim[1]);

	memcpy(c.data, t.data, bytes_of(t));
	return c;
}

/* A copy with rows of ld elements, NaN behind their columns. */
static inline struct dt_tensor strided_copy(struct dt_tensor t, int64_t ld)
{
	const int64_t size = dt_dtype_size(t.dtype), n = t.dim[1];
	struct dt_tensor c = tensor(t.dtype, t.dim[0], ld);

	for (int64_t i = 0; i < t.dim[0]; i++)
		memcpy((char *)c.data + i * ld * size, (char *)t.data + i * n * size, (size_t)(n * size));
	return dt_t2_ld(c.data, t.dtype, t.dim[0], n, ld);
}

/* The dense tensor of its columns; what lies behind them is bytes of this value, or anything (-1). */
static inline struct dt_tensor dense_copy(struct dt_tensor t, int behind)
{
	const int64_t size = dt_dtype_size(t.dtype), n = t.dim[1];
	struct dt_tensor c = tensor(t.dtype, t.dim[0], n);

	for (int64_t i = 0; i < t.dim[0]; i++) {
		const unsigned char *row = (unsigned char *)t.data + i * t.ld * size;

		memcpy((char *)c.data + i * n * size, row, (size_t)(n * size));
		for (int64_t j = n * size; j < t.ld * size && behind >= 0; j++)
			if (row[j] != behind)
				fail_msg("row %lld, byte %lld behind its columns: %02x, not %02x",
					 (long long)i, (long long)(j - n * size), row[j], behind);
	}
	return c;
}

/* A vector of f64 for references. */
static inline double *reals(int64_t n)
{
	double *p = calloc((size_t)n + 1, sizeof *p);

	assert_non_null(p);
	return p;
}

static inline double *values(struct dt_tensor t)
{
	double *p = reals(dt_numel(t));

	for (int64_t i = 0; i < dt_numel(t); i++)
		p[i] = get(t, i);
	return p;
}

/* |got - want| <= abs + rel |want| everywhere, a 16-bit result being allowed its own rounding on top. */
static inline void check_close(const char *what, struct dt_tensor got, const double *want, double abs,
			       double rel)
{
	if (got.dtype == DT_BF16)
		rel += BF16_EPS;
	if (got.dtype == DT_F16) {
		rel += F16_EPS;
		abs += 0x1p-25; /* half the smallest denormal */
	}
	for (int64_t i = 0; i < dt_numel(got); i++) {
		double g = get(got, i), bound = abs + rel * fabs(want[i]);

		if (!(fabs(g - want[i]) <= bound))
			fail_msg("%s [%lld]: got %.9g, want %.9g, allowed error %.3g", what, (long long)i, g,
				 want[i], bound);
	}
}

static inline void check_same_bits(const char *what, struct dt_tensor a, struct dt_tensor b)
{
	assert_int_equal(bytes_of(a), bytes_of(b));
	for (int64_t i = 0; i < dt_numel(a); i++)
		if (memcmp((char *)a.data + i * dt_dtype_size(a.dtype),
			   (char *)b.data + i * dt_dtype_size(b.dtype), (size_t)dt_dtype_size(a.dtype)))
			fail_msg("%s [%lld]: %.9g and %.9g differ", what, (long long)i, get(a, i), get(b, i));
}

/* The CPU, or what DT_TEST_DEVICE says. */
/* Activations by libm. */
static inline double act_ref(double x, enum dt_act_fn f)
{
	switch (f) {
	case DT_ACT_GELU_TANH:
		return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
	case DT_ACT_GELU_ERF:
		return 0.5 * x * erfc(-x / M_SQRT2);
	case DT_ACT_SILU:
		return x / (1 + exp(-x));
	case DT_ACT_TANH:
		return tanh(x);
	case DT_ACT_SILU_CLAMPED:
		x = x > 7 ? 7 : x;
		return x / (1 + exp(-1.702 * x));
	default:
		return x > 0 ? x : 0;
	}
}
/* What a gated activation multiplies. */
static inline double up_ref(double u, enum dt_act_fn f)
{
	return f == DT_ACT_SILU_CLAMPED ? fmin(fmax(u, -7), 7) + 1 : u;
}

/* On the processor DT_TEST_TEAM=n makes it a device of inference with n threads (kernels/cpu/team.h). */
static inline struct dt_dev *open_device(int nthreads)
{
	const char *team = getenv("DT_TEST_TEAM");
	struct dt_dev *dev = NULL;
	int rc = dt_dev_open(&dev, on_device() ? DT_DEV_CUDA : DT_DEV_CPU, 0, team ? atoi(team) : nthreads);

	if (rc < 0 && on_device()) {
		print_message("skipped: %s\n", dt_dev_why(rc));
		exit(77);
	}
	assert_int_equal(rc, 0);
	if (on_device())
		dev->ops = &on_device_ops;
	dev->steps = team != NULL;
	return dev;
}

/* Computed on the host one thread after another: fewer or smaller cases will do. */
static inline bool emulated(const struct dt_dev *dev)
{
	return strstr(dt_dev_isa(dev), "emulated") != NULL;
}

/* Whether a list of cases is taken whole: on an emulated card with DT_SLOW=1 only. */
static inline bool every_case(const struct dt_dev *dev)
{
	const char *s = getenv("DT_SLOW");

	return !emulated(dev) || (s && !strcmp(s, "1"));
}

#define free_all(...)                                                                                        \
	do {                                                                                                 \
		void *p_[] = {__VA_ARGS__};                                                                  \
		for (size_t i_ = 0; i_ < sizeof p_ / sizeof *p_; i_++)                                       \
			free(p_[i_]);                                                                        \
	} while (0)

#define TYPES 3
static const enum dt_dtype compute_types[TYPES] = {DT_F32, DT_BF16, DT_F16};

#endif
/* SPDX-License-Identifier: Apache-2.0 */
