/*
 * Running and finished runs: metrics files of dt-train, events of dt-run and traces, found by what stands in
 * them; and what a page or a terminal shows of them. One thread at a time.
 */
#ifndef DT_BOARD_BOARD_H
#define DT_BOARD_BOARD_H

#include "board/run.h"

#include <stdio.h>

enum { DT_BOARD_RUNS = 64 };

struct dt_board {
	struct dt_board_run *run;
	int *folder; /* [n] which operand each is of */
	int n;
	struct dt_board_file { /* beside them */
		char *path;
		int folder;
		bool trace; /* else events of dt-run, read as a run is: each line is one */
		struct dt_board_run lines;
	} * file;
	int nfile;
	char *const *dir;
	int ndir;
	uint64_t version; /* grows with whatever changes */
	size_t most;	  /* bytes that a refresh reads; 0: all there are */
	int next;	  /* the run that it begins with */
	bool behind;	  /* there was more */
};

/*
 * Operands are files or folders; a folder's own files are looked at. most: bytes of metrics that this and
 * each refresh read, rounded up to pieces of a file; 0: all. -ENOENT: there is no run in any.
 */
int dt_board_open(struct dt_board *b, char *const *dirs, int n, size_t most, struct dt_err *err);
/* Reads what has come, new files too; b->behind says whether there is more. */
int dt_board_refresh(struct dt_board *b, struct dt_err *err);
void dt_board_close(struct dt_board *b);

/* ---- JSON for the page ---- */

struct dt_board_ask {
	const char *keys;    /* names with commas */
	const char *spread;  /* likewise: whose smallest and largest values are asked for too */
	double from, to;     /* steps; NAN: the first, the last */
	int points;	     /* at most so many a curve */
	int run;	     /* number; -1: all */
	const char *section; /* of details */
};
/* All runs: name, last values, keys, events, categories. */
void dt_board_put_runs(const struct dt_board *b, FILE *f);
/* Curves: the steps of q->points buckets of equal width; mean, and of some keys least and most, in each. */
void dt_board_put_series(const struct dt_board *b, const struct dt_board_ask *q, FILE *f);
/* A section's seconds by rank over steps, or a key of what ranks use, and norms by unit. */
void dt_board_put_details(const struct dt_board *b, const struct dt_board_ask *q, FILE *f);
/* The newest whole step of a trace: spans of microbatches and waits, by rank. */
void dt_board_put_timeline(const struct dt_board *b, const struct dt_board_ask *q, FILE *f);

/* ---- HTTP ---- */

struct dt_board_http;
struct dt_board_http_params {
	const char *host, *key; /* key NULL: none is asked for */
	int port;		/* 0: any */
};
/* Serves b, which is the server's until it is closed. *ret_url: static text of it. */
int dt_board_http_open(struct dt_board_http **ret, struct dt_board *b, const struct dt_board_http_params *p,
		       const char **ret_url, struct dt_err *err);
void dt_board_http_close(struct dt_board_http *h);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
