/*
 * From conversations (data/chat_form.h) to a set of tokens (data/dataset.h) whose targets are what the
 * assistant says: rendered by a template, cut to the length of a sample, packed by best fit, documents kept
 * apart. The tokens are in an unlinked file beside the data set until they are packed, four bytes each.
 */
#ifndef DT_DATA_CHAT_IMPORT_H
#define DT_DATA_CHAT_IMPORT_H

#include "data/chat_form.h"

#include <stdio.h>

struct dt_chat_import {
	/* set by the caller */
	const struct dt_tokenizer *tok;
	const struct dt_chat *chat;
	int64_t seq;	     /* tokens of a sample */
	bool preferences;    /* pairs of answers, or answers with a label; else conversations */
	bool skip_bad;	     /* examples that cannot be used are told and left out, else nothing is written */
	bool drop_long;	     /* longer ones are left out, not cut */
	double eval_percent; /* the last ones go to the second set; 0: none */
	const char *source;
	const char *template; /* text that the chat was recognised by, kept with the set; NULL: none */
	int shards;
	void (*told)(void *ctx, const char *what);
	void *ctx;
	/* filled; of the set to train on and of the other */
	struct dt_chat_counts {
		int64_t examples, samples, tokens, targets; /* tokens: of examples */
	} set[2];
	int64_t cut, cut_targets; /* examples that were cut, and targets that were lost by it */
	int64_t left_out;	  /* too long, or without a target once they were cut */
	int64_t bad;
	struct dt_chat_whole shown; /* the first example; dt_chat_import_release frees it */
};

/*
 * Opens c for the template `kind`; kind negative: recognises the template from text, or from the special
 * tokens. whose: the origin of text, for the message of -EINVAL.
 */
int dt_chat_open(struct dt_chat *c, int kind, const char *text, const struct dt_tokenizer *tok,
		 const char *whose, struct dt_err *err);

/* Reads paths ("-": standard input), in order, into the sets out[0] and, with eval_percent, out[1]. */
int dt_chat_import(struct dt_chat_import *im, int n, const char *const *paths, const char *const out[2],
		   struct dt_err *err);
void dt_chat_import_release(struct dt_chat_import *im);

/*
 * For people: the first example as runs of tokens, context and targets, and counts; what was cut and left out
 * beside them. As JSON likewise, under "example" the parts [{"target", "text"}]; NULL: there is no memory.
 */
void dt_chat_import_print(const struct dt_chat_import *im, const char *const out[2], FILE *f);
json_t *dt_chat_import_json(const struct dt_chat_import *im, const char *const out[2]);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
