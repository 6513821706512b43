/*
 * Mixture of experts (Shazeer et al. 2017, eq. 1 to 3, without noise; Jiang et al., Mixtral of Experts, 2024,
 * section 2.1; DeepSeek-V3, 2024, eq. 12 to 16): the steps between the router's scores and the experts'
 * products, which grouped.h (training) or quant.h's dt_packed_set_matmul (serving) compute on rows sorted by
 * expert. A choice is one of the experts of a row (top-k): choices = rows x used, a row's choices adjacent,
 * best first. All arrays are device memory.
 *
 *   route   expert [choices]: the `used` best of each row of score [rows, experts] f32, the lower index first
 *           among equals; NaN is below everything.
 *           weight [choices] f32 = scale exp(score) / sum of exp over the used ones, or over all experts
 *           (unscaled); both after subtracting the best score, summed in f64 and rounded once.
 *           sigmoid: s = 1 / (1 + exp(-score)) instead of exp(score), divided by the sum over the used ones
 *           + 1e-20, or not divided (unscaled). bias [experts] f32 (or DT_NONE) is added to s for the choice
 *           only, not for the weight.
 *           groups > 1: experts form this many equal groups, of which only the groups_used best take part. A
 *           group's value is its best expert (DeepSeek-V2), with sigmoid the sum of its two best (V3).
 *   sort    stable sort of the choices by expert: at [choices] is where each choice goes, from [choices] the
 *           inverse, first [experts + 1] where each expert's choices begin, its last entry being choices.
 *   place   the same for experts [begin, begin + n) only, whose rows are counted from 0: at is DT_MOE_AWAY
 *           for the choices of others, first [n + 1]. capacity > 0: an expert takes at most this many
 *           choices, those of largest weight (of equal ones the first); at of the others is DT_MOE_AWAY too.
 *           from is DT_MOE_AWAY from first[n] on. dropped [1] f64 (may be NULL) += choices past capacity.
 *   count   load [groups, experts] f32 = choices per expert in each of `groups` equal runs of choices,
 *           divided by total; count [experts] f64 (may be NULL) += choices per expert over all runs.
 *   gather  y [m, n]: row i is row from[i] / used of x, left alone where from[i] is DT_MOE_AWAY.
 *   sum     y [rows, n] = also + sum over a row's choices i, in order, of weight[i] x[at[i]]; x and also (or
 *           DT_NONE: 0) f32, bf16 or f16; weight NULL: 1; choices that are DT_MOE_AWAY are skipped. Computed
 *           in f32, product and sum rounded separately; y f32, bf16 or f16.
 *
 * So the result of a row depends on that row only. Bits are the same on every processor and, except for exp,
 * on cards. No array may overlap another. An expert outside [0, experts) or an at outside [0, rows of x) is
 * -EINVAL and nothing is written; on a card see device.h. -EINVAL: not 1 <= used <= experts <= 2048; groups
 * that do not divide the experts (in count: the choices), or whose groups_used have fewer than `used`
 * experts.
 *
 * Backward
 *   sum_backward    dx[at[i]] = weight[i] dy[row of i], dweight[i] = dy[row of i] . x[at[i]] (f32; 0 where
 *                   at is DT_MOE_AWAY); rows of dx that no at names are left alone. The backward of gather
 *                   is sum without weights.
 *   route_backward  dscore [rows, experts] = overwritten: the gradient of the weights (dweight [choices]),
 *                   and of the two losses of struct dt_moe_loss:
 *     balance  sum over rows t and experts i of balance load[t / load_rows][i] p_ti, load without gradient;
 *              p is the softmax of the scores, or (sigmoid) s over its sum (Fedus et al. 2021, eq. 4 to 6,
 *              where load is an expert's share of the choices and balance is experts / rows)
 *     z        sum over rows of z lse^2, lse = log sum exp(score) (Zoph et al. 2022, eq. 5)
 *                   ret [2] f64 += sum of load p, and of lse^2; NULL: neither. bias gets no gradient.
 */
#ifndef DT_KERNELS_MOE_H
#define DT_KERNELS_MOE_H

#include "kernels/device.h"
#include "kernels/scratch.h"

#define DT_MOE_MOST 2048 /* maximum number of experts */

#define DT_MOE_AWAY INT32_MIN /* at: the choice is another rank's, or exceeds an expert's capacity */

struct dt_moe {
	int64_t experts, used;
	bool unscaled;
	bool sigmoid;
	int64_t groups, groups_used; /* 0 or 1: no groups */
	float scale;		     /* 0: 1 */
};

struct dt_moe_place {
	int64_t experts;  /* of the whole model */
	int64_t begin, n; /* experts whose choices are placed */
	int64_t capacity; /* choices per expert; 0: unlimited */
	double *dropped;  /* device memory; NULL: not counted */
};

struct dt_moe_loss {
	float balance, z;
	const float *load; /* [rows / load_rows, experts]; may be NULL where balance is 0 and ret NULL */
	int64_t load_rows;
	double *ret; /* device memory */
};

/* CPU: rows whose contributions to the two losses are summed separately, in a fixed order. */
#define DT_MOE_LOSS_ROWS 64

/* Scratch of moe_route_backward. */
DT_C size_t dt_moe_route_backward_scratch(const struct dt_scratch_on *on, int64_t rows);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
