/*
 * A program's message lines: "dt-train: rank 3: text" on a given stream. The library does not log by itself;
 * the trainer and the server get a struct dt_log from their tool.
 */
#ifndef DT_BASE_LOG_H
#define DT_BASE_LOG_H

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

struct dt_log {
	FILE *f;	  /* NULL: silent */
	const char *name; /* name of the program */
	int rank;	  /* -1: no rank in the prefix */
	bool verbose;	  /* dt_log_debug prints */
	/* set while a progress line is on the terminal: it is erased before a message; NULL: none is drawn */
	bool *drawn;
};

void dt_log_msg(const struct dt_log *log, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void dt_log_debug(const struct dt_log *log, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Prints err's message and, on a second line, its hint. */
void dt_log_err(const struct dt_log *log, const struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
