/*
 * Distillation: a student's logits against what a teacher gives the k likeliest columns of each row, and all
 * others together, as one more outcome (Hinton, Vinyals and Dean 2015, section 2). With q_ic of row
 * i's columns c, r_i of the others, T the temperature and w the weight
 *   p_ij = softmax(l_i / T)_j;   R_i = sum of p_ij over the columns that the teacher does not name
 *   KL_i = sum_c q_ic log(q_ic / p_ic) + r_i log(r_i / R_i)
 *   loss_i = (1 - w) CE_i + w T^2 KL_i, with CE_i of cross_entropy.h.
 *
 * probs [rows, k + 1]: q, and r last; they sum to 1. columns [rows, k]: ascending in a row.
 * Logits [rows, n] of a compute type are columns vocab_first .. vocab_first + n of the whole row. rowmax is
 * of whole rows. With e_ij = exp((l_ij - rowmax[i]) / T):
 *
 * distill_stats: kept[i] = sum of e_ij over the teacher's columns here, rest[i] over the others here,
 *   dot[i] = sum of q_ij (l_ij - rowmax[i]) / T over the teacher's columns here. All overwritten. Over shards
 *   each is the sum; then KL_i = sum_c q log q + r log r - dot + log(kept + rest) - r log rest.
 * distill_grad: dlogits_ij = scale ((1 - w) (exp(l_ij - rowmax[i]) / sumexp[i] - [j == target])
 *     + w T (e_ij / (kept + rest) - (q_ij of a teacher's column, e_ij r_i / rest of another)))
 *   with sumexp, kept and rest of the whole row. Overwritten; aliasing and row strides are as in ce_grad.
 * A target of -1 is ignored: kept, rest and dot are 0, the dlogits row zero. Sums are f32, on the processor
 * 2048 columns at a time; rows do not depend on each other nor on the number of threads.
 */
#ifndef DT_KERNELS_DISTILL_H
#define DT_KERNELS_DISTILL_H

#include "kernels/device.h"

struct dt_distill {
	int64_t k; /* columns that the teacher names */
	float temperature, weight;
	const int32_t *columns; /* [rows, k] of the whole vocabulary */
	const float *probs;	/* [rows, k + 1] */
	int64_t vocab_first;
};

#endif
/* SPDX-License-Identifier: Apache-2.0 */
