/*
 * Sums over a row of logits on the host, for who judges rows one by one: f32 exponentials (relative error
 * 1e-7, no bias), which are added in f64, in lanes of fixed length.
 */
#ifndef DT_KERNELS_ROW_SUMS_H
#define DT_KERNELS_ROW_SUMS_H

#include <stdint.h>

/* The first of the largest of n numbers; NaN is none. */
int64_t dt_row_argmax(const float *l, int64_t n);

/* log sum_j exp(l_j), in nats; NaN where one of them is. */
double dt_row_log_sum(const float *l, int64_t n);

/* KL(a || b) = sum_j exp(a_j - A) ((a_j - A) - (b_j - B)), in nats; A and B are the rows' log sums. */
double dt_row_divergence(const float *a, const float *b, int64_t n, double log_sum_a, double log_sum_b);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
