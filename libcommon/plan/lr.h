/*
 * Learning rate by step (0-based). Warm-up rises linearly to lr over `warmup` steps, the first step at
 * lr / warmup; then
 *   constant   lr
 *   linear     down to min_lr at the last step
 *   cosine     min_lr + (lr - min_lr) (1 + cos(pi x)) / 2, x from 0 to 1 (Loshchilov & Hutter 2017)
 *   polynomial  min_lr + (lr - min_lr) (1 - x)^2 (You et al. 2017)
 *   wsd        lr, then linearly down to min_lr over the last `decay` steps (warm-up, stable, decay)
 *   step       lr, times `factor` at each of some steps (He et al. 2015); min_lr is not read
 */
#ifndef DT_PLAN_LR_H
#define DT_PLAN_LR_H

#include "base/err.h"

#include <stdint.h>

enum dt_lr_schedule { DT_LR_CONSTANT, DT_LR_LINEAR, DT_LR_COSINE, DT_LR_WSD, DT_LR_POLYNOMIAL, DT_LR_STEP };
#define DT_LR_WORDS "constant|linear|cosine|wsd|polynomial"
#define DT_LR_DROPS 16

struct dt_lr {
	const char *text; /* the schedule as asked for; NULL: what `schedule` says */
	enum dt_lr_schedule schedule;
	int64_t drop[DT_LR_DROPS]; /* step: before which of them the rate falls, rising */
	int drops;
	double factor; /* step: what is left of it each time */
	double lr, min_lr;
	int64_t warmup, decay, steps;
	double scale; /* of all of them, by the batch; 0: 1 */
};

/* schedule and what belongs to it from text: a word, or "step:N[,N...][:FACTOR]". -EINVAL. */
int dt_lr_parse(struct dt_lr *l, struct dt_err *err);
double dt_lr_at(const struct dt_lr *l, int64_t step);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
