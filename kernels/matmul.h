/*
 * Matrix product and column sums.
 *
 * matmul: c[m, n] = (accumulate ? c : 0) + op(a) op(b) + bias
 *   ta false: a is [m, k]; true: a is [k, m].  tb false: b is [k, n]; true: b is [n, k] (a linear layer's
 *   weight: y = x w^T is matmul(y, x, false, w, true); dx = dy w; dw += dy^T x).
 *   a and b share a type, f32, bf16 or f16 (which is widened to f32 first); c is f32 or that type; bias [n]
 *   of a's type, or absent. Leading dimensions fold into rows: a tensor [b, s, k] is [b s, k].
 * colsum: out[n] += sum over rows of x[rows, n], whose rows may be padded (ld)
 *   out f32, x f32, bf16 or f16 (the gradient of a bias)
 *
 * On cards c, a and b may have a row stride (device.h). The padding after the columns of c is not written. In
 * a (ta false) and b (tb true), whose rows run along k, the padding must be zero at least up to the next
 * multiple of 8 columns: a product may read it as more of k.
 *
 * c may not overlap a, b or bias. Any size works, zero included: k = 0 gives bias (+ c).
 * Accumulation: f32 over k, rounded to c's type once, after bias and the old c were added.
 * Determinism: the same call on the same device gives the same bits. matmul does not depend on the number of
 * threads on processors with AVX-512, except for bf16 with AMX, where several threads sum a product with few
 * outputs and a long k. colsum never does.
 *
 * Batch invariance: while dev->batch_invariant is set (a server sets it once), row i of c depends on row i of
 * a, on b and on bias only: not on m, nor on i. oneDNN's AVX-512 products have that property anyway
 * (tests/kernels/test_matmul.c checks it bit for bit), except bf16 with AMX; in that case, without AVX-512
 * and with ta, our own slower products are used. Without the flag the order of accumulation may depend on m.
 */
#ifndef DT_KERNELS_MATMUL_H
#define DT_KERNELS_MATMUL_H

#include "kernels/device.h"
#include "kernels/scratch.h"

struct dt_product { /* the shape and the types of a matmul */
	int64_t m, n, k;
	bool ta, tb;
	enum dt_dtype in, out;
	bool bias, accumulate;
};
DT_C void dt_matmul_scratch(const struct dt_scratch_on *on, const struct dt_product *p, struct dt_scratch *s);
DT_C size_t dt_colsum_scratch(const struct dt_scratch_on *on, int64_t rows, int64_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
