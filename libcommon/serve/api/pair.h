/*
 * Two texts that an encoder reads together: a query and a document, or a text and its pair.
 */
#ifndef DT_SERVE_PAIR_H
#define DT_SERVE_PAIR_H

#include "serve/api/openai.h"

/*
 * The ids of a text, with the tokens that the template puts around it, or of a list of ids as it is. NULL
 * with e filled, about the key.
 */
json_t *dt_pair_ids(json_t *text, const char *key, const struct dt_api_model *m, struct dt_api_error *e);
/*
 * The ids of two texts as one: BERT's [CLS] a [SEP] b [SEP], RoBERTa's <s> a </s></s> b </s>. The token that
 * starts b, if it is there, is left out, or replaced by what ends a.
 */
json_t *dt_pair_join(const json_t *a, const json_t *b, const struct dt_api_model *m);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
