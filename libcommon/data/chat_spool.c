#include "data/chat_spool.h"

#include "base/io.h"
#include "base/tmpfile.h"
#include "data/shard_set.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define BUFFER 262144
#define TARGET 0x80000000u

int dt_chat_spool_open(struct dt_chat_spool *s, const char *path, struct dt_err *err)
{
	char *final;
	int rc;

	*s = (struct dt_chat_spool){.path = path, .fd = -1};
	rc = dt_out_path(path, &final, err);
	if (rc < 0)
		return rc;
	rc = set_spool_open(final, &s->fd, err);
	free(final);
	if (rc < 0)
		return rc;
	s->buffer = malloc(BUFFER * sizeof(*s->buffer));
	return s->buffer ? 0 : dt_err_sys(err, -ENOMEM, "cannot hold the examples");
}

void dt_chat_spool_close(struct dt_chat_spool *s)
{
	if (s->fd >= 0)
		close(s->fd);
	free(s->buffer);
	*s = (struct dt_chat_spool){.fd = -1};
}

static int flush(struct dt_chat_spool *s, struct dt_err *err)
{
	int rc = dt_write_all(s->fd, s->buffer, (size_t)(s->tokens - s->flushed) * sizeof(*s->buffer),
			      s->flushed * (int64_t)sizeof(*s->buffer));

	if (rc < 0)
		return dt_err_sys(err, rc, "cannot write '%s'", s->path);
	s->flushed = s->tokens;
	return 0;
}

int dt_chat_spool_put(struct dt_chat_spool *s, const int32_t *ids, const uint8_t *mask, int64_t n,
		      struct dt_err *err)
{
	for (int64_t i = 0; i < n; i++) {
		int rc = s->tokens - s->flushed == BUFFER ? flush(s, err) : 0;

		if (rc < 0)
			return rc;
		s->buffer[s->tokens++ - s->flushed] = (uint32_t)ids[i] | (mask[i] ? TARGET : 0);
	}
	return 0;
}

int dt_chat_spool_get(struct dt_chat_spool *s, int64_t at, int64_t n, int32_t *ids, uint8_t *mask,
		      struct dt_err *err)
{
	int rc = s->flushed < s->tokens ? flush(s, err) : 0;

	if (rc < 0)
		return rc;
	rc = set_read(s->fd, ids, (size_t)n * sizeof(*ids), at * (int64_t)sizeof(*ids));
	if (rc < 0)
		return dt_err_sys(err, rc, "cannot read examples back");
	for (int64_t i = 0; i < n; i++) {
		mask[i] = ((uint32_t)ids[i] & TARGET) != 0;
		ids[i] = (int32_t)((uint32_t)ids[i] & ~TARGET);
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
