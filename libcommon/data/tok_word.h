/*
 * A text on its way to ids: tok_encode.c cuts it into words, tok_word.c makes ids of each and hands them to
 * the sink; not for others.
 */
#ifndef DT_DATA_TOK_WORD_H
#define DT_DATA_TOK_WORD_H

#include "data/tok_priv.h"

#define DT_TOK_IDS_MAX	 16384
#define DT_TOK_CACHE_KEY 22
#define DT_TOK_CACHE_IDS 10

struct dt_tok_cached {	/* 64 bytes */
	uint8_t n, ids; /* 0: free */
	char key[DT_TOK_CACHE_KEY];
	int32_t id[DT_TOK_CACHE_IDS];
};

struct dt_tok_enc {
	const struct dt_tokenizer *t;
	bool special;
	bool alphabet; /* what steps see and words are is GPT-2's alphabet, not text */
	pcre2_match_data *md;
	pcre2_match_context *mc;
	struct dt_tok_cached *cache;
	uint64_t cache_mask;
	dt_word_fn word;
	dt_tokenizer_sink sink;
	void *ctx;
	struct dt_err *err;
	const char *text, *at; /* at: the last word, in text or in a changed copy of a part of it */
	size_t text_n, done;   /* done: bytes of text behind us */
	size_t n;
	int32_t ids[DT_TOK_IDS_MAX];
};

/* The ids of one word; where e->word is set, it gets the word instead. */
int dt_tok_word(struct dt_tok_enc *e, const char *s, size_t n);
/* Appends ids; DT_TOK_IDS_MAX of them go to the sink at once. */
int dt_tok_push(struct dt_tok_enc *e, const int32_t *ids, size_t n);
/* Hands the ids that are left to the sink. */
int dt_tok_flush(struct dt_tok_enc *e);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
