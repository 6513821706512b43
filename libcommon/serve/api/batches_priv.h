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

static inline bool batch_is_over(const json_t *v)
{
	const char *s = batch_text_of(v, "status");

	return !strcmp(s, "completed") || !strcmp(s, "failed") || !strcmp(s, "expired") ||
	       !strcmp(s, "cancelled");
}

/* The thread's, until it is closed; arg: the struct dt_batches. */
void *dt_batches_main(void *arg);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
