/*
 * Steps that are not like those before them: a loss or a gradient norm far above the median of a window, or
 * one that is not finite. Such a step's update is left out, or the run goes back to an earlier checkpoint
 * and passes over the samples since then (Chowdhery et al., PaLM: Scaling Language Modeling with Pathways,
 * 2022, section 5.1).
 *
 * All ranks see the same two numbers, so all decide alike without a message.
 */
#ifndef DT_TRAIN_SPIKE_H
#define DT_TRAIN_SPIKE_H

#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

struct trainer;
struct step_result;

enum { SPIKE_WINDOW_MAX = 1024 };

/*
 * The last values of accepted steps. A value is a spike when it is above median + factor max(1.4826 MAD,
 * floor), MAD the median distance from the median: of the loss with a floor of 1% of the median, and of the
 * logarithm of the norm with a floor of 0.25: with a factor of 10 norms up to 12 times the median pass, for
 * those of a clean run have long tails. Nothing is one before half the window is full.
 */
struct spike {
	double loss[SPIKE_WINDOW_MAX], norm[SPIKE_WINDOW_MAX]; /* of the norm: its logarithm; rings */
	int n, next;
	int64_t bad;  /* steps in a row that were not finite */
	int64_t back; /* times in a row that the run went back to the same step, which is */
	int64_t back_to;
};

/* Samples [from, to) that no resume trains on. steps: what they count as, 0 where the run went back. */
struct skip {
	int64_t from, to, steps;
};

/* 1.4826 MAD of n values, and their median. */
double spike_spread(const double *v, int n, double *ret_median);
/* Whether the step is a spike; why says what is, else it is taken into the window. */
bool spike_look(struct spike *s, int window, double factor, double loss, double norm, char *why, size_t size);
json_t *spike_to_json(const struct spike *s);
int spike_from_json(struct spike *s, const json_t *meta, struct dt_err *err);

/* Passes over samples that are to be skipped: true where a step is counted for them. */
bool skips_pass(struct trainer *t);
/* Notes that samples [from, to) are skipped, in the checkpoints to come and at once in the folder. */
int skips_add(struct trainer *t, int64_t from, int64_t to, int64_t steps, struct dt_err *err);
json_t *skips_to_json(const struct trainer *t);
/* From a manifest and from the folder of --save. */
int skips_from_json(struct trainer *t, const json_t *meta, struct dt_err *err);
void skips_release(struct trainer *t);

/*
 * rollback.c: goes back to the newest checkpoint at least `back` steps ago. 1: there is none. -EDOM: it has
 * been gone back to three times already, samples are not to blame.
 */
int rollback(struct trainer *t, int64_t back, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
