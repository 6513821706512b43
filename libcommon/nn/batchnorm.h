/* Statistics of a batch norm over several ranks. */
#ifndef DT_NN_BATCHNORM_H
#define DT_NN_BATCHNORM_H

#include <stdint.h>

/*
 * Merges the means, sums of squared deviations and counts of `ranks` parts (c + c + 1 numbers each) into
 * those of all rows together, weighted by the counts (Chan et al. 1979). An empty part adds nothing. f64
 * inside.
 */
void dt_bn_merge(float *mean, float *sqdev, double *count, const float *parts, int ranks, int64_t c);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
