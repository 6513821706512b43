/*
 * Perplexity: exp of the mean negative log-likelihood of a text's tokens, and the comparison of two models
 * token by token. Windows are shared out over ranks; sums are taken in the order of windows, so that results
 * do not depend on how many ranks there were.
 */
#ifndef DT_EVAL_PPL_H
#define DT_EVAL_PPL_H

#include "base/json.h"
#include "comm/comm.h"
#include "eval/model.h"
#include "eval/windows.h"

#include <stdio.h>

struct dt_ppl_query {
	const char *text; /* of n bytes */
	size_t n;
	enum dt_windows windows;
	int64_t stride; /* 0: the model's len, half of it for transformers */
	int64_t limit;	/* windows at most; 0: all */
	bool bos;	/* the token that begins a text goes in front, where the tokenizer has one */
	struct dt_comm *ranks;
	int rank, size;
	void (*progress)(void *arg, int64_t done, int64_t of); /* NULL: nobody watches */
	void *arg;
};

struct dt_ppl {
	double nll;		/* mean, nats a token */
	double error;		/* standard error of nll: of the windows' means */
	int64_t tokens, bytes;	/* scored, and the text that these tokens are */
	int64_t windows, count; /* how many; tokens of the whole text */
};

static inline double dt_ppl_perplexity(const struct dt_ppl *p)
{
	return __builtin_exp(p->nll);
}

int dt_ppl_run(struct dt_eval_model *m, const struct dt_ppl_query *q, struct dt_ppl *ret, struct dt_err *err);
json_t *dt_ppl_json(const struct dt_eval_model *m, const struct dt_ppl *p);

/* A model beside the one it is compared with, on the same windows. */
struct dt_ppl_pair {
	struct dt_ppl a, b;
	double difference, error; /* mean of b's nll less a's, and its standard error, paired by windows */
	double kl;		  /* mean of KL(a || b) over tokens, nats */
	double kl_median, kl_99, kl_most;
	double same_top; /* share of tokens for which both have the same likeliest one */
};

/* The two must cut text into the same tokens: -EINVAL. */
int dt_ppl_compare(struct dt_eval_model *a, struct dt_eval_model *b, const struct dt_ppl_query *q,
		   struct dt_ppl_pair *ret, struct dt_err *err);
/* Two models by their paths, on the text of a file, in this process alone. */
struct dt_ppl_files {
	const char *a, *b, *text;
	const char *tokenizer; /* of both; NULL: each its own, or a's where b has none */
	int64_t threads;       /* 0: as dt_eval_threads says */
	int64_t seq;	       /* tokens of a window; 0: the model's positions, 2048 at most */
	char *read;	       /* the text, once dt_ppl_read_text has read it: [n] */
	size_t n;
};
/* Before b is made: reads the text, which may come only once, and sees that a has a tokenizer for it. */
int dt_ppl_read_text(struct dt_ppl_files *f, struct dt_err *err);
void dt_ppl_files_release(struct dt_ppl_files *f);
int dt_ppl_compare_files(const struct dt_ppl_files *f, struct dt_ppl_pair *ret, struct dt_err *err);
json_t *dt_ppl_pair_json(const struct dt_eval_model *a, const struct dt_eval_model *b,
			 const struct dt_ppl_pair *p);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
