/* What a batch reads: lines, and which of them an earlier run has answered. */
#ifndef DT_SERVE_API_BATCH_INPUT_H
#define DT_SERVE_API_BATCH_INPUT_H

#include "serve/api/batch.h"

struct batch_input {
	int fd, stop_fd; /* stop_fd readable: no more lines are wanted */
	char *buf;	 /* malloc'd */
	size_t n, cap, scanned, used;
	bool ended;
};

/*
 * The next line without its newline, line `number` of the input from 1, inside buf until the next call; n 0:
 * a blank one. 1, 0 at the end, or an error: -EFBIG past DT_BATCH_MAX_LINE.
 */
int batch_input_next(struct batch_input *b, int64_t number, char **ret, size_t *ret_n, struct dt_err *err);

/*
 * The lines that p->skip_done has an answer to, an object of keys; none where the file is not there. A
 * last line that is cut short is no answer. Where p->out is that very file, the next line begins as one of
 * its own.
 */
int batch_done_read(const struct dt_batch_params *p, json_t **ret, struct dt_err *err);
bool batch_done_has(const json_t *done, const json_t *id, int64_t index);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
