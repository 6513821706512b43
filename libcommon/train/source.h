/*
 * The training data, read through source_next: tokens of data sets, cut into samples whose order depends on
 * the seed and the weights of the sets alone, and read ahead by threads; or images (images.h), texts with
 * labels (labelled.h), or samples made during the run (given.h).
 */
#ifndef DT_TRAIN_SOURCE_H
#define DT_TRAIN_SOURCE_H

#include "data/ahead.h"
#include "data/mixture.h"
#include "nn/exec.h"
#include "train/drawn.h"
#include "train/given.h"
#include "train/images.h"
#include "train/labelled.h"

struct trainer;

struct source {
	struct dt_mixture *data;
	struct dt_ahead *ahead;
	struct dt_dataset *eval; /* NULL: no evaluation */
	struct dt_sampler eval_sampler;
	struct dt_dataset_info info;
	int64_t *length;    /* [seq] NEFTune: length of the document that a token is in; NULL: no noise */
	float *noise_width; /* [rows of a microbatch] likewise, for exec.noise */
	int64_t *noise_token;
	struct image_source images; /* used instead of the above, for images */
	struct labelled labelled;   /* used instead of the above, for texts with labels */
	struct given given;	    /* used instead of the above, for samples made during the run */
	struct drawn drawn;	    /* the weights that its answers are sampled with */
};

/* The number of microbatches that this rank has in the step under way. */
int64_t source_microbatches(const struct trainer *t);
/* The number of samples in the step under way: the batch, or the rows made during the run. */
int64_t source_samples_of_step(const struct trainer *t);
/* The same, with the rows that fill up the last microbatches. */
int64_t source_rows_computed(const struct trainer *t);
/* The number of tokens that the step under way trains on. */
double source_tokens_of_step(const struct trainer *t);
/* Before the run's options are resolved: takes from the data what it decides about the model. */
int source_describe(struct trainer *t, struct dt_err *err);
int source_open(struct trainer *t, struct dt_err *err);
/* Whether there is an evaluation set; the number of its samples. */
bool source_evaluates(const struct trainer *t);
int64_t source_eval_samples(const struct trainer *t);
void source_close(struct trainer *t);
/* Allocates for --neftune. After the trainer's memory. */
int source_noise(struct trainer *t, struct dt_err *err);
/* The data set that sample n is in, and its number there. source_samples: training samples of an epoch. */
const struct dt_sampler *source_sampler(const struct trainer *t, bool eval, int64_t n, int64_t *ret_own);
int64_t source_samples(const struct trainer *t);

/* Number of targets in samples [first, end). With --documents apart the end of a document has no target. */
int64_t source_targets(struct trainer *t, bool eval, int64_t first, int64_t end);
/* Number of targets in one of the dp parts of the step under way. */
double source_part_targets(struct trainer *t, int64_t part);
/*
 * Loads samples n .. n + microbatch - 1 into f: of the training set by global sample number, or of the
 * evaluation set. The targets of rows past end are ignored.
 */
int source_next(struct trainer *t, bool eval, const struct dt_flight *f, int64_t n, int64_t end,
		struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
