/*
 * OpenAI's Batch API (/v1/batches): a thread answers the lines of an input file while clients are served.
 * Batches run one after the other, oldest first. They may use at most half of the places for requests, and
 * their lines have the lowest priority in the queue.
 *
 * Answers are appended to ID.part as they come. An interrupted batch continues from there, also after the
 * process was killed. A finished batch becomes an output file and an error file.
 */
#ifndef DT_SERVE_BATCHES_H
#define DT_SERVE_BATCHES_H

#include "base/log.h"
#include "serve/api/store.h"

#define DT_BATCH_LINES	  50000 /* max lines of one batch */
#define DT_BATCH_PRIORITY 1000

struct dt_batches_params {
	struct dt_engine *engine;
	const char *model_name;
	const struct dt_chat *chat; /* may be NULL */
	json_t *defaults;	    /* may be NULL */
	double request_timeout;	    /* seconds, from the submission of a line */
	const struct dt_log *log;   /* may be NULL */
};

struct dt_batches;

/* Resumes unfinished batches of the store. The store outlives *ret. */
int dt_batches_open(struct dt_batches **ret, struct dt_store *store, const struct dt_batches_params *p,
		    struct dt_err *err);
/* Stops reading lines. NULL is allowed. */
void dt_batches_stop(struct dt_batches *b);
/* As dt_batches_stop; also waits until the lines in flight are answered. Frees b. */
void dt_batches_close(struct dt_batches *b);

/*
 * Creates a waiting batch from {"input_file_id", "endpoint", "completion_window", "metadata"}. NULL: e is
 * filled.
 */
json_t *dt_batches_create(struct dt_batches *b, const char *tenant, const json_t *body,
			  struct dt_api_error *e);
/* Returns the current state of a batch; NULL: there is none. */
json_t *dt_batches_get(struct dt_batches *b, const char *tenant, const char *id);
/* Cancels a batch; lines in flight are still answered. NULL: e is filled. */
json_t *dt_batches_cancel(struct dt_batches *b, const char *tenant, const char *id, struct dt_api_error *e);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
