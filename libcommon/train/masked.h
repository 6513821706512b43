/*
 * Masked language modelling (Devlin et al. 2018, section 3.1): of each sample, --mask-share of the tokens,
 * rounded to a whole number of at least 1, are predicted. Of these, 80 % are replaced by the mask token, 10 %
 * by a random token of the vocabulary, and 10 % are kept. Which ones depends on the seed, the sample's global
 * number and the position alone: every layout and a resumed run choose alike, and each epoch anew.
 */
#ifndef DT_TRAIN_MASKED_H
#define DT_TRAIN_MASKED_H

#include "nn/exec.h"

struct trainer;

/* -EINVAL when the data set or the model does not allow it; 0 for models that are no encoders. */
int masked_check(struct trainer *t, struct dt_err *err);
/* Sets the ids and targets of sample n, in sequence b. row: its tokens; NULL: it has no targets. */
void masked_put(const struct trainer *t, const struct dt_flight *f, bool eval, int64_t b, int64_t n,
		const int32_t *row);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
