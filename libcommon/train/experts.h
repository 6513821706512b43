/* Expert counts and router biases of a mixture of experts, over one step. */
#ifndef DT_TRAIN_EXPERTS_H
#define DT_TRAIN_EXPERTS_H

#include "base/json.h"

struct trainer;

struct experts {
	float *bias; /* [blocks, experts] router biases; NULL: the model has none, or no step has begun */
	/*
	 * [blocks, experts] tokens per expert in the step, all ranks; then dropped ones, balance and z loss
	 */
	double *sum;
};

/* Before the forward passes of a step: clears the counts. */
int experts_begin(struct trainer *t, struct dt_err *err);
/* After them: sums the counts over all ranks; update: moves the biases, in the masters. */
int experts_end(struct trainer *t, bool update, struct dt_err *err);
/* The step's counts, into its line of metrics; nothing for a model without experts. */
void experts_metrics(const struct trainer *t, json_t *line);
void experts_release(struct trainer *t);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
