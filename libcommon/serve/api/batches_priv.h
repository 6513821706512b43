/* Shared by batches*.c. */
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
	json_t *later;	    /* used by the thread alone: postponed batches by id: "wait", "when" (dt_now) */
	pthread_mutex_t mu; /* guards the members below */
	pthread_cond_t wake;
	bool closing, news;
	/* the running batch */
	char id[DT_STORE_ID];
	time_t cancelled; /* time of cancellation, 0: not cancelled */
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
 * Reads the input once. Returns the number of lines; appends what is wrong with them to errors. Negative
 * errno: the input cannot be read at the moment.
 */
json_int_t dt_batches_validate(struct dt_store *store, const json_t *batch, json_t *errors,
			       struct dt_err *err);
/*
 * Appends an error of a line (0: of the whole batch) to errors if there is room; `what` is formatted into
 * msg.
 */
void dt_batches_error(json_t *errors, const char *code, json_int_t line, const char *msg, const char *what);

/*
 * Reads the answers so far. A line that failed before a restart is asked again afterwards, so the last answer
 * of each line counts. Returns the counts, and writes the answers to out and wrong unless they are NULL.
 */
int dt_batches_sift(const char *part, struct dt_upload *out, struct dt_upload *wrong,
		    json_int_t *ret_completed, json_int_t *ret_failed, struct dt_err *err);
/* Writes the record of the running batch; keeps a cancellation that came in the meantime. */
int dt_batches_put(struct dt_batches *b, json_t *batch, struct dt_err *err);
/* Turns the answers into files and ends the batch. A failure loses no answers; the call may be repeated. */
int dt_batches_finish(struct dt_batches *b, json_t *batch, const char *status, struct dt_err *err);

/* Main function of the thread; arg: the struct dt_batches. */
void *dt_batches_main(void *arg);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
