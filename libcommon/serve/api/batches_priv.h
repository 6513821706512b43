/* What batches.c and batches_run.c share; not for others. */
#ifndef DT_SERVE_BATCHES_PRIV_H
#define DT_SERVE_BATCHES_PRIV_H

#include "serve/api/batches.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

struct dt_batches {
	struct dt_store *store;
	struct dt_batches_params p;
	pthread_t thread;
	json_t *later;	    /* the thread's: of batches that it has put off, by id: "wait", "when" (dt_now) */
	pthread_mutex_t mu; /* of the rest */
	pthread_cond_t wake;
	bool closing, news;
	/* the batch that runs */
	char id[DT_STORE_ID];
	time_t cancelled; /* when, 0: it is not */
	time_t expires;
	json_int_t completed, failed;
};

static inline const char *batch_text_of(const json_t *v, const char *key)
{
	const char *s = json_string_value(json_object_get(v, key));

	return s ? s : "";
}

static inline void batch_set_time(json_t *v, const char *key)
{
	json_object_set_new(v, key, json_integer((json_int_t)time(NULL)));
}

static inline void batch_set_counts(json_t *v, json_int_t total, json_int_t completed, json_int_t failed)
{
	if (total < 0)
		total = json_integer_value(json_object_get(json_object_get(v, "request_counts"), "total"));
	json_object_set_new(
		v, "request_counts",
		json_pack("{s:I, s:I, s:I}", "total", total, "completed", completed, "failed", failed));
}

/*
 * Reads the input once: the number of lines, and what is wrong with them appended to errors. Negative: it
 * cannot be read for now.
 */
json_int_t dt_batches_validate(struct dt_store *store, const json_t *batch, json_t *errors,
			       struct dt_err *err);
/* What is wrong with a line (0: with the whole), appended to errors where there is room; msg takes what. */
void dt_batches_error(json_t *errors, const char *code, json_int_t line, const char *msg, const char *what);

/*
 * Goes through the answers so far: a line that failed before a restart is asked again after it, so of
 * each line the last answer counts. Counts, and where out and wrong are not NULL writes them.
 */
int dt_batches_sift(const char *part, struct dt_upload *out, struct dt_upload *wrong,
		    json_int_t *ret_completed, json_int_t *ret_failed, struct dt_err *err);
/* Writes the record of the batch that runs; whoever cancelled it meanwhile is not overruled. */
int dt_batches_put(struct dt_batches *b, json_t *batch, struct dt_err *err);
/* The answers become files, and the batch is over. On failure no answer is lost: it may be tried again. */
int dt_batches_finish(struct dt_batches *b, json_t *batch, const char *status, struct dt_err *err);

/* The thread's, until it is closed; arg: the struct dt_batches. */
void *dt_batches_main(void *arg);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
