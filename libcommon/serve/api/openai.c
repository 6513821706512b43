#include "serve/api/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int add_text(struct dt_body *b, const json_t *v)
{
	struct dt_prompt *p = &b->prompt[b->nprompts];
	const struct dt_engine_params *m = b->m->engine;
	struct dt_err err;

	p->text.n = json_string_length(v);
	p->text.s = malloc(p->text.n + 1);
	if (!p->text.s)
		return dt_body_no_memory(b->e);
	memcpy(p->text.s, json_string_value(v), p->text.n + 1);
	b->nprompts++;
	if (dt_api_encode(m->tok, p->text.s, p->text.n, &p->ids, &p->n, &err) < 0)
		return dt_body_bad(b->e, "prompt", "%s", err.msg);
	if (p->n == 0 && m->model.neos > 0) { /* as OpenAI: nothing means the start of a new document */
		p->ids = realloc(p->ids, sizeof(*p->ids));
		if (!p->ids)
			return dt_body_no_memory(b->e);
		p->ids[0] = m->model.eos[0];
		p->n = 1;
	}
	return 0;
}

static int add_ids(struct dt_body *b, const json_t *a)
{
	struct dt_prompt *p = &b->prompt[b->nprompts++];
	struct dt_err err;

	p->n = json_array_size(a);
	p->ids = malloc((p->n + 1) * sizeof(*p->ids));
	if (!p->ids)
		return dt_body_no_memory(b->e);
	if (dt_body_ids(b, "prompt", a, p->ids) < 0)
		return -EINVAL;
	if (dt_tokenizer_decode(b->m->engine->tok, p->ids, p->n, true, &p->text.s, &p->text.n, &err) < 0)
		return dt_body_bad(b->e, "prompt", "%s", err.msg);
	return 0;
}

