/*
 * The OpenAI API as JSON: a body becomes a call of the engine, a call becomes a reply, a stream of
 * server-sent events, or an error object. No sockets here.
 */
#ifndef DT_SERVE_OPENAI_H
#define DT_SERVE_OPENAI_H

#include "base/json.h"
#include "data/chat.h"
#include "serve/engine/engine.h"

/* {"error": {"message", "type", "param", "code"}} with its HTTP status. */
struct dt_api_error {
	int status;
	const char *type, *code; /* code: NULL for null */
	char param[64];		 /* empty for null */
	char msg[600];
	int retry_after; /* seconds, 0: no such header */
};

/* Fills e and returns -EINVAL. */
int dt_api_fail(struct dt_api_error *e, int status, const char *type, const char *code, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
json_t *dt_api_error_json(const struct dt_api_error *e);

/* The reply to a failed dt_engine_submit. */
int dt_api_fail_submit(struct dt_api_error *e, int rc, const struct dt_err *err, double retry_after);

#define DT_INPUTS_MAX 2048 /* texts of an embedding, as OpenAI takes them */

struct dt_text {
	char *s;
	size_t n;
};

struct dt_completion {
	struct dt_call *call; /* request p * n + k is choice k of prompt p */
	int nprompts, n;
	bool chat, stream, include_usage, echo;
	enum dt_tool_form tools; /* calls are looked for in the text */
	bool inside;		 /* it begins within one */
	bool thinks;		 /* it may begin with <think> */
	bool messages;		 /* answered as Anthropic's API does */
	bool responses;		 /* answered as OpenAI's Responses API does */
	bool base64;		 /* of an embedding */
	bool ids;		 /* the reply has the ids of tokens too */
	struct dt_text *prompt;	 /* [nprompts], with echo */
	char id[40];
	int64_t created;
	json_t *asked;	   /* the Responses API tells what it was asked; owned, NULL: another API */
	const char *model; /* borrowed; of an adapter: with the call */
	const struct dt_tokenizer *tok;
};

struct dt_api_model { /* what parsing a body needs to know of the server */
	const struct dt_engine_params *engine;
	const char *name;	    /* served model name */
	const struct dt_chat *chat; /* NULL: there is none */
	int tenant;
	bool batch;	  /* no stream */
	json_t *defaults; /* values of keys that a body lacks (dt_api_check_defaults); NULL: none */
	uint64_t seed;	  /* when the body has none */
};

/*
 * Reads a completion. Unknown keys are refused by name: a misspelt option must not be ignored. On failure e
 * is filled and *ret holds nothing.
 */
int dt_completion_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *ret,
			struct dt_api_error *e);
/* The same for a plain line of dt-serve --batch (one prompt or messages, one choice, no stream, "id"
 * allowed), for a chat completion and for an embedding. */
int dt_line_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *ret,
		  struct dt_api_error *e);
int dt_chat_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *ret,
		  struct dt_api_error *e);
int dt_embedding_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *ret,
		       struct dt_api_error *e);
/* Only keys of sampling and stopping, which mean the same in every body, can have defaults. -EINVAL. */
int dt_api_check_defaults(const json_t *o, struct dt_err *err);
void dt_completion_release(struct dt_completion *c); /* drops its reference to the call */

/* text to ids as completions read it: special tokens are read as such, bos goes in front where the tokenizer
 * has one. */
int dt_api_encode(const struct dt_tokenizer *tok, const char *s, size_t n, int32_t **ret, size_t *ret_n,
		  struct dt_err *err);

/* ids to bytes, malloc'd; ids of the model beyond the tokenizer's vocabulary add none. -ENOMEM. */
int dt_api_decode(const struct dt_tokenizer *tok, const int32_t *ids, size_t n, char **ret, size_t *ret_n);

/* ---- reply.c ---- */

/* The reply to a call that is done. NULL with e filled when a request failed. */
json_t *dt_completion_json(const struct dt_completion *c, struct dt_api_error *e);
/* Upper bound of the memory that building the reply takes, as JSON values and as text. */
size_t dt_completion_cost(const struct dt_completion *c, size_t hidden);
/* cache: also the prompt tokens found in the cache, which depend on earlier requests. */
json_t *dt_completion_usage(const struct dt_completion *c, bool cache);
/* Choice i's whole text, cleaned, behind its prompt with echo. NULL: out of memory. */
json_t *dt_completion_text(const struct dt_completion *c, int i);
/* {"tokens", "token_logprobs", "top_logprobs", "text_offset"} of output tokens; null without logprobs. */
json_t *dt_completion_logprobs(const struct dt_completion *c, int i);
/* As vLLM has them: of each token of the prompt an object by ids, {"logprob", "rank", "decoded_token"}. */
json_t *dt_completion_prompt_logprobs(const struct dt_completion *c, int i);
/* Fills e from a request that ended badly; 0 when it ended well. */
int dt_completion_failed(const struct dt_serve_req *r, struct dt_api_error *e);

/* The reply to an embedding that is done: mean-pooled, scaled to length 1. */
json_t *dt_embedding_json(const struct dt_completion *c, size_t hidden, struct dt_api_error *e);

/* Server-sent events of a streamed completion. */
struct dt_sse {
	const struct dt_completion *c; /* borrowed */
	struct dt_sse_at {
		size_t sent;	     /* bytes of text */
		int calls;	     /* begun */
		size_t args;	     /* bytes of the last one's arguments */
		size_t ready;	     /* bytes that have been looked at for calls */
		size_t thought;	     /* bytes of what was thought */
		int events;	     /* of the Responses API: told */
		int blocks;	     /* of Anthropic's events: closed */
		bool open, thinking; /* one more is open, and is a thought */
		int scored, offset;
		bool begun, done;
	} * at;
	bool failed, ended;
};

int dt_sse_init(struct dt_sse *s, const struct dt_completion *c); /* -ENOMEM */
void dt_sse_release(struct dt_sse *s);
/*
 * The next events, malloc'd and whole: returns 1. Waits at most seconds for news, then it is a comment line
 * that keeps the connection awake. 0: the stream is over. -ENOMEM.
 */
int dt_sse_next(struct dt_sse *s, double seconds, char **ret, size_t *ret_n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
