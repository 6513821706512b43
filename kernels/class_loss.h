/*
 * The loss of a classifier: cross-entropy against a distribution over the classes (Szegedy et al. 2016,
 * section 7; Zhang et al. 2018). Row i has the classes targets[i] with weight share[i] and others[i] with
 * the rest (share NULL: targets[i] alone), smoothed by e over all k classes:
 *   q_j = (1 - e) (share [j == target] + (1 - share) [j == other]) + e / k
 *   loss[i] = - sum_j q_j log softmax(l_i)_j;   dlogits_ij = scale (softmax(l_i)_j - q_j)
 *   above[i] = classes that are more likely than targets[i]: larger logits, and equal ones of lower
 *   number; the target is among the best n where above[i] < n.
 * A target of -1 is ignored: its loss is 0, its dlogits row zero, above -1. loss, above, dlogits overwritten;
 * dlogits may be absent. logits f32 [rows, k]; dlogits of a compute type, logits itself where that is f32,
 * else they may not overlap. Sums are f32, in order. NaN in a row gives a NaN loss, and above is then k.
 */
#ifndef DT_KERNELS_CLASS_LOSS_H
#define DT_KERNELS_CLASS_LOSS_H

#include "kernels/device.h"

struct dt_classes {
	const int32_t *targets, *others; /* [rows] */
	const float *share;		 /* [rows]; NULL: others is not read */
	float smoothing, scale;
};

#endif
/* SPDX-License-Identifier: Apache-2.0 */
