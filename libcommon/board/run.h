/*
 * A run as the metrics file of dt-train or of dt-rl tells it: a column of numbers for each key, one element a
 * line, read on as the file grows; the update of dt-rl is a step. What stands in a file from outside is
 * checked: lines that are no object are counted.
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
	double *v; /* [rows] NAN: the line has none */
};

struct dt_board_run {
	char *path, *name; /* name: for people */
	int fd;
	off_t at;      /* how far the file has been taken */
	char last[64]; /* the bytes before that, to find a file that was cut and written again */
	char *buf;     /* a line that has no end yet: [n] */
	size_t n, cap;
	struct dt_board_column col[DT_BOARD_COLUMNS];
	int ncol;
	uint32_t *of; /* [rows] a hash of the line's run_id; 0: it has none */
	size_t rows, room;
	size_t bad; /* lines passed over */
	char run_id[40];
	json_t *categories; /* of the memory plan, as the first line has them; NULL */
	json_t *over;	    /* memory_over_step, likewise */
	json_t *run;	    /* the newest description of the run; NULL: no line has one */
	json_t *answers;    /* array of {step, prompt, answer, reward}, the newest */
	json_t *details;    /* array of lines that have details, the newest */
	json_t *events;	    /* array of lines that have an event */
	double changed;	    /* when the file last grew, seconds since 1970 */
};

int dt_board_run_open(struct dt_board_run *r, const char *path, const char *name, struct dt_err *err);
/*
 * Takes what the file has by now: 1 if that is more, 0, or a negative errno. left: bytes that may be read,
 * less those that were, 0 where there may be more; NULL: all.
 */
int dt_board_run_read(struct dt_board_run *r, size_t *left, struct dt_err *err);
/* A line, which ends with a newline; for tests and harnesses. */
void dt_board_run_take(struct dt_board_run *r, const char *line, size_t n);
/* [rows]; NULL: no line has the key. */
const double *dt_board_run_column(const struct dt_board_run *r, const char *key);
/* The newest value of a key; NAN. */
double dt_board_run_newest(const struct dt_board_run *r, const char *key);
void dt_board_run_close(struct dt_board_run *r);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
