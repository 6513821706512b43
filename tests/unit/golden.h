/*
 * Golden files for tests: tests/data/golden-*.h5, written by tests/data/golden_models.py (which says what is
 * in them). A missing file, name or attribute, or one of another type, fails the running test with a message.
 * Arrays returned are the caller's to free().
 */
#ifndef DT_TESTS_GOLDEN_H
#define DT_TESTS_GOLDEN_H

#include "model/config.h"

#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>

struct golden {
	hid_t file;
	char name[64];
};

/* name: "gpt2" opens golden-gpt2.h5. */
void golden_open(struct golden *g, const char *name);
void golden_close(struct golden *g);

/* A file or folder of tests/data; valid until the next call. */
const char *golden_path(const char *name);

bool golden_has(const struct golden *g, const char *dataset);
/* Extents of a dataset; returns ndim (0: a scalar). */
int golden_shape(const struct golden *g, const char *dataset, int64_t shape[4]);

/* Whole datasets, row-major, converted by HDF5; *ret_n (may be NULL) is the number of elements. */
float *golden_f32(const struct golden *g, const char *dataset, int64_t *ret_n);
double *golden_f64(const struct golden *g, const char *dataset, int64_t *ret_n);
int32_t *golden_i32(const struct golden *g, const char *dataset, int64_t *ret_n);
/* A dataset of one number ("loss"). */
double golden_scalar(const struct golden *g, const char *dataset);

/* Attributes of an object: "/" for the file's own, or a group ("adamw_wd"). */
int64_t golden_int(const struct golden *g, const char *object, const char *attr);
double golden_real(const struct golden *g, const char *object, const char *attr);
void golden_str(const struct golden *g, const char *object, const char *attr, char *ret, size_t n);

/* The model's attributes as a configuration, complete enough for dt_model_params and for nn. */
void golden_config(const struct golden *g, struct dt_config *ret);

/* max |x|, 0 where n is. */
double golden_largest(const float *x, int64_t n);
/* max |got - want| / max(max |want|, floor); infinite when got holds a NaN or Inf. */
double golden_err(const float *got, const float *want, int64_t n, double floor);
/* Fails the test, naming the worst element and both values, when that is above tol. */
void golden_assert_close(const char *what, const float *got, const float *want, int64_t n, double floor,
			 double tol);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
