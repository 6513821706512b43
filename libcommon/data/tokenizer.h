/*
 * Tokenizers: bytes <-> ids.
 *   byte       ids 0-255 are the bytes, 256 is end of text
 *   FILE       a Hugging Face tokenizer.json (byte-level BPE: GPT-2, Llama 3, Qwen; also what dt-tokenize
 * train writes)
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
int32_t dt_tokenizer_eot(const struct dt_tokenizer *t);	  /* end of text, -1: none */
int32_t dt_tokenizer_bos(const struct dt_tokenizer *t);	  /* -1: none is prepended */
/* 16 hex digits over what determines the ids; equal tokenizers have equal hashes. */
const char *dt_tokenizer_hash(const struct dt_tokenizer *t);
/* What dt_tokenizer_from_text accepts; owned by t. */
const char *dt_tokenizer_text(const struct dt_tokenizer *t, size_t *ret_n);

/* special: text of special tokens ("<|endoftext|>") becomes their ids, else it is plain text. *ret is
 * malloc'd. */
int dt_tokenizer_encode(const struct dt_tokenizer *t, const char *text, size_t n, bool special, int32_t **ret,
			size_t *ret_n, struct dt_err *err);
/* The bytes of one id (special tokens have none unless special); NULL for an id out of range. */
const char *dt_tokenizer_piece(const struct dt_tokenizer *t, int32_t id, bool special, size_t *ret_n);
int dt_tokenizer_decode(const struct dt_tokenizer *t, const int32_t *ids, size_t n, bool special, char **ret,
			size_t *ret_n, struct dt_err *err);

#endif
