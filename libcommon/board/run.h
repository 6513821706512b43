/*
 * A run as told by the metrics file of dt-train or dt-rl: for each key a column of numbers, with one element
 * a line. It is read further as the file grows; an update of dt-rl counts as a step. The file is untrusted
 * input: lines that are not JSON objects are skipped and counted.
 */
#ifndef DT_BOARD_RUN_H
#define DT_BOARD_RUN_H

#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { DT_BOARD_COLUMNS = 96, DT_BOARD_DETAILS = 4000, DT_BOARD_EVENTS = 1000, DT_BOARD_ANSWERS = 50 };

struct dt_board_column {
	char key[48];
	double *v; /* [rows] NAN: the line lacks the key */
};

struct dt_board_run {
	char *path, *name; /* name: for display */
	int fd;
	bool renewed;  /* the name belongs to another file than at the last read */
	off_t at;      /* bytes of the file that have been read */
	char last[64]; /* the bytes before `at`, to detect a file that was truncated and rewritten */
	char *buf;     /* [n] an incomplete last line */
	size_t n, cap;
	struct dt_board_column col[DT_BOARD_COLUMNS];
	int ncol;
	uint32_t *of; /* [rows] hash of the line's run_id; 0: it has none */
	size_t rows, room;
	size_t bad; /* lines skipped */
	char run_id[40];
	json_t *categories; /* the memory plan's categories, from the first line; or NULL */
	json_t *over;	    /* memory_over_step, from the first line; or NULL */
	json_t *run;	    /* newest description of the run; NULL: no line has one */
	json_t *answers;    /* the newest of an array of {step, prompt, answer, reward} */
	json_t *details;    /* array of the newest lines with details */
	json_t *events;	    /* array of lines with an event */
	double changed;	    /* when the file last grew, seconds since 1970 */
};

int dt_board_run_open(struct dt_board_run *r, const char *path, const char *name, struct dt_err *err);
/*
 * Reads what was added to the file. Returns 1 if there was more, else 0, or a negative errno. left: number of
 * bytes that may still be read, reduced by those read, 0 if there may be more; NULL: no limit.
 */
int dt_board_run_read(struct dt_board_run *r, size_t *left, struct dt_err *err);
/* Adds one line, which ends with a newline; for tests and harnesses. */
void dt_board_run_take(struct dt_board_run *r, const char *line, size_t n);
/* The column of a key, [rows]; NULL: no line has it. */
const double *dt_board_run_column(const struct dt_board_run *r, const char *key);
/* The newest value of a key; NAN: none. */
double dt_board_run_newest(const struct dt_board_run *r, const char *key);
void dt_board_run_close(struct dt_board_run *r);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
