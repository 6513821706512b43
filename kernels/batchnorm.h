/*
 * Batch norm over the rows of a matrix (Ioffe and Szegedy 2015): for a batch of images, pixels are rows and
 * channels are columns (conv.h). Rows are normalised in consecutive groups of equal size: one group is the
 * plain norm, several are ghost batches (Hoffer et al. 2017). Computing the statistics is an op of its own,
 * so that the statistics of several ranks can be merged before they are used (Chan et al. 1979):
 *   n = sum n_i;  m = sum n_i m_i / n;  q = sum q_i + n_i (m_i - m)^2.
 *
 * bn_stats: mean[g, c] = mean of the group's rows of x; sqdev[g, c] = sum of (x - mean)^2.  (=)
 *   Deviations are taken from the mean of each 64 rows, then merged as above, which avoids the cancellation
 *   of large sums.
 * bn_forward: z = gamma (x - mean) rstd + beta + residual;  y = relu ? max(z, 0) : z.  (=)
 * bn_sums, with dz = relu ? (y > 0 ? dy : 0) : dy and xh = (x - mean) rstd:
 *   sum[g, c] = sum of dz; dot[g, c] = sum of dz xh.  (=)
 *   The gradients of beta and gamma are their sums over all groups.
 * bn_backward: dx = gamma rstd (dz - (sum + xh dot) / count); dresidual = dz.  (=)
 *   count: number of rows behind the statistics, over all ranks; 0: mean and rstd are constants (running
 *   statistics), and dx = gamma rstd dz.
 *
 * x, y, residual, gamma, beta and their gradients have one compute type; mean, rstd, sqdev, sum and dot are
 * f32 [groups, c]. residual and dresidual may be absent; the backward ops read y only if relu is set. y may
 * alias x or residual; dx and dresidual may each alias dy. Zero rows give zeros. Sums do not depend on the
 * number of threads.
 */
#ifndef DT_KERNELS_BATCHNORM_H
#define DT_KERNELS_BATCHNORM_H

#include "kernels/device.h"
#include "kernels/scratch.h"

struct dt_bn { /* operands shared by forward and backward */
	struct dt_tensor x, y, mean, rstd, gamma;
	bool relu;
};

/* rows: of a group; c: columns. */
DT_C size_t dt_bn_stats_scratch(const struct dt_scratch_on *on, int64_t groups, int64_t rows, int64_t c);
DT_C size_t dt_bn_forward_scratch(const struct dt_scratch_on *on, int64_t c);
DT_C size_t dt_bn_sums_scratch(const struct dt_scratch_on *on, int64_t rows, int64_t c);
DT_C size_t dt_bn_backward_scratch(const struct dt_scratch_on *on, int64_t c);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
