/*
 * Errors: what failed, on what, and what to do.
 *
 * Library functions return 0 (or a count) or a negative errno and fill a struct dt_err. They never print and
 * never exit. Every function accepts a NULL struct dt_err and then reports by its return value alone.
 */
#ifndef DT_BASE_ERR_H
#define DT_BASE_ERR_H

struct dt_err {
	int code;	/* negative errno, 0 when nothing failed */
	char msg[512];	/* one line: what failed, subject in quotes, the reason */
	char hint[256]; /* what to do about it; empty when there is nothing to say */
};

/* Exit statuses of every program (man page section EXIT STATUS). */
enum dt_exit {
	DT_EXIT_OK = 0,
	DT_EXIT_FAILED = 1,
	DT_EXIT_USAGE = 2,
	DT_EXIT_NO = 3, /* the answer is no: does not fit, checksum mismatch, below a required minimum */
	DT_EXIT_PREEMPTED = 75, /* stopped by a signal after a clean checkpoint */
};

/* Fills err (when not NULL) and returns code, which must be a negative errno. */
int dt_err_set(struct dt_err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Like dt_err_set, with ": strerror(-code)" appended. */
int dt_err_sys(struct dt_err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "text: " before the message already in err, to say what was being done. Returns err's code. */
int dt_err_prefix(struct dt_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Sets the hint. */
void dt_err_hint(struct dt_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
/* SPDX-License-Identifier: Apache-2.0 */
