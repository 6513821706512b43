/*
 * Training of a byte-level BPE vocabulary: words are counted, then the most frequent pair of neighbouring
 * symbols becomes a token, repeatedly (among equals the one of lowest ids). The result does not depend on
 * the order in which texts are added.
 */
#ifndef DT_DATA_BPE_TRAIN_H
#define DT_DATA_BPE_TRAIN_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How text is cut into words before pairs are counted. */
enum dt_bpe_pattern {
	DT_BPE_GPT2,
	DT_BPE_LLAMA3,
	DT_BPE_QWEN2,
	DT_BPE_PATTERNS,
};

struct dt_bpe_train_options {
	int32_t vocab;	   /* bytes, merges and special tokens together */
	int64_t min_count; /* pairs seen less often are not merged */
	enum dt_bpe_pattern pattern;
	/* NULL-terminated; they take the last ids, and their text is left out of training */
	const char *const *special;
	/*
	 * One token for each character seen, in the order of their code points, and no other (vocab and
	 * pattern do not count). Characters outside ASCII need merges of their bytes, which take the ids
	 * behind.
	 */
	bool chars;
};

struct dt_bpe_trainer;
int dt_bpe_trainer_new(const struct dt_bpe_train_options *o, struct dt_bpe_trainer **ret, struct dt_err *err);
void dt_bpe_trainer_free(struct dt_bpe_trainer *t);
int dt_bpe_trainer_add(struct dt_bpe_trainer *t, const char *text, size_t n, struct dt_err *err);
/* The text of a tokenizer.json, malloc'd. progress (may be NULL) is called with tokens made and wanted. */
int dt_bpe_trainer_run(struct dt_bpe_trainer *t, void (*progress)(void *ctx, int64_t done, int64_t total),
		       void *ctx, char **ret, size_t *ret_n, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
