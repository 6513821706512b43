/* GPUs have no state-space ops: each returns -ENOTSUP. Runs of such models on GPUs are refused before. */
#include "kernels/cuda/kernel.h"

int dt_cuda_ssm_conv(struct dt_dev *dev, struct dt_tensor xbc, struct dt_tensor u, struct dt_tensor w,
		     struct dt_tensor bias, const struct dt_ssm *p)
{
	return -ENOTSUP;
}

int dt_cuda_ssm_conv_backward(struct dt_dev *dev, struct dt_tensor du, struct dt_tensor dw,
			      struct dt_tensor dbias, struct dt_tensor dxbc, struct dt_tensor u,
			      struct dt_tensor w, struct dt_tensor bias, const struct dt_ssm *p)
{
	return -ENOTSUP;
}

int dt_cuda_ssm_scan(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor xbc, struct dt_tensor t,
		     struct dt_tensor dt_bias, struct dt_tensor a_log, struct dt_tensor d,
		     const struct dt_ssm *p)
{
	return -ENOTSUP;
}

int dt_cuda_ssm_scan_backward(struct dt_dev *dev, struct dt_tensor dxbc, struct dt_tensor dt,
			      struct dt_tensor ddt_bias, struct dt_tensor da_log, struct dt_tensor dd,
			      struct dt_tensor dy, struct dt_tensor xbc, struct dt_tensor t,
			      struct dt_tensor dt_bias, struct dt_tensor a_log, struct dt_tensor d,
			      const struct dt_ssm *p)
{
	return -ENOTSUP;
}

int dt_cuda_ssm_conv_step(struct dt_dev *dev, struct dt_tensor xbc, struct dt_tensor u, struct dt_tensor w,
			  struct dt_tensor bias, const struct dt_ssm *p, const struct dt_ssm_slots *s)
{
	return -ENOTSUP;
}

int dt_cuda_ssm_scan_step(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor xbc, struct dt_tensor t,
			  struct dt_tensor dt_bias, struct dt_tensor a_log, struct dt_tensor d,
			  const struct dt_ssm *p, const struct dt_ssm_slots *s)
{
	return -ENOTSUP;
}

int dt_cuda_ssm_gate(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, struct dt_tensor z)
{
	return -ENOTSUP;
}

int dt_cuda_ssm_gate_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dz,
			      struct dt_tensor dy, struct dt_tensor x, struct dt_tensor z)
{
	return -ENOTSUP;
}
/* SPDX-License-Identifier: Apache-2.0 */
