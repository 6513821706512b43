/*
 * Answers from weights that learn: the engine of dt-serve over a copy of them, with prompts of a task
 * and what their answers are worth. In the trainer's process, or in an actor's (rl/actors.h). The
 * copy's memory stays while others compute, and new weights overwrite the old ones: fresh pages would
 * cost more than the copy.
 */
#ifndef DT_RL_ANSWERER_H
#define DT_RL_ANSWERER_H

#include "kernels/device.h"
#include "model/config.h"
#include "rl/reward.h"
#include "rl/sampler.h"

struct dt_answerer_opts { /* of plain values but for three pointers: actors find it in shared memory */
	struct dt_config config;
	enum dt_dtype compute;
	int64_t seq;
	struct dt_sampler_opts sample;
	uint64_t prompts; /* seed of the task's */
	struct dt_rl_task task;
	enum dt_dev_kind device;
	int card; /* which, of cards */
	int threads, reward_workers;
	const char *reward;    /* command that scores; NULL: the task does */
	const char *tokenizer; /* text that dt_tokenizer_from_text takes, of n bytes */
	size_t tokenizer_n;
};

struct dt_answerer;

/* o: its tokenizer is needed until this returns. */
int dt_answerer_open(const struct dt_answerer_opts *o, struct dt_answerer **ret, struct dt_err *err);
void dt_answerer_close(struct dt_answerer *a); /* NULL is allowed */
/* From now on answers are of these: values of all parameters by number, in the compute type. */
int dt_answerer_take(struct dt_answerer *a, const void *const *weights, int64_t step, struct dt_err *err);
/* Of which step the weights are; -1: none were taken. */
int64_t dt_answerer_step(const struct dt_answerer *a);
/* With sample.piece newer weights are asked for between two pieces of an answer: renew calls dt_answerer_take
 * and returns 1, or 0 where it has none. */
void dt_answerer_renews(struct dt_answerer *a, const struct dt_rl_renew *renew);
/*
 * Answers n groups of which index is set, with rewards; touches nothing but a and g. Seconds are added to
 * *draw_s and *score_s. The caller releases g also after a failure.
 */
int dt_answerer_draw(struct dt_answerer *a, struct dt_group *g, int64_t n, double *draw_s, double *score_s,
		     struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
