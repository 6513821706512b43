/*
 * Batches of OpenAI's API (/v1/batches): a thread answers the lines of an input file, one batch after the
 * other, the oldest first, between what clients ask at the same time. Half of the places stay theirs, and
 * of those that wait a batch's line goes last.
 *
 * Answers are appended to ID.part as they come. A batch that was cut short goes on behind them, also after
 * the process was killed; when it is over they become an output file and an error file.
 */
#ifndef DT_SERVE_BATCHES_H
#define DT_SERVE_BATCHES_H

#include "base/log.h"
#include "serve/api/store.h"

#define DT_BATCH_LINES	  50000 /* of one batch */
#define DT_BATCH_PRIORITY 1000

struct dt_batches_params {
	struct dt_engine *engine;
	const char *model_name;
	const struct dt_chat *chat; /* may be NULL */
	json_t *defaults;	    /* may be NULL */
	double request_timeout;	    /* seconds, from a line's submission */
	const struct dt_log *log;   /* may be NULL */
};

struct dt_batches;

/* Goes on with what the store holds. store outlives it. */
int dt_batches_open(struct dt_batches **ret, struct dt_store *store, const struct dt_batches_params *p,
		    struct dt_err *err);
/* Reads no more lines. NULL: does nothing. */
void dt_batches_stop(struct dt_batches *b);
/* The same, and waits until those in flight are answered. */
void dt_batches_close(struct dt_batches *b);

/* {"input_file_id", "endpoint", "completion_window", "metadata"} to a batch that waits. NULL: e is filled. */
json_t *dt_batches_create(struct dt_batches *b, const char *tenant, const json_t *body,
			  struct dt_api_error *e);
/* A batch as it is now; NULL: there is none. */
json_t *dt_batches_get(struct dt_batches *b, const char *tenant, const char *id);
/* Lines in flight are still answered. NULL with e filled. */
json_t *dt_batches_cancel(struct dt_batches *b, const char *tenant, const char *id, struct dt_api_error *e);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
