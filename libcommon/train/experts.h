/* What a step knows of a mixture's experts beside their parameters. */
#ifndef DT_TRAIN_EXPERTS_H
#define DT_TRAIN_EXPERTS_H

#include "base/json.h"

struct trainer;

struct experts {
	float *bias; /* [layers, experts] of the choice; NULL: the model has none, or no step has begun */
	double *sum; /* [layers, experts] choices of the step, all ranks; dropped ones, losses */
};

/* Before the forward passes of a step: counts begin. */
int experts_begin(struct trainer *t, struct dt_err *err);
/* Behind them: counts of all ranks become one; update: biases move, in the masters. */
int experts_end(struct trainer *t, bool update, struct dt_err *err);
/* The step's counts, into its line of metrics; nothing for a model without experts. */
void experts_metrics(const struct trainer *t, json_t *line);
void experts_release(struct trainer *t);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
