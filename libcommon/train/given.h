/*
 * Training on samples that are produced step by step, with a loss other than next-token cross-entropy:
 * answers sampled from the model, with their rewards. The producer (rl/) is a library above this one and
 * passes in a struct dt_given; the trainer asks it for the rows of each step, and for the loss of their
 * targets (judge).
 *
 * Every rank gets all rows of a step and computes its own part; a step has as many microbatches as its rows
 * need. judge returns losses that are already normalized over the whole step: the trainer does not divide
 * them by the number of targets.
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

/* What the producer sees of the trainer; valid while the run lasts. */
struct dt_given_site {
	const struct dt_run *run; /* all options resolved */
	const struct dt_config *config;
	struct dt_comm *all; /* every rank */
	int rank, ranks;
	bool counts; /* this rank's sums count; false on the other ranks that compute the same rows (tp) */
	const struct dt_log *log; /* logs on rank 0 */
	/* --task: values of all parameters, by number, in the compute type and in host memory. gather, which
	 * every rank calls, brings them up to date; they stay valid until the step computes. Else NULL. */
	const void *const *weights;
	int (*gather)(void *arg, struct dt_err *err);
	void *gather_arg;
	const float *value; /* [rows of a flight] the value head's output during judge and look; else NULL */
	float *dvalue;	    /* the loss's gradient with respect to value, which judge writes */
	const char *tokenizer; /* text for dt_tokenizer_from_text, of tokenizer_n bytes */
	size_t tokenizer_n;
	enum dt_dev_kind device; /* the device that the trainer computes on */
	int card;		 /* index of the CUDA device */
	int threads;
	double patience; /* seconds without an answer after which a process is taken to hang; 0: never */
};

struct dt_given {
	void *arg;
	/* Called once, when all options of the run are resolved. */
	int (*open)(void *arg, const struct dt_given_site *s, struct dt_err *err);
	/* The rows of a step, which counts from 0; the same on every rank. */
	int (*rows)(void *arg, int64_t step, struct dt_given_rows *ret, struct dt_err *err);
	/*
	 * Receives the reference model's log-probabilities of a microbatch's targets (dt_run_asks_reference).
	 * Reads logprob alone and writes nothing but err. After the last one, or at once where there is no
	 * reference model, every rank calls ready.
	 */
	int (*keep)(void *arg, const struct dt_flight *f, const float *logprob, float *weight, double *loss,
		    struct dt_err *err);
	/* Before keep, where the objective has values: the same for the model being trained. */
	int (*look)(void *arg, const struct dt_flight *f, const float *logprob, float *weight, double *loss,
		    struct dt_err *err);
	int (*ready)(void *arg, struct dt_err *err);
	/*
	 * The loss, as in struct dt_objective; f->sample is the number of the microbatch's first row in the
	 * step.
	 */
	int (*judge)(void *arg, const struct dt_flight *f, const float *logprob, float *weight, double *loss,
		     struct dt_err *err);
	/* After the last microbatch of the step; every rank calls it. */
	int (*end)(void *arg, struct dt_err *err);
	/* Adds the producer's values to the step's line of metrics. */
	void (*metrics)(void *arg, json_t *line);
};

/* ---- given.c, for the trainer ---- */

struct trainer;

struct given {
	const struct dt_given *g; /* NULL: samples come from a data set */
	struct dt_given_rows now;
	int64_t rounds; /* microbatches of the step */
	char *tokenizer;
	char hash[17];
};

/* Reads the tokenizer of the model, which goes into checkpoints. */
int given_open(struct trainer *t, struct dt_err *err);
/* Once the trainer's memory is allocated: calls the producer's open. */
int given_start(struct trainer *t, struct dt_err *err);
void given_close(struct trainer *t);
int given_begin(struct trainer *t, struct dt_err *err);
/*
 * Copies a microbatch of the step's rows, from row n on, into f. Behind the last row the first ones are
 * repeated without targets, so that a router's statistics come from text, not from padding.
 */
void given_next(struct trainer *t, const struct dt_flight *f, int64_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