/* A string, an array of strings, an array of ids, or an array of arrays of ids. */
static int read_prompts(struct dt_body *b, const char *key)
{
	const json_t *v = json_object_get(b->o, key);
	size_t n = json_is_array(v) && !json_is_integer(json_array_get(v, 0)) ? json_array_size(v) : 1;

	if (!v)
		return dt_body_bad(b->e, key, "key '%s' is missing", key);
	if (n == 0)
		return dt_body_bad(b->e, key, "'%s' is empty", key);
	if (n > 1 && b->m->line)
		return dt_body_bad(b->e, "prompt", "a line has one prompt");
	b->prompt = calloc(n, sizeof(*b->prompt));
	if (!b->prompt)
		return dt_body_no_memory(b->e);
	if (json_is_string(v))
		return add_text(b, v);
	if (json_is_array(v) && n == 1 && json_is_integer(json_array_get(v, 0)))
		return add_ids(b, v);
	for (size_t i = 0; i < n; i++) {
		const json_t *x = json_array_get(v, i);
		int rc;

		if (!json_is_string(x) && !json_is_array(x))
			return dt_body_bad(b->e, key, "'%s' must be text, token ids, or an array of these",
					   key);
		rc = json_is_string(x) ? add_text(b, x) : add_ids(b, x);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int read_completion(struct dt_body *b, struct dt_completion *c)
{
	static const char *const http[] = {"prompt", "logprobs", "model",	   "n",	   "best_of",
					   "stream", "echo",	 "stream_options", "user", NULL};
	static const char *const line[] = {"prompt", "logprobs", "id", NULL};
	int64_t logprobs = -1, best_of = 0;

	b->n = 1;
	if (dt_body_check_keys(b, b->m->line ? line : http) < 0 ||
	    (!b->m->line && dt_body_envelope(b, c) < 0) || dt_body_sampling(b) < 0 ||
	    dt_body_bool(b, "echo", &c->echo) < 0 ||
	    dt_body_int(b, "logprobs", 0, DT_LOGPROBS_MAX, &logprobs) < 0 ||
	    dt_body_int(b, "best_of", 1, 128, &best_of) < 0 || dt_body_max_tokens(b, 16) < 0 ||
	    dt_body_format(b) < 0)
		return -EINVAL;
	if (best_of && best_of != b->n)
		return dt_body_bad(b->e, "best_of", "'best_of' other than 'n' is not supported");
	if (logprobs > b->m->engine->model.vocab)
		return dt_body_bad(b->e, "logprobs", "'logprobs' is more than the vocabulary");
	b->r.logprobs = (int)logprobs;
	b->r.score_prompt = c->echo && logprobs >= 0;
	return read_prompts(b, "prompt") < 0 ? -EINVAL : dt_body_call(b, c);
}

static int read_message(struct dt_body *b, struct dt_completion *c)
{
	static const char *const keys[] = {"messages", "logprobs",	 "top_logprobs", "model", "n",
					   "stream",   "stream_options", "user",	 NULL};
	const struct dt_chat *chat = b->m->chat;
	int64_t top = -1;
	bool logprobs = false;
	struct dt_prompt *p;
	struct dt_err err;
	int rc;

	b->n = 1;
	if (dt_body_check_keys(b, keys) < 0 || dt_body_envelope(b, c) < 0 || dt_body_sampling(b) < 0 ||
	    dt_body_bool(b, "logprobs", &logprobs) < 0 ||
	    dt_body_int(b, "top_logprobs", 0, DT_LOGPROBS_MAX, &top) < 0 ||
	    dt_body_max_tokens(b, INT32_MAX) < 0 || dt_body_format(b) < 0)
		return -EINVAL;
	if (!chat) {
		dt_api_fail(b->e, 400, "invalid_request_error", "no_chat_template",
			    "this model has no chat template; the server's --chat-template sets one");
		return -EINVAL;
	}
	if (top >= 0 && !logprobs)
		return dt_body_bad(b->e, "top_logprobs", "'top_logprobs' goes with 'logprobs'");
	if (top > b->m->engine->model.vocab)
		return dt_body_bad(b->e, "top_logprobs", "'top_logprobs' is more than the vocabulary");
	b->r.logprobs = !logprobs ? -1 : top > 0 ? (int)top : 0;
	if (chat->end >= 0 && !b->ignore_eos) /* dt_body_sampling left room */
		b->r.stop_ids[b->r.nstop_ids++] = chat->end;
	p = b->prompt = calloc(1, sizeof(*b->prompt));
	if (!p)
		return dt_body_no_memory(b->e);
	b->nprompts = 1;
	rc = dt_chat_encode(chat, json_object_get(b->o, "messages"), &p->ids, &p->n, &err);
	return rc < 0 ? dt_body_bad(b->e, "messages", "%s", err.msg) : dt_body_call(b, c);
}

static int read_embedding(struct dt_body *b, struct dt_completion *c)
{
	static const char *const keys[] = {"input",	 "model",      "user", "encoding_format",
					   "dimensions", "cache_salt", NULL};
	const char *format = json_string_value(json_object_get(b->o, "encoding_format"));

	if (dt_body_check_keys(b, keys) < 0 || dt_body_envelope(b, c) < 0)
		return -EINVAL;
	if (json_object_get(b->o, "dimensions"))
		return dt_body_bad(b->e, "dimensions", "'dimensions' is not supported");
	if (json_object_get(b->o, "encoding_format") &&
	    (!format || (strcmp(format, "float") && strcmp(format, "base64"))))
		return dt_body_bad(b->e, "encoding_format", "'encoding_format' is float or base64");
	c->base64 = format && !strcmp(format, "base64");
	b->n = 1;
	b->r.embed = true;
	b->r.logprobs = -1;
	b->r.sampling = DT_SAMPLING_DEFAULT;
	b->has_max = true;
	return read_prompts(b, "input") < 0 ? -EINVAL : dt_body_call(b, c);
}

static int parse(const json_t *o, const struct dt_api_model *m,
		 int (*read)(struct dt_body *, struct dt_completion *), bool chat, struct dt_completion *ret,
		 struct dt_api_error *e)
{
	struct dt_completion c = {.chat = chat};
	struct dt_body b = {.o = o, .m = m, .e = e};
	int rc;

	rc = json_is_object(o) ? read(&b, &c) : dt_body_bad(e, "", "the request is not a JSON object");
	dt_body_release(&b);
	if (rc < 0)
		dt_completion_release(&c);
	else
		*ret = c;
	return rc;
}

int dt_completion_parse(const json_t *o, const struct dt_api_model *m, struct dt_completion *ret,
			struct dt_api_error *e)
{
	return parse(o, m, read_completion, false, ret, e);
}

int dt_chat_parse(const json_t *o, const struct dt_api_model *m, struct dt_completion *ret,
		  struct dt_api_error *e)
{
	return parse(o, m, read_message, true, ret, e);
}

int dt_embedding_parse(const json_t *o, const struct dt_api_model *m, struct dt_completion *ret,
		       struct dt_api_error *e)
{
	return parse(o, m, read_embedding, false, ret, e);
}

void dt_completion_release(struct dt_completion *c)
{
	for (int i = 0; c->prompt && i < c->nprompts; i++)
		free(c->prompt[i].s);
	free(c->prompt);
	dt_call_drop(c->call);
	*c = (struct dt_completion){0};
}
