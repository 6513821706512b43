/*
 * Matrix product and column sums.
 *
 * matmul: c[m, n] = (accumulate ? c : 0) + op(a) op(b) + bias
 *   ta false: a is [m, k]; true: a is [k, m].  tb false: b is [k, n]; true: b is [n, k] (a linear layer's
 *   weight: y = x w^T is matmul(y, x, false, w, true); dx = dy w; dw += dy^T x).
 *   a and b share a type, f32, bf16 or f16 (which is widened to f32 first); c is f32 or that type; bias [n]
 *   of a's type, or absent. Leading dimensions fold into rows: a tensor [b, s, k] is [b s, k].
 * colsum: out[n] += sum over rows of x[rows, n]
 *   out f32, x f32, bf16 or f16 (the gradient of a bias)
 *
 * On cards c, a and b may have a row stride (device.h). What lies past the columns of c stays as it is. Of a
 * (ta false) and b (tb true), whose rows run over k, it must be zeros up to a multiple of 8 columns at least:
 * a product may take it for more of k.
 *
 * c may not overlap a, b or bias. Any size works, zero included: k = 0 gives bias (+ c).
 * Accumulation: f32 over k, rounded to c's type once, after bias and the old c were added.
 * Determinism: the same call on the same device gives the same bits. matmul does not depend on the number of
 * threads where the processor has AVX-512, but in bf16 by AMX, where few outputs of a long k are summed by
 * several threads; colsum nowhere does.
 *
 * Batch invariance: while dev->batch_invariant is set (a server sets it once), row i of c depends on row i of
 * a, on b and on bias only: not on m, nor on i. With AVX-512 oneDNN's products have that property anyway
 * (tests/kernels/test_matmul.c holds them to it, bit for bit), but for those of bf16 by AMX; there, elsewhere
 * and with ta, slower products of our own are used. Without the flag m may choose another order of
 * accumulation.
 */
#ifndef DT_KERNELS_MATMUL_H
#define DT_KERNELS_MATMUL_H

#include "kernels/device.h"

#endif
/* SPDX-License-Identifier: Apache-2.0 */
