/*
 * A reader of JSON Lines, one object a line, that also works on pipes. Blank lines are skipped, the last line
 * may lack its newline, and a line has at most 16 MiB.
 */
#ifndef DT_BASE_JSONL_H
#define DT_BASE_JSONL_H

#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>

struct dt_jsonl {
	/* set after opening: count lines that are no JSON object in `bad` instead of failing */
	bool skip_bad;
	/*
	 * set after opening: a last line that has no newline and ends within an object, because its writer
	 * was killed or is not done, is skipped; `cut` is then set
	 */
	bool skip_cut, cut;
	bool texts;	  /* set after opening: strings may contain NUL (dt_json_parse_texts) */
	size_t line, bad; /* lines read; lines skipped because of skip_bad */
	const char *name; /* name of the input in messages; borrowed */
	int fd;
	char *buf; /* bytes read and not yet consumed: [at, n) */
	size_t at, n, cap;
	bool end;
};

/* "-" is standard input. path must outlive the reader. */
int dt_jsonl_open(struct dt_jsonl *j, const char *path, struct dt_err *err);
void dt_jsonl_close(struct dt_jsonl *j);

/* Reads the next object, which the caller owns. 1; 0 at the end; -EINVAL with "NAME:LINE: ..."; -EIO ... */
int dt_jsonl_next(struct dt_jsonl *j, json_t **ret, struct dt_err *err);

/* Whether dt_jsonl_next would return without blocking. Waits up to timeout_s for that. */
bool dt_jsonl_ready(const struct dt_jsonl *j, double timeout_s);

/* Reads a pipe to its end and discards it, so that SIGPIPE does not kill the writer. */
void dt_jsonl_drain(struct dt_jsonl *j);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
