/*
 * The message lines of a program: "dt-train: rank 3: text" on the stream it was given. A library never logs;
 * the trainer and the server take a struct dt_log from their tool.
 */
#ifndef DT_BASE_LOG_H
#define DT_BASE_LOG_H

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

struct dt_log {
	FILE *f;	  /* NULL: silent */
	const char *name; /* program */
	int rank;	  /* -1: no rank in the prefix */
	bool verbose;	  /* dt_log_debug prints */
	bool *drawn;	  /* a progress line stands on the terminal and is erased first; NULL: never */
};

void dt_log_msg(const struct dt_log *log, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void dt_log_debug(const struct dt_log *log, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Prints err's message and, on a second line, its hint. */
void dt_log_err(const struct dt_log *log, const struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
