/* Thin products of 16-bit operands on processors that widen those (matmul.h). */
#ifndef DT_KERNELS_CPU_THIN_H
#define DT_KERNELS_CPU_THIN_H

#include "kernels/columns.h"
#include "kernels/cpu/matmul.h"

#define DT_THIN 32 /* the small dimension at most */

/* Whether a product is one of dt_thin_matmul's, which are faster than oneDNN's on copies. */
bool dt_thin_is(struct dt_dev *dev, const struct dt_matmul_key *key);
/* c = (accumulate ? c : 0) + op(a) op(b) + bias of such a shape; the cache is there. -ENOMEM. */
int dt_thin_matmul(struct dt_dev *dev, const struct dt_matmul_key *key, struct dt_tensor c,
		   struct dt_tensor a, struct dt_tensor b, struct dt_tensor bias);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
