/*
 * The model that answers a task's questions: a checkpoint in this process (local.c, with the server's
 * engine), or a server with OpenAI's API (remote.c).
 */
#ifndef DT_EVAL_ASKER_H
#define DT_EVAL_ASKER_H

#include "base/err.h"
#include "eval/model.h"

#include <stdbool.h>

struct dt_question {
	const char *context;
	/* A continuation to score; NULL: generate one. */
	const char *continuation;
	int64_t line; /* of the task, for messages */
	int max_tokens;
	char *const *stop;
	int nstop;
	/* the answer */
	double logprob; /* natural logarithm, summed over the continuation's tokens */
	int tokens;
	bool greedy; /* each of them is the likeliest one */
	bool cut;    /* the model was given the end of the context only */
	char *text;  /* malloc'd */
};

/* Returns rc of a question; an error names the line of the task that the question comes from. */
static inline int dt_question_error(const struct dt_question *q, int rc, struct dt_err *err)
{
	return rc < 0 ? dt_err_prefix(err, "line %lld of the task", (long long)q->line) : rc;
}

struct dt_asker;

int dt_asker_local(const char *path, const struct dt_eval_opts *o, struct dt_asker **ret, struct dt_err *err);
/* model: the name to ask for; NULL: the server's first. key: NULL, or the API key. */
int dt_asker_remote(const char *url, const char *model, const char *key, int parallel, struct dt_asker **ret,
		    struct dt_err *err);
void dt_asker_close(struct dt_asker *a);
/* Answers all of them; texts are set where something was generated, also after a failure. */
int dt_asker_ask(struct dt_asker *a, struct dt_question *q, int64_t n, struct dt_err *err);

/* For those two files. */

#define DT_TURNS_AHEAD 64 /* items whose contexts are computed before the rest of their questions */
/*
 * An order of n questions in which the first one about a context has computed it when the others begin: they
 * find it in the prefix cache. [n], malloc'd; NULL: out of memory.
 */
int64_t *dt_question_turns(const struct dt_question *q, int64_t n);

struct dt_asker {
	int (*ask)(struct dt_asker *a, struct dt_question *q, int64_t n, struct dt_err *err);
	void (*close)(struct dt_asker *a);
};

#endif
/* SPDX-License-Identifier: Apache-2.0 */
