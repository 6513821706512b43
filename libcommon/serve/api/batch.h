/*
 * Offline inference: prompts in, completions out, one JSON object a line. A line is read only when there is
 * room for it, so that a producer of millions of lines blocks on its pipe and does not fill our memory.
 * Results are written in order of input, or, if unordered, as soon as each is ready.
 *
 * A line is either {"prompt", ...}, answered in our own format, or a line of OpenAI's batch format
 * (custom_id, method, url, body), answered in that format. Both may be mixed.
 */
#ifndef DT_SERVE_BATCH_H
#define DT_SERVE_BATCH_H

#include "serve/api/openai.h"

#define DT_BATCH_MAX_LINE (16 * 1024 * 1024) /* bytes */

struct dt_batch_params {
	int fd;	    /* lines are read from here */
	FILE *out;  /* results are written here */
	int window; /* max lines in flight; at most max_seqs + queue */
	bool unordered;
	const char *skip_done; /* lines that have a result in this file are skipped; NULL: none */
	const char *model_name;
	const struct dt_chat *chat; /* may be NULL */
	json_t *defaults;	    /* dt_api_check_defaults; may be NULL */
	double request_timeout;	    /* seconds from a line's submission, 0: none */
	int tenant;
	int priority; /* of lines that do not set it */
	bool patient; /* lines wait while the queue is full or the quota used up, and do not fail */
	/*
	 * Called before each line; true: read no more lines. Lines in flight are still answered. May be NULL.
	 */
	bool (*stop)(void *arg);
	/* Called by the writer's thread after each answered line. May be NULL. */
	void (*answered)(void *arg, bool failed);
	void *arg;
	const struct dt_log *log; /* receives the number of failed lines and the first reason; may be NULL */
};

/* Whether lines of OpenAI's format may have this url. */
bool dt_batch_answers(const char *url);

/*
 * Runs until the end of the input. Returns the number of lines with an "error" object, or a negative errno
 * when input or output failed (-EPIPE: the reader of the output closed it).
 */
int64_t dt_batch_run(struct dt_engine *e, const struct dt_batch_params *p, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
