/*
 * JSON Lines, one object a line, read as they arrive. Blank lines are passed over, the last line may lack its
 * newline; a line may hold 16 MiB.
 */
#ifndef DT_BASE_JSONL_H
#define DT_BASE_JSONL_H

#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>

struct dt_jsonl {
	bool skip_bad;	  /* set once it is open: count lines that are no JSON object instead of failing */
	size_t line, bad; /* lines read, and of those passed over */
	const char *name; /* for messages; borrowed */
	int fd;
	char *buf; /* bytes read and not yet taken: [at, n) */
	size_t at, n, cap;
	bool end;
};

/* "-" is standard input. path must outlive the reader. */
int dt_jsonl_open(struct dt_jsonl *j, const char *path, struct dt_err *err);
void dt_jsonl_close(struct dt_jsonl *j);

/* The next object, which is the caller's: 1, or 0 at the end, or -EINVAL with "NAME:LINE: ...", -EIO ... */
int dt_jsonl_next(struct dt_jsonl *j, json_t **ret, struct dt_err *err);

/* Will dt_jsonl_next return without waiting for input? Waits up to timeout_s for that to become true. */
bool dt_jsonl_ready(const struct dt_jsonl *j, double timeout_s);

/* Reads a pipe to its end and forgets it, so that whoever writes it is not killed by SIGPIPE. */
void dt_jsonl_drain(struct dt_jsonl *j);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
