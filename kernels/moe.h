/*
 * Mixtures of experts (Shazeer et al. 2017, eq. 1 to 3, without noise; Jiang et al., Mixtral of Experts,
 * 2024, section 2.1): what lies between the router's scores and the experts' products, which quant.h's
 * dt_packed_set_matmul does over rows sorted by expert. A choice is one of the experts of a row: choices =
 * rows x used, those of a row beside each other, the best first. All arrays are memory of the device.
 *
 *   route   expert [choices]: the used best of each row of score [rows, experts] f32, of equal ones the
 *           first; NaN is below everything.
 *           weight [choices] f32 = exp(score) / sum of exp over the used ones, or over all experts
 *           (unscaled); both less the best score, summed in f64 and rounded once.
 *   sort    choices by expert, in each as they come: at [choices] says where each goes, from [choices]
 *           which one is there, first [experts + 1] where those of an expert begin, and at last choices.
 *   sum     y [rows, n] = sum over a row's choices i, in their order, of weight[i] x[at[i]]; x [choices,
 *           n] f32; in f32, product and sum rounded apart; y f32, bf16 or f16.
 *
 * So the result of a row depends on that row only. Bits are the same on every processor and, but for exp, on
 * cards. No array may overlap another. An expert outside [0, experts) or an at outside [0, choices) is
 * -EINVAL and nothing is written; on a card see device.h. -EINVAL: used or experts not 1 <= used <= experts
 * <= 2048.
 */
#ifndef DT_KERNELS_MOE_H
#define DT_KERNELS_MOE_H

#include "kernels/device.h"

#define DT_MOE_MOST 2048 /* experts */

struct dt_moe {
	int64_t experts, used;
	bool unscaled;
};

#endif
/* SPDX-License-Identifier: Apache-2.0 */
