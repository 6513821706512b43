/*
 * Running and finished runs: metrics files of dt-train, events of dt-run and traces, recognized by their
 * contents, and what the web page and the terminal show of them. Not thread-safe.
 */
#ifndef DT_BOARD_BOARD_H
#define DT_BOARD_BOARD_H

#include "board/run.h"

#include <stdio.h>

enum { DT_BOARD_RUNS = 64, DT_BOARD_POINTS = 4000 };

struct dt_board {
	struct dt_board_run *run;
	int *folder; /* [n] index of the operand that each run comes from */
	int n;
	bool opened;	       /* all operands were there once */
	int left_out;	       /* runs found beyond DT_BOARD_RUNS */
	struct dt_board_file { /* other files */
		char *path;
		int folder;
		bool trace; /* a trace; else events of dt-run, parsed like a run's lines */
		struct dt_board_run lines;
	} * file;
	int nfile;
	char *const *dir;
	int ndir;
	uint64_t version; /* increases with every change */
	size_t most;	  /* bytes that a refresh reads at most; 0: no limit */
	int next;	  /* the run that the next refresh starts with */
	bool behind;	  /* the last refresh left unread data */
};

/*
 * Finds runs in files or folders (not in subfolders) and reads them. most: bytes of metrics to read, here and
 * in each refresh, rounded up to pieces of a file; 0: no limit. -ENOENT: no operand has a run.
 */
int dt_board_open(struct dt_board *b, char *const *dirs, int n, size_t most, struct dt_err *err);
/* Reads new data and new files; sets b->behind if there is more to read. */
int dt_board_refresh(struct dt_board *b, struct dt_err *err);
void dt_board_close(struct dt_board *b);

/* ---- JSON for the page ---- */

struct dt_board_ask {
	const char *keys;    /* comma-separated names */
	const char *spread;  /* comma-separated keys for which minimum and maximum are asked too */
	double from, to;     /* range of steps; NAN: from the first, to the last */
	int points;	     /* points a curve at most */
	int run;	     /* index of the run; -1: all */
	const char *section; /* name of a section of details */
};
/* Writes all runs: name, newest values, keys, events, memory categories. */
void dt_board_put_runs(const struct dt_board *b, FILE *f);
/*
 * Writes curves: the steps from .. to in q->points buckets of equal width; each bucket's mean, and for the
 * keys in spread its minimum and maximum.
 */
void dt_board_put_series(const struct dt_board *b, const struct dt_board_ask *q, FILE *f);
/* Writes, over steps, a section's seconds or a usage value by rank, and norms by unit. */
void dt_board_put_details(const struct dt_board *b, const struct dt_board_ask *q, FILE *f);
/* Writes the spans of microbatches and waits of each rank in the newest complete step of a trace. */
void dt_board_put_timeline(const struct dt_board *b, const struct dt_board_ask *q, FILE *f);

/* ---- HTTP ---- */

struct dt_board_http;
struct dt_board_http_params {
	const char *host, *key; /* key NULL: clients need no key */
	int port;		/* 0: any free port */
};
/*
 * Serves b, which only the server may use until it is closed. *ret_url: a string owned by the server.
 * -ENOKEY: other machines can reach the address, and no key is given.
 */
int dt_board_http_open(struct dt_board_http **ret, struct dt_board *b, const struct dt_board_http_params *p,
		       const char **ret_url, struct dt_err *err);
void dt_board_http_close(struct dt_board_http *h);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
