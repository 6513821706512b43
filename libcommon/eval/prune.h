/*
 * Pruning of a matrix. The score of a weight is |w| times the scale of its column: 1 (magnitude, Han et al.
 * 2015), or the root mean square of its input (Wanda, Sun et al. 2024).
 */
#ifndef DT_EVAL_PRUNE_H
#define DT_EVAL_PRUNE_H

#include <stdint.h>

/*
 * Sets the `zeros` elements of x [n] with the lowest scores to 0; among equals the first. scale [n], not
 * negative; NULL: 1. A NaN has the highest score.
 */
void dt_prune_least(float *x, int64_t n, const float *scale, int64_t zeros);

/*
 * keep:of sparsity: of every `of` neighbours keeps the `keep` with the highest scores. of <= 32, n a multiple
 * of it.
 */
void dt_prune_pattern(float *x, int64_t n, const float *scale, int keep, int of);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
