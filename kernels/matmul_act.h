/*
 * A linear layer fused with its activation (activation.h, not gated), forward and backward, which saves a
 * pass over memory. All tensors are of one compute type.
 *
 * matmul_act:          u[m, n] = x[m, k] w[n, k]^T + bias,  y[m, n] = f(u)      bias [n] or absent
 * matmul_act_backward: du[m, n] = (dy[m, k] w[k, n]) f'(u)                      u from the forward pass
 *
 * u, y and du are overwritten and overlap nothing. Any size works, zero included: k = 0 gives u = bias, du =
 * 0. Accumulation, determinism and batch invariance are matmul.h's. On the CPU both give the bits of matmul
 * followed by act: f and f' are computed from the rounded u, and dy w is rounded before it is multiplied.
 * cuBLASLt, which does gelu_tanh where u is aligned to 16 bytes and n is a multiple of 8, skips both of these
 * roundings.
 */
#ifndef DT_KERNELS_MATMUL_ACT_H
#define DT_KERNELS_MATMUL_ACT_H

#include "kernels/activation.h"
#include "kernels/device.h"

#endif
/* SPDX-License-Identifier: Apache-2.0 */
