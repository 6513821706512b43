/*
 * Products with constant weights, for inference: y = x w^T + bias, w [n, k] in a block format of
 * quant_formats.h, bf16 or f32, packed for this device once, at load time.
 *
 * A dt_packed holds one or more weights with the same k, stacked by rows: q, k and v, or gate and up, each in
 * its own format. One call multiplies by all of them: column c of y belongs to row c in order of appending.
 *
 *   quantised  x is quantised to 8-bit integers in blocks of 32 along k, scale_x = max |x| / 127 in f32, to
 *              nearest even; a block with all |x| below 2^-100 counts as zero. Products within a block (16
 *              elements in Q6_K, Q3_K) are exact integers (for MXFP4 twice its values, with half its scale);
 *              blocks are added up in f32, in order of k:
 *                  s = fma(scale_w scale_x, integer sum, s), and for Q4_1, Q5_1, Q4_K and Q5_K then
 *                  s = fma(minimum_w, scale_x (sum of x's integers), s)
 *              In Q2_K the sums of both halves are multiplied by their integer scales, or minima, and added
 *              exactly:
 *                  s = fma(d scale_x, integer sum, s), then s = fma(-dmin scale_x, integer sum, s)
 *   bf16       x is rounded to bf16; f32 sums in order of k. With AMX, blocks of 32 elements in order of k,
 *              each the sum of its even elements, in order, plus that of its odd ones (cpu/amx.h).
 *   f32        f32 sums in order of k.
 * Then y = s + bias, rounded once to y's type.
 *
 * A row of y depends on its row of x only: its bits do not depend on m, the number of threads or
 * dev->batch_invariant (bf16 and f32 on a card: only if that is set). For quantised weights the bits are also
 * the same on every instruction set and on cards. NaN or Inf in a row of x gives NaN in every quantised
 * column of that row.
 */
#ifndef DT_KERNELS_QUANT_H
#define DT_KERNELS_QUANT_H

#include "kernels/activation.h"
#include "kernels/device.h"
#include "kernels/quant_formats.h"

struct dt_packed; /* owns its memory; any number of devices of its kind may read one at the same time */

/*
 * Opens an empty dt_packed for rows of k elements, in memory of the device, which must outlive it. -EINVAL: k
 * is not positive.
 */
int dt_packed_open(struct dt_packed **ret, struct dt_dev *dev, int64_t k);
void dt_packed_close(struct dt_packed *w);

/*
 * Appends `rows` rows from src, which is in format `have` with the layout of a file (no alignment needed),
 * and stores them in format `as`: F32, BF16 or one of DT_PANEL_FORMATS. If the two differ, the rows are
 * decoded to f32 and encoded again, except from `have` to its dt_format_kept, which is exact. The threads
 * that will read a page touch it first (NUMA).
 *
 * -EINVAL: rows or k do not suit the formats, or NaN or Inf on conversion to a block format; -ENOTSUP: `as`
 * is not one of these; -ENOMEM. Nothing is appended then.
 */
int dt_packed_append(struct dt_packed *w, struct dt_dev *dev, enum dt_format as, enum dt_format have,
		     const void *src, int64_t rows);

/*
 * Appends the `rows` rows that a single call has appended to `from`, beginning at its row `first`. The CPU
 * shares the memory: `from` must outlive w and must be neither lent nor rewound meanwhile, and the rows do
 * not count in w's dt_packed_bytes. A card copies them. -EINVAL: no such call, or k differs; -ENOTSUP: it is
 * lent, or on another device; -ENOMEM.
 */
int dt_packed_borrow(struct dt_packed *w, const struct dt_packed *from, int64_t first, int64_t rows);

/*
 * Empties w. The CPU keeps the memory: the next append of the same format and number of rows overwrites it
 * and needs no new pages. Sets that contain w are valid again once as many rows are back.
 */
void dt_packed_rewind(struct dt_packed *w);

/*
 * Says that `then` is used next after w (NULL: unknown). The CPU prefetches its first panels during products
 * with w and while threads wait after them. `then` must outlive products with w.
 */
void dt_packed_follow(struct dt_packed *w, const struct dt_packed *then);

int64_t dt_packed_rows(const struct dt_packed *w); /* rows appended so far: n */
int64_t dt_packed_k(const struct dt_packed *w);
size_t dt_packed_bytes(const struct dt_packed *w); /* owned memory: dt_panels_bytes of each append */

/*
 * For weights that are not always in memory: dt_packed_lend copies the parts contiguously to `to`, device
 * memory of dt_packed_close_bytes, and frees their own. Afterwards w cannot be used until dt_packed_at gives
 * the address of such a copy, aligned to 64 bytes; dt_packed_bytes is then 0.
 */
