/*
 * Classifier loss: cross-entropy against a distribution over the classes (Szegedy et al. 2016, section 7;
 * Zhang et al. 2018). Row i has class targets[i] with weight share[i] and class others[i] with weight
 * 1 - share[i] (share NULL: targets[i] alone), with label smoothing e over all k classes:
 *   q_j = (1 - e) (share [j == target] + (1 - share) [j == other]) + e / k
 *   loss[i] = - sum_j q_j log softmax(l_i)_j;   dlogits_ij = scale (softmax(l_i)_j - q_j)
 *   above[i] = number of classes ranked above targets[i]: larger logit, or equal logit and lower index. The
 *   target is in the top n where above[i] < n.
 * For a single logit, of rows whose target is 0, share[i] may be a score s instead; others is not read:
 *   mse  loss[i] = (l_i - s)^2                          dlogits_i = 2 scale (l_i - s)          above[i] = 0
 *   bce  loss[i] = log(1 + exp(l_i)) - s l_i            dlogits_i = scale (sigmoid(l_i) - s)
 *        above[i] = 0 if l_i > 0 as s > 1/2 says, else 1
 * A target of -1 is ignored: loss 0, dlogits row zero, above -1. loss, above, dlogits are overwritten;
 * dlogits may be absent. logits f32 [rows, k]; dlogits of a compute type; it may alias logits if it is f32,
 * otherwise they may not overlap. Sums are f32, in order. A row with NaN has loss NaN and above k.
 */
#ifndef DT_KERNELS_CLASS_LOSS_H
#define DT_KERNELS_CLASS_LOSS_H

#include "kernels/device.h"
#include "kernels/scratch.h"

#define DT_CLASS_LOSSES "ce|mse|bce"
enum dt_class_loss { DT_CLASS_LOSS_CE, DT_CLASS_LOSS_MSE, DT_CLASS_LOSS_BCE };

struct dt_classes {
	const int32_t *targets, *others; /* [rows] */
	const float *share;		 /* [rows]; NULL: others is not read */
	float smoothing, scale;
	enum dt_class_loss loss;
};

DT_C size_t dt_class_loss_scratch(const struct dt_scratch_on *on, int64_t classes);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
