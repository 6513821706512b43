/* A prompt while it is written. Private to chat.c and chat_tools.c. */
#ifndef DT_SERVE_CHAT_PRIV_H
#define DT_SERVE_CHAT_PRIV_H

#include "serve/api/chat.h"

struct dt_chat_out {
	const struct dt_chat *c;
	const struct dt_chat_tools *tools; /* NULL: none */
	int32_t *ids;
	size_t n, cap;
	char *text; /* not yet encoded */
	size_t text_n, text_cap;
	struct dt_err *err;
	int rc;
};

struct dt_chat_message {
	const char *role; /* system, user, assistant, tool */
	char *s;
	size_t n;
	const json_t *calls; /* the assistant's tool_calls; NULL: none */
	bool tool;	     /* a tool's result, of the call call_id */
	const char *call_id;
};

void dt_chat_put_n(struct dt_chat_out *o, const char *s, size_t n);
void dt_chat_put(struct dt_chat_out *o, const char *s);
/* A special token of the template; its text where the tokenizer has no such token. */
void dt_chat_special(struct dt_chat_out *o, const char *s);

/* chat_tools.c: what the families write of tools, of calls, and of results. */
int dt_chat_check_calls(const struct dt_chat_message *m, size_t at, struct dt_err *err);
void dt_chat_hermes_tools(struct dt_chat_out *o, bool more);
void dt_chat_hermes_calls(struct dt_chat_out *o, const struct dt_chat_message *m);
void dt_chat_hermes_result(struct dt_chat_out *o, const struct dt_chat_message *m);
void dt_chat_llama3_tools(struct dt_chat_out *o);
void dt_chat_llama3_calls(struct dt_chat_out *o, const struct dt_chat_message *m);
void dt_chat_mistral_tools(struct dt_chat_out *o);
void dt_chat_mistral_calls(struct dt_chat_out *o, const struct dt_chat_message *m);
void dt_chat_mistral_result(struct dt_chat_out *o, const struct dt_chat_message *m);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
