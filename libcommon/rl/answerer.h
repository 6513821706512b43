/*
 * Samples answers during training and scores them: dt-serve's engine on a copy of the current weights, with
 * the prompts and rewards of a task. In the trainer's process, or in an actor's (rl/actors.h). The copy stays
 * allocated, and new weights overwrite the old ones: fresh pages would cost more than the copy.
 */
#ifndef DT_RL_ANSWERER_H
#define DT_RL_ANSWERER_H

#include "kernels/device.h"
#include "model/config.h"
#include "rl/reward.h"
#include "rl/sampler.h"

struct dt_answerer_opts { /* plain values but for the pointers: it is copied to shared memory for actors */
	struct dt_config config;
	enum dt_dtype compute;
	int64_t seq;
	struct dt_sampler_opts sample;
	uint64_t prompts; /* seed of the task's prompts */
	struct dt_rl_task task;
	enum dt_dev_kind device;
	int card; /* index of the CUDA device */
	int threads, reward_workers;
	const char *reward;    /* command that scores; NULL: the task does */
	const char *tokenizer; /* text that dt_tokenizer_from_text takes, of n bytes */
	size_t tokenizer_n;
};

struct dt_answerer;

/* o: its tokenizer is needed until this returns. */
int dt_answerer_open(const struct dt_answerer_opts *o, struct dt_answerer **ret, struct dt_err *err);
void dt_answerer_close(struct dt_answerer *a); /* NULL is allowed */
/* Copies new weights: values of all parameters by index, in the compute type. Later answers use them. */
int dt_answerer_take(struct dt_answerer *a, const void *const *weights, int64_t step, struct dt_err *err);
/* The step of the weights; -1: none yet. */
int64_t dt_answerer_step(const struct dt_answerer *a);
/* With sample.piece: renew is called between two pieces of an answer; it calls dt_answerer_take and returns 1
 * if there are newer weights, else 0. */
void dt_answerer_renews(struct dt_answerer *a, const struct dt_rl_renew *renew);
/*
 * Answers n groups of which index is set, with rewards; touches nothing but a and g. Seconds are added to
 * *draw_s and *score_s. The caller releases g also after a failure.
 */
int dt_answerer_draw(struct dt_answerer *a, struct dt_group *g, int64_t n, double *draw_s, double *score_s,
		     struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
