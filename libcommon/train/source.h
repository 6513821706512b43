/*
 * What a run is trained on: one file behind source_next. Tokens of data sets, cut into samples whose order
 * depends on the seed and the weights of the sets alone, and read by threads ahead of the step; or images
 * (images.h).
 */
#ifndef DT_TRAIN_SOURCE_H
#define DT_TRAIN_SOURCE_H

#include "data/ahead.h"
#include "data/mixture.h"
#include "nn/exec.h"
#include "train/drawn.h"
#include "train/given.h"
#include "train/images.h"

struct trainer;

struct source {
	struct dt_mixture *data;
	struct dt_ahead *ahead;
	struct dt_dataset *eval; /* NULL: no evaluation */
	struct dt_sampler eval_sampler;
	struct dt_dataset_info info;
	int64_t *length;    /* [seq] of the example that a token is of, for noise; NULL: none */
	float *noise_width; /* [rows of a microbatch] of exec.noise, likewise */
	int64_t *noise_token;
	struct image_source images; /* instead of all that */
	struct given given;	    /* likewise */
	struct drawn drawn;	    /* what it draws answers with */
};

/* Microbatches of the step under way on each rank. */
int64_t source_microbatches(const struct trainer *t);
/* Samples of the step under way: a batch, or the rows that were given. */
int64_t source_samples_of_step(const struct trainer *t);
/* The same with the rows that fill its last microbatches up. */
int64_t source_rows_computed(const struct trainer *t);
/* Tokens of the step under way that are counted. */
double source_tokens_of_step(const struct trainer *t);
/* Before the run is settled: what the data decides of the model. */
int source_describe(struct trainer *t, struct dt_err *err);
int source_open(struct trainer *t, struct dt_err *err);
/* Whether there is an evaluation set; its samples. */
bool source_evaluates(const struct trainer *t);
int64_t source_eval_samples(const struct trainer *t);
void source_close(struct trainer *t);
/* Room for --neftune. Behind the memory of the trainer. */
int source_noise(struct trainer *t, struct dt_err *err);
/* The set that sample n is of, and its number there; samples of an epoch of the training set. */
const struct dt_sampler *source_sampler(const struct trainer *t, bool eval, int64_t n, int64_t *ret_own);
int64_t source_samples(const struct trainer *t);

/*
 * Samples n .. n + microbatch - 1 into f: of the training set by global sample number, or of the evaluation
 * set. Rows past end are ignored targets.
 */
/* Targets of samples first .. end - 1: a document that is kept apart has none at its end. */
int64_t source_targets(struct trainer *t, bool eval, int64_t first, int64_t end);
/* Of the step's part, of dp parts, that a rank computes. */
double source_part_targets(struct trainer *t, int64_t part);
int source_next(struct trainer *t, bool eval, const struct dt_flight *f, int64_t n, int64_t end,
		struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
