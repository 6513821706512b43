/*
 * Anthropic's Messages API: its bodies become bodies of a chat (openai.h), and what comes of those is
 * written its way. Optional keys that are not known are passed over, as its clients expect; content of a
 * kind that is not known is refused by name.
 */
#ifndef DT_SERVE_MESSAGES_H
#define DT_SERVE_MESSAGES_H

#include "serve/api/openai.h"

/* As dt_chat_parse; max_tokens is cut to what the context has left. count: {"input_tokens"} of the prompt. */
int dt_messages_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *ret,
		      struct dt_api_error *e);
int dt_messages_count(const json_t *body, const struct dt_api_model *m, json_t **ret, struct dt_api_error *e);
/* The reply to a call that is done. NULL with e filled when it failed. */
json_t *dt_messages_json(const struct dt_completion *c, struct dt_api_error *e);
json_t *dt_messages_error(const struct dt_api_error *e);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
