/*
 * Distillation: a student's logits against a teacher's probabilities of the k likeliest columns of each row,
 * with all other columns together as one more outcome (Hinton, Vinyals and Dean 2015, section 2). q_ic are
 * the teacher's probabilities of row i's columns c, r_i that of the others, T the temperature, w the weight:
 *   p_ij = softmax(l_i / T)_j;   R_i = sum of p_ij over the columns that the teacher does not name
 *   KL_i = sum_c q_ic log(q_ic / p_ic) + r_i log(r_i / R_i)
 *   loss_i = (1 - w) CE_i + w T^2 KL_i, with CE_i of cross_entropy.h.
 *
 * probs [rows, k + 1]: q, then r; they sum to 1. columns [rows, k]: ascending within a row.
 * Logits [rows, n] of a compute type are columns vocab_first .. vocab_first + n of the whole row. rowmax is
 * that of the whole row. With e_ij = exp((l_ij - rowmax[i]) / T):
 *
 * distill_stats: kept[i] = sum of e_ij over the teacher's columns in this shard, rest[i] over its others,
 *   dot[i] = sum of q_ij (l_ij - rowmax[i]) / T over the teacher's columns in it. All overwritten. Over
 *   shards each is summed; then KL_i = sum_c q log q + r log r - dot + log(kept + rest) - r log rest.
 * distill_grad: dlogits_ij = scale ((1 - w) (exp(l_ij - rowmax[i]) / sumexp[i] - [j == target])
 *     + w T (e_ij / (kept + rest) - (q_ij of a teacher's column, e_ij r_i / rest of another)))
 *   with sumexp, kept and rest of the whole row. Overwritten; aliasing and row strides are as in ce_grad.
 * A target of -1 is ignored: kept, rest and dot are 0, the dlogits row zero. Sums are f32, on the CPU over
 * 2048 columns at a time; rows are independent of each other and of the number of threads.
 */
#ifndef DT_KERNELS_DISTILL_H
#define DT_KERNELS_DISTILL_H

#include "kernels/device.h"

struct dt_distill {
	int64_t k; /* columns that the teacher names */
	float temperature, weight;
	const int32_t *columns; /* [rows, k] indices in the whole vocabulary */
	const float *probs;	/* [rows, k + 1] */
	int64_t vocab_first;
};

#endif
/* SPDX-License-Identifier: Apache-2.0 */
