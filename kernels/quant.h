/*
 * Products with weights that never change, for inference: y = x w^T + bias, w [n, k] in a block format of
 * quant_formats.h, bf16 or f32, laid out for this processor once, when it is loaded.
 *
 * A dt_packed is one or more weights with the same k, one under another: q, k and v, or gate and up, each in
 * its own format. One call then does them all: column c of y is row c of the rows appended, in order.
 *
 *   quantised  x is rounded to 8-bit integers in blocks of 32 along k, scale_x = max |x| / 127 in f32, to
 *              nearest even; a block whose largest is below 2^-100 counts as zero. Products within a block
 *              (16 elements in Q6_K) are exact integers (of MXFP4 twice its numbers, with half its
 *              scale); blocks are added up in f32, in order of k:
 *                  s = fma(scale_w scale_x, integer sum, s), and for Q4_1, Q4_K and Q5_K then
 *                  s = fma(minimum_w, scale_x (sum of x's integers), s)
 *   bf16       x is rounded to bf16; f32 sums in order of k. With AMX, blocks of 32 elements in order of k,
 *              each the sum of its even elements, in order, plus that of its odd ones (cpu/amx.h).
 *   f32        f32 sums in order of k.
 * Then y = s + bias, rounded once to y's type.
 *
 * A row of y depends on its own row of x only: its bits are the same whatever m, the number of threads and
 * dev->batch_invariant (of bf16 and f32 on a card: only with it). Those of quantised weights are also the
 * same on every instruction set and on cards. NaN or Inf in a row of x gives NaN in every quantised column of
 * that row.
 */
#ifndef DT_KERNELS_QUANT_H
#define DT_KERNELS_QUANT_H

#include "kernels/activation.h"
#include "kernels/device.h"
#include "kernels/quant_formats.h"

struct dt_packed; /* memory of its own; any number of devices of its kind may read one at the same time */

/*
 * Empty, for rows of k elements, in the memory of the device, which outlives it. -EINVAL: k is not
 * positive.
 */
int dt_packed_open(struct dt_packed **ret, struct dt_dev *dev, int64_t k);
void dt_packed_close(struct dt_packed *w);

/*
 * rows more rows from src, which holds them in format have as a file does (no alignment needed); they are
 * kept in format as: F32, BF16 or one of DT_PANEL_FORMATS. Where the two differ, have is decoded to f32 and
 * encoded anew; but into dt_format_kept of it it goes as it is, number for number. Pages are first touched
 * by the threads that will read them.
 *
 * -EINVAL: rows or k do not suit the formats, or NaN or Inf met on the way to a block format;
 * -ENOTSUP: as is not one of these; -ENOMEM. Nothing is appended then.
 */
int dt_packed_append(struct dt_packed *w, struct dt_dev *dev, enum dt_format as, enum dt_format have,
		     const void *src, int64_t rows);

/*
 * The rows rows that one call has appended to `from` from its row `first` on. On the processor without a
 * copy: `from` outlives w and is neither lent nor emptied meanwhile, and they are none of w's own bytes; on a
 * card they are copied there. -EINVAL: no call did so, or k differs; -ENOTSUP: it is lent, or on another
 * device; -ENOMEM.
 */
int dt_packed_borrow(struct dt_packed *w, const struct dt_packed *from, int64_t first, int64_t rows);

/*
 * Empty again. On the processor the memory stays: what is appended next in the same format and number of rows
 * overwrites it, which needs no new pages. Sets of it are valid once as many rows are back.
 */
void dt_packed_rewind(struct dt_packed *w);

int64_t dt_packed_rows(const struct dt_packed *w); /* appended so far: n */
int64_t dt_packed_k(const struct dt_packed *w);
size_t dt_packed_bytes(const struct dt_packed *w); /* of its own memory, dt_panels_bytes of each append */

/*
 * Weights that are not always in memory: dt_packed_lend writes the parts, close to each other, to `to` of
 * dt_packed_close_bytes, memory of the device, and gives up their own. Until dt_packed_at says where such a
 * copy lies, aligned to 64 bytes, nothing may be computed with w; its own bytes are none then.
 */
size_t dt_packed_close_bytes(const struct dt_packed *w);
int dt_packed_lend(struct dt_packed *w, void *to);
void dt_packed_at(struct dt_packed *w, void *copy);

/* Row i as f32 [k]: exactly what its format says. -EINVAL: no such row. -ENOTSUP: it lies on a card. */
int dt_packed_row(const struct dt_packed *w, int64_t i, float *out);

/*
 * Weights of which each row of x meets one, the experts of a layer: all with the same k, rows and parts. They
 * are not the set's own, and outlive it. -EINVAL: they differ, or none; -ENOMEM.
 */
struct dt_packed_set;
int dt_packed_set_open(struct dt_packed_set **ret, struct dt_dev *dev, struct dt_packed *const *w, int n);
void dt_packed_set_close(struct dt_packed_set *s);
size_t dt_packed_set_bytes(const struct dt_packed_set *s); /* of the device, beside the weights */
/* Where its weights lie has changed (dt_packed_at), on a card: what was queued the last time is over. */
int dt_packed_set_moved(struct dt_packed_set *s);
int dt_packed_set_n(const struct dt_packed_set *s); /* weights */

/*
 * Which weight each row of a product with a set meets: rows first[i] .. first[i + 1] meet weight i; first
 * [n + 1] ascends from 0 to m, the rows of y. With used 0 these are rows of x as well. Else x has each row
 * once, used rows of y come from it, and at [m] and from [m] say which, as moe.h's sort does: row at[i] of y
 * comes from row i / used of x, and from[at[i]] = i. All are memory of the device. On the CPU an at may be
 * DT_MOE_AWAY (moe.h): this row of y is not here, and y has so many fewer.
 */
struct dt_meet {
	const int32_t *first;
	const int32_t *at, *from;
	int64_t used;
};

/*
 * The ops (ops.list). y, x and bias are f32, bf16 or f16, each its own; bias may be absent; y may not overlap
 * x or bias. -EINVAL: shapes or types disagree, or the weights are of another kind of device, and nothing is
 * written; -ENOMEM.
 *
 * packed_matmul      y [m, n] = x [m, k] w^T + bias [n]
 * packed_gated       y [m, n / 2] = f(g) u, where g and u are the first and the second half of the columns of
 *                    x w^T + bias, rounded once to y's type: the bits of packed_matmul and gated_forward
 *                    (activation.h) through f32; on a card through y's type. w is two parts of n / 2 rows
 *                    each, as two calls of dt_packed_append make them. -ENOTSUP: it is not, or the device is
 *                    a card and the parts' formats differ or its product takes rows many at a time.
 * packed_set_matmul  y [m, rows] = each row times the weight it meets. Of quantised weights a row's bits are
 *                    those of packed_matmul. Nothing waits for the host. -EINVAL on the CPU also where p is
 *                    not as above; on a card rows that p does not place are left alone (and device.h).
 * packed_embed       y [n, k] = scale times rows ids [n], in f32, rounded once. ids are memory of the device
 *                    and count the rows of a table of `of` rows, of which w has those from `first` on: a row
 *                    that w has not is zeros, so that the sum over all parts is the whole table's row. An id
 *                    outside [0, of): -EINVAL on the CPU, on a card device.h.
 */

#endif
/* SPDX-License-Identifier: Apache-2.0 */
