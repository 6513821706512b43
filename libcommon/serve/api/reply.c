#include "serve/api/openai.h"

#include "base/progress.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int dt_completion_failed(const struct dt_serve_req *r, struct dt_api_error *e)
{
	switch (r->finish) {
	case DT_FINISH_ABORT:
		dt_api_fail(e, 503, "server_error", "cancelled", "the request was cancelled");
		return 1;
	case DT_FINISH_TIMEOUT:
		dt_api_fail(e, 503, "server_error", "timeout",
			    "the request took longer than this server allows");
		return 1;
	case DT_FINISH_ERROR:
		dt_api_fail(e, 500, "server_error", NULL, "%s", r->err.msg);
		return 1;
	default:
		return 0;
	}
}

static json_t *clean_string(const char *s, size_t n)
{
	size_t len;
	char *text = dt_utf8_clean(s, n, &len);
	json_t *v = text ? json_stringn_nocheck(text, len) : NULL;

	free(text);
	return v;
}

/* The text of one token; "bytes:\xe2\x82" when it is not text by itself, as OpenAI writes it. */
static json_t *token_name(const struct dt_tokenizer *tok, int32_t id)
{
	size_t n = 0, len, o = 6;
	const char *s = dt_tokenizer_piece(tok, id, true, &n);
	char *text = dt_utf8_clean(s ? s : "", s ? n : 0, &len);
	json_t *v = NULL;

	if (text && len == n && !memcmp(text, s ? s : "", n)) {
		v = json_stringn_nocheck(text, len);
	} else if (text) {
		char *hex = malloc(7 + 4 * n);

		if (hex) {
			strcpy(hex, "bytes:");
			for (size_t i = 0; i < n; i++, o += 4)
				sprintf(hex + o, "\\x%02x", (unsigned char)s[i]);
			v = json_string_nocheck(hex);
			free(hex);
		}
	}
	free(text);
	return v;
}

struct score_lists {
	json_t *tokens, *logprobs, *top, *offset;
};

static void add_score(struct score_lists *l, const struct dt_completion *c, bool special,
		      const struct dt_logprob *chosen, int ntop, const struct dt_logprob *top, int *offset)
{
	json_t *alt = ntop > 0 ? json_object() : json_null();
	size_t n = 0;
	const char *piece = dt_tokenizer_piece(c->tok, chosen->id, special, &n);

	for (int i = 0; i < ntop; i++) {
		json_t *name = token_name(c->tok, top[i].id);

		json_object_set_new_nocheck(alt, name ? json_string_value(name) : "",
					    json_real((double)top[i].logprob));
		json_decref(name);
	}
	json_array_append_new(l->tokens, token_name(c->tok, chosen->id));
	json_array_append_new(l->logprobs, json_real((double)chosen->logprob));
	json_array_append_new(l->top, alt);
	json_array_append_new(l->offset, json_integer(*offset));
	*offset += piece ? (int)dt_utf8_count(piece, n) : 0;
}

static struct score_lists lists_new(void)
{
	return (struct score_lists){json_array(), json_array(), json_array(), json_array()};
}

static json_t *lists_json(struct score_lists *l)
{
	return json_pack("{s:o, s:o, s:o, s:o}", "tokens", l->tokens, "token_logprobs", l->logprobs,
			 "top_logprobs", l->top, "text_offset", l->offset);
}

/* The prompt's own: its first token has no logprob. */
static void add_prompt_scores(struct score_lists *l, const struct dt_completion *c,
			      const struct dt_serve_req *r, int *offset)
{
	const struct dt_scores *s = &r->prompt_scores;
	size_t n = 0;
	const char *piece = dt_tokenizer_piece(c->tok, r->tokens[0], true, &n);

	json_array_append_new(l->tokens, token_name(c->tok, r->tokens[0]));
	json_array_append_new(l->logprobs, json_null());
	json_array_append_new(l->top, json_null());
	json_array_append_new(l->offset, json_integer(0));
	*offset = piece ? (int)dt_utf8_count(piece, n) : 0;
	for (int i = 0; i < s->n; i++)
		add_score(l, c, true, &s->chosen[i], s->ntop, s->top + (size_t)i * (size_t)s->ntop, offset);
}

