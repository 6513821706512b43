/* What the readers of tokenizer.json share. */
#ifndef DT_DATA_TOK_JSON_H
#define DT_DATA_TOK_JSON_H

#include "base/json.h"
#include "data/tok_priv.h"

/* -ENOTSUP: "what 'value' is not supported", and what is. */
int tok_json_unsupported(struct dt_err *err, const char *what, const char *value);
/* The member "type", or "". */
const char *tok_json_type(const json_t *o);
/*
 * The steps that cut a text into words; depth 0. ret_byte_level: ByteLevel was read, and what follows sees
 * its alphabet.
 */
int tok_json_pre_tokenizer(struct dt_tokenizer *t, const json_t *o, int depth, bool *ret_byte_level,
			   struct dt_err *err);
/* The tokens before and behind a text, bos and end, which stay -1 where there is none; depth 0. */
int tok_json_post(struct dt_tokenizer *t, const json_t *o, int depth, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
