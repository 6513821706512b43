/* The table of CPU ops. */
#include "kernels/check.h"
#include "kernels/cpu/cpu.h"

#define DT_OP(name, params, args, memory) DT_CHECKED(name, params, args, memory, false, dt_cpu_##name)
#include "kernels/ops.list"

const struct dt_ops dt_ops_cpu = {
#define DT_OP(name, params, args, memory) .name = checked_##name,
#include "kernels/ops.list"
};
/* SPDX-License-Identifier: Apache-2.0 */