static void add_scores(struct score_lists *l, const struct dt_completion *c, const struct dt_serve_req *r,
		       int from, int *offset)
{
	const struct dt_scores *s = &r->scores;

	for (int i = from; i < s->n; i++)
		add_score(l, c, !r->ask->skip_special, &s->chosen[i], s->ntop,
			  s->top + (size_t)i * (size_t)s->ntop, offset);
}

/* {"token", "logprob", "bytes"} of chat completions. */
static json_t *chat_token(const struct dt_completion *c, const struct dt_logprob *p)
{
	size_t n = 0;
	const char *s = dt_tokenizer_piece(c->tok, p->id, true, &n);
	json_t *bytes = json_array();

	for (size_t i = 0; s && i < n; i++)
		json_array_append_new(bytes, json_integer((unsigned char)s[i]));
	return json_pack("{s:o, s:f, s:o}", "token", clean_string(s ? s : "", s ? n : 0), "logprob",
			 (double)p->logprob, "bytes", bytes);
}

static json_t *chat_logprobs(const struct dt_completion *c, const struct dt_serve_req *r, int from)
{
	const struct dt_scores *s = &r->scores;
	json_t *content = json_array();

	for (int i = from; i < s->n; i++) {
		json_t *v = chat_token(c, &s->chosen[i]), *top = json_array();

		for (int k = 0; k < s->ntop; k++)
			json_array_append_new(
				top, chat_token(c, &s->top[(size_t)i * (size_t)s->ntop + (size_t)k]));
		json_object_set_new(v, "top_logprobs", top);
		json_array_append_new(content, v);
	}
	return json_pack("{s:o, s:n}", "content", content, "refusal");
}

json_t *dt_completion_logprobs(const struct dt_completion *c, int i)
{
	const struct dt_serve_req *r = &c->call->req[i];
	struct score_lists l;
	int offset = 0;

	if (r->ask->logprobs < 0)
		return json_null();
	if (c->chat)
		return chat_logprobs(c, r, 0);
	l = lists_new();
	if (c->echo)
		add_prompt_scores(&l, c, r, &offset);
	add_scores(&l, c, r, 0, &offset);
	return lists_json(&l);
}

json_t *dt_completion_usage(const struct dt_completion *c, bool cache)
{
	json_int_t prompt = 0, out = 0, cached = 0;
	json_t *v;

	for (int i = 0; i < c->nprompts; i++) {
		prompt += c->call->req[i * c->n].nprompt;
		cached += c->call->req[i * c->n].seq.cached;
	}
	for (int i = 0; i < c->call->n; i++)
		out += c->call->req[i].nout;
	v = json_pack("{s:I, s:I, s:I}", "prompt_tokens", prompt, "completion_tokens", out, "total_tokens",
		      prompt + out);
	if (v && cache)
		json_object_set_new(v, "prompt_tokens_details", json_pack("{s:I}", "cached_tokens", cached));
	return v;
}

static json_t *envelope(const struct dt_completion *c, bool chunk, json_t *choices)
{
	const char *object = !c->chat ? "text_completion"
			     : chunk  ? "chat.completion.chunk"
				      : "chat.completion";

	return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", c->id, "object", object, "created",
			 (json_int_t)c->created, "model", c->model, "choices", choices);
}

/* null, the stop string, or the stop id, as vLLM's stop_reason; the end of text is null. */
static json_t *stop_reason(const struct dt_serve_req *r)
{
	if (r->detok.stopped >= 0)
		return json_stringn(r->ask->stop[r->detok.stopped].s, r->ask->stop[r->detok.stopped].n);
	return r->stop_id >= 0 ? json_integer(r->stop_id) : json_null();
}

json_t *dt_completion_text(const struct dt_completion *c, int i)
{
	const struct dt_serve_req *r = &c->call->req[i];
	const struct dt_text *p = &c->prompt[i / c->n];
	json_t *out = clean_string(r->detok.text, r->detok.ready), *both = NULL;
	size_t n = json_string_length(out);
	char *s;

	if (!c->echo || !out)
		return out;
	s = malloc(p->n + n + 1);
	if (s) {
		memcpy(s, p->s, p->n);
		memcpy(s + p->n, json_string_value(out), n);
		both = json_stringn_nocheck(s, p->n + n);
		free(s);
	}
	json_decref(out);
	return both;
}

