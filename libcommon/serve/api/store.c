#include "serve/api/store_priv.h"

#include "base/tmpfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_RECORD (1 << 20) /* bytes */

void dt_store_new_id(const char *prefix, char ret[DT_STORE_ID])
{
	unsigned char b[12];
	int n = snprintf(ret, DT_STORE_ID, "%s", prefix);

	while (getrandom(b, sizeof(b), 0) != sizeof(b))
		continue;
	for (size_t i = 0; i < sizeof(b); i++)
		n += snprintf(ret + n, (size_t)(DT_STORE_ID - n), "%02x", b[i]);
}

char *dt_store_path(const struct dt_store *s, const char *id, const char *suffix)
{
	char *path;

	return asprintf(&path, "%s/%s%s", s->dir, id, suffix) < 0 ? NULL : path;
}

static const char *text_of(const json_t *v, const char *key)
{
	const char *s = json_string_value(json_object_get(v, key));

	return s ? s : "";
}

static bool is_kind(const json_t *v, const char *kind)
{
	return !strcmp(text_of(v, "object"), kind);
}

static bool is_of(const json_t *v, const char *tenant)
{
	return !tenant || !strcmp(text_of(v, "_tenant"), tenant);
}

/* ---- opening ---- */

static bool has_suffix(const char *name, const char *suffix)
{
	size_t n = strlen(name), m = strlen(suffix);

	return n > m && !strcmp(name + n - m, suffix);
}

static int load_record(struct dt_store *s, const char *name, struct dt_err *err)
{
	char *path = dt_store_path(s, name, ""), id[256];
	json_t *v = NULL;
	int rc = path ? dt_json_load(path, MAX_RECORD, &v, err) : dt_err_sys(err, -ENOMEM, "no memory");

	snprintf(id, sizeof(id), "%.*s", (int)(strlen(name) - 5), name);
	if (rc == 0 && strcmp(text_of(v, "id"), id) != 0)
		rc = dt_err_set(err, -EINVAL, "'%s' is not a record written by this program", path);
	if (rc == 0 && is_kind(v, "file"))
		s->bytes += (uint64_t)json_integer_value(json_object_get(v, "bytes"));
	if (rc == 0 && json_object_set(s->records, id, v) < 0)
		rc = dt_err_sys(err, -ENOMEM, "cannot read '%s'", path);
	json_decref(v);
	free(path);
	return rc;
}

/* Removes what a crash has left: content without a record, and temporary files. */
static void drop_orphan(struct dt_store *s, const char *name)
{
	bool own = !strncmp(name, "file-", 5) || !strncmp(name, "batch_", 6);
	char id[256], *path;

	snprintf(id, sizeof(id), "%.*s", (int)strcspn(name, "."), name);
	if (!own || (json_object_get(s->records, id) && !strstr(name, ".tmp")))
		return;
	path = dt_store_path(s, name, "");
	if (path)
		unlink(path);
	free(path);
}

