/*
 * The OpenAI API as JSON: turns a body into a call of the engine, and a call into a reply, a stream of
 * server-sent events, or an error object. No sockets here.
 */
#ifndef DT_SERVE_OPENAI_H
#define DT_SERVE_OPENAI_H

#include "base/json.h"
#include "data/chat.h"
#include "serve/engine/engine.h"

struct dt_adapters;

/* {"error": {"message", "type", "param", "code"}} with its HTTP status. */
struct dt_api_error {
	int status;
	const char *type, *code; /* code: NULL for null */
	char param[64];		 /* empty for null */
	char msg[600];
	int retry_after; /* seconds, 0: no Retry-After header */
	size_t prompt;	 /* tokens of a prompt that is too long for the context; 0: another error */
};

/* Fills e and returns -EINVAL. */
int dt_api_fail(struct dt_api_error *e, int status, const char *type, const char *code, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* 404: the server has no model of this name, only base and its adapters (NULL: none). -EINVAL. */
int dt_api_no_model(struct dt_api_error *e, const char *name, const char *base, struct dt_adapters *adapters);
json_t *dt_api_error_json(const struct dt_api_error *e);
/* Checks metadata against OpenAI's limits: it is kept and returned. v NULL: none was given. */
int dt_api_metadata(const json_t *v, struct dt_api_error *e);

/* Fills e for a failed dt_engine_submit; returns -EINVAL. */
int dt_api_fail_submit(struct dt_api_error *e, int rc, const struct dt_err *err, double retry_after);

#define DT_INPUTS_MAX 2048 /* max texts of an embedding request, as in OpenAI's API */

struct dt_text {
	char *s;
	size_t n;
};

struct dt_completion {
	struct dt_call *call; /* request p * n + k is choice k of prompt p */
	int nprompts, n;
	bool chat, stream, include_usage, echo;
	bool usage_each;	 /* with include_usage: in every chunk */
	enum dt_tool_form tools; /* form of tool calls to look for in the text */
	bool inside;		 /* the text begins inside a tool call */
	bool thinks;		 /* the text may begin with <think> */
	bool messages;		 /* the reply has the format of Anthropic's Messages API */
	bool responses;		 /* the reply has the format of OpenAI's Responses API */
	bool native;		 /* the reply has llama.cpp's own format */
	bool base64;		 /* embeddings are base64-encoded */
	bool ids;		 /* the reply contains token ids */
	struct dt_text *prompt;	 /* [nprompts], if echo is set */
	char id[40];
	int64_t created;
	json_t *fields;	   /* llama.cpp's response_fields; owned, NULL: all members of a reply */
	json_t *asked;	   /* Responses API: request parameters to repeat; owned, NULL: another API */
	const char *model; /* borrowed; the name of an adapter is valid as long as the call */
	const struct dt_tokenizer *tok;
	int max_len; /* tokens of a prompt and its answer */
};

struct dt_api_model { /* server properties needed to parse a body */
	const struct dt_engine_params *engine;
	const char *name;	    /* served model name */
	const struct dt_chat *chat; /* NULL: the model has no chat template */
	int tenant;
	bool batch;	  /* streaming is not allowed */
	json_t *defaults; /* values of keys that a body lacks (dt_api_check_defaults); NULL: none */
	uint64_t seed;	  /* used when the body has none */
};

/*
 * Parses a completion request. Unknown keys are refused by name, because a misspelt option must not be
 * ignored. On failure e is filled and *ret holds nothing.
 */
int dt_completion_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *ret,
			struct dt_api_error *e);
/*
 * The same for a plain line of dt-serve --batch (one prompt or messages, one choice, no stream, "id"
 * allowed), for a chat completion, and for an embedding.
 */
int dt_line_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *ret,
		  struct dt_api_error *e);
int dt_chat_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *ret,
		  struct dt_api_error *e);
int dt_embedding_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *ret,
		       struct dt_api_error *e);
/*
 * Checks that o contains only keys that can have defaults: those of sampling and stopping, which mean the
 * same in every body. -EINVAL.
 */
int dt_api_check_defaults(const json_t *o, struct dt_err *err);
/*
 * Checks m->defaults together and against the model, by a request that has nothing else: a list of samplers,
 * a grammar or a token of a bias that would make each request fail. -EINVAL.
 */
int dt_api_try_defaults(const struct dt_api_model *m, struct dt_err *err);
void dt_completion_release(struct dt_completion *c); /* drops its reference to the call too */