static json_t *whole_choice(const struct dt_completion *c, int i)
{
	const struct dt_serve_req *r = &c->call->req[i];
	const char *name = c->chat ? "message" : "text";
	json_t *v = dt_completion_text(c, i);

	if (c->chat)
		v = json_pack("{s:s, s:o, s:n}", "role", "assistant", "content", v, "refusal");
	return json_pack("{s:i, s:o, s:o, s:s, s:o}", "index", i, name, v, "logprobs",
			 dt_completion_logprobs(c, i), "finish_reason", dt_finish_name(r->finish),
			 "stop_reason", stop_reason(r));
}

json_t *dt_completion_json(const struct dt_completion *c, struct dt_api_error *e)
{
	json_t *choices = json_array(), *v;

	for (int i = 0; i < c->call->n; i++) {
		const struct dt_serve_req *r = &c->call->req[i];

		if (dt_completion_failed(r, e)) {
			json_decref(choices);
			return NULL;
		}
		json_array_append_new(choices, whole_choice(c, i));
	}
	v = envelope(c, false, choices);
	if (!v || json_object_set_new(v, "usage", dt_completion_usage(c, true)) < 0) {
		json_decref(v);
		dt_api_fail(e, 500, "server_error", NULL, "out of memory");
		return NULL;
	}
	return v;
}

/* Little-endian floats in base 64, as OpenAI's own client asks for. */
static json_t *base64_floats(const float *x, size_t n)
{
	static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *s = (const unsigned char *)x;
	size_t bytes = 4 * n, o = 0;
	char *out = malloc((bytes + 2) / 3 * 4 + 1);
	json_t *v;

	for (size_t i = 0; out && i < bytes; i += 3) {
		unsigned w = (unsigned)s[i] << 16 | (i + 1 < bytes ? (unsigned)s[i + 1] << 8 : 0) |
			     (i + 2 < bytes ? s[i + 2] : 0);

		out[o++] = digit[w >> 18];
		out[o++] = digit[w >> 12 & 63];
		out[o++] = i + 1 < bytes ? digit[w >> 6 & 63] : '=';
		out[o++] = i + 2 < bytes ? digit[w & 63] : '=';
	}
	v = out ? json_stringn(out, o) : NULL;
	free(out);
	return v;
}

static json_t *embedding(const struct dt_completion *c, int i, size_t n)
{
	float *x = c->call->req[i].pooled;
	double norm = 0;
	json_t *v;

	for (size_t k = 0; k < n; k++)
		norm += (double)x[k] * x[k];
	norm = sqrt(norm);
	for (size_t k = 0; k < n; k++)
		x[k] = norm > 0 ? (float)(x[k] / norm) : 0;
	if (c->base64)
		return base64_floats(x, n);
	v = json_array();
	for (size_t k = 0; k < n; k++)
		json_array_append_new(v, json_real((double)x[k]));
	return v;
}

json_t *dt_embedding_json(const struct dt_completion *c, size_t n, struct dt_api_error *e)
{
	json_t *data = json_array();
	json_int_t tokens = 0;

	for (int i = 0; i < c->call->n; i++) {
		if (dt_completion_failed(&c->call->req[i], e)) {
			json_decref(data);
			return NULL;
		}
		tokens += c->call->req[i].nprompt;
		json_array_append_new(data, json_pack("{s:s, s:i, s:o}", "object", "embedding", "index", i,
						      "embedding", embedding(c, i, n)));
	}
	return json_pack("{s:s, s:o, s:s, s:{s:I, s:I}}", "object", "list", "data", data, "model", c->model,
			 "usage", "prompt_tokens", tokens, "total_tokens", tokens);
}

/* ---- streaming ---- */

int dt_sse_init(struct dt_sse *s, const struct dt_completion *c)
{
	*s = (struct dt_sse){.c = c};
	s->at = calloc((size_t)c->call->n, sizeof(*s->at));
	return s->at ? 0 : -ENOMEM;
}

void dt_sse_release(struct dt_sse *s)
{
	free(s->at);
	s->at = NULL;
}

static int emit(FILE *f, json_t *v)
{
	int rc;

	if (!v)
		return -ENOMEM;
	fputs("data: ", f);
	rc = json_dumpf(v, f, JSON_COMPACT);
	fputs("\n\n", f);
	json_decref(v);
	return rc < 0 ? -ENOMEM : 0;
}

