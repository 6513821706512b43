/*
 * A linear layer with the activation behind it (activation.h, not gated), and both backward, so that what
 * lies between them does not cross memory once more. All tensors are of one compute type.
 *
 * matmul_act:          u[m, n] = x[m, k] w[n, k]^T + bias,  y[m, n] = f(u)      bias [n] or absent
 * matmul_act_backward: du[m, n] = (dy[m, k] w[k, n]) f'(u)                      u as the forward pass left it
 *
 * u, y and du are overwritten and overlap nothing. Any size works, zero included: k = 0 gives u = bias, du =
 * 0. Accumulation, determinism and batch invariance are matmul.h's. On the processor both are what matmul
 * followed by act gives, bit for bit: f and f' are taken of u as it is kept, and dy w is rounded before it is
 * multiplied. cuBLASLt, which does gelu_tanh where u is aligned to 16 bytes and n is a multiple of 8, rounds
 * neither of the two before.
 */
#ifndef DT_KERNELS_MATMUL_ACT_H
#define DT_KERNELS_MATMUL_ACT_H

#include "kernels/activation.h"
#include "kernels/device.h"

#endif
/* SPDX-License-Identifier: Apache-2.0 */
