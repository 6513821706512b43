/*
 * Loss spikes: steps whose loss or gradient norm is far above the median of a window, or not finite. The
 * update of such a step is skipped, or the run goes back to an earlier checkpoint and skips the samples since
 * then (Chowdhery et al., PaLM: Scaling Language Modeling with Pathways, 2022, section 5.1).
 *
 * All ranks see the same loss and norm, so they decide alike without communication.
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
 * The last values of accepted steps. A value is a spike if it is above median + factor max(1.4826 MAD,
 * floor), where MAD is the median distance from the median. This applies to the loss, with a floor of 1% of
 * the median, and to the logarithm of the norm, with a floor of 0.25: with a factor of 10, norms up to 12
 * times the median pass, because those of a clean run have long tails. There are no spikes before half the
 * window is full.
 */
struct spike {
	double loss[SPIKE_WINDOW_MAX], norm[SPIKE_WINDOW_MAX]; /* rings; norm holds logarithms */
	int n, next;
	int64_t bad;  /* consecutive steps that were not finite */
	int64_t back; /* consecutive rollbacks to step back_to */
	int64_t back_to;
};

/*
 * Samples [from, to) that no resumed run trains on. steps: how many steps they count as; 0 after a rollback.
 */
struct skip {
	int64_t from, to, steps;
};

/* 1.4826 MAD of n values, and their median. */
double spike_spread(const double *v, int n, double *ret_median);
/* Whether the step is a spike; `why` then describes it. Otherwise adds the step to the window. */
bool spike_look(struct spike *s, int window, double factor, double loss, double norm, char *why, size_t size);
json_t *spike_to_json(const struct spike *s);
/* window: that of the run, which may differ from the one that the values were written with. */
int spike_from_json(struct spike *s, const json_t *meta, int window, struct dt_err *err);

/* Advances the cursor past samples to be skipped; true if steps are counted for them. */
bool skips_pass(struct trainer *t);
/* Records that samples [from, to) are skipped: in future checkpoints, and at once in the folder of --save. */
int skips_add(struct trainer *t, int64_t from, int64_t to, int64_t steps, struct dt_err *err);
json_t *skips_to_json(const struct trainer *t);
/* From a manifest and from the folder of --save. */
int skips_from_json(struct trainer *t, const json_t *meta, struct dt_err *err);
void skips_release(struct trainer *t);

/*
 * rollback.c: goes back to the newest checkpoint at least `back` steps ago. 1: there is none. -EDOM: the run
 * has already gone back to it three times, so the samples are not the cause.
 */
int rollback(struct trainer *t, int64_t back, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
