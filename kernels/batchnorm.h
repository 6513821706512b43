/*
 * Batch norm over the rows of a matrix (Ioffe and Szegedy 2015): in a batch of images pixels are rows and
 * channels are columns (conv.h). Rows are normalised in groups of equal size, one below the other: one
 * group is the plain norm, several are ghost batches (Hoffer et al. 2017). Statistics are apart from what
 * they are used for, so that those of several ranks can be merged in between (Chan et al. 1979):
 *   n = sum n_i;  m = sum n_i m_i / n;  q = sum q_i + n_i (m_i - m)^2.
 *
 * bn_stats: mean[g, c] = of the group's rows of x; sqdev[g, c] = sum of (x - mean)^2.  (=)
 *   Rows are taken 64 at a time, their deviations from their own mean, then merged as above: no difference of
 *   large sums.
 * bn_forward: z = gamma (x - mean) rstd + beta + residual;  y = relu ? max(z, 0) : z.  (=)
 * bn_sums, with dz = relu ? (y > 0 ? dy : 0) : dy and xh = (x - mean) rstd:
 *   sum[g, c] = sum of dz; dot[g, c] = sum of dz xh.  (=)
 *   The gradients of beta and gamma are their sums over all groups.
 * bn_backward: dx = gamma rstd (dz - (sum + xh dot) / count); dresidual = dz.  (=)
 *   count: rows that the statistics are of, on all ranks; 0: mean and rstd are constants (running
 *   statistics), and dx = gamma rstd dz.
 *
 * x, y, residual, gamma, beta and their kin of one compute type; mean, rstd, sqdev, sum, dot f32 [groups, c].
 * residual and dresidual may be absent; y is read by the backward ops only where relu is set. y may be x or
 * residual; dx and dresidual may each be dy. No rows give zeros. Sums do not depend on the number of threads.
 */
#ifndef DT_KERNELS_BATCHNORM_H
#define DT_KERNELS_BATCHNORM_H

#include "kernels/device.h"

struct dt_bn { /* operands that forward and backward share */
	struct dt_tensor x, y, mean, rstd, gamma;
	bool relu;
};

#endif
/* SPDX-License-Identifier: Apache-2.0 */
