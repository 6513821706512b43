/* Build without cuDNN: a card has no convolutions, and models that need them are refused. */
#include "kernels/cuda/cuda.h"

int dt_dnn_open(struct dt_dnn **ret, void *stream)
{
	return -ENOTSUP;
}

void dt_dnn_close(struct dt_dnn *d)
{
}

#define ABSENT(name, ...)                                                                                    \
	int dt_cuda_##name(struct dt_dev *dev, __VA_ARGS__)                                                  \
	{                                                                                                    \
		return -ENOTSUP;                                                                             \
	}
#define T struct dt_tensor

ABSENT(conv_forward, T y, T x, T w, const struct dt_conv *p)
ABSENT(conv_bias, T y, T x, T w, T bias, T residual, bool relu, const struct dt_conv *p)
ABSENT(conv_backward, T dx, T dy, T w, const struct dt_conv *p)
ABSENT(conv_weights, T dw, T dy, T x, bool accumulate, const struct dt_conv *p)
/* SPDX-License-Identifier: Apache-2.0 */
