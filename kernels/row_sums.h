/*
 * Sums over a row of logits in host memory, for code that evaluates single rows: f32 exponentials (relative
 * error 1e-7, unbiased), added in f64, in lanes of fixed length.
 */
#ifndef DT_KERNELS_ROW_SUMS_H
#define DT_KERNELS_ROW_SUMS_H

#include <stdint.h>

/* Index of the first largest of n numbers; NaN is skipped. */
int64_t dt_row_argmax(const float *l, int64_t n);

/* log sum_j exp(l_j), in nats; NaN if one of them is. */
double dt_row_log_sum(const float *l, int64_t n);

/* KL(a || b) = sum_j exp(a_j - A) ((a_j - A) - (b_j - B)), in nats; A and B are the rows' log sums. */
double dt_row_divergence(const float *a, const float *b, int64_t n, double log_sum_a, double log_sum_b);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
