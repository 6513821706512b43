/* From documents (data/text_source.h), less those that are left out (data/clean.h), to a set of tokens. */
#ifndef DT_DATA_TEXT_IMPORT_H
#define DT_DATA_TEXT_IMPORT_H

#include "base/json.h"
#include "data/clean.h"
#include "data/text_source.h"
#include "data/tokenizer.h"

#include <stdio.h>

struct dt_text_import {
	/* set by the caller */
	const struct dt_tokenizer *tok;
	struct dt_text_source in; /* what its caller sets */
	struct dt_clean_options clean;
	const char *const *exclude; /* [nexclude] texts whose runs of words no document may have */
	int nexclude;
	const char *removed; /* a JSON line of each document that is left out; NULL: none */
	const char *work;    /* a folder to go on from when it was killed (data/text_journal.h); NULL: none */
	const char *source;
	int shards;
	bool apart; /* where documents begin is written down */
	void (*progress)(void *ctx, uint64_t done);
	void *ctx;
	/* filled */
	int64_t tokens[2], documents[2]; /* of the set to train on and of the other */
	int64_t resumed;		 /* documents that were done before */
	struct dt_clean *cleaned;	 /* owned: dt_text_import_release */
};

/* Checks what can be checked before anything is read, opens the input: in.total_bytes is known behind it. */
int dt_text_import_open(struct dt_text_import *im, int n, const char *const *paths, struct dt_err *err);
/* Reads all of it into out[0] and, where in.eval_percent is set, out[1]. */
int dt_text_import(struct dt_text_import *im, const char *const out[2], struct dt_err *err);
void dt_text_import_release(struct dt_text_import *im);

/* What was written and left out: in words, and as an object, the caller's. */
void dt_text_import_print(const struct dt_text_import *im, const char *const out[2], double seconds, FILE *f);
json_t *dt_text_import_json(const struct dt_text_import *im, const char *const out[2], double seconds);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
