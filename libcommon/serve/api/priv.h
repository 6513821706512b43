/* State of a body while it is parsed, and functions for parts of replies. Private to serve/api. */
#ifndef DT_SERVE_API_PRIV_H
#define DT_SERVE_API_PRIV_H

#include "serve/api/openai.h"
#include "serve/api/tools.h"

struct dt_prompt {
	int32_t *ids;
	size_t n;
	struct dt_text text; /* set if echo is set */
};

/* Bit flags: a key may be allowed in several kinds of body. */
enum dt_body_kind {
	DT_BODY_TEXT = 1,
	DT_BODY_CHAT = 2,
	DT_BODY_EMBEDDING = 4,
	DT_BODY_LINE = 8, /* a plain line of --batch, with a prompt or with messages */
	DT_BODY_CHAT_LINE = 16,
	DT_BODY_NATIVE = 32, /* llama.cpp's /completion */
	DT_BODY_INFILL = 64,
};

struct dt_body {
	const json_t *o;
	const struct dt_api_model *m;
	struct dt_api_error *e;
	enum dt_body_kind kind;

	/* set by keys.c, like the numbers and flags of ask */
	bool stream, echo, chat_logprobs, parallel, ids, goes_on, opens;
	int n, best_of, top_logprobs, max_tokens, max_completion_tokens; /* the last three: -1 if not given */
	int logprobs_from;						 /* characters of the prompt */
	int n_probs;
	bool post_probs;
	int truncate;  /* tokens of the prompt to keep; -1: as many as fit; 0: all */
	int n_predict; /* -1: no limit; -2: not given */
	bool special;  /* add the bos token to texts */
	struct dt_ask ask;

	struct dt_chat_tools tools;
	int default_tokens; /* max_tokens if the body does not set it */
	struct dt_prompt *prompt;
	size_t nprompts;
	uint64_t salt;
	struct dt_call_images *images;	   /* of messages; likewise */
	struct dt_served_adapter *adapter; /* dt_body_call passes it to the call */
};

