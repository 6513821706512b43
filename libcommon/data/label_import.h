/*
 * From JSON Lines of labelled texts to a set of tokens that is classified (data/doc_labels.h). A line is
 * {"text": "...", "text_pair": "...", "label": ...}, text_pair is optional. A label is a class, by its name
 * or its number, or with `scores` a number. A text is encoded as the tokenizer's template for models says:
 * [CLS] text [SEP], and [CLS] text [SEP] text_pair [SEP].
 */
#ifndef DT_DATA_LABEL_IMPORT_H
#define DT_DATA_LABEL_IMPORT_H

#include "base/json.h"
#include "data/class_list.h"
#include "data/tokenizer.h"

#include <stdio.h>

struct dt_label_import {
	/* set by the caller */
	const struct dt_tokenizer *tok;
	int64_t seq;	     /* longer ones are cut: of a pair the longer text first */
	bool scores;	     /* labels are scores */
	bool skip_bad;	     /* lines that cannot be used are told and left out, else nothing is written */
	double eval_percent; /* so many, evenly spread, go to the second set; 0: none */
	const char *names;   /* a file with the classes in order, one a line; NULL: sorted as they are met */
	const char *source;
	int shards;
	void (*told)(void *ctx, const char *what);
	void *ctx;
	/* filled; of the set to train on and of the other */
	int64_t texts[2], tokens[2];
	int64_t pairs, cut, bad;
	float least, most;	   /* scores */
	struct class_list classes; /* dt_label_import_release frees it */
};

/* Reads paths ("-": standard input), in order, into the sets out[0] and, with eval_percent, out[1]. */
int dt_label_import(struct dt_label_import *im, int n, const char *const *paths, const char *const out[2],
		    struct dt_err *err);
void dt_label_import_release(struct dt_label_import *im);

/* Counts, for people and as JSON. */
void dt_label_import_print(const struct dt_label_import *im, const char *const out[2], FILE *f);
json_t *dt_label_import_json(const struct dt_label_import *im, const char *const out[2]);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
