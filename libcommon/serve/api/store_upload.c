/* Uploads to the store. Their bytes count against max_bytes from the start. */
#include "serve/api/store_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Reserves n bytes of max_bytes. */
static bool take_room(struct dt_store *s, uint64_t n, bool any)
{
	bool ok;

	pthread_mutex_lock(&s->mu);
	ok = any || (n <= s->max_bytes && s->bytes <= s->max_bytes - n);
	s->bytes += ok ? n : 0;
	pthread_mutex_unlock(&s->mu);
	return ok;
}

static void give_room(struct dt_store *s, uint64_t n)
{
	pthread_mutex_lock(&s->mu);
	s->bytes -= n;
	pthread_mutex_unlock(&s->mu);
}

int dt_upload_begin(struct dt_upload *u, struct dt_store *s)
{
	char id[DT_STORE_ID];

	*u = (struct dt_upload){.store = s};
	dt_store_new_id("file-", id);
	u->path = dt_store_path(s, id, ".tmp");
	u->f = u->path ? fopen(u->path, "wxe") : NULL;
	u->rc = u->f ? 0 : u->path ? -errno : -ENOMEM;
	return u->rc;
}

void dt_upload_write(struct dt_upload *u, const char *data, size_t n)
{
	if (u->rc < 0 || n == 0)
		return;
	if (!u->own && u->bytes + n > DT_STORE_UPLOAD)
		u->rc = -EFBIG;
	else if (!take_room(u->store, n, u->own))
		u->rc = -ENOSPC;
	else if ((u->bytes += n, fwrite(data, 1, n, u->f) != n))
		u->rc = errno ? -errno : -EIO;
}

void dt_upload_abort(struct dt_upload *u)
{
	if (u->f)
		fclose(u->f);
	if (u->path)
		unlink(u->path);
	if (u->store)
		give_room(u->store, u->bytes);
	free(u->path);
	*u = (struct dt_upload){0};
}

/* Moves complete content to its place, after fsync. */
static int settle(struct dt_upload *u, const char *path, struct dt_err *err)
{
	int rc = u->rc;
	FILE *f = u->f;

	if (rc == 0 && (fflush(f) == EOF || fsync(fileno(f)) < 0))
		rc = -errno;
	u->f = NULL;
	if (f && fclose(f) == EOF && rc == 0)
		rc = -errno;
	if (rc == 0 && rename(u->path, path) < 0)
		rc = -errno;
	return rc < 0 ? dt_err_sys(err, rc, "cannot keep the file") : 0;
}

int dt_upload_commit(struct dt_upload *u, const char *id, const char *tenant, const char *name,
		     const char *purpose, json_t **ret, struct dt_err *err)
{
	char *path = dt_store_path(u->store, id, "");
	json_t *v = json_pack("{s:s, s:s, s:I, s:I, s:s, s:s, s:s, s:s}", "id", id, "object", "file", "bytes",
			      (json_int_t)u->bytes, "created_at", (json_int_t)time(NULL), "filename", name,
			      "purpose", purpose, "status", "processed", "_tenant", tenant);
	int rc = path && v ? settle(u, path, err) : dt_err_sys(err, -ENOMEM, "cannot keep the file");

	if (rc == 0) {
		json_t *old = dt_store_get(u->store, NULL, "file", id);

		rc = dt_store_put(u->store, v, err);
		if (rc == 0 && old) /* replaces a file that was written before a crash */
			give_room(u->store, (uint64_t)json_integer_value(json_object_get(old, "bytes")));
		json_decref(old);
		if (rc < 0)
			unlink(path);
		else
			u->store = NULL; /* its bytes now belong to the file */
	}
	if (rc == 0)
		*ret = json_incref(v);
	json_decref(v);
	free(path);
	dt_upload_abort(u);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
