/* The table of CUDA ops. */
#include "kernels/check.h"
#include "kernels/cuda/cuda.h"

#define DT_OP(name, params, args, memory) DT_CHECKED(name, params, args, memory, true, dt_cuda_##name)
#include "kernels/ops.list"

const struct dt_ops dt_ops_cuda = {
#define DT_OP(name, params, args, memory) .name = checked_##name,
#include "kernels/ops.list"
};
/* SPDX-License-Identifier: Apache-2.0 */