static int load_all(struct dt_store *s, struct dt_err *err)
{
	for (int orphans = 0; orphans <= 1; orphans++) {
		DIR *d = opendir(s->dir);
		struct dirent *e;
		int rc = 0;

		if (!d)
			return dt_err_sys(err, -errno, "cannot read '%s'", s->dir);
		while (rc == 0 && (e = readdir(d))) {
			if (orphans)
				drop_orphan(s, e->d_name);
			else if (has_suffix(e->d_name, ".json"))
				rc = load_record(s, e->d_name, err);
		}
		closedir(d);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int dt_store_open(struct dt_store **ret, const char *dir, uint64_t max_bytes, struct dt_err *err)
{
	struct dt_store *s = calloc(1, sizeof(*s));
	int rc = s ? dt_mkdir_own(dir, err) : dt_err_sys(err, -ENOMEM, "cannot open '%s'", dir);
	char *path;

	if (rc < 0) {
		free(s);
		return rc;
	}
	s->lock = -1;
	s->max_bytes = max_bytes;
	pthread_mutex_init(&s->mu, NULL);
	s->dir = strdup(dir);
	s->records = json_object();
	path = s->dir ? dt_store_path(s, "lock", "") : NULL;
	if (path)
		s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (s->lock < 0)
		rc = dt_err_sys(err, path ? -errno : -ENOMEM, "cannot write to '%s'", dir);
	else if (flock(s->lock, LOCK_EX | LOCK_NB) < 0)
		rc = dt_err_set(err, -EBUSY, "'%s' is in use by another server", dir);
	else
		rc = load_all(s, err);
	free(path);
	if (rc < 0)
		dt_store_close(s);
	else
		*ret = s;
	return rc;
}

void dt_store_close(struct dt_store *s)
{
	if (!s)
		return;
	if (s->lock >= 0)
		close(s->lock);
	pthread_mutex_destroy(&s->mu);
	json_decref(s->records);
	free(s->dir);
	free(s);
}

/* ---- records ---- */

bool dt_store_is_over(const json_t *batch)
{
	static const char *const over[] = {"completed", "failed", "expired", "cancelled"};

	for (size_t i = 0; i < sizeof(over) / sizeof(*over); i++)
		if (!strcmp(text_of(batch, "status"), over[i]))
			return true;
	return false;
}

/*
 * Number of records that v, if it is an unfinished batch, still reserves for its files; *is_one: id is one of
 * them. Call with the lock held.
 */
static size_t promised(const struct dt_store *s, const json_t *v, const char *id, bool *is_one)
{
	static const char *const key[] = {"_output", "_error"};
	size_t n = 0;

	for (int i = 0; i < 2 && is_kind(v, "batch") && !dt_store_is_over(v); i++) {
		const char *file = text_of(v, key[i]);

		n += *file && !json_object_get(s->records, file);
		*is_one |= !strcmp(file, id);
	}
	return n;
}

/* Whether there is room for record v. Call with the lock held. */
static bool has_place(const struct dt_store *s, const json_t *v, const char *id)
{
	bool is_one = false;
	size_t n = json_object_size(s->records) + 1 + promised(s, v, id, &is_one);
	const char *key;
	json_t *r;

	if (json_object_get(s->records, id))
		return true;
	json_object_foreach(s->records, key, r)
	{
		n += promised(s, r, id, &is_one);
	}
	return is_one || n <= DT_STORE_RECORDS;
}

int dt_store_put(struct dt_store *s, const json_t *v, struct dt_err *err)
{
	const char *id = text_of(v, "id");
	char *path = dt_store_path(s, id, ".json");
	json_t *copy = json_deep_copy(v);
	struct dt_tmpfile t;
	int rc;

	pthread_mutex_lock(&s->mu);
	if (!path || !copy)
		rc = dt_err_sys(err, -ENOMEM, "cannot keep '%s'", id);
	else if (!has_place(s, v, id))
		rc = dt_err_set(err, -ENOSPC,
				"the limit of %d files and batches is reached; delete some with "
				"DELETE /v1/files/ID",
				DT_STORE_RECORDS);
	else
		rc = dt_tmpfile_open(&t, path, err);
	if (rc == 0) {
		rc = dt_json_write_line(t.f, v, err);
		if (rc == 0)
			rc = dt_tmpfile_commit(&t, err);
		else
			dt_tmpfile_abort(&t);
	}
	if (rc == 0 && json_object_set(s->records, id, copy) < 0)
		rc = dt_err_sys(err, -ENOMEM, "cannot keep '%s'", id);
	pthread_mutex_unlock(&s->mu);
	json_decref(copy);
	free(path);
	return rc;
}

json_t *dt_store_get(struct dt_store *s, const char *tenant, const char *kind, const char *id)
{
	json_t *v, *copy = NULL;

	pthread_mutex_lock(&s->mu);
	v = json_object_get(s->records, id);
	if (v && is_kind(v, kind) && is_of(v, tenant))
		copy = json_deep_copy(v);
	pthread_mutex_unlock(&s->mu);
	return copy;
}

static int newest_first(const void *a, const void *b)
{
	const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
	json_int_t s = json_integer_value(json_object_get(x, "created_at"));
	json_int_t t = json_integer_value(json_object_get(y, "created_at"));

	return s != t ? (s < t ? 1 : -1) : strcmp(text_of(y, "id"), text_of(x, "id"));
}

/* The matching records (borrowed), in order. malloc'd, NULL: out of memory. Call with the lock held. */
static json_t **sorted(struct dt_store *s, const char *tenant, const char *kind, const char *purpose,
		       size_t *ret_n)
{
	json_t **a = malloc((json_object_size(s->records) + 1) * sizeof(*a)), *v;
	const char *id;
	size_t n = 0;

	if (!a)
		return NULL;
	json_object_foreach(s->records, id, v)
	{
		if (is_kind(v, kind) && is_of(v, tenant) &&
		    (!purpose || !strcmp(text_of(v, "purpose"), purpose)))
			a[n++] = v;
	}
	qsort(a, n, sizeof(*a), newest_first);
	*ret_n = n;
	return a;
}

json_t *dt_store_list(struct dt_store *s, const char *tenant, const char *kind, const char *purpose,
		      const char *after, int limit)
{
	json_t *data = json_array(), **a;
	size_t n = 0, at = 0, k;

	pthread_mutex_lock(&s->mu);
	a = sorted(s, tenant, kind, purpose, &n);
	while (a && after && at < n && strcmp(text_of(a[at], "id"), after) != 0)
		at++;
	if (after && at >= n) {
		pthread_mutex_unlock(&s->mu);
		json_decref(data);
		free(a);
		return NULL;
	}
	at += after != NULL;
	for (k = 0; a && k < (size_t)limit && at + k < n; k++)
		json_array_append_new(data, dt_store_public(json_deep_copy(a[at + k])));
	pthread_mutex_unlock(&s->mu);
	free(a);
	return json_pack("{s:s, s:o, s:O?, s:O?, s:b}", "object", "list", "data", data, "first_id",
			 json_object_get(json_array_get(data, 0), "id"), "last_id",
			 k > 0 ? json_object_get(json_array_get(data, k - 1), "id") : NULL, "has_more",
			 at + k < n);
}

json_t *dt_store_pending(struct dt_store *s)
{
	json_t *ids = json_array(), **a;
	size_t n = 0;

	pthread_mutex_lock(&s->mu);
	a = sorted(s, NULL, "batch", NULL, &n);
	while (a && n-- > 0)
		if (!dt_store_is_over(a[n]))
			json_array_append_new(ids, json_string(text_of(a[n], "id")));
	pthread_mutex_unlock(&s->mu);
	free(a);
	return ids;
}

int dt_store_remove(struct dt_store *s, const char *tenant, const char *id, struct dt_err *err)
{
	char *path = dt_store_path(s, id, ""), *record = dt_store_path(s, id, ".json");
	int rc = path && record ? 0 : dt_err_sys(err, -ENOMEM, "cannot remove '%s'", id);
	json_t *v;

	pthread_mutex_lock(&s->mu);
	v = json_object_get(s->records, id);
	if (rc == 0 && (!v || !is_kind(v, "file") || !is_of(v, tenant)))
		rc = dt_err_set(err, -ENOENT, "there is no file '%.60s'", id);
	/* The record first: content without a record is removed at the next opening. */
	if (rc == 0 && unlink(record) < 0)
		rc = dt_err_sys(err, -errno, "cannot remove '%s'", id);
	if (rc == 0) {
		unlink(path);
		s->bytes -= (uint64_t)json_integer_value(json_object_get(v, "bytes"));
		json_object_del(s->records, id);
	}
	pthread_mutex_unlock(&s->mu);
	free(path);
	free(record);
	return rc;
}

json_t *dt_store_public(json_t *v)
{
	const char *key;
	json_t *x;
	void *next;

	json_object_foreach_safe(v, next, key, x)
	{
		if (*key == '_')
			json_object_del(v, key);
	}
	return v;
}
/* SPDX-License-Identifier: Apache-2.0 */
