/*
 * Samples that are made step after step and trained for another loss than the next token's: answers of the
 * model itself, with what they are worth. Whoever makes them (rl/) stands above this row and hands in a
 * struct dt_given; the trainer asks it for the rows of each step and lets it judge their targets.
 *
 * Every rank is given all rows of a step and computes its own; a step has as many microbatches as its rows
 * need. The loss that judge returns is that of the whole step already: nothing is divided by targets.
 */
#ifndef DT_TRAIN_GIVEN_H
#define DT_TRAIN_GIVEN_H

#include "base/json.h"
#include "base/log.h"
#include "comm/comm.h"
#include "nn/exec.h"
#include "plan/run.h"

/* The samples of a step: rows of seq tokens. The producer owns the memory, valid until the next step. */
struct dt_given_rows {
	int64_t rows;
	const int32_t *ids;	/* [rows, seq] */
	const int32_t *targets; /* [rows, seq] the next token; -1: not counted */
	const int32_t *first;	/* [rows, seq] where the token's document begins in its row */
	int64_t tokens;		/* targets that are counted */
};

/* What the maker may know of the trainer; valid while the run lasts. */
struct dt_given_site {
	const struct dt_run *run; /* settled */
	const struct dt_config *config;
	struct dt_comm *all; /* every rank */
	int rank, ranks;
	bool counts; /* of the ranks that compute the same rows this is the one whose sums count */
	const struct dt_log *log; /* speaks on rank 0 */
	/* --task: values of all parameters, by number, in the compute type and the host's memory: as they are
	 * behind gather, which every rank calls, until the step computes. Else NULL. */
	const void *const *weights;
	int (*gather)(void *arg, struct dt_err *err);
	void *gather_arg;
	const float *value; /* [rows of a flight] that judge and look see, where the objective has values; */
	float *dvalue;	    /* and the loss's derivatives by them, which judge writes */
	const char *tokenizer; /* text that dt_tokenizer_from_text takes, of n bytes */
	size_t tokenizer_n;
	enum dt_dev_kind device; /* that the trainer computes on */
	int card;		 /* which, where it is one */
	int threads;
	double patience; /* seconds after which who does not answer is held to hang; 0: never */
};

struct dt_given {
	void *arg;
	/* Once, with the run settled. */
	int (*open)(void *arg, const struct dt_given_site *s, struct dt_err *err);
	/* Rows of the step, counted from 0, the same on every rank. */
	int (*rows)(void *arg, int64_t step, struct dt_given_rows *ret, struct dt_err *err);
	/*
	 * What the reference (dt_run_asks_reference) gives the targets of a flight of the step: only logprob
	 * is read, only an error written. Behind it, and where there is no reference, every rank calls ready.
	 */
	int (*keep)(void *arg, const struct dt_flight *f, const float *logprob, float *weight, double *loss,
		    struct dt_err *err);
	/* Before that, where the objective has values: what the model that learns gives the flight. */
	int (*look)(void *arg, const struct dt_flight *f, const float *logprob, float *weight, double *loss,
		    struct dt_err *err);
	int (*ready)(void *arg, struct dt_err *err);
	/* As that of struct dt_objective; f->sample is the number of the flight's first row in the step. */
	int (*judge)(void *arg, const struct dt_flight *f, const float *logprob, float *weight, double *loss,
		     struct dt_err *err);
	/* Behind the last microbatch of the step: every rank calls it. */
	int (*end)(void *arg, struct dt_err *err);
	/* What the step's line of metrics says besides. */
	void (*metrics)(void *arg, json_t *line);
};

/* ---- given.c, for the trainer ---- */

struct trainer;

struct given {
	const struct dt_given *g; /* NULL: samples are a data set's */
	struct dt_given_rows now;
	int64_t rounds; /* microbatches of the step */
	char *tokenizer;
	char hash[17];
};

/* The tokenizer of the model, which checkpoints carry on. */
int given_open(struct trainer *t, struct dt_err *err);
/* Once everything is allocated. */
int given_start(struct trainer *t, struct dt_err *err);
void given_close(struct trainer *t);
int given_begin(struct trainer *t, struct dt_err *err);
/*
 * Rows n .. of the step into f. Behind the last row the first ones come again, without targets: experts are
 * not judged by rows of padding.
 */
void given_next(struct trainer *t, const struct dt_flight *f, int64_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
