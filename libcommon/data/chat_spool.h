/*
 * Encoded examples in an unlinked file, until their places in the data set are known. A token takes four
 * bytes, whose highest bit says that it is a target.
 */
#ifndef DT_DATA_CHAT_SPOOL_H
#define DT_DATA_CHAT_SPOOL_H

#include "base/err.h"

#include <stdint.h>

struct dt_chat_spool {
	const char *path;
	int fd;
	int64_t tokens, flushed; /* tokens put; of these, in the file */
	uint32_t *buffer;
};

/* Creates the file beside the data set at path (kept as a pointer). Close the spool after a failure too. */
int dt_chat_spool_open(struct dt_chat_spool *s, const char *path, struct dt_err *err);
void dt_chat_spool_close(struct dt_chat_spool *s);

/* Appends n tokens. The first has number s->tokens before the call. */
int dt_chat_spool_put(struct dt_chat_spool *s, const int32_t *ids, const uint8_t *mask, int64_t n,
		      struct dt_err *err);
/* Reads tokens [at, at + n) back. */
int dt_chat_spool_get(struct dt_chat_spool *s, int64_t at, int64_t n, int32_t *ids, uint8_t *mask,
		      struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