size_t dt_packed_close_bytes(const struct dt_packed *w);
int dt_packed_lend(struct dt_packed *w, void *to);
void dt_packed_at(struct dt_packed *w, void *copy);

/* Row i decoded to f32 [k], exactly. -EINVAL: no such row. -ENOTSUP: w is on a card. */
int dt_packed_row(const struct dt_packed *w, int64_t i, float *out);

/*
 * Weights of the experts of a layer, of which each row of x uses one: all have the same k, rows and parts.
 * The set does not own them; they must outlive it. -EINVAL: they differ, or n is 0; -ENOMEM.
 */
struct dt_packed_set;
int dt_packed_set_open(struct dt_packed_set **ret, struct dt_dev *dev, struct dt_packed *const *w, int n);
void dt_packed_set_close(struct dt_packed_set *s);
size_t dt_packed_set_bytes(const struct dt_packed_set *s); /* device memory without the weights */
/* Call after dt_packed_at moved weights of the set. On a card, earlier work on it must have finished. */
int dt_packed_set_moved(struct dt_packed_set *s);
int dt_packed_set_n(const struct dt_packed_set *s); /* number of weights */

/*
 * Which weight of a set each row is multiplied by: rows first[i] .. first[i + 1] use weight i; first [n + 1]
 * ascends from 0 to m, the rows of y. With used 0 these are rows of x as well. Otherwise x is not expanded:
 * `used` rows of y come from each row of x, and at [m] and from [m] map them, as moe.h's sort does: row at[i]
 * of y comes from row i / used of x, and from[at[i]] = i. All are device memory. On the CPU an at may be
 * DT_MOE_AWAY (moe.h): that row of y is not computed here, and y has correspondingly fewer rows.
 */
struct dt_meet {
	const int32_t *first;
	const int32_t *at, *from;
	int64_t used;
};

/*
 * The ops (ops.list). y, x and bias are each f32, bf16 or f16; bias may be absent; y may not overlap x or
 * bias. -EINVAL: shapes or types disagree, or the weights are on another kind of device, and nothing is
 * written; -ENOMEM.
 *
 * packed_matmul      y [m, n] = x [m, k] w^T + bias [n]
 * packed_gated       y [m, n / 2] = f(g) u, where g and u are the first and the second half of the columns of
 *                    x w^T + bias, rounded once to y's type: the bits of packed_matmul and gated_forward
 *                    (activation.h) with an f32 intermediate, on a card with one of y's type. w must consist
 *                    of two parts of n / 2 rows each (two calls of dt_packed_append). -ENOTSUP: it does not,
 *                    or on a card the parts' formats differ or the product takes many rows at a time.
 * packed_set_matmul  y [m, rows] = each row times its weight. For quantised weights a row's bits are those of
 *                    packed_matmul. Never waits for the host. -EINVAL on the CPU also where p is not as
 *                    above; a card leaves rows that p does not place alone (and see device.h).
 * packed_embed       y [n, k] = scale times rows ids [n], in f32, rounded once. ids are device memory and
 *                    index a table of `of` rows, of which w holds those from `first` on. A row that w does
 *                    not hold gives zeros, so that the sum over all shards is the whole table's row. An id
 *                    outside [0, of): -EINVAL on the CPU, on a card device.h.
 */

/* What their scratch depends on of the weights; of a set, of each. */
struct dt_packed_kind {
	int64_t k;
	int parts;
	bool f32, bf16, quantised; /* formats of the parts */
};
static inline void dt_packed_kind_add(struct dt_packed_kind *w, enum dt_format part)
{
	w->parts++;
	w->f32 |= part == DT_FMT_F32;
	w->bf16 |= part == DT_FMT_BF16;
	w->quantised |= part != DT_FMT_F32 && part != DT_FMT_BF16;
}
/*
 * Scratch of a product with m rows (packed_matmul, packed_gated, packed_lora), of one with a set of n weights
 * and m rows of y, whichever weights these use, and of an embedding. It does not shrink as m grows.
 */
DT_C size_t dt_packed_matmul_scratch(const struct dt_scratch_on *on, const struct dt_packed_kind *w,
				     int64_t m);
DT_C size_t dt_packed_set_matmul_scratch(const struct dt_scratch_on *on, const struct dt_packed_kind *w,
					 int n, int64_t m);
DT_C size_t dt_packed_embed_scratch(const struct dt_scratch_on *on, int64_t k);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
