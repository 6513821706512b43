/* CUDA's table. */
#include "kernels/cuda/cuda.h"

const struct dt_ops dt_ops_cuda = {
#define DT_OP(name, params, args, memory) .name = dt_cuda_##name,
#include "kernels/ops.list"
};
