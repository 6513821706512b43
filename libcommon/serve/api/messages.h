/*
 * Anthropic's Messages API: its bodies are translated to chat bodies (openai.h), and the results back to its
 * format. Unknown optional keys are ignored, as its clients expect; unknown kinds of content are refused by
 * name.
 */
#ifndef DT_SERVE_MESSAGES_H
#define DT_SERVE_MESSAGES_H

#include "serve/api/openai.h"

/*
 * As dt_chat_parse, but max_tokens is reduced to what is left of the context. dt_messages_count returns
 * {"input_tokens"} of the prompt.
 */
int dt_messages_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *ret,
		      struct dt_api_error *e);
int dt_messages_count(const json_t *body, const struct dt_api_model *m, json_t **ret, struct dt_api_error *e);
/* The reply to a finished call. NULL with e filled when it failed. */
json_t *dt_messages_json(const struct dt_completion *c, struct dt_api_error *e);
json_t *dt_messages_error(const struct dt_api_error *e);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
