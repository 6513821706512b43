/*
 * Prompts in, completions out, one JSON object a line. A line is read only when there is room for it, so a
 * producer of millions of lines waits in its pipe and not in our memory; a result is written as soon as it
 * and all before it are there, or, unordered, as soon as it is.
 *
 * A line is {"prompt", ...} with our own result, or a line of OpenAI's batch format (custom_id, method, url,
 * body) with a line of its output format; both may be mixed.
 */
#ifndef DT_SERVE_BATCH_H
#define DT_SERVE_BATCH_H

#include "serve/api/openai.h"

#define DT_BATCH_MAX_LINE (16 * 1024 * 1024) /* bytes */

struct dt_batch_params {
	int fd;	    /* lines come from here */
	FILE *out;  /* and results go here */
	int window; /* lines in flight; at most max_seqs + queue */
	bool unordered;
	const char *skip_done; /* lines that have an answer in this file are left out; NULL: none */
	const char *model_name;
	const struct dt_chat *chat; /* may be NULL */
	json_t *defaults;	    /* dt_api_check_defaults; may be NULL */
	double request_timeout;	    /* seconds, 0: none */
	int tenant;
	int priority; /* of lines that do not say */
	bool patient; /* lines wait for a full queue or a used-up quota in place of failing */
	/* Asked before each line: no more are to be read; those in flight are still answered. May be NULL. */
	bool (*stop)(void *arg);
	/* The writer's thread: a line was answered. May be NULL. */
	void (*answered)(void *arg, bool failed);
	void *arg;
	const struct dt_log *log; /* told how many lines failed, and the first reason; may be NULL */
};

/* Whether lines of OpenAI's format may ask this. */
bool dt_batch_answers(const char *url);

/*
 * Runs until the end of the input. Returns the number of lines that got an "error" object, or a negative
 * errno when input or output failed (-EPIPE: the reader went away).
 */
int64_t dt_batch_run(struct dt_engine *e, const struct dt_batch_params *p, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
