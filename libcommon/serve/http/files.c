/* Routes of files and batches. Uploads are written to disk as they arrive. */
#include "serve/api/batches.h"
#include "serve/http/priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIST_MAX   10000
#define LIST_BYTES 2048 /* bytes of memory for a record */

struct dt_http_upload {
	struct MHD_PostProcessor *form;
	struct dt_upload file;
	char purpose[32], name[256];
	char other[48]; /* a part that would have no effect */
	size_t npurpose;
	bool has_file, bad;
};

static enum MHD_Result fail(struct dt_http_req *q, int status, const char *code, const char *msg)
{
	struct dt_api_error e;

	dt_api_fail(&e, status, status < 500 ? "invalid_request_error" : "server_error", code, "%s", msg);
	return dt_http_reply_error(q, &e);
}

static enum MHD_Result none(struct dt_http_req *q)
{
	return fail(q, 404, "not_found", "this server has no files: it was started without --files-dir");
}

/* "" if there are no keys. */
static const char *tenant_of(const struct dt_http_req *q)
{
	const struct dt_engine_params *p = dt_engine_params(q->engine);

	return p->ntenants > 0 ? p->tenant[q->tenant].name : "";
}

/* ---- uploads ---- */

static enum MHD_Result on_part(void *cls, enum MHD_ValueKind kind, const char *key, const char *filename,
			       const char *type, const char *encoding, const char *data, uint64_t off,
			       size_t n)
{
	struct dt_http_upload *u = cls;

	if (!key) { /* a part without a name */
		u->bad = true;
	} else if (!strcmp(key, "purpose")) {
		u->bad |= n >= sizeof(u->purpose) - u->npurpose;
		n = u->bad ? 0 : n;
		memcpy(u->purpose + u->npurpose, data, n);
		u->npurpose += n;
	} else if (!strcmp(key, "file")) {
		u->bad |= u->has_file && off == 0 && u->file.bytes > 0; /* a second file */
		u->has_file = true;
		if (filename && off == 0)
			snprintf(u->name, sizeof(u->name), "%s", filename);
		if (!u->bad)
			dt_upload_write(&u->file, data, n);
	} else if (!*u->other) {
		snprintf(u->other, sizeof(u->other), "%s", key);
	}
	return MHD_YES;
}

bool dt_http_upload(struct dt_http_req *q, const char *data, size_t n)
{
	struct dt_http_upload *u = q->upload;

	if (!u && q->http->store) {
		u = q->upload = calloc(1, sizeof(*u));
		if (!u)
			return false;
		u->form = MHD_create_post_processor(q->mhd, 16384, on_part, u);
		u->bad = !u->form;
		dt_upload_begin(&u->file, q->http->store);
	}
	if (u && u->form && MHD_post_process(u->form, data, n) != MHD_YES)
		u->bad = true;
	return true;
}

void dt_http_upload_release(struct dt_http_req *q)
{
	struct dt_http_upload *u = q->upload;

	if (!u)
		return;
	if (u->form)
		MHD_destroy_post_processor(u->form);
	dt_upload_abort(&u->file);
	free(u);
	q->upload = NULL;
}

/*
 * Strips folders from a client's file name, and replaces characters that could be harmful in a terminal or a
 * web page.
 */
static void clean_name(char *name)
{
	const char *slash = strrchr(name, '/');

	if (slash)
		memmove(name, slash + 1, strlen(slash + 1) + 1);
	for (char *c = name; *c; c++)
		if ((unsigned char)*c < 32 || *c == 127 || *c == '"' || *c == '\\' || (*c & 0x80))
			*c = '_';
}

static enum MHD_Result file_create(struct dt_http_req *q)
{
	struct dt_http_upload *u = q->upload;
	char id[DT_STORE_ID];
	struct dt_err err;
	char msg[128];
	json_t *v;
	int rc;

	if (!q->http->store)
		return none(q);
	if (!u || !u->form || u->bad || !u->has_file)
		return fail(q, 400, NULL,
			    "the body is not a form (multipart/form-data) with 'purpose' and one 'file'");
	if (strcmp(u->purpose, "batch") != 0)
		return fail(q, 400, NULL, "the only supported 'purpose' is batch");
	clean_name(u->other);
	snprintf(msg, sizeof(msg), "unknown part '%s' of the form", u->other);
	if (*u->other)
		return fail(q, 400, NULL, msg);
	if (u->file.rc == -EFBIG)
		return fail(q, 413, "body_too_large", "the file is larger than 256 MiB");
	if (u->file.rc == -ENOSPC)
		return fail(q, 413, "storage_full", "the storage for files is full: delete some");
	clean_name(u->name);
	dt_store_new_id("file-", id);
	rc = dt_upload_commit(&u->file, id, tenant_of(q), u->name, u->purpose, &v, &err);
	if (rc < 0)
		return fail(q, rc == -ENOSPC ? 413 : 500, rc == -ENOSPC ? "storage_full" : NULL, err.msg);
	return dt_http_reply_json(q, 200, dt_store_public(v));
}

/* ---- files ---- */

static const char *argument(struct dt_http_req *q, const char *name)
{
	return MHD_lookup_connection_value(q->mhd, MHD_GET_ARGUMENT_KIND, name);
}

static enum MHD_Result list(struct dt_http_req *q, const char *kind, int otherwise)
{
	const char *text = argument(q, "limit"), *order = argument(q, "order");
	char *end = NULL;
	long limit = text ? strtol(text, &end, 10) : otherwise;
	struct dt_api_error e;
	json_t *v;

