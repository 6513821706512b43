/*
 * Grouped matrix products for the experts of a layer: each row is multiplied by the weight of its group (Gale
 * et al., MegaBlocks, 2022; here without padding). Rows are sorted by group; group g has rows
 * [first[g], first[g + 1]) and uses expert g % experts, so that rows from several ranks, sorted by rank and
 * then by expert, need not be sorted again. Groups may be empty.
 *
 *   w [experts * n, k], the experts stacked by rows; w2 likewise with n2 rows each, or DT_NONE.
 *   matmul     y [m, n + n2]: row i of group g is [x_i w_e^T, x_i w2_e^T];  x [m, k]
 *   matmul_dx  dx [m, k] = dy[:, :n] w_e + dy[:, n:] w2_e
 *   bias       y [m, n + n2]: row i of group g += [b_e, b2_e];  b [experts * n], b2 [experts * n2] or
 *              DT_NONE, of one compute type
 *   bias_backward  db_e += column sums of dy_g[:, :n], f32, db2 likewise
 *   matmul_dw  dw_e (+)= dy_g[:, :n]^T x_g, f32, dw2 likewise; without accumulate an expert without rows
 *              gets zeros
 *
 * x, y and w have one compute type; sums are f32. Only rows before first[n] are read or written; the matrices
 * may have more. dw adds up the groups of an expert in order. -EINVAL: first does not ascend from 0, or ends
 * beyond the rows; nothing is written then (on a card see device.h).
 */
#ifndef DT_KERNELS_GROUPED_H
#define DT_KERNELS_GROUPED_H

#include "kernels/dtype.h"
#include "kernels/scratch.h"

struct dt_grouped {
	const int32_t *first; /* [n + 1], device memory */
	int64_t n, experts;   /* n is a multiple of experts */
};

/*
 * Scratch of the three products, for any division of m rows, those of the matrices, into groups. t: the
 * compute type.
 */
struct dt_grouped_shape {
	int64_t m, n, n2, k, groups, experts;
};
DT_C size_t dt_grouped_matmul_scratch(const struct dt_scratch_on *on, enum dt_dtype t,
				      const struct dt_grouped_shape *s);
DT_C size_t dt_grouped_matmul_dx_scratch(const struct dt_scratch_on *on, enum dt_dtype t,
					 const struct dt_grouped_shape *s);
DT_C size_t dt_grouped_matmul_dw_scratch(const struct dt_scratch_on *on, enum dt_dtype t,
					 const struct dt_grouped_shape *s);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
