/* POST /tokenize and /detokenize: texts and conversations to ids and back, with the rules of completions. */
#ifndef DT_SERVE_TOKENIZE_H
#define DT_SERVE_TOKENIZE_H

#include "serve/api/openai.h"

struct dt_tokens {
	int32_t *ids; /* the caller frees them */
	size_t n;
	bool strings; /* the reply contains the text of each token */
};

/* -EINVAL with e filled; *ret then holds nothing. */
int dt_tokenize_parse(const json_t *body, const struct dt_api_model *m, struct dt_tokens *ret,
		      struct dt_api_error *e);
/* Upper bound of the memory needed to build the reply. */
size_t dt_tokenize_cost(const struct dt_tokens *t);
json_t *dt_tokenize_json(const struct dt_tokens *t, const struct dt_api_model *m);

/* The whole reply of /apply-template, {"prompt": text}; the keys are those of /tokenize. */
int dt_api_apply_template(const json_t *body, const struct dt_api_model *m, json_t **ret,
			  struct dt_api_error *e);
/* Builds the whole reply: {"prompt": text}. */
int dt_detokenize(const json_t *body, const struct dt_api_model *m, json_t **ret, struct dt_api_error *e);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
