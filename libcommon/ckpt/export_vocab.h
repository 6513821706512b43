/* A tokenizer.json as GGUF's keys; private to ckpt/export_vocab*.c. */
#ifndef DT_CKPT_EXPORT_VOCAB_H
#define DT_CKPT_EXPORT_VOCAB_H

#include "ckpt/export_internal.h"

struct exp_vocab {
	struct src_token *t;
	int64_t n;	 /* of the model */
	char (*pad)[24]; /* names for ids without a token */
};

/* The member "type", "" without one. */
const char *exp_json_type(const json_t *o);
/* Where o, or the list of such under key, has a member of this type; NULL: nowhere. */
const json_t *exp_find_type(const json_t *o, const char *key, const char *type);

/*
 * Reads the tokens of all v->n ids; ids that the tokenizer lacks are marked unused. bytes: names such as
 * <0x0A> are bytes. After a failure too, the caller frees v->t and v->pad.
 */
int exp_vocab_read(const json_t *root, bool bytes, struct exp_vocab *v, struct dt_err *err);
void exp_vocab_put(const struct exp_vocab *v, struct gguf_out *g);
/* none: the score of a piece that has 0. */
void exp_vocab_put_scores(const struct exp_vocab *v, struct gguf_out *g, float none);

/* Of encoders: the tokens that a template puts around a text, whether it does, and other special ones. */
void exp_around_put(const json_t *root, struct gguf_out *g);
int exp_vocab_bert(const json_t *root, struct exp_vocab *v, struct gguf_out *g, struct dt_err *err);
int exp_vocab_unigram(const json_t *root, struct exp_vocab *v, struct gguf_out *g, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
