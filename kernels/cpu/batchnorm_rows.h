/* Batch norms over the rows of a group, in one loop each. For kernels/cpu/batchnorm.c. */
#ifndef DT_KERNELS_CPU_BATCHNORM_ROWS_H
#define DT_KERNELS_CPU_BATCHNORM_ROWS_H

#include "kernels/cpu/cpu.h"

/* Merges statistics (n, mean2, q2) into (m, mean, q), vectors of c: Chan et al. 1979. */
void dt_bn_rows_merge(float *mean, float *q, double m, const float *mean2, const float *q2, double n,
		      int64_t c);
/* Mean and sum of squared deviations of rows [first, last); buf has room for two vectors. */
void dt_bn_stats_rows(float *mean, float *q, float *buf, struct dt_tensor x, int64_t first, int64_t last);

struct dt_bn_work {
	const struct dt_bn *p;
	struct dt_tensor dx, dresidual, dy, residual;
	/* [c] coefficients of a group: y = k (x - m) + b; dx = k dz + d (x - m) + b */
	const float *m, *k, *b, *d;
};
/* Rows [first, last). sums: of dz, and of dz times the normalised x. */
void dt_bn_forward_rows(const struct dt_bn_work *a, int64_t first, int64_t last);
void dt_bn_sums_rows(float *sum, float *dot, const struct dt_bn_work *a, int64_t first, int64_t last);
void dt_bn_backward_rows(const struct dt_bn_work *a, int64_t first, int64_t last);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
