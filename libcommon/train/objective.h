/*
 * Losses of answers (plan/objective.h): the answers of a microbatch, what a reference gives them, the loss
 * and the weight of each target.
 *
 * The reference is the model without its adapters, run before each microbatch; or, where all is trained, the
 * model that the run starts from, run once over the training set and kept in --reference.
 */
#ifndef DT_TRAIN_OBJECTIVE_H
#define DT_TRAIN_OBJECTIVE_H

#include "base/json.h"
#include "data/dataset.h"
#include "nn/exec.h"

struct trainer;

/* An answer with its prompt: rows [first, end) of the microbatch predict its tokens but the first. */
struct answer {
	int64_t first, end, document; /* its number in the set */
	enum dt_document_kind kind;
	double logprob, reference; /* sums over its targets */
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
	struct answer *answer; /* of the microbatch under way */
	int64_t n, cap;
	double *kept; /* by document, of --reference; NULL: the reference is run */
	int64_t documents;
	/*
	 * Of this step: chosen and rejected answers, the rewards of both, their log-probabilities; pairs that
	 * are right; what mismatched answers have on average, and samples that is over.
	 */
	double sum[OBJECTIVE_SUMS];
	bool asking;  /* the pass under way is the reference's */
	bool keeping; /* it goes into kept */
};

/* Refuses data that the objective is not for; makes room. Behind source_open. */
int objective_open(struct trainer *t, struct dt_err *err);
void objective_release(struct trainer *t);
/* A run begins (fresh) or goes on: what the reference gives all answers. Every rank calls it. */
int objective_start(struct trainer *t, bool fresh, struct dt_err *err);

/* A microbatch is put together: its answers are those of its samples, seq rows each. */
void objective_clear(struct trainer *t);
int objective_add(struct trainer *t, const struct dt_dataset *d, int64_t at, int64_t row,
		  const int32_t *first, struct dt_err *err);
/* Its inputs are there: the reference's pass, where it is run. */
int objective_ask(struct trainer *t, const struct dt_flight *f, const struct dt_hooks *hooks,
		  struct dt_err *err);
/* What a step's loss is the mean over: pairs among samples first .. end - 1. */
int64_t objective_pairs(struct trainer *t, bool eval, int64_t first, int64_t end);
/* Sums of all ranks, and into the line of metrics. */
int objective_agree(struct trainer *t, struct dt_err *err);
void objective_metrics(const struct trainer *t, json_t *line);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
