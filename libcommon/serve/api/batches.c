#include "base/cond.h"
#include "serve/api/batch.h"
#include "serve/api/batches_priv.h"
#include "serve/api/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_SECONDS (24 * 3600)

static int bad(struct dt_api_error *e, const char *param, const char *msg, const char *what)
{
	dt_api_fail(e, 400, "invalid_request_error", NULL, msg, what);
	snprintf(e->param, sizeof(e->param), "%s", param);
	return -EINVAL;
}

static int check_body(struct dt_batches *b, const char *tenant, const json_t *body, struct dt_api_error *e)
{
	static const char *const known[] = {"input_file_id", "endpoint", "completion_window", "metadata",
					    NULL};
	json_t *file = dt_store_get(b->store, tenant, "file", batch_text_of(body, "input_file_id"));
	const char *key, *purpose = batch_text_of(file, "purpose");
	bool is_input = !strcmp(purpose, "batch");

	json_decref(file);
	if (!json_is_object(body))
		return bad(e, "", "the body is %s", "not an object");
	key = dt_api_unknown(body, known, true);
	if (key)
		return bad(e, "", "unknown key '%.60s'", key);
	if (!file || !is_input)
		return bad(e, "input_file_id", "no file '%.60s' with purpose batch",
			   batch_text_of(body, "input_file_id"));
	if (!dt_batch_answers(batch_text_of(body, "endpoint")))
		return bad(e, "endpoint", "'%.60s' is not available in a batch",
			   batch_text_of(body, "endpoint"));
	if (strcmp(batch_text_of(body, "completion_window"), "24h") != 0)
		return bad(e, "completion_window", "'completion_window' is not %s", "24h");
	return dt_api_metadata(json_object_get(body, "metadata"), e);
}

json_t *dt_batches_create(struct dt_batches *b, const char *tenant, const json_t *body,
			  struct dt_api_error *e)
{
	char id[DT_STORE_ID], out[DT_STORE_ID], errors[DT_STORE_ID];
	json_int_t now = (json_int_t)time(NULL);
	struct dt_err err;
	json_t *v;

	if (check_body(b, tenant, body, e) < 0)
		return NULL;
	dt_store_new_id("batch_", id);
	dt_store_new_id("file-", out);
	dt_store_new_id("file-", errors);
	v = json_pack("{s:s, s:s, s:s, s:n, s:s, s:s, s:s, s:n, s:n, s:I, s:I, s:{s:i, s:i, s:i}, s:O?}",
		      "id", id, "object", "batch", "endpoint", batch_text_of(body, "endpoint"), "errors",
		      "input_file_id", batch_text_of(body, "input_file_id"), "completion_window", "24h",
		      "status", "validating", "output_file_id", "error_file_id", "created_at", now,
		      "expires_at", now + WINDOW_SECONDS, "request_counts", "total", 0, "completed", 0,
		      "failed", 0, "metadata", json_object_get(body, "metadata"));
	json_object_set_new(v, "_tenant", json_string(tenant));
	json_object_set_new(v, "_output", json_string(out));
	json_object_set_new(v, "_error", json_string(errors));
	if (dt_store_put(b->store, v, &err) < 0) {
		dt_api_fail(e, 503, "server_error", "storage_full", "%s", err.msg);
		json_decref(v);
		return NULL;
	}
	pthread_mutex_lock(&b->mu);
	b->news = true;
	pthread_cond_signal(&b->wake);
	pthread_mutex_unlock(&b->mu);
	return dt_store_public(v);
}

/* The record with the current counts. */
static json_t *current(struct dt_batches *b, json_t *v)
{
	pthread_mutex_lock(&b->mu);
	if (v && !strcmp(b->id, batch_text_of(v, "id")) && !dt_store_is_over(v))
		batch_set_counts(v, -1, b->completed, b->failed);
	pthread_mutex_unlock(&b->mu);
	return v ? dt_store_public(v) : NULL;
}

json_t *dt_batches_get(struct dt_batches *b, const char *tenant, const char *id)
{
	return current(b, dt_store_get(b->store, tenant, "batch", id));
}

/* Call with the lock held, so that the thread does not write the record at the same time. */
static json_t *cancel(struct dt_batches *b, const char *tenant, const char *id, struct dt_api_error *e)
{
	json_t *v = dt_store_get(b->store, tenant, "batch", id);
	struct dt_err err;

	if (!v) {
		dt_api_fail(e, 404, "invalid_request_error", "not_found", "no batch '%.60s'", id);
	} else if (dt_store_is_over(v)) {
		dt_api_fail(e, 409, "invalid_request_error", NULL, "batch '%s' is %s", id,
			    batch_text_of(v, "status"));
	} else {
		json_object_set_new(v, "status", json_string("cancelling"));
		batch_set_time(v, "cancelling_at");
		if (dt_store_put(b->store, v, &err) == 0) {
			if (!strcmp(b->id, id))
				b->cancelled = time(NULL);
			b->news = true;
			pthread_cond_signal(&b->wake);
			return v;
		}
		dt_api_fail(e, 500, "server_error", NULL, "%s", err.msg);
	}
	json_decref(v);
	return NULL;
}

json_t *dt_batches_cancel(struct dt_batches *b, const char *tenant, const char *id, struct dt_api_error *e)
{
	json_t *v;

	pthread_mutex_lock(&b->mu);
	v = cancel(b, tenant, id, e);
	pthread_mutex_unlock(&b->mu);
	return current(b, v);
}

int dt_batches_open(struct dt_batches **ret, struct dt_store *store, const struct dt_batches_params *p,
		    struct dt_err *err)
{
	struct dt_batches *b = calloc(1, sizeof(*b));
	int rc;

	if (!b)
		return dt_err_sys(err, -ENOMEM, "cannot start the batches");
	b->store = store;
	b->p = *p;
	pthread_mutex_init(&b->mu, NULL);
	dt_cond_init_monotonic(&b->wake);
	b->later = json_object();
	rc = -pthread_create(&b->thread, NULL, dt_batches_main, b);
	if (rc < 0) {
		dt_err_sys(err, rc, "cannot start the batches");
		json_decref(b->later);
		free(b);
		return rc;
	}
	*ret = b;
	return 0;
}

void dt_batches_stop(struct dt_batches *b)
{
	if (!b)
		return;
	pthread_mutex_lock(&b->mu);
	b->closing = true;
	pthread_cond_signal(&b->wake);
	pthread_mutex_unlock(&b->mu);
}

void dt_batches_close(struct dt_batches *b)
{
	if (!b)
		return;
	dt_batches_stop(b);
	pthread_join(b->thread, NULL);
	pthread_cond_destroy(&b->wake);
	pthread_mutex_destroy(&b->mu);
	json_decref(b->later);
	free(b);
}
/* SPDX-License-Identifier: Apache-2.0 */
