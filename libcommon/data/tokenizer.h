/*
 * Tokenizers: bytes <-> ids.
 *   byte       ids 0-255 are the bytes, 256 is end of text
 *   FILE       a Hugging Face tokenizer.json (byte-level BPE: GPT-2, Llama 3, Qwen; also what dt-tokenize
 *              train writes; SentencePiece's BPE with bytes to fall back on: Llama 2, Mistral, Gemma;
 *              WordPiece: BERT; or Unigram: T5, XLM-RoBERTa)
 *
 * Ids are those of Hugging Face's library with two differences: a byte that the vocabulary lacks is an error
 * rather than left out, and bytes that are not UTF-8 are kept: each becomes the token of that byte, or with
 * WordPiece and Unigram an unknown token. The file's truncation and padding are not applied. What is not
 * supported is refused by its name (-ENOTSUP).
 */
#ifndef DT_DATA_TOKENIZER_H
#define DT_DATA_TOKENIZER_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dt_tokenizer; /* immutable once open: threads may share it */

/* spec: "byte", a tokenizer.json, or a folder that holds one. */
int dt_tokenizer_open(const char *spec, struct dt_tokenizer **ret, struct dt_err *err);
/* The same from memory (a dataset or checkpoint carries its tokenizer): text of tokenizer.json, or "byte". */
int dt_tokenizer_from_text(const char *text, size_t n, struct dt_tokenizer **ret, struct dt_err *err);
void dt_tokenizer_close(struct dt_tokenizer *t);

int32_t dt_tokenizer_vocab(const struct dt_tokenizer *t); /* largest id + 1 */
/*
 * End of text, -1: none. A tokenizer.json does not say which token that is: it is the first of the added
 * tokens <|endoftext|>, <|end_of_text|>, <｜end▁of▁sentence｜>, </s>, <eos> that it has.
 */
int32_t dt_tokenizer_eot(const struct dt_tokenizer *t);
/* The token that starts a text, -1: none. Encoding does not add it: whoever starts a text does. */
int32_t dt_tokenizer_bos(const struct dt_tokenizer *t);
/*
 * The token that a template puts behind a text ([SEP] of BERT), -1: none. Encoding does not add it either.
 * It is dt_tokenizer_eot too where no token has one of those names.
 */
int32_t dt_tokenizer_end(const struct dt_tokenizer *t);
/* How many of these tokens a template puts between two texts: 1, of RoBERTa 2. */
int dt_tokenizer_seps(const struct dt_tokenizer *t);
/*
 * What stands in front of a text that is scored without a context, -1: nothing can; the token that starts a
 * text, else end of text, until one is named. Naming it is for who opened t, before others have it.
 */
int32_t dt_tokenizer_prefix(const struct dt_tokenizer *t);
void dt_tokenizer_set_prefix(struct dt_tokenizer *t, int32_t id);
/* 16 hex digits over what determines the ids; equal tokenizers have equal hashes. */
const char *dt_tokenizer_hash(const struct dt_tokenizer *t);
/* What dt_tokenizer_from_text accepts; owned by t. */
const char *dt_tokenizer_text(const struct dt_tokenizer *t, size_t *ret_n);

/* special: text of special tokens ("<|endoftext|>") becomes their ids, else it is plain text. *ret is
 * malloc'd. */
int dt_tokenizer_encode(const struct dt_tokenizer *t, const char *text, size_t n, bool special, int32_t **ret,
			size_t *ret_n, struct dt_err *err);
/*
 * The same for large texts: hands the ids over in parts. done: bytes of text read so far, for a progress
 * bar. A negative return ends the encoding and is its result.
 */
typedef int (*dt_tokenizer_sink)(void *ctx, const int32_t *ids, size_t n, size_t done, struct dt_err *err);
int dt_tokenizer_encode_to(const struct dt_tokenizer *t, const char *text, size_t n, bool special,
			   dt_tokenizer_sink sink, void *ctx, struct dt_err *err);
/*
 * Whether the parts of a text that is cut by dt_tokenizer_cut, encoded by themselves (special: as above),
 * have the ids of the whole: of bytes, and where words are cut by GPT-2's, Llama 3's or Qwen 2's pattern.
 */
bool dt_tokenizer_may_cut(const struct dt_tokenizer *t, bool special);
/* The first place from `from` on between a letter and a space with a letter behind it, all ASCII; else n. */
size_t dt_tokenizer_cut(const char *text, size_t n, size_t from);
/* The last such place, whatever follows the text; 0: there is none. */
size_t dt_tokenizer_last_cut(const char *text, size_t n);
/* The bytes of one id (special tokens have none unless special); NULL for an id out of range. */
const char *dt_tokenizer_piece(const struct dt_tokenizer *t, int32_t id, bool special, size_t *ret_n);
/* -EINVAL for an id out of range. *ret is malloc'd and NUL-terminated. */
int dt_tokenizer_decode(const struct dt_tokenizer *t, const int32_t *ids, size_t n, bool special, char **ret,
			size_t *ret_n, struct dt_err *err);

/*
 * The id of a token's bytes (an added token, or the text of a word), -1: none. Linear: for names, not texts.
 */
int32_t dt_tokenizer_find(const struct dt_tokenizer *t, const char *s, size_t n);

struct dt_tokenizer_info {
	const char *kind; /* "byte", "BPE", "WordPiece" or "Unigram" */
	int64_t merges;
	int added, special;	/* special ones are counted in added */
	const char *normalizer; /* "NFC" ..., "" */
	int patterns;
	const char *pattern[16];
};
void dt_tokenizer_describe(const struct dt_tokenizer *t, struct dt_tokenizer_info *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
