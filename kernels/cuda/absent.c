/*
 * Ops that a card does not compute: each answers -ENOTSUP. A run that needs one is refused by name before
 * it starts (dt_run_check).
 */
#include "kernels/cuda/cuda.h"

#include <errno.h>

#define ABSENT(name, ...)                                                                                    \
	int dt_cuda_##name(struct dt_dev *dev, __VA_ARGS__)                                                  \
	{                                                                                                    \
		return -ENOTSUP;                                                                             \
	}
#define T struct dt_tensor

ABSENT(round_blocks, T w, enum dt_format f)
/* SPDX-License-Identifier: Apache-2.0 */
