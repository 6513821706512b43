/* optim_blocks.cu: the rule whose states are blocks of 8 bits. */
#ifndef DT_KERNELS_CUDA_OPTIM_BLOCKS_H
#define DT_KERNELS_CUDA_OPTIM_BLOCKS_H

#include "kernels/cuda/kernel.h"

int dt_cuda_optim_blocks(const struct dt_cuda *c, const struct dt_optim *o, struct dt_tensor copy,
			 struct dt_tensor p, struct dt_tensor g, struct dt_tensor s1, struct dt_tensor s2);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
