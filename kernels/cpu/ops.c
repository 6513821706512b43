/* The CPU's table. */
#include "kernels/cpu/cpu.h"

const struct dt_ops dt_ops_cpu = {
#define DT_OP(name, params, args, memory) .name = dt_cpu_##name,
#include "kernels/ops.list"
};
