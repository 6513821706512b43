/* Input of a batch: reads lines, and finds those that an earlier run has answered. */
#ifndef DT_SERVE_API_BATCH_INPUT_H
#define DT_SERVE_API_BATCH_INPUT_H

#include "serve/api/batch.h"

struct batch_input {
	int fd, stop_fd; /* stop_fd: stop reading lines when it becomes readable */
	char *buf;	 /* malloc'd */
	size_t n, cap, scanned, used;
	bool ended;
};

/*
 * Returns the next line, without its newline, in *ret; valid until the next call. n 0: blank line. number: of
 * the line, from 1, for messages. Returns 1, 0 at the end, or an error: -EFBIG past DT_BATCH_MAX_LINE.
 */
int batch_input_next(struct batch_input *b, int64_t number, char **ret, size_t *ret_n, struct dt_err *err);

/*
 * Reads which lines have an answer in p->skip_done: an object with their keys; empty if the file does not
 * exist. A truncated last line does not count. If p->out is the same file, its output then starts on a new
 * line.
 */
int batch_done_read(const struct dt_batch_params *p, json_t **ret, struct dt_err *err);
bool batch_done_has(const json_t *done, const json_t *id, int64_t index);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
