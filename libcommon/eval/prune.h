/*
 * Which weights of a matrix become zero. A weight counts |w| times the scale of its column: 1 (magnitude, Han
 * et al. 2015), or the root of the mean square of its input (Wanda, Sun et al. 2024).
 */
#ifndef DT_EVAL_PRUNE_H
#define DT_EVAL_PRUNE_H

#include <stdint.h>

/*
 * The `zeros` elements of x [n] that count least become 0; of equal ones the first. scale [n], not negative;
 * NULL: 1. A NaN counts most.
 */
void dt_prune_least(float *x, int64_t n, const float *scale, int64_t zeros);

/* All but the `keep` that count most of every `of` neighbours: of <= 32, n a multiple of it. */
void dt_prune_pattern(float *x, int64_t n, const float *scale, int keep, int of);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
