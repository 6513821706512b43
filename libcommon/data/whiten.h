/*
 * Whitening filters of images: the eigenvectors v of the covariance of their patches, each divided by the
 * square root of its eigenvalue, so that a convolution with them has uncorrelated outputs of variance 1 (Page
 * 2019; Jordan 2024, arXiv:2404.00498, section 3.1).
 */
#ifndef DT_DATA_WHITEN_H
#define DT_DATA_WHITEN_H

#include "data/augment.h"
#include "data/images.h"

#define DT_WHITEN_IMAGES 5000 /* images of the set, from the first, that the covariance uses at most */
#define DT_WHITEN_EPS	 5e-4 /* added to eigenvalues */

/*
 * Computes 2 k filters in ret [2 k, k], k = channels kernel^2, one a row in the order of a convolution's
 * weights (channel, row, column). Rows 0 .. k - 1 are v_i / sqrt(lambda_i + DT_WHITEN_EPS), largest
 * eigenvalue first, with the sign that makes v_i's element of largest magnitude positive; rows k .. 2 k - 1
 * are their negatives. a says how pixels are normalised and cropped; nothing is random. Every rank gets the
 * same result.
 */
int dt_whiten_filters(const struct dt_images *d, const struct dt_augment *a, int kernel, float *ret,
		      struct dt_err *err);
/*
 * Eigenvalues, in decreasing order, and eigenvectors of a symmetric matrix m [n, n], which is overwritten;
 * vector i is row i of ret_v [n, n]. Cyclic Jacobi (Golub and Van Loan, section 8.5).
 */
void dt_eigen_symmetric(double *m, int n, double *ret_value, double *ret_v);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
