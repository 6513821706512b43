/*
 * The thread that answers batches, one after the other. "_outcome" in the record means that no more lines are
 * asked, and says what the batch will become; from then on only its answers are turned into files. What fails
 * temporarily, e.g. because the disk is full, is retried later and after a restart; other batches run in the
 * meantime.
 */
#include "base/cond.h"
#include "base/progress.h"
#include "serve/api/batch.h"
#include "serve/api/batches_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define AGAIN_S	   1.0 /* seconds before a batch is retried, doubled each time */
#define AGAIN_MOST 60.0

static bool stop(void *arg)
{
	struct dt_batches *b = arg;
	bool yes;

	pthread_mutex_lock(&b->mu);
	yes = b->closing || b->cancelled || time(NULL) >= b->expires;
	pthread_mutex_unlock(&b->mu);
	return yes;
}

static void answered(void *arg, bool failed)
{
	struct dt_batches *b = arg;

	pthread_mutex_lock(&b->mu);
	if (failed)
		b->failed++;
	else
		b->completed++;
	pthread_mutex_unlock(&b->mu);
}

/* Index of the batch's tenant in the engine's table, -1: it no longer exists. */
static int tenant_of(const struct dt_batches *b, const json_t *batch)
{
	const struct dt_engine_params *p = dt_engine_params(b->p.engine);
	const char *name = batch_text_of(batch, "_tenant");

	for (int i = 0; i < p->ntenants; i++)
		if (!strcmp(p->tenant[i].name, name))
			return i;
	return p->ntenants == 0 && !*name ? 0 : -1;
}

/* Answers the lines that have no answer yet. */
static int64_t answer(struct dt_batches *b, const json_t *batch, const char *part, struct dt_err *err)
{
	char *input = dt_store_path(b->store, batch_text_of(batch, "input_file_id"), "");
	const int half = dt_engine_params(b->p.engine)->max_seqs / 2;
	struct dt_batch_params p = {.fd = input ? open(input, O_RDONLY | O_CLOEXEC) : -1,
				    .out = fopen(part, "ae"),
				    .window = half > 0 ? half : 1,
				    .unordered = true,
				    .skip_done = part,
				    .model_name = b->p.model_name,
				    .chat = b->p.chat,
				    .defaults = b->p.defaults,
				    .request_timeout = b->p.request_timeout,
				    .tenant = tenant_of(b, batch),
				    .priority = DT_BATCH_PRIORITY,
				    .patient = true,
				    .stop = stop,
				    .answered = answered,
				    .arg = b};
	int64_t rc;

	if (p.tenant < 0)
		rc = dt_err_set(err, -EINVAL, "tenant '%s' no longer exists",
				batch_text_of(batch, "_tenant"));
	else if (p.fd < 0 || !p.out)
		rc = dt_err_sys(err, -errno, "cannot open the input or the answers");
	else
		rc = dt_batch_run(b->p.engine, &p, err);
	if (p.out && fclose(p.out) == EOF && rc >= 0)
		rc = dt_err_sys(err, -errno, "cannot write the answers");
	if (p.fd >= 0)
		close(p.fd);
	free(input);
	return rc;
}

/* Marks the batch as failed, with the reasons. Steals errors. */
static void blame(json_t *batch, json_t *errors)
{
	json_object_set_new(batch, "errors", json_pack("{s:s, s:o}", "object", "list", "data", errors));
}

static bool is_blamed(const json_t *batch)
{
	return json_is_object(json_object_get(batch, "errors"));
}

/* Validates the input; the batch is then in progress. Negative errno: retry later. */
static int begin(struct dt_batches *b, json_t *batch, struct dt_err *err)
{
	json_t *errors = json_array();
	const json_int_t n = dt_batches_validate(b->store, batch, errors, err);

	if (n < 0) {
		json_decref(errors);
		return (int)n;
	}
	batch_set_counts(batch, n, 0, 0);
	if (json_array_size(errors) > 0) {
		blame(batch, errors);
		return 0;
	}
	json_decref(errors);
	if (strcmp(batch_text_of(batch, "status"), "validating") != 0)
		return 0;
	json_object_set_new(batch, "status", json_string("in_progress"));
	batch_set_time(batch, "in_progress_at");
	return dt_batches_put(b, batch, err);
}

/* Runs until all lines have an answer or the batch must stop. Negative errno: retry later. */
static int advance(struct dt_batches *b, json_t *batch, const char *part, struct dt_err *err)
{
	int64_t rc = begin(b, batch, err);
	json_t *errors;

	if (rc < 0 || is_blamed(batch))
		return (int)rc;
	rc = answer(b, batch, part, err);
	if (rc != -EINVAL && rc != -EFBIG)
		return rc < 0 ? (int)rc : 0;
	errors = json_array(); /* a retry would fail in the same way */
	dt_log_err(b->p.log, err);
	dt_batches_error(errors, "server_error", 0, "%s", err->msg);
	blame(batch, errors);
	return 0;
}

