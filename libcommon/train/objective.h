/*
 * Preference losses, DPO for example (plan/objective.h): the answers of a microbatch, their log-probabilities
 * under a reference model, the loss, and the weight of each target in backward.
 *
 * The reference model is the model with its adapters off, run before each microbatch. If all weights are
 * trained, it is the model that the run starts from, run once over the training set; its log-probabilities
 * are stored in --reference.
 */
#ifndef DT_TRAIN_OBJECTIVE_H
#define DT_TRAIN_OBJECTIVE_H

#include "base/json.h"
#include "data/dataset.h"
#include "nn/exec.h"

struct trainer;

/* An answer with its prompt: rows [first, end) of the microbatch predict all its tokens but the first. */
struct answer {
	int64_t first, end, document; /* document: its number in the data set */
	enum dt_document_kind kind;
	double logprob, reference; /* log-probabilities under model and reference, summed over its targets */
	int64_t targets;
};

enum {
	SUM_N,
	SUM_REWARD = SUM_N + 2,
	SUM_LOGP = SUM_REWARD + 2,
	SUM_RIGHT = SUM_LOGP + 2,
	SUM_KL,
	SUM_SAMPLES,
	OBJECTIVE_SUMS
};

struct objective {
	struct answer *answer; /* [n] of the microbatch under way */
	int64_t n, cap;
	double *kept; /* [documents] log-probabilities from --reference; NULL: the reference model is run */
	int64_t documents;
	/*
	 * Sums over this step. Number of answers, rewards and log-probabilities, [2] each: of chosen and of
	 * rejected answers. Then the pairs in which the chosen answer has the larger reward, the KL estimates
	 * from mismatched answers, and the samples that these are over.
	 */
	double sum[OBJECTIVE_SUMS];
	bool asking;  /* the forward pass under way is the reference model's */
	bool keeping; /* its results are stored in kept */
};

/* Refuses data that does not fit the objective, and allocates. After source_open. */
int objective_open(struct trainer *t, struct dt_err *err);
void objective_release(struct trainer *t);
/* At the start of a run, new (fresh) or resumed: the reference's log-probabilities. Every rank calls it. */
int objective_start(struct trainer *t, bool fresh, struct dt_err *err);

/* While a microbatch is assembled: clears the answers, then adds those of one sample, which has seq rows. */
void objective_clear(struct trainer *t);
int objective_add(struct trainer *t, const struct dt_dataset *d, int64_t at, int64_t row,
		  const int32_t *first, struct dt_err *err);
/* Once the microbatch's inputs are there: runs the reference model's forward pass, if it has to be run. */
int objective_ask(struct trainer *t, const struct dt_flight *f, const struct dt_hooks *hooks,
		  struct dt_err *err);
/* The number of pairs, or of single answers, in samples [first, end): what the loss is averaged over. */
int64_t objective_pairs(struct trainer *t, bool eval, int64_t first, int64_t end);
/* All-reduces the sums; then adds them to the line of metrics. */
int objective_agree(struct trainer *t, struct dt_err *err);
void objective_metrics(const struct trainer *t, json_t *line);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
