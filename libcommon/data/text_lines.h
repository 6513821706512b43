/*
 * Inside data/: JSON Lines of a file, in blocks: the lines of a block are parsed by threads side by side and
 * handed out one after another, in their order.
 */
#ifndef DT_DATA_TEXT_LINES_H
#define DT_DATA_TEXT_LINES_H

#include "base/json.h"

#include <stddef.h>

#define TEXT_LINE_MAX ((size_t)256 << 20) /* a longer line is bad: it is passed over without being held */

struct text_line {
	size_t bytes, number; /* with its newline; from 1 */
	json_t *value;	      /* NULL: bad; and of a blank line, where why is empty */
	char why[160];	      /* "line 3: unexpected token" */
};

struct text_lines {
	/* Up to n bytes more: their number, 0 at the end, or a negative errno. */
	int (*more)(void *ctx, void *buf, int n, struct dt_err *err);
	/* The value is freed when it returns, other than 0 ends the reading. */
	int (*take)(void *ctx, const struct text_line *l, struct dt_err *err);
	void *ctx;
	/* Whether a line that begins so many bytes into the file is parsed; NULL: all are. */
	bool (*wanted)(void *ctx, size_t at);
};

int text_lines_read(const struct text_lines *t, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
