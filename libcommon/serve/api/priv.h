/* What these files share: a body on its way to becoming requests. Not for others. */
#ifndef DT_SERVE_API_PRIV_H
#define DT_SERVE_API_PRIV_H

#include "serve/api/openai.h"

struct dt_prompt {
	int32_t *ids;
	size_t n;
	struct dt_text text; /* as given, for echo */
};

struct dt_body {
	const json_t *o;
	const struct dt_api_model *m;
	struct dt_api_error *e;
	struct dt_prompt *prompt;
	size_t nprompts;
	struct dt_serve_req r; /* a pattern: everything but the prompt */
	uint64_t salt;
	bool ignore_eos, has_max;
	int64_t max_tokens, n;
	struct dt_grammar *grammar; /* the output must fit it */
};

/* body.c. All fill b->e and return -EINVAL when something is wrong. */
int dt_body_bad(struct dt_api_error *e, const char *param, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int dt_body_no_memory(struct dt_api_error *e);
/* Every key is one of the sampling keys or in the NULL-terminated list more. */
int dt_body_check_keys(struct dt_body *b, const char *const *more);
int dt_body_int(struct dt_body *b, const char *key, int64_t min, int64_t max, int64_t *ret);
int dt_body_bool(struct dt_body *b, const char *key, bool *ret);
int dt_body_ids(struct dt_body *b, const char *key, const json_t *a, int32_t *ret);
/* model, n, stream, stream_options. */
int dt_body_envelope(struct dt_body *b, struct dt_completion *c);
/* Everything about sampling and stopping but logprobs. */
int dt_body_sampling(struct dt_body *b);
int dt_body_max_tokens(struct dt_body *b, int64_t otherwise);
/* response_format: a grammar, or none. */
int dt_body_format(struct dt_body *b);
/* Makes c's call from b's prompts and pattern. */
int dt_body_call(struct dt_body *b, struct dt_completion *c);
void dt_body_release(struct dt_body *b);

#endif
