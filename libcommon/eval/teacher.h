/*
 * Computes a model's predictions for every token of a data set (data/teacher.h), for distillation. Samples
 * are divided over ranks; the file does not depend on their number.
 */
#ifndef DT_EVAL_TEACHER_H
#define DT_EVAL_TEACHER_H

#include "base/json.h"
#include "comm/comm.h"
#include "data/teacher.h"
#include "eval/model.h"

#include <stdio.h>

struct dt_teacher_query {
	const char *data, *out;
	int64_t seq; /* 0: that of the samples that the set was packed into */
	int64_t k;
	double temperature;
	struct dt_comm *ranks;
	int rank, size;
	void (*progress)(void *arg, int64_t done, int64_t of);
	void *arg;
};

struct dt_teacher_made {
	int64_t samples, tokens, seq, k, bytes;
	double named;	/* mean probability that the k columns have together */
	double entropy; /* mean, nats, of the k columns and the rest as one */
};

/*
 * -EINVAL where the model's tokens are not the set's. seq, where q has none, is settled before the model is
 * opened: dt_teacher_seq.
 */
int dt_teacher_seq(const struct dt_teacher_query *q, int64_t *ret, struct dt_err *err);
int dt_teacher_run(struct dt_eval_model *m, const struct dt_teacher_query *q, struct dt_teacher_made *ret,
		   struct dt_err *err);
/*
 * The same of a server that speaks OpenAI's API with vLLM's prompt_logprobs, asked by one process, several
 * documents under way. -ENOTSUP: a temperature other than 1, which what it gives cannot be brought to.
 */
struct dt_teacher_server {
	const char *url, *model, *key; /* model NULL: the first that it serves; key NULL: none */
	int parallel;
};
int dt_teacher_ask(const struct dt_teacher_server *s, const struct dt_teacher_query *q,
		   struct dt_teacher_made *ret, struct dt_err *err);
json_t *dt_teacher_made_json(const char *model, const struct dt_teacher_query *q,
			     const struct dt_teacher_made *r);
void dt_teacher_made_print(const struct dt_teacher_query *q, const struct dt_teacher_made *r, FILE *f);

/* What both do: a sample's part of the means, and a file's begin and end. *w may be NULL. */
struct dt_teacher_made dt_teacher_begin(const struct dt_teacher_info *i);
void dt_teacher_count(struct dt_teacher_made *r, const struct dt_teacher_info *i, const float *logprobs,
		      const float *rest);
int dt_teacher_end(struct dt_teacher_made *r, const char *teacher, struct dt_teacher_writer **w,
		   struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
