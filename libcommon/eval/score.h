/*
 * Evaluates a model on a task, over ranks: each has the model and every size-th item, and all get the result.
 * The metrics are those of lm-evaluation-harness (Gao et al. 2021): acc compares sums of
 * log-probabilities, acc_norm these over the characters of a choice, acc_bytes over its bytes.
 */
#ifndef DT_EVAL_SCORE_H
#define DT_EVAL_SCORE_H

#include "base/json.h"
#include "comm/comm.h"
#include "eval/asker.h"
#include "eval/task.h"

#include <stdio.h>

struct dt_score_query {
	struct dt_comm *ranks;
	int rank, size;
	FILE *predictions; /* a JSON line for each item of this rank; NULL: none */
	void (*progress)(void *arg, int64_t done, int64_t of);
	void *arg;
};

struct dt_score {
	int64_t n;
	double *right; /* [n] 1: answered right, by acc or exact match */
	double *norm;  /* [n] by acc_norm */
	double *bytes; /* [n] by acc_bytes */
	double *given; /* [n] the choice taken, 0 for what was generated */
	double *cut;   /* [n] 1: the item is longer than the context, so the first tokens were left out */
	int64_t ncut;
	double acc, acc_error, norm_acc, norm_error, bytes_acc, bytes_error;
	/* classify: rows are what is right, columns what was given; and per label, [nlabel] */
	int64_t *confusion;
	double *precision, *recall, *f1; /* 0 where nothing was given, or nothing is right */
	double macro_f1;
};

int dt_score_run(const struct dt_task *t, struct dt_asker *a, const struct dt_score_query *q,
		 struct dt_score *ret, struct dt_err *err);
void dt_score_release(struct dt_score *s);

json_t *dt_score_json(const struct dt_task *t, const char *model, const struct dt_score *s);
void dt_score_print(const struct dt_task *t, const struct dt_score *s, FILE *f);

/* Comparison of two models on the same items. */
struct dt_score_pair {
	double difference, error; /* of the shares answered right, b less a; its standard error, paired */
	int64_t only_a, only_b;	  /* right for one of them alone */
	double p; /* two-sided, of McNemar's exact test: chance of a split so uneven among equals */
};
void dt_score_compare(const struct dt_score *a, const struct dt_score *b, struct dt_score_pair *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