/*
 * Encodes text as completions do: special tokens are recognised, and bos is prepended if the tokenizer has
 * one. ends: the token that its template puts behind a text is appended, too, as for texts that are embedded.
 */
int dt_api_encode(const struct dt_tokenizer *tok, const char *s, size_t n, bool ends, int32_t **ret,
		  size_t *ret_n, struct dt_err *err);

/* Decodes ids to bytes (malloc'd). Ids beyond the tokenizer's vocabulary add nothing. -ENOMEM. */
int dt_api_decode(const struct dt_tokenizer *tok, const int32_t *ids, size_t n, char **ret, size_t *ret_n);

/* ---- reply.c ---- */

/* The reply to a finished call. NULL with e filled when a request failed. */
json_t *dt_completion_json(const struct dt_completion *c, struct dt_api_error *e);
/* Upper bound of the memory that building the reply takes, as JSON values and as text. */
size_t dt_completion_cost(const struct dt_completion *c, size_t hidden);
/* The part of it that is known before the call runs: embeddings, and log-probabilities of prompts. */
size_t dt_completion_known_cost(const struct dt_completion *c, size_t hidden);
/* Memory of its images until it has ended: bytes of the pixels of a tile, and of its rows. */
size_t dt_completion_images_cost(const struct dt_completion *c, size_t tile, size_t rows);
/* Upper bound of the log-probabilities that a stream keeps while its reader is slow. */
size_t dt_completion_kept_cost(const struct dt_completion *c);
/* Upper bound of the memory of an event with the text of r from byte `at` on and `tokens` tokens. */
size_t dt_completion_event_cost(const struct dt_completion *c, const struct dt_serve_req *r, size_t at,
				int tokens);
/* The "usage" object. cache: include prompt tokens found in the cache, which depend on earlier requests. */
json_t *dt_completion_usage(const struct dt_completion *c, bool cache);
/* The whole text of choice i as valid UTF-8, after its prompt if echo is set. NULL: out of memory. */
json_t *dt_completion_text(const struct dt_completion *c, int i);
/*
 * {"tokens", "token_logprobs", "top_logprobs", "text_offset"} of output tokens; null if no logprobs were
 * requested.
 */
json_t *dt_completion_logprobs(const struct dt_completion *c, int i);
/* Adds the token ids of prompt and choice i to an object, in vLLM's format, if they were requested. */
void dt_completion_ids(const struct dt_completion *c, int i, json_t *to);
/* In vLLM's format: for each token of the prompt an object by ids, {"logprob", "rank", "decoded_token"}. */
json_t *dt_completion_prompt_logprobs(const struct dt_completion *c, int i);
/* Fills e from a request that failed; returns 0 when it succeeded. */
int dt_completion_failed(const struct dt_serve_req *r, struct dt_api_error *e);

/* The reply to a finished embedding call: mean-pooled, normalised to length 1. */
json_t *dt_embedding_json(const struct dt_completion *c, size_t hidden, struct dt_api_error *e);

/* Server-sent events of a streamed completion. */
struct dt_sse {
	const struct dt_completion *c; /* borrowed */
	struct dt_sse_at {
		size_t sent;	     /* bytes of text sent */
		int calls;	     /* tool calls begun */
		size_t args;	     /* bytes sent of the last call's arguments */
		size_t ready;	     /* bytes searched for tool calls */
		size_t thought;	     /* bytes sent of the reasoning text */
		int events;	     /* Responses API: events sent */
		int blocks;	     /* Anthropic's API: content blocks closed */
		bool open, thinking; /* a further content block is open; it is a thinking block */
		int scored, offset;
		int told; /* llama.cpp's format: tokens sent */
		bool begun, done;
	} * at;
	int first; /* choice that comes first in the next events */
	bool failed, ended;
	/* Charges the memory of events; the caller returns it when they are sent. NULL: no limit. */
	bool (*take)(void *arg, size_t bytes);
	void *arg;
};

int dt_sse_init(struct dt_sse *s, const struct dt_completion *c); /* -ENOMEM */
void dt_sse_release(struct dt_sse *s);
/*
 * Returns 1 and the next complete events (malloc'd), of one call a bounded number of tokens with their
 * log-probabilities. Waits at most `seconds` for new ones; then it returns a comment line that keeps the
 * connection alive. If their memory is refused, the stream ends with an error. 0: it has ended. -ENOMEM.
 */
int dt_sse_next(struct dt_sse *s, double seconds, char **ret, size_t *ret_n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
