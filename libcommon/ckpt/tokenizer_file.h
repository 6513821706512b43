/* A tokenizer out of whatever holds one. */
#ifndef DT_CKPT_TOKENIZER_FILE_H
#define DT_CKPT_TOKENIZER_FILE_H

#include "base/err.h"

#include <stddef.h>

/*
 * Text that dt_tokenizer_from_text (data/tokenizer.h) takes, malloc'd, from
 *
 *   "byte", where no such file exists
 *   a folder         its tokenizer.json, tokenizer.model or BERT's vocab.txt, or the checkpoint in it
 *   tokenizer.json   as it is
 *   GGUF             its vocabulary, whose way to split text must be known (-ENOTSUP by its name)
 *   tokenizer.model  SentencePiece's BPE with byte fallback; others are -ENOTSUP by what they have
 *   .bin             llama2.c's tokenizer
 */
int dt_tokenizer_file_text(const char *spec, char **ret, size_t *ret_n, struct dt_err *err);
/* The same, and the chat template that came along, malloc'd, or NULL. ret_chat NULL: it is not asked for. */
int dt_tokenizer_file_read(const char *spec, char **ret, size_t *ret_n, char **ret_chat, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
