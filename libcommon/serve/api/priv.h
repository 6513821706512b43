/* A body while it is parsed, and parts of replies. Private to serve/api. */
#ifndef DT_SERVE_API_PRIV_H
#define DT_SERVE_API_PRIV_H

#include "serve/api/openai.h"
#include "serve/api/tools.h"

struct dt_prompt {
	int32_t *ids;
	size_t n;
	struct dt_text text; /* with echo */
};

/* Bits: a key may be allowed in several kinds. */
enum dt_body_kind {
	DT_BODY_TEXT = 1,
	DT_BODY_CHAT = 2,
	DT_BODY_EMBEDDING = 4,
	DT_BODY_LINE = 8, /* a plain line of --batch, with a prompt or with messages */
	DT_BODY_CHAT_LINE = 16,
};

struct dt_body {
	const json_t *o;
	const struct dt_api_model *m;
	struct dt_api_error *e;
	enum dt_body_kind kind;

	/* filled by keys.c, like the numbers and flags of the ask */
	bool stream, echo, chat_logprobs, parallel, ids;
	int n, best_of, top_logprobs, max_tokens, max_completion_tokens; /* the last three -1: not given */
	struct dt_ask ask;

	struct dt_chat_tools tools;
	int default_tokens; /* to generate when the body does not say */
	struct dt_prompt *prompt;
	size_t nprompts;
	uint64_t salt;
	struct dt_served_adapter *adapter; /* dt_body_call gives it to the call */
};

/* All functions on a body fill b->e and return -EINVAL when something is wrong. */
int dt_body_bad(struct dt_api_error *e, const char *param, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int dt_body_no_memory(struct dt_api_error *e);

/* keys.c: refuses unknown keys, reads numbers and flags. */
int dt_body_keys(struct dt_body *b);
/* The same of a body that has a list of its own; known: ended by NULL. */
int dt_api_known(const json_t *body, const char *const *known, struct dt_api_error *e);

/* body.c: keys with a structure of their own. */
int dt_body_model(struct dt_body *b);				/* model */
int dt_body_stream(struct dt_body *b, struct dt_completion *c); /* stream, stream_options */
int dt_body_salt(struct dt_body *b);				/* cache_salt */
/* logit_bias, stop, stop_token_ids, response_format; end: a further stop id, -1: none. */
int dt_body_ask(struct dt_body *b, int32_t end);
/* The ids of an array into ret [its size]. */
int dt_body_ids(struct dt_body *b, const char *key, const json_t *a, int32_t *ret);

/* body.c, behind dt_body_ask: tools, tool_choice; what must be held to of them. */
int dt_body_tools(struct dt_body *b, const struct dt_chat *chat, struct dt_completion *c);

/* scores.c. s as JSON text, ill-formed parts replaced; NULL: out of memory. */
json_t *dt_api_text(const char *s, size_t n);
/* The text of one token; "bytes:\xe2\x82" when it is not text by itself, as OpenAI writes it. */
json_t *dt_api_token_name(const struct dt_tokenizer *tok, int32_t id);
/*
 * Log-probabilities of r's output tokens from number `from` up to before `to`, behind the prompt's own with
 * prompt; null where none were asked for. *offset: characters of the text before the first, raised by theirs.
 */
json_t *dt_api_scores(const struct dt_completion *c, const struct dt_serve_req *r, bool prompt, int from,
		      int to, int *offset);
/* reply.c. The object around choices, which it steals. */
json_t *dt_api_envelope(const struct dt_completion *c, bool chunk, json_t *choices);
/* Calls in choice i's text as far as it is ready, and its finish_reason, NULL while it goes on. */
void dt_api_calls(const struct dt_completion *c, int i, struct dt_tool_calls *ret);
const char *dt_api_finish(const struct dt_completion *c, int i, const struct dt_tool_calls *calls);
/*
 * {"id", "type", "function": {"name", "arguments"}} of call k of choice i; arguments: bytes [from, to)
 * of them.
 */
json_t *dt_api_call_json(const struct dt_completion *c, int i, int k, const struct dt_tool_call *call,
			 size_t from, size_t to);
/*
 * messages_reply.c: what is new of a stream, of which something is, as Anthropic's events; of a request that
 * failed why. Call locked.
 */
int dt_messages_news(struct dt_sse *s, const struct dt_api_error *failed, FILE *f);
/* responses_reply.c: the same as events of the Responses API. */
int dt_responses_news(struct dt_sse *s, const struct dt_api_error *failed, FILE *f);
/* null, the stop string, or the stop id, as vLLM's stop_reason; the end of text is null. */
json_t *dt_api_stop_reason(const struct dt_serve_req *r);

/* call.c. The key that the prompt is made of. */
const char *dt_body_prompt_key(const struct dt_body *b);
/* Makes c's call of b's prompts and ask. */
int dt_body_call(struct dt_body *b, struct dt_completion *c);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
