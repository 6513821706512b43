/*
 * Mixtures of experts (Shazeer et al. 2017, eq. 1 to 3, without noise; Jiang et al., Mixtral of Experts,
 * 2024, section 2.1; DeepSeek-V3, 2024, eq. 12 to 16): what lies between the router's scores and the experts'
 * products, which grouped.h (training) or quant.h's dt_packed_set_matmul (serving) do over rows sorted by
 * expert. A choice is one of the experts of a row: choices = rows x used, those of a row beside each other,
 * the best first. All arrays are memory of the device.
 *
 *   route   expert [choices]: the used best of each row of score [rows, experts] f32, of equal ones the
 *           first; NaN is below everything.
 *           weight [choices] f32 = scale exp(score) / sum of exp over the used ones, or over all experts
 *           (unscaled); both less the best score, summed in f64 and rounded once.
 *           sigmoid: s = 1 / (1 + exp(-score)) instead of exp(score), divided by the sum over the used ones
 *           and 1e-20, or by nothing (unscaled). bias [experts] f32 (or DT_NONE) is added to s for the choice
 *           alone, not to the weight.
 *           groups > 1: of so many equal runs of experts the groups_used best take part; a group is worth
 *           its best expert (DeepSeek-V2), with sigmoid the sum of its two best (V3).
 *   sort    choices by expert, in each as they come: at [choices] says where each goes, from [choices]
 *           which one is there, first [experts + 1] where those of an expert begin, and at last choices.
 *   place   the same of experts [begin, begin + n) alone, whose rows are counted from 0: at is DT_MOE_AWAY
 *           for the choices of others, first [n + 1]. capacity > 0: an expert takes so many choices at most,
 *           those of the largest weight (of equal ones the first), the others are DT_MOE_AWAY too. So are
 *           places from first[n] on. dropped [1] f64 (may be NULL): added to, those past a capacity.
 *   count   load [groups, experts] f32 = choices of each expert in each of so many equal runs of choices,
 *           over total; count [experts] f64 (may be NULL): added to, their numbers over all runs.
 *   gather  y [m, n]: row i is row from[i] / used of x, left alone where that is DT_MOE_AWAY.
 *   sum     y [rows, n] = also + sum over a row's choices i, in their order, of weight[i] x[at[i]]; x and
 *           also (or DT_NONE: 0) f32, bf16 or f16, weight NULL: 1, what is DT_MOE_AWAY is left out; in f32,
 *           product and sum rounded apart; y f32, bf16 or f16.
 *
 * So the result of a row depends on that row only. Bits are the same on every processor and, but for exp, on
 * cards. All arrays are memory of the device; none may overlap another. An expert outside [0, experts) or an
 * at outside [0, rows of x) is -EINVAL and nothing is written; on a card see device.h. -EINVAL: used or
 * experts not 1 <= used <= experts <= 2048; groups that do not divide the experts (of count: the choices), or
 * whose groups_used have fewer than used of them.
 *
 * Backward
 *   sum_backward    dx[at[i]] = weight[i] dy[row of i], dweight[i] = dy[row of i] . x[at[i]] (f32; 0 for what
 *                   is DT_MOE_AWAY); rows of dx that no at names are left alone. gather's is sum without
 *                   weights.
 *   route_backward  dscore [rows, experts] = overwritten: the gradient of the weights (dweight [choices]),
 *                   and of the two losses of struct dt_moe_loss:
 *     balance  sum over rows t and experts i of balance load[t / load_rows][i] p_ti, load without gradient;
 *              p is the softmax of the scores, or (sigmoid) s over its sum (Fedus et al. 2021, eq. 4 to 6,
 *              where load is the share of choices an expert has and balance experts over rows)
 *     z        sum over rows of z lse^2, lse = log sum exp(score) (Zoph et al. 2022, eq. 5)
 *                   ret [2] f64 (added to): sum of load p, and of lse^2; NULL: neither. bias has none.
 */
#ifndef DT_KERNELS_MOE_H
#define DT_KERNELS_MOE_H

#include "kernels/device.h"

#define DT_MOE_MOST 2048 /* experts */

#define DT_MOE_AWAY INT32_MIN /* at: a choice of another rank's expert, or past an expert's capacity */

struct dt_moe {
	int64_t experts, used;
	bool unscaled;
	bool sigmoid;
	int64_t groups, groups_used; /* 0 or 1: none */
	float scale;		     /* 0: 1 */
};

struct dt_moe_place {
	int64_t experts;  /* of the model */
	int64_t begin, n; /* those whose choices are placed */
	int64_t capacity; /* choices an expert takes; 0: all */
	double *dropped;  /* memory of the device; NULL: they are not counted */
};

struct dt_moe_loss {
	float balance, z;
	const float *load; /* [rows / load_rows, experts]; may be NULL where balance is 0 and ret NULL */
	int64_t load_rows;
	double *ret; /* memory of the device */
};

#endif
/* SPDX-License-Identifier: Apache-2.0 */
