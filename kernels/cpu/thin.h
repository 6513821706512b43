/* Thin products of 16-bit operands on processors that would widen them (matmul.h). */
#ifndef DT_KERNELS_CPU_THIN_H
#define DT_KERNELS_CPU_THIN_H

#include "kernels/columns.h"
#include "kernels/cpu/matmul_path.h"

/* Whether dt_thin_matmul takes a product, because it is faster than oneDNN on f32 copies. */
bool dt_thin_is(struct dt_dev *dev, const struct dt_matmul_key *key);
/* c = (accumulate ? c : 0) + op(a) op(b) + bias for such a shape. The matmul cache must exist. -ENOMEM. */
int dt_thin_matmul(struct dt_dev *dev, const struct dt_matmul_key *key, struct dt_tensor c,
		   struct dt_tensor a, struct dt_tensor b, struct dt_tensor bias);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
