/* Turns the answers of a batch into files. */
#include "serve/api/batches_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* The custom_id of an answer in ID.part, NULL if there is none; *ret_good: it belongs to the output file. */
static const char *answer_of(const json_t *v, bool *ret_good)
{
	json_t *status = json_object_get(json_object_get(v, "response"), "status_code");

	*ret_good = json_integer_value(status) == 200;
	return json_string_value(json_object_get(v, "custom_id"));
}

static void write_failures(const json_t *failures, struct dt_upload *wrong)
{
	const char *id;
	json_t *v;

	json_object_foreach((json_t *)failures, id, v)
	{
		char *text = json_dumps(v, JSON_COMPACT);

		if (!text && wrong->rc == 0)
			wrong->rc = -ENOMEM;
		dt_upload_write(wrong, text, text ? strlen(text) : 0);
		dt_upload_write(wrong, "\n", 1);
		free(text);
	}
}

int dt_batches_sift(const char *part, struct dt_upload *out, struct dt_upload *wrong,
		    json_int_t *ret_completed, json_int_t *ret_failed, struct dt_err *err)
{
	FILE *f = fopen(part, "re");
	json_int_t completed = 0;
	json_t *failures, *v;
	char *s = NULL;
	size_t cap = 0;
	ssize_t n;
	int rc = f || errno == ENOENT ? 0 : dt_err_sys(err, -errno, "cannot open '%s'", part);

	failures = json_object();
	while (f && (n = getline(&s, &cap, f)) > 0) {
		bool good;
		const char *id;

		v = json_loadb(s, (size_t)n, JSON_ALLOW_NUL, NULL);
		id = answer_of(v, &good);
		if (id && good) {
			json_object_del(failures, id);
			completed++;
			if (out)
				dt_upload_write(out, s, (size_t)n);
		} else if (id) {
			json_object_set(failures, id, v);
		}
		json_decref(v);
	}
	if (f && !feof(f))
		rc = dt_err_sys(err, errno ? -errno : -EIO, "cannot read '%s'", part);
	if (rc == 0) {
		*ret_completed = completed;
		*ret_failed = (json_int_t)json_object_size(failures);
		if (wrong)
			write_failures(failures, wrong);
	}
	json_decref(failures);
	free(s);
	if (f)
		fclose(f);
	return rc;
}

/* Releases u; if it has content, it becomes the batch's file of that key. */
static int keep(json_t *batch, struct dt_upload *u, const char *key, const char *id, struct dt_err *err)
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

int dt_batches_put(struct dt_batches *b, json_t *batch, struct dt_err *err)
{
	int rc;

	pthread_mutex_lock(&b->mu);
	if (b->cancelled) {
		json_object_set_new(batch, "cancelling_at", json_integer((json_int_t)b->cancelled));
		if (!dt_store_is_over(batch))
			json_object_set_new(batch, "status", json_string("cancelling"));
	}
	rc = dt_store_put(b->store, batch, err);
	pthread_mutex_unlock(&b->mu);
	return rc;
}

/* Writes the answers to files and sets their counts. */
static int write_files(struct dt_batches *b, json_t *batch, const char *part, struct dt_err *err)
{
	struct dt_upload out = {0}, wrong = {0};
	json_int_t completed, failed;
	int rc = dt_upload_begin(&out, b->store);

	if (rc == 0)
		rc = dt_upload_begin(&wrong, b->store);
	if (rc < 0)
		dt_err_sys(err, rc, "cannot write the answers");
	out.own = wrong.own = true;
	if (rc == 0)
		rc = dt_batches_sift(part, &out, &wrong, &completed, &failed, err);
	if (rc == 0)
		rc = keep(batch, &out, "output_file_id", batch_text_of(batch, "_output"), err);
	if (rc == 0)
		rc = keep(batch, &wrong, "error_file_id", batch_text_of(batch, "_error"), err);
	if (rc == 0)
		batch_set_counts(batch, -1, completed, failed);
	dt_upload_abort(&out); /* no effect on committed uploads */
	dt_upload_abort(&wrong);
	return rc;
}

int dt_batches_finish(struct dt_batches *b, json_t *batch, const char *status, struct dt_err *err)
{
	char *part = dt_store_path(b->store, batch_text_of(batch, "id"), ".part"), key[32];
	int rc = part ? write_files(b, batch, part, err)
		      : dt_err_sys(err, -ENOMEM, "cannot write the answers");

	if (rc == 0) {
		snprintf(key, sizeof(key), "%s_at", status);
		json_object_set_new(batch, "status", json_string(status));
		batch_set_time(batch, key);
		rc = dt_batches_put(b, batch, err);
	}
	if (rc == 0)
		unlink(part); /* only now: until the files exist, nothing else has the answers */
	free(part);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
