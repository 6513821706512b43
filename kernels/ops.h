/*
 * The table of ops that a device implements: ops.list has a line for each op, and its contract (formula,
 * shapes, what accumulates, what forward saves) is in a header of its own; README.md lists them. Gradients of
 * parameters accumulate (+=) in fp32, gradients of activations overwrite (=) unless a contract says
 * otherwise.
 *
 * Absent optional tensors are DT_NONE (data == NULL). x, y, w ... share one compute type (f32, bf16 or f16);
 * statistics, parameter gradients and optimizer state are f32.
 */
#ifndef DT_KERNELS_OPS_H
#define DT_KERNELS_OPS_H

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/batchnorm.h"
#include "kernels/class_loss.h"
#include "kernels/columns.h"
#include "kernels/conv.h"
#include "kernels/cross_entropy.h"
#include "kernels/device.h"
#include "kernels/distill.h"
#include "kernels/dora.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/factor.h"
#include "kernels/fixed.h"
#include "kernels/fp8.h"
#include "kernels/gram.h"
#include "kernels/grouped.h"
#include "kernels/latent.h"
#include "kernels/layernorm.h"
#include "kernels/lora.h"
#include "kernels/matmul.h"
#include "kernels/matmul_act.h"
#include "kernels/moe.h"
#include "kernels/noise.h"
#include "kernels/optim.h"
#include "kernels/pool.h"
#include "kernels/quant.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "kernels/sample.h"
#include "kernels/ssm.h"
#include "kernels/step.h"
#include "kernels/tokens.h"
#include "kernels/unpack.h"

#define DT_LIST(...) __VA_ARGS__ /* the parameters or names of a line of ops.list, without their brackets */

struct dt_ops {
#define DT_OP(name, params, args, memory) int (*name)(struct dt_dev * dev, DT_LIST params);
#include "kernels/ops.list"
};

extern const struct dt_ops dt_ops_cpu;
extern const struct dt_ops dt_ops_cuda;

#endif
/* SPDX-License-Identifier: Apache-2.0 */
