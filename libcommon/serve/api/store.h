/*
 * A folder of files and batches (/v1/files, /v1/batches): each has a record ID.json; a file also has its
 * content, ID. A record is written to a temporary file and renamed, after its content, so that a crash leaves
 * a whole record or none. Content without a record is removed when the folder is opened. Only one process at
 * a time may use the folder.
 *
 * A record is the JSON object that the API shows, plus "_tenant", its owner; other tenants cannot find it.
 * Functions may be called from any thread; results are copies that the caller owns.
 */
#ifndef DT_SERVE_STORE_H
#define DT_SERVE_STORE_H

#include "serve/api/openai.h"

#include <stdio.h>

#define DT_STORE_ID	 48 /* bytes of an id, with NUL */
#define DT_STORE_RECORDS 10000
#define DT_STORE_UPLOAD	 ((uint64_t)256 << 20) /* max bytes of an uploaded file */

struct dt_store;

/*
 * dir is created if missing; max_bytes: limit for the bytes of all files. -EBUSY: another process uses the
 * folder.
 */
int dt_store_open(struct dt_store **ret, const char *dir, uint64_t max_bytes, struct dt_err *err);
void dt_store_close(struct dt_store *s);

/* "PREFIX-" or "PREFIX_" followed by 24 random digits. */
void dt_store_new_id(const char *prefix, char ret[DT_STORE_ID]);
/* The path of the content of `id`, plus suffix, malloc'd. NULL: out of memory. */
char *dt_store_path(const struct dt_store *s, const char *id, const char *suffix);

/* A file being uploaded. */
struct dt_upload {
	struct dt_store *store;
	FILE *f;
	char *path; /* of the temporary file */
	uint64_t bytes;
	bool own; /* written by the server: not subject to DT_STORE_UPLOAD and max_bytes */
	int rc;	  /* the first failure: -EFBIG, -ENOSPC (also if max_bytes is exceeded), ... */
};

int dt_upload_begin(struct dt_upload *u, struct dt_store *s);
void dt_upload_write(struct dt_upload *u, const char *data, size_t n);
/* Turns the upload into a file named id; *ret: its record. Frees u's resources, on failure too. */
int dt_upload_commit(struct dt_upload *u, const char *id, const char *tenant, const char *name,
		     const char *purpose, json_t **ret, struct dt_err *err);
void dt_upload_abort(struct dt_upload *u);

/*
 * Writes a new or changed record; the store keeps a copy. -ENOSPC: there are DT_STORE_RECORDS already. An
 * unfinished batch counts as three records: its own, and those of its later "_output" and "_error" files.
 */
int dt_store_put(struct dt_store *s, const json_t *v, struct dt_err *err);
/* Returns a record by its id and kind ("file", "batch"); tenant NULL: of any tenant. NULL: there is none. */
json_t *dt_store_get(struct dt_store *s, const char *tenant, const char *kind, const char *id);
/*
 * {"object": "list", "data", ...}, newest first, at most `limit` records after the id `after` (NULL: from the
 * start). NULL: no record of the list has that id.
 */
json_t *dt_store_list(struct dt_store *s, const char *tenant, const char *kind, const char *purpose,
		      const char *after, int limit);
/* Whether a batch is completed, failed, expired or cancelled. */
bool dt_store_is_over(const json_t *batch);
/* Ids of the unfinished batches, oldest first. */
json_t *dt_store_pending(struct dt_store *s);
/* Removes a file's record and content. -ENOENT. */
int dt_store_remove(struct dt_store *s, const char *tenant, const char *id, struct dt_err *err);
/* The record without private members; steals v. */
json_t *dt_store_public(json_t *v);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
