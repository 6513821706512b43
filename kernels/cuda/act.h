/* Device functions of the activations, for kernels that end in one. */
#ifndef DT_KERNELS_CUDA_ACT_H
#define DT_KERNELS_CUDA_ACT_H

#include "kernels/act_point.h"
#include "kernels/cuda/kernel.h"

/* f(x), and f'(x) in d. */
DT_ACT_POINT(DT_DEVICE, dt_act, expf, erff)

#endif
/* SPDX-License-Identifier: Apache-2.0 */
