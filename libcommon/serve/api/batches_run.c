/* The thread that answers batches, one after another. */
#include "serve/api/batch.h"
#include "serve/api/batches_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_ERRORS 100 /* of an input file, in the batch's record */

static void add_error(json_t *errors, const char *code, json_int_t line, const char *msg, const char *what)
{
	char text[200];

	if (json_array_size(errors) >= MAX_ERRORS)
		return;
	snprintf(text, sizeof(text), msg, what);
	json_array_append_new(errors, json_pack("{s:s, s:I, s:s, s:n}", "code", code, "line", line, "message",
						text, "param"));
}

/* What is wrong with line number `line`, which is v (NULL: it is no JSON). */
static void check_line(const json_t *v, json_int_t line, const char *endpoint, json_t *seen, json_t *errors)
{
	json_t *id = json_object_get(v, "custom_id");

	if (!json_is_object(v))
		add_error(errors, "invalid_json_line", line, "the line is %s", "not a JSON object");
	else if (!json_is_string(id))
		add_error(errors, "missing_required_parameter", line, "'%s' is missing or not text",
			  "custom_id");
	else if (json_object_get(seen, json_string_value(id)))
		add_error(errors, "duplicate_custom_id", line, "custom_id '%.60s' stands there twice",
			  json_string_value(id));
	else if (strcmp(batch_text_of(v, "method"), "POST") != 0)
		add_error(errors, "invalid_method", line, "'method' is not %s", "POST");
	else if (strcmp(batch_text_of(v, "url"), endpoint) != 0)
		add_error(errors, "mismatched_url", line, "'url' is not the batch's endpoint, %s", endpoint);
	else if (!json_is_object(json_object_get(v, "body")))
		add_error(errors, "missing_required_parameter", line, "'%s' is missing or not an object",
			  "body");
	else
		json_object_set_new(seen, json_string_value(id), json_true());
}

