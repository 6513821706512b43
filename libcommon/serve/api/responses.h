/*
 * OpenAI's Responses API without a store: bodies are translated to chat bodies (openai.h), and results to
 * items and events. previous_response_id is refused: nothing is stored, so clients send the whole input.
 */
#ifndef DT_SERVE_RESPONSES_H
#define DT_SERVE_RESPONSES_H

#include "serve/api/openai.h"

int dt_responses_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *ret,
		       struct dt_api_error *e);
/* The reply to a finished call. NULL with e filled when it failed. */
json_t *dt_responses_json(const struct dt_completion *c, struct dt_api_error *e);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
