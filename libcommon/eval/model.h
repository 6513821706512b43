/*
 * A model under evaluation: its weights on a device, its tokenizer, and the forward pass of one sequence at a
 * time by the same code that serves it (nn/infer.h), with the logits of every position.
 */
#ifndef DT_EVAL_MODEL_H
#define DT_EVAL_MODEL_H

#include "base/err.h"
#include "data/tokenizer.h"
#include "nn/infer.h"

struct dt_eval_opts {
	const char *tokenizer; /* in place of the model's own; NULL: that */
	const char *lora;      /* an adapter that is added to the weights (ckpt/adapter.h); NULL: none */
	bool any_base;	       /* also one that was trained on other weights */
	bool fp32;	       /* activations, cache and weights that are not in blocks; else bf16 */
	int weights;	       /* enum dt_format of the matrices; -1: as they are stored, or as fp32 says */
	const char *device;    /* nn/device.h; NULL: the processor */
	int local_rank;
	const char *weights_disk; /* as disk_dir and disk_memory in nn/infer.h; NULL: all are in memory */
	uint64_t weights_memory;
	int64_t threads; /* of the model and of what is made of its logits; 0: as dt_eval_threads says */
	int64_t seq;	 /* tokens of a sequence at most; 0: the model's positions */
};

struct dt_eval_model {
	char *path;
	struct dt_dev *dev;
	struct dt_infer *infer;
	struct dt_tokenizer *tok;
	int64_t vocab, len; /* logits of a row; tokens of a sequence at most */
	int rows;	    /* tokens of one pass at most */
	int blocks;	    /* of a sequence */
	int32_t *pos, *want, *table;
	int64_t *slot;
	float *logits; /* [rows, vocab] of the last pass */
};

/*
 * Threads that the calling thread's loops over rows have from now on: those asked for; 0: what
 * OMP_NUM_THREADS says, else as many as this process has processors. Returned for a device that is
 * opened beside them.
 */
int dt_eval_threads(int64_t asked);

/* Reads how long a sequence of the model at path is: by default, and at most. */
int dt_eval_positions(const char *path, int64_t *ret_default, int64_t *ret_most, struct dt_err *err);

/* *m is zeroed. dt_eval_model_close after a failure too. */
int dt_eval_model_open(struct dt_eval_model *m, const char *path, const struct dt_eval_opts *o,
		       struct dt_err *err);
/* The same; a model without a tokenizer, as some formats have none, takes that of the model `like`. */
int dt_eval_model_open_like(struct dt_eval_model *m, const char *path, const char *like,
			    const struct dt_eval_opts *o, struct dt_err *err);
void dt_eval_model_close(struct dt_eval_model *m);

/*
 * Tokens ids[from .. from + n) follow those before them in the sequence; from 0 begins a new one. n is at
 * most m->rows. m->logits then has n - skip rows: row i says what comes after ids[from + skip + i].
 */
int dt_eval_extend(struct dt_eval_model *m, const int32_t *ids, int64_t from, int n, int skip,
		   struct dt_err *err);

/* A row's log-probability of token id, in fp64; ret_log_sum: log of the sum of exponentials, may be NULL. */
double dt_eval_logprob(const float *logits, int64_t vocab, int32_t id, double *ret_log_sum);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
