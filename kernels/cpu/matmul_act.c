/* Not fused on the CPU: oneDNN has no product that outputs both u and f(u), and blocks of rows that stay in a
 * cache, from 64 to 1024, were no faster than the two ops over all rows. */
#include "kernels/cpu/cpu.h"

/* All tensors are of type t, with rows x cols elements. */
int dt_cpu_matmul_act(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor u, struct dt_tensor x,
		      struct dt_tensor w, struct dt_tensor bias, enum dt_act_fn f)
{
	int rc;

	rc = dt_cpu_matmul(dev, u, x, false, w, true, bias, false);
	return rc < 0 ? rc : dt_cpu_act_forward(dev, y, u, f);
}

int dt_cpu_matmul_act_backward(struct dt_dev *dev, struct dt_tensor du, struct dt_tensor dy,
			       struct dt_tensor w, struct dt_tensor u, enum dt_act_fn f)
{
	int rc;

	rc = dt_cpu_matmul(dev, du, dy, false, w, false, DT_NONE, false);
	return rc < 0 ? rc : dt_cpu_act_backward(dev, du, du, u, f);
}
/* SPDX-License-Identifier: Apache-2.0 */
