/*
 * A folder of files and batches (/v1/files, /v1/batches): each a record ID.json, a file also its content ID.
 * A record is written beside its name and renamed, behind its content, so that a crash leaves a whole record
 * or none; content without a record is removed when the folder is opened. One process at a time.
 *
 * A record is the JSON object that the API shows, and "_tenant", whose it is: nobody else finds it. Functions
 * may be called from any thread; what they return is the caller's own copy.
 */
#ifndef DT_SERVE_STORE_H
#define DT_SERVE_STORE_H

#include "serve/api/openai.h"

#include <stdio.h>

#define DT_STORE_ID	 48 /* bytes of an id */
#define DT_STORE_RECORDS 10000
#define DT_STORE_UPLOAD	 ((uint64_t)256 << 20) /* bytes of a file */

struct dt_store;

/* dir is made where it is missing; max_bytes: of all files. -EBUSY: another process has it. */
int dt_store_open(struct dt_store **ret, const char *dir, uint64_t max_bytes, struct dt_err *err);
void dt_store_close(struct dt_store *s);

/* "PREFIX-" or "PREFIX_" and 24 random digits. */
void dt_store_new_id(const char *prefix, char ret[DT_STORE_ID]);
/* The path of ID's content with suffix, malloc'd. NULL: out of memory. */
char *dt_store_path(const struct dt_store *s, const char *id, const char *suffix);

/* A file while it comes. */
struct dt_upload {
	struct dt_store *store;
	FILE *f;
	char *path; /* of the temporary file */
	uint64_t bytes;
	bool own; /* the server's: the share and the size do not bound it */
	int rc;	  /* the first failure: -EFBIG, -ENOSPC (of the folder's share too), ... */
};

int dt_upload_begin(struct dt_upload *u, struct dt_store *s);
void dt_upload_write(struct dt_upload *u, const char *data, size_t n);
/* Makes it a file under id; *ret: its record. Releases u, on failure too. */
int dt_upload_commit(struct dt_upload *u, const char *id, const char *tenant, const char *name,
		     const char *purpose, json_t **ret, struct dt_err *err);
void dt_upload_abort(struct dt_upload *u);

/*
 * Writes a record, new or changed; the store keeps a copy. -ENOSPC: DT_STORE_RECORDS are taken. A batch
 * that is not over takes three of them: its own, and those of the files "_output" and "_error" that it may
 * come to have.
 */
int dt_store_put(struct dt_store *s, const json_t *v, struct dt_err *err);
/* A record by its id and kind ("file", "batch"); tenant NULL: anybody's. NULL: there is none. */
json_t *dt_store_get(struct dt_store *s, const char *tenant, const char *kind, const char *id);
/* {"object": "list", "data", ...}, the newest first, at most limit behind `after` (NULL: from the start) */
json_t *dt_store_list(struct dt_store *s, const char *tenant, const char *kind, const char *purpose,
		      const char *after, int limit);
/* Whether a batch is completed, failed, expired or cancelled. */
bool dt_store_is_over(const json_t *batch);
/* Ids of the batches that are not over, the oldest first. */
json_t *dt_store_pending(struct dt_store *s);
/* Removes a file's record and content. -ENOENT. */
int dt_store_remove(struct dt_store *s, const char *tenant, const char *id, struct dt_err *err);
/* The record as the API shows it; steals v. */
json_t *dt_store_public(json_t *v);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