/* Functions on a body fill b->e and return -EINVAL on error. */
int dt_body_bad(struct dt_api_error *e, const char *param, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int dt_body_no_memory(struct dt_api_error *e);
/* 400: the tokens of the prompt and those to generate exceed the context. -EINVAL. */
int dt_api_fail_length(struct dt_api_error *e, size_t prompt, int output, int context);
/* Renames a key of a chat in param and, where it is quoted, in msg: the body was translated to a chat's. */
void dt_api_rename_key(struct dt_api_error *e, const char *from, const char *to);

/* keys.c: refuses unknown keys; reads numbers and flags. */
int dt_body_keys(struct dt_body *b);
/* The first key of o that is not in known, which ends with NULL; null_fits: unless its value is null. */
const char *dt_api_unknown(const json_t *o, const char *const *known, bool null_fits);
/* Refuses unknown keys of a body with its own list; known ends with NULL. */
int dt_api_known(const json_t *body, const char *const *known, struct dt_api_error *e);

/* body.c: keys with a structure of their own. */
int dt_body_model(struct dt_body *b);				/* model */
int dt_body_stream(struct dt_body *b, struct dt_completion *c); /* stream, stream_options */
int dt_body_salt(struct dt_body *b);				/* cache_salt */
/* logit_bias, stop, stop_token_ids, response_format; chat: has more stop ids, NULL: none. */
int dt_body_ask(struct dt_body *b, const struct dt_chat *chat);
/* Reads a token id; an array of ids into ret, which has room for all of them. */
int dt_body_id(struct dt_body *b, const char *key, const json_t *v, int32_t *ret);
int dt_body_ids(struct dt_body *b, const char *key, const json_t *a, int32_t *ret);

/* format.c: what a grammar is made from; all of it is in the key of dt_grammars. */
struct dt_wanted {
	const json_t *key; /* an object or an array */
	const json_t *schema, *regex, *words, *gbnf;
	enum dt_tool_form form;
	const json_t *tools; /* NULL: none; with all five NULL: any JSON object */
	const char *only;
	bool parallel;
};
/* Sets the grammar of ask: the one that an earlier request left under this key, or a new one. */
int dt_body_grammar(struct dt_body *b, const char *param, const struct dt_wanted *w);
int dt_body_format(struct dt_body *b); /* response_format and its relatives */
/* Refuses keys of the object `key` that are not in known, which ends with NULL, unless they are null. */
int dt_body_only(struct dt_body *b, const char *key, const json_t *o, const char *const *known);

/* template.c: *ret: the chat template with chat_template_kwargs and reasoning_effort of the body applied. */
int dt_api_template(const json_t *o, const struct dt_chat *chat, struct dt_chat *ret, struct dt_api_error *e);

/* prompt.c: the prompts under this key: a text, an array of ids and texts, or an array of these. */
int dt_body_prompts(struct dt_body *b, const char *key);
/* Appends n ids to p, and makes room for so many more. */
int dt_body_append(struct dt_body *b, struct dt_prompt *p, const int32_t *ids, size_t n, size_t more);

/*
 * images.c: decodes and cuts the images of messages. *ret (malloc'd, [*ret_n]): their tiles, which a chat
 * template is told; b->images: their pixels, whose places dt_body_place_images finds in the prompt. NULL
 * and 0: none.
 */
int dt_body_images(struct dt_body *b, const json_t *messages, struct dt_chat_image **ret, int *ret_n);
int dt_body_place_images(struct dt_body *b, const struct dt_prompt *p);

/* samplers.c: the key samplers, which turns the others off and sets the order of the rest. */
int dt_body_samplers(struct dt_body *b);
/* One line for generation_settings: the samplers that s applies, in their order, with llama.cpp's names. */
json_t *dt_api_samplers(const struct dt_sampling *s);

/* infill.c: sets the ids of p, whose text is set, so that the model fills in what comes before the suffix. */
int dt_body_infill(struct dt_body *b, struct dt_prompt *p, const json_t *suffix);

/* body.c: tools and tool_choice, and the grammar that they require. Call after dt_body_ask. */
int dt_body_tools(struct dt_body *b, const struct dt_chat *chat, struct dt_completion *c);

/* scores.c: s as a JSON string, with ill-formed UTF-8 replaced; NULL: out of memory. */
json_t *dt_api_text(const char *s, size_t n);
json_t *dt_api_ids(const int32_t *id, int n); /* an array of token ids */
/* The text of one token; "bytes:\xe2\x82" if it is not valid UTF-8 by itself, as in OpenAI's API. */
json_t *dt_api_token_name(const struct dt_tokenizer *tok, int32_t id);
/*
 * Log-probabilities of r's output tokens [from, to), after those of the prompt if `prompt` is set; null if
 * none were requested. *offset: characters of text before the first token; advanced past the last one.
 */
json_t *dt_api_scores(const struct dt_completion *c, const struct dt_serve_req *r, bool prompt, int from,
		      int to, int *offset);
/* In llama.cpp's format. */
json_t *dt_api_probabilities(const struct dt_completion *c, const struct dt_serve_req *r, int from, int to);
/*
 * The value of ask.score_from with which the prompt's tokens that begin at or behind its character `chars`
 * are scored, and none before.
 */
int dt_api_score_from(const struct dt_completion *c, const struct dt_serve_req *r, int chars);
/* reply.c: the reply object around choices; steals choices. */
json_t *dt_api_envelope(const struct dt_completion *c, bool chunk, json_t *choices);
/*
 * dt_api_calls: tool calls in the text of choice i that is ready. dt_api_finish: its finish_reason, NULL
 * while it runs.
 */
void dt_api_calls(const struct dt_completion *c, int i, struct dt_tool_calls *ret);
const char *dt_api_finish(const struct dt_completion *c, int i, const struct dt_tool_calls *calls);
/*
 * {"id", "type", "function": {"name", "arguments"}} of tool call k of choice i, with bytes [from, to) of the
 * arguments.
 */
json_t *dt_api_call_json(const struct dt_completion *c, int i, int k, const struct dt_tool_call *call,
			 size_t from, size_t to);
/*
 * messages_reply.c: writes the new part of a stream to f as Anthropic's events; failed: the error of a failed
 * request. There must be something new. Call with the call locked.
 */
int dt_messages_news(struct dt_sse *s, const struct dt_api_error *failed, FILE *f);
/* responses_reply.c: the same as events of the Responses API. */
int dt_responses_news(struct dt_sse *s, const struct dt_api_error *failed, FILE *f);
/* Upper bound of the memory of what its next events say besides the new text. Call with the call locked. */
size_t dt_responses_again(const struct dt_sse *s);
/* vLLM's stop_reason: the stop string, the stop id, or null, also for the end of text. */
json_t *dt_api_stop_reason(const struct dt_serve_req *r);

/* call.c: the key that contains the prompt. */
const char *dt_body_prompt_key(const struct dt_body *b);
/* Creates c's call from b's prompts and ask. */
int dt_body_call(struct dt_body *b, struct dt_completion *c);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