/* What becomes of a batch that has run so far; NULL: it continues after the next start. */
static const char *outcome(struct dt_batches *b)
{
	const char *s;

	pthread_mutex_lock(&b->mu);
	s = b->cancelled	       ? "cancelled"
	    : time(NULL) >= b->expires ? "expired"
	    : b->closing	       ? NULL
				       : "completed";
	pthread_mutex_unlock(&b->mu);
	return s;
}

/* Writes "_outcome": no more lines are asked. */
static int decide(struct dt_batches *b, json_t *batch, const char *outcome, struct dt_err *err)
{
	json_object_set_new(batch, "_outcome", json_string(outcome));
	json_object_set_new(batch, "status", json_string("finalizing"));
	batch_set_time(batch, "finalizing_at");
	batch_set_counts(batch, -1, b->completed, b->failed); /* final: nothing is in flight */
	return dt_batches_put(b, batch, err);
}

/* Makes this the running batch; returns its current record. */
static json_t *take(struct dt_batches *b, const char *id, json_int_t completed, json_int_t failed)
{
	json_t *batch;

	pthread_mutex_lock(&b->mu);
	batch = dt_store_get(b->store, NULL, "batch", id);
	snprintf(b->id, sizeof(b->id), "%s", id);
	b->expires = (time_t)json_integer_value(json_object_get(batch, "expires_at"));
	b->cancelled = (time_t)json_integer_value(json_object_get(batch, "cancelling_at"));
	b->completed = completed;
	b->failed = *batch_text_of(batch, "_outcome") ? failed : 0; /* else failed lines are retried */
	pthread_mutex_unlock(&b->mu);
	return batch;
}

static int bring_on(struct dt_batches *b, json_t *batch, const char *part, struct dt_err *err)
{
	const char *end = batch_text_of(batch, "_outcome");
	int rc = 0;

	if (!*end) {
		end = outcome(b);
		if (end && !strcmp(end, "completed")) {
			rc = advance(b, batch, part, err);
			end = is_blamed(batch) ? "failed" : outcome(b);
		}
		if (rc == 0 && end)
			rc = decide(b, batch, end, err);
	}
	return rc == 0 && end ? dt_batches_finish(b, batch, end, err) : rc;
}

/* Runs a batch. Negative errno: retry later. */
static int run(struct dt_batches *b, const char *id, struct dt_err *err)
{
	char *part = dt_store_path(b->store, id, ".part");
	json_int_t completed, failed;
	json_t *batch = NULL;
	int rc = part ? dt_batches_sift(part, NULL, NULL, &completed, &failed, err)
		      : dt_err_sys(err, -ENOMEM, "cannot read the answers");

	if (rc == 0) {
		batch = take(b, id, completed, failed);
		rc = batch ? bring_on(b, batch, part, err)
			   : dt_err_sys(err, -ENOMEM, "cannot read the record");
	}
	pthread_mutex_lock(&b->mu);
	b->id[0] = '\0';
	pthread_mutex_unlock(&b->mu);
	json_decref(batch);
	free(part);
	return rc;
}

static void try(struct dt_batches *b, const char *id)
{
	const json_t *last = json_object_get(b->later, id);
	double wait = last ? 2 * json_real_value(json_object_get(last, "wait")) : AGAIN_S;
	struct dt_err err;

	if (run(b, id, &err) == 0) {
		json_object_del(b->later, id);
		return;
	}
	wait = wait < AGAIN_MOST ? wait : AGAIN_MOST;
	dt_log_msg(b->p.log, "retrying batch '%s' in %g s: %s", id, wait, err.msg);
	json_object_set_new(b->later, id, json_pack("{s:f, s:f}", "wait", wait, "when", dt_now() + wait));
}

/* The oldest batch that is not postponed. NULL: there is none; *ret_when: when one will be due, 0: never. */
static const char *next(const struct dt_batches *b, const json_t *ids, double *ret_when)
{
	json_t *id;
	size_t i;

	*ret_when = 0;
	json_array_foreach(ids, i, id)
	{
		const json_t *last = json_object_get(b->later, json_string_value(id));
		const double when = json_real_value(json_object_get(last, "when"));

		if (when <= dt_now())
			return json_string_value(id);
		if (*ret_when == 0 || when < *ret_when)
			*ret_when = when;
	}
	return NULL;
}

void *dt_batches_main(void *arg)
{
	struct dt_batches *b = arg;
	bool closing = false;

	while (!closing) {
		json_t *ids = dt_store_pending(b->store);
		double when;
		const char *id = next(b, ids, &when);
		int rc = 0;

		if (id)
			try(b, id);
		pthread_mutex_lock(&b->mu);
		while (!id && !b->closing && !b->news && rc == 0)
			rc = when > 0 ? dt_cond_wait_until(&b->wake, &b->mu, when)
				      : -pthread_cond_wait(&b->wake, &b->mu);
		b->news = false;
		closing = b->closing;
		pthread_mutex_unlock(&b->mu);
		json_decref(ids);
	}
	return NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
