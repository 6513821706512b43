/* Validates the input file of a batch. */
#include "serve/api/batches_priv.h"

#include <errno.h>
#include <stdlib.h>

#define MAX_ERRORS 100 /* max errors that the batch's record lists */

void dt_batches_error(json_t *errors, const char *code, json_int_t line, const char *msg, const char *what)
{
	char text[200];

	if (json_array_size(errors) >= MAX_ERRORS)
		return;
	snprintf(text, sizeof(text), msg, what);
	json_array_append_new(errors, json_pack("{s:s, s:I, s:s, s:n}", "code", code, "line", line, "message",
						text, "param"));
}

/* Checks line number `line`, parsed as v (NULL: not JSON). */
static void check_line(const json_t *v, json_int_t line, const char *endpoint, json_t *seen, json_t *errors)
{
	json_t *id = json_object_get(v, "custom_id");

	if (!json_is_object(v))
		dt_batches_error(errors, "invalid_json_line", line, "the line is %s", "not a JSON object");
	else if (!json_is_string(id))
		dt_batches_error(errors, "missing_required_parameter", line,
				 "'%s' is missing or not a string", "custom_id");
	else if (json_object_get(seen, json_string_value(id)))
		dt_batches_error(errors, "duplicate_custom_id", line, "custom_id '%.60s' occurs twice",
				 json_string_value(id));
	else if (strcmp(batch_text_of(v, "method"), "POST") != 0)
		dt_batches_error(errors, "invalid_method", line, "'method' is not %s", "POST");
	else if (strcmp(batch_text_of(v, "url"), endpoint) != 0)
		dt_batches_error(errors, "mismatched_url", line, "'url' is not the batch's endpoint, %s",
				 endpoint);
	else if (!json_is_object(json_object_get(v, "body")))
		dt_batches_error(errors, "missing_required_parameter", line,
				 "'%s' is missing or not an object", "body");
	else
		json_object_set_new(seen, json_string_value(id), json_true());
}

/*
 * Opens the input. *ret NULL, and an error appended: it was deleted. Negative errno: it cannot be read at the
 * moment.
 */
static int open_input(struct dt_store *store, const json_t *batch, FILE **ret, json_t *errors,
		      struct dt_err *err)
{
	const char *id = batch_text_of(batch, "input_file_id");
	char *path = dt_store_path(store, id, "");
	FILE *f = path ? fopen(path, "re") : NULL;
	const int rc = f ? 0 : path ? -errno : -ENOMEM;
	json_t *record = dt_store_get(store, NULL, "file", id);
	const bool deleted = rc == -ENOENT && !record;

	json_decref(record);
	free(path);
	if (deleted)
		dt_batches_error(errors, "invalid_file", 0, "the input file was %s", "deleted");
	*ret = f;
	return f || deleted ? 0 : dt_err_sys(err, rc, "cannot open the input file '%s'", id);
}

json_int_t dt_batches_validate(struct dt_store *store, const json_t *batch, json_t *errors,
			       struct dt_err *err)
{
	json_t *seen = json_object(), *v;
	json_int_t line = 0, n = 0;
	char *s = NULL;
	size_t cap = 0;
	ssize_t got;
	FILE *f;
	int rc = open_input(store, batch, &f, errors, err);

	while (f && n <= DT_BATCH_LINES && (got = getline(&s, &cap, f)) > 0) {
		line++;
		if (strspn(s, " \t\r\n") == (size_t)got)
			continue;
		v = json_loadb(s, (size_t)got, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
		check_line(v, line, batch_text_of(batch, "endpoint"), seen, errors);
		json_decref(v);
		n++;
	}
	if (f && n > DT_BATCH_LINES)
		dt_batches_error(errors, "too_many_tasks", line, "a batch has at most %s lines", "50,000");
	else if (f && !feof(f))
		rc = dt_err_sys(err, errno ? -errno : -EIO, "cannot read the input file");
	else if (f && n == 0)
		dt_batches_error(errors, "empty_file", 0, "the input file has %s", "no lines");
	if (f)
		fclose(f);
	json_decref(seen);
	free(s);
	return rc < 0 ? rc : n;
}
/* SPDX-License-Identifier: Apache-2.0 */