/* Reads the input once; the number of lines. Errors are appended. */
static json_int_t validate(struct dt_batches *b, const json_t *batch, json_t *errors)
{
	char *path = dt_store_path(b->store, batch_text_of(batch, "input_file_id"), ""), *s = NULL;
	FILE *f = path ? fopen(path, "re") : NULL;
	json_int_t line = 0, n = 0;
	json_t *seen = json_object();
	size_t cap = 0;
	ssize_t got;

	while (f && (got = getline(&s, &cap, f)) > 0) {
		json_t *v;

		line++;
		if (strspn(s, " \t\r\n") == (size_t)got)
			continue;
		v = json_loadb(s, (size_t)got, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
		check_line(v, line, batch_text_of(batch, "endpoint"), seen, errors);
		json_decref(v);
		if (++n > DT_BATCH_LINES)
			break;
	}
	if (!f || ferror(f))
		add_error(errors, "invalid_file", 0, "the input file is %s", "gone or cannot be read");
	else if (n == 0)
		add_error(errors, "empty_file", 0, "the input file has %s", "no line");
	else if (n > DT_BATCH_LINES)
		add_error(errors, "too_many_tasks", line, "a batch may have %s lines", "50,000");
	if (f)
		fclose(f);
	json_decref(seen);
	free(path);
	free(s);
	return n;
}

/* An answer of ID.part: its custom_id, NULL where it is none; *ret_good: it is for the output file. */
static const char *answer_of(const json_t *v, bool *ret_good)
{
	json_t *status = json_object_get(json_object_get(v, "response"), "status_code");

	*ret_good = json_integer_value(status) == 200;
	return json_string_value(json_object_get(v, "custom_id"));
}

/*
 * Goes through the answers so far: a line that failed before a restart is asked again after it, so of
 * each line the last answer counts. Counts, and where out and bad are not NULL writes them.
 */
static int sift(const char *part, struct dt_upload *out, struct dt_upload *wrong, json_int_t *completed,
		json_int_t *failed)
{
	FILE *f = fopen(part, "re");
	json_t *failures = json_object(), *v;
	char *s = NULL;
	size_t cap = 0;
	ssize_t n;

	*completed = *failed = 0;
	while (f && (n = getline(&s, &cap, f)) > 0) {
		bool good;
		const char *id;

		v = json_loadb(s, (size_t)n, JSON_ALLOW_NUL, NULL);
		id = answer_of(v, &good);
		if (id && good) {
			json_object_del(failures, id);
			++*completed;
			if (out)
				dt_upload_write(out, s, (size_t)n);
		} else if (id) {
			json_object_set(failures, id, v);
		}
		json_decref(v);
	}
	*failed = (json_int_t)json_object_size(failures);
	for (void *at = json_object_iter(failures); at && wrong; at = json_object_iter_next(failures, at)) {
		char *text = json_dumps(json_object_iter_value(at), JSON_COMPACT);

		dt_upload_write(wrong, text ? text : "", text ? strlen(text) : 0);
		dt_upload_write(wrong, "\n", 1);
		free(text);
	}
	json_decref(failures);
	free(s);
	if (!f)
		return errno == ENOENT ? 0 : -errno;
	fclose(f);
	return 0;
}

static int keep(struct dt_batches *b, json_t *batch, struct dt_upload *u, const char *key, const char *id,
		struct dt_err *err)
{
	char name[2 * DT_STORE_ID];
	json_t *file = NULL;
	int rc;

	if (u->bytes == 0 && u->rc == 0) {
		dt_upload_abort(u);
		return 0;
	}
	snprintf(name, sizeof(name), "%s_%s.jsonl", batch_text_of(batch, "id"),
		 !strcmp(key, "output_file_id") ? "output" : "error");
	rc = dt_upload_commit(u, id, batch_text_of(batch, "_tenant"), name, "batch_output", &file, err);
	if (rc == 0)
		json_object_set_new(batch, key, json_string(id));
	json_decref(file);
	return rc;
}

/* Writes the record of the batch that runs; whoever cancelled it meanwhile is not overruled. */
static int put(struct dt_batches *b, json_t *batch, struct dt_err *err)
{
	int rc;

	pthread_mutex_lock(&b->mu);
	if (b->cancelled) {
		json_object_set_new(batch, "cancelling_at", json_integer((json_int_t)b->cancelled));
		if (!batch_is_over(batch))
			json_object_set_new(batch, "status", json_string("cancelling"));
	}
	rc = dt_store_put(b->store, json_incref(batch), err);
	pthread_mutex_unlock(&b->mu);
	return rc;
}

/* The answers become files; the batch is over. */
static int finish(struct dt_batches *b, json_t *batch, const char *status, struct dt_err *err)
{
	char *part = dt_store_path(b->store, batch_text_of(batch, "id"), ".part"), key[32];
	struct dt_upload out, wrong;
	json_int_t completed, failed;
	int rc = 0;

	if (!part || dt_upload_begin(&out, b->store) < 0 || dt_upload_begin(&wrong, b->store) < 0) {
		free(part);
		return dt_err_sys(err, -ENOMEM, "cannot write the answers");
	}
	out.own = wrong.own = true;
	sift(part, &out, &wrong, &completed, &failed);
	rc = keep(b, batch, &out, "output_file_id", batch_text_of(batch, "_output"), err);
	if (rc == 0)
		rc = keep(b, batch, &wrong, "error_file_id", batch_text_of(batch, "_error"), err);
	else
		dt_upload_abort(&wrong);
	batch_set_counts(batch, -1, completed, failed);
	json_object_set_new(batch, "status", json_string(status));
	snprintf(key, sizeof(key), "%s_at", status);
	batch_set_time(batch, key);
	if (rc == 0)
		rc = put(b, batch, err);
	if (rc == 0)
		unlink(part);
	free(part);
	return rc;
}

/* It has no answers then: what was kept of them goes. A batch that cannot be put is asked again. */
static void fail(struct dt_batches *b, json_t *batch, json_t *errors)
{
	char *part = dt_store_path(b->store, batch_text_of(batch, "id"), ".part");
	struct dt_err err;

	json_object_set_new(batch, "status", json_string("failed"));
	batch_set_time(batch, "failed_at");
	json_object_set_new(batch, "errors", json_pack("{s:s, s:O}", "object", "list", "data", errors));
	if (put(b, batch, &err) < 0)
		dt_log_err(b->p.log, &err);
	else if (part)
		unlink(part);
	free(part);
}

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

/* The number of the batch's tenant in the engine's table, -1: it is gone. */
static int tenant_of(const struct dt_batches *b, const json_t *batch)
{
	const struct dt_engine_params *p = dt_engine_params(b->p.engine);
	const char *name = batch_text_of(batch, "_tenant");

	for (int i = 0; i < p->ntenants; i++)
		if (!strcmp(p->tenant[i].name, name))
			return i;
	return p->ntenants == 0 && !*name ? 0 : -1;
}

/* Answers what has no answer yet. */
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
		rc = dt_err_set(err, -EINVAL, "tenant '%s' is gone", batch_text_of(batch, "_tenant"));
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

/* Whether the lines may be asked for; or the batch has failed, which is written. */
static bool begin(struct dt_batches *b, json_t *batch)
{
	json_t *errors = json_array();
	json_int_t n = validate(b, batch, errors);
	struct dt_err err;
	bool ok = json_array_size(errors) == 0;

	batch_set_counts(batch, n, 0, 0);
	if (!ok) {
		fail(b, batch, errors);
	} else if (!strcmp(batch_text_of(batch, "status"), "validating")) {
		json_object_set_new(batch, "status", json_string("in_progress"));
		batch_set_time(batch, "in_progress_at");
		ok = put(b, batch, &err) == 0;
	}
	json_decref(errors);
	return ok;
}

/* What to be done with a batch that is run to here, NULL: nothing, it goes on after the next start. */
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

/* From here on it is the batch that runs: its record as it is now. */
static json_t *take(struct dt_batches *b, const char *id, json_int_t completed)
{
	json_t *batch;

	pthread_mutex_lock(&b->mu);
	batch = dt_store_get(b->store, NULL, "batch", id);
	snprintf(b->id, sizeof(b->id), "%s", id);
	b->expires = (time_t)json_integer_value(json_object_get(batch, "expires_at"));
	b->cancelled = (time_t)json_integer_value(json_object_get(batch, "cancelling_at"));
	b->completed = completed;
	b->failed = 0; /* what failed is asked again */
	pthread_mutex_unlock(&b->mu);
	return batch;
}

static void run(struct dt_batches *b, const char *id)
{
	char *part = dt_store_path(b->store, id, ".part");
	json_int_t completed = 0, failed;
	json_t *batch, *errors;
	const char *status;
	struct dt_err err;
	int64_t rc = 0;

	if (!part)
		return;
	sift(part, NULL, NULL, &completed, &failed);
	batch = take(b, id, completed);
	status = outcome(b);
	if ((status && strcmp(status, "completed") != 0) || begin(b, batch)) {
		if (status && !strcmp(status, "completed"))
			rc = answer(b, batch, part, &err);
		status = outcome(b);
		if (rc >= 0 && status)
			rc = finish(b, batch, status, &err);
		if (rc < 0) {
			errors = json_array();
			dt_log_err(b->p.log, &err);
			add_error(errors, "server_error", 0, "%s", err.msg);
			fail(b, batch, errors);
			json_decref(errors);
		}
	}
	pthread_mutex_lock(&b->mu);
	b->id[0] = '\0';
	pthread_mutex_unlock(&b->mu);
	json_decref(batch);
	free(part);
}

void *dt_batches_main(void *arg)
{
	struct dt_batches *b = arg;
	bool closing = false;

	while (!closing) {
		json_t *ids = dt_store_pending(b->store);

		if (json_array_size(ids) > 0)
			run(b, json_string_value(json_array_get(ids, 0)));
		pthread_mutex_lock(&b->mu);
		while (json_array_size(ids) == 0 && !b->closing && !b->news)
			pthread_cond_wait(&b->wake, &b->mu);
		b->news = false;
		closing = b->closing;
		pthread_mutex_unlock(&b->mu);
		json_decref(ids);
	}
	return NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