static json_t *chunk(const struct dt_sse *s, int i, json_t *text, json_t *logprobs, const char *finish,
		     json_t *stop)
{
	const char *name = s->c->chat ? "delta" : "text";
	json_t *v;

	if (s->c->chat && !s->at[i].begun) {
		s->at[i].begun = true;
		text = json_pack("{s:s, s:o}", "role", "assistant", "content", text);
	} else if (s->c->chat) {
		text = json_string_length(text) ? json_pack("{s:o}", "content", text)
						: (json_decref(text), json_object());
	}
	v = envelope(s->c, true,
		     json_pack("[{s:i, s:o, s:o, s:s?, s:o}]", "index", i, name, text, "logprobs", logprobs,
			       "finish_reason", finish, "stop_reason", stop));

	if (v && s->c->include_usage)
		json_object_set_new(v, "usage", json_null());
	return v;
}

/* The prompt as the first chunk, once its log-probabilities are there. */
static int begin(struct dt_sse *s, int i, FILE *f)
{
	const struct dt_completion *c = s->c;
	const struct dt_serve_req *r = &c->call->req[i];
	struct dt_sse_at *at = &s->at[i];
	json_t *lp = json_null();

	if (at->begun || !c->echo)
		return 0;
	at->begun = true;
	if (r->ask->logprobs >= 0) {
		struct score_lists l = lists_new();

		add_prompt_scores(&l, c, r, &at->offset);
		lp = lists_json(&l);
	}
	return emit(f, chunk(s, i, json_stringn_nocheck(c->prompt[i / c->n].s, c->prompt[i / c->n].n), lp,
			     NULL, json_null()));
}

/* What is new of choice i. Call locked. */
static int news(struct dt_sse *s, int i, FILE *f)
{
	const struct dt_serve_req *r = &s->c->call->req[i];
	struct dt_sse_at *at = &s->at[i];
	bool ended = r->finish != DT_FINISH_NONE;
	struct dt_api_error e;
	json_t *lp = json_null();
	int rc;

	if (at->done || (!ended && r->detok.ready == at->sent))
		return 0;
	if (dt_completion_failed(r, &e)) {
		at->done = s->failed = true;
		return emit(f, dt_api_error_json(&e));
	}
	rc = begin(s, i, f);
	if (rc < 0)
		return rc;
	if (r->ask->logprobs >= 0 && s->c->chat) {
		lp = chat_logprobs(s->c, r, at->scored);
	} else if (r->ask->logprobs >= 0) {
		struct score_lists l = lists_new();

		add_scores(&l, s->c, r, at->scored, &at->offset);
		lp = lists_json(&l);
	}
	at->scored = r->scores.n;
	rc = emit(f, chunk(s, i, clean_string(r->detok.text + at->sent, r->detok.ready - at->sent), lp,
			   dt_finish_name(r->finish), ended ? stop_reason(r) : json_null()));
	at->sent = r->detok.ready;
	at->done = ended;
	return rc;
}

static int finale(struct dt_sse *s, FILE *f)
{
	json_t *v;

	s->ended = true;
	if (s->c->include_usage && !s->failed) {
		v = envelope(s->c, true, json_array());
		if (!v || json_object_set_new(v, "usage", dt_completion_usage(s->c, true)) < 0)
			return -ENOMEM;
		if (emit(f, v) < 0)
			return -ENOMEM;
	}
	fputs("data: [DONE]\n\n", f);
	return 0;
}

int dt_sse_next(struct dt_sse *s, double seconds, char **ret, size_t *ret_n)
{
	struct dt_call *call = s->c->call;
	double end = dt_now() + seconds, left;
	char *buf = NULL;
	size_t n = 0;
	FILE *f;
	int rc = 0;

	if (s->ended)
		return 0;
	f = open_memstream(&buf, &n);
	if (!f)
		return -ENOMEM;
	pthread_mutex_lock(&call->mu);
	for (;;) {
		int open = 0;

		for (int i = 0; i < call->n && rc == 0; i++) {
			rc = news(s, i, f);
			open += !s->at[i].done;
		}
		if (rc == 0 && open == 0)
			rc = finale(s, f);
		left = end - dt_now();
		if (rc < 0 || ftell(f) > 0 || left <= 0)
			break;
		dt_call_wait_locked(call, left);
	}
	pthread_mutex_unlock(&call->mu);
	if (rc == 0 && ftell(f) == 0)
		fputs(": still here\n\n", f);
	if (fclose(f) == EOF)
		rc = -ENOMEM;
	if (rc < 0) {
		free(buf);
		return rc;
	}
	*ret = buf;
	*ret_n = n;
	return 1;
}