	if (!q->http->store)
		return none(q);
	if ((text && (end == text || *end)) || limit < 1 || limit > LIST_MAX)
		return fail(q, 400, NULL, "'limit' is not a number from 1 to 10000");
	if (order && strcmp(order, "desc") != 0)
		return fail(q, 400, NULL, "the only supported 'order' is desc: newest first");
	if (!dt_http_take(q, (size_t)limit * LIST_BYTES)) {
		dt_http_no_memory(&e);
		return dt_http_reply_error(q, &e);
	}
	v = dt_store_list(q->http->store, tenant_of(q), kind, argument(q, "purpose"), argument(q, "after"),
			  (int)limit);
	return v ? dt_http_reply_json(q, 200, v)
		 : fail(q, 400, NULL, "'after' is not the id of an entry of this list");
}

static enum MHD_Result file_list(struct dt_http_req *q)
{
	return list(q, "file", LIST_MAX);
}

static enum MHD_Result batch_list(struct dt_http_req *q)
{
	return list(q, "batch", 20);
}

/* Copies the id between the route's path and the next '/'; returns what follows it. */
static const char *id_of(const struct dt_http_req *q, char id[DT_STORE_ID])
{
	const char *s = q->path + strlen(q->route->path);
	size_t n = strcspn(s, "/");

	snprintf(id, DT_STORE_ID, "%.*s", n < DT_STORE_ID ? (int)n : 0, s);
	return s + n;
}

static enum MHD_Result gone(struct dt_http_req *q, const char *kind, const char *id)
{
	struct dt_api_error e;

	dt_api_fail(&e, 404, "invalid_request_error", "not_found", "no %s '%.60s'", kind, id);
	return dt_http_reply_error(q, &e);
}

static enum MHD_Result content(struct dt_http_req *q, const char *id)
{
	char *path = dt_store_path(q->http->store, id, "");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	struct MHD_Response *r = NULL;
	struct stat st;

	free(path);
	if (fd >= 0 && fstat(fd, &st) == 0)
		r = MHD_create_response_from_fd64((uint64_t)st.st_size, fd);
	if (!r) {
		if (fd >= 0)
			close(fd);
		return fail(q, 500, NULL, "the file's content cannot be read");
	}
	MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
	dt_http_answered(q, (size_t)st.st_size, false);
	return dt_http_reply(q, 200, r, "application/octet-stream");
}

static enum MHD_Result file_get(struct dt_http_req *q)
{
	char id[DT_STORE_ID];
	const char *rest = id_of(q, id);
	enum MHD_Result rc;
	json_t *v;

	if (!q->http->store)
		return none(q);
	v = dt_store_get(q->http->store, tenant_of(q), "file", id);
	if (!v || (*rest && strcmp(rest, "/content") != 0)) {
		json_decref(v);
		return gone(q, "file", id);
	}
	if (!*rest)
		return dt_http_reply_json(q, 200, dt_store_public(v));
	rc = content(q, id);
	json_decref(v);
	return rc;
}

static enum MHD_Result file_delete(struct dt_http_req *q)
{
	char id[DT_STORE_ID];
	const char *rest = id_of(q, id);
	struct dt_err err;
	int rc;

	if (!q->http->store)
		return none(q);
	rc = *rest ? -ENOENT : dt_store_remove(q->http->store, tenant_of(q), id, &err);
	if (rc == -ENOENT)
		return gone(q, "file", id);
	if (rc < 0)
		return fail(q, 500, NULL, err.msg);
	return dt_http_reply_json(q, 200,
				  json_pack("{s:s, s:s, s:b}", "id", id, "object", "file", "deleted", 1));
}

/* ---- batches ---- */

static enum MHD_Result batch_create(struct dt_http_req *q)
{
	struct dt_api_error e;
	json_t *body, *v;

	if (!q->http->store)
		return none(q);
	body = dt_http_body(q, &e);
	v = body ? dt_batches_create(q->http->batches, tenant_of(q), body, &e) : NULL;
	json_decref(body);
	return v ? dt_http_reply_json(q, 200, v) : dt_http_reply_error(q, &e);
}

static enum MHD_Result batch_get(struct dt_http_req *q)
{
	char id[DT_STORE_ID];
	const char *rest = id_of(q, id);
	json_t *v;

	if (!q->http->store)
		return none(q);
	v = *rest ? NULL : dt_batches_get(q->http->batches, tenant_of(q), id);
	return v ? dt_http_reply_json(q, 200, v) : gone(q, "batch", id);
}

static enum MHD_Result batch_cancel(struct dt_http_req *q)
{
	char id[DT_STORE_ID];
	const char *rest = id_of(q, id);
	struct dt_api_error e;
	json_t *v;

	if (!q->http->store)
		return none(q);
	if (strcmp(rest, "/cancel") != 0)
		return gone(q, "batch", id);
	v = dt_batches_cancel(q->http->batches, tenant_of(q), id, &e);
	return v ? dt_http_reply_json(q, 200, v) : dt_http_reply_error(q, &e);
}

const struct dt_route dt_http_file_routes[DT_HTTP_FILE_ROUTES] = {
	{"POST", "/v1/files", file_create, DT_ROUTE_UPLOAD},
	{"GET", "/v1/files", file_list},
	{"GET", "/v1/files/", file_get},
	{"DELETE", "/v1/files/", file_delete},
	{"POST", "/v1/batches", batch_create},
	{"GET", "/v1/batches", batch_list},
	{"GET", "/v1/batches/", batch_get},
	{"POST", "/v1/batches/", batch_cancel},
};
/* SPDX-License-Identifier: Apache-2.0 */
