/* Log-probabilities of tokens, in the formats of completions and of chat completions. */
#include "base/utf8.h"
#include "serve/api/priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

json_t *dt_api_text(const char *s, size_t n)
{
	size_t len;
	char *text = dt_utf8_clean(s, n, &len);
	json_t *v = text ? json_stringn_nocheck(text, len) : NULL;

	free(text);
	return v;
}

json_t *dt_api_ids(const int32_t *id, int n)
{
	json_t *list = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(list, json_integer(id[i]));
	return list;
}

json_t *dt_api_token_name(const struct dt_tokenizer *tok, int32_t id)
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

/* Two tokens may have one name: the more probable one, which comes first, stays. */
static void add_alternative(json_t *to, const struct dt_completion *c, const struct dt_logprob *p,
			    bool chosen)
{
	json_t *name = dt_api_token_name(c->tok, p->id);
	const char *key = name ? json_string_value(name) : "";

	if (chosen || !json_object_get(to, key))
		json_object_set_new_nocheck(to, key, json_real((double)p->logprob));
	json_decref(name);
}

/*
 * The character in which a token begins if `chars` characters have begun before it: the last of these if the
 * token continues it, because a character may take several tokens.
 */
static int begins_at(int chars, const char *piece, size_t n)
{
	return chars > 0 && n > 0 && ((unsigned char)*piece & 0xc0) == 0x80 ? chars - 1 : chars;
}

static json_t *offset_json(const struct dt_completion *c, int32_t id, int chars)
{
	size_t n = 0;
	const char *piece = dt_tokenizer_piece(c->tok, id, true, &n);

	return json_integer(begins_at(chars, piece, piece ? n : 0));
}

/* The alternatives contain the chosen token, besides the ntop most probable ones, as in OpenAI's API. */
static void add_score(struct score_lists *l, const struct dt_completion *c, bool special,
		      const struct dt_logprob *chosen, int ntop, const struct dt_logprob *top, int *offset)
{
	json_t *alt = json_object();
	size_t n = 0;
	const char *piece = dt_tokenizer_piece(c->tok, chosen->id, special, &n);

	for (int i = 0; i < ntop; i++)
		add_alternative(alt, c, &top[i], false);
	add_alternative(alt, c, chosen, true);
	json_array_append_new(l->tokens, dt_api_token_name(c->tok, chosen->id));
	json_array_append_new(l->logprobs, json_real((double)chosen->logprob));
	json_array_append_new(l->top, alt);
	json_array_append_new(l->offset, offset_json(c, chosen->id, *offset));
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

/*
 * Number of characters of a prompt's text that a token stands for. A bos token and a space that the tokenizer
 * prepends do not count. first: no character came before.
 */
static int own_chars(const struct dt_completion *c, const struct dt_text *text, int32_t id, bool first)
{
	size_t n = 0, skip = 0;
	const char *s = dt_tokenizer_piece(c->tok, id, true, &n);

	if (!s || n == 0)
		return 0;
	if (first && (n > text->n || memcmp(s, text->s, n)))
		skip = text->n == 0 || id == dt_tokenizer_bos(c->tok) ? n : *s == ' ' && *text->s != ' ';
	return (int)dt_utf8_count(s + skip, n - skip);
}

int dt_api_score_from(const struct dt_completion *c, const struct dt_serve_req *r, int chars)
{
	const struct dt_text *text = &c->prompt[(r - c->call->req) / c->n];
	int offset = 0, i = 0;

	for (; i < r->nprompt - 1; i++) {
		size_t n = 0;
		const char *next = dt_tokenizer_piece(c->tok, r->tokens[i + 1], true, &n);

		offset += own_chars(c, text, r->tokens[i], offset == 0);
		if (begins_at(offset, next, next ? n : 0) >= chars)
			break;
	}
	return i;
}

/* Adds the log-probabilities of the prompt; its first token has none, nor have those before score_from. */
static void add_prompt_scores(struct score_lists *l, const struct dt_completion *c,
			      const struct dt_serve_req *r, int *offset)
{
	const struct dt_scores *s = &r->prompt_scores;
	const struct dt_text *text = &c->prompt[(r - c->call->req) / c->n];

	*offset = 0;
	for (int i = 0; i <= r->ask->score_from; i++) {
		json_array_append_new(l->tokens, dt_api_token_name(c->tok, r->tokens[i]));
		json_array_append_new(l->logprobs, json_null());
		json_array_append_new(l->top, json_null());
		json_array_append_new(l->offset, offset_json(c, r->tokens[i], *offset));
		*offset += own_chars(c, text, r->tokens[i], *offset == 0);
	}
	for (int i = 0; i < s->n; i++) {
		const int at = *offset;

		add_score(l, c, true, &s->chosen[i], s->ntop, s->top + (size_t)i * (size_t)s->ntop, offset);
		*offset = at + own_chars(c, text, s->chosen[i].id, at == 0);
	}
}

static void add_scores(struct score_lists *l, const struct dt_completion *c, const struct dt_serve_req *r,
		       int from, int to, int *offset)
{
	const struct dt_scores *s = &r->scores;

	for (int i = from; i < to; i++)
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
	return json_pack("{s:o, s:f, s:o}", "token", dt_api_text(s ? s : "", s ? n : 0), "logprob",
			 (double)p->logprob, "bytes", bytes);
}

/* drawn: with the probability that the samplers left, in place of the log-probability of the model. */
static json_t *native_token(const struct dt_completion *c, const struct dt_logprob *p, bool drawn)
{
	json_t *v = chat_token(c, p);

	if (v)
		json_object_set_new(v, "id", json_integer(p->id));
	if (v && drawn) {
		json_object_del(v, "logprob");
		json_object_set_new(v, "prob", json_real(exp((double)p->logprob)));
	}
	return v;
}

json_t *dt_api_probabilities(const struct dt_completion *c, const struct dt_serve_req *r, int from, int to)
{
	const struct dt_scores *s = &r->scores;
	const bool drawn = r->ask->drawn_probs;
	json_t *list = json_array();

	for (int i = from; i < to && i < s->n; i++) {
		json_t *v = native_token(c, &s->chosen[i], drawn), *top = json_array();
		const struct dt_logprob *p = s->top + (size_t)i * (size_t)s->ntop;

		for (int k = 0; k < s->ntop && p[k].id >= 0; k++)
			json_array_append_new(top, native_token(c, &p[k], drawn));
		json_object_set_new(v, drawn ? "top_probs" : "top_logprobs", top);
		json_array_append_new(list, v);
	}
	return list;
}

static json_t *chat_scores(const struct dt_completion *c, const struct dt_serve_req *r, int from, int to)
{
	const struct dt_scores *s = &r->scores;
	json_t *content = json_array();

	for (int i = from; i < to; i++) {
		json_t *v = chat_token(c, &s->chosen[i]), *top = json_array();

		for (int k = 0; k < s->ntop; k++)
			json_array_append_new(
				top, chat_token(c, &s->top[(size_t)i * (size_t)s->ntop + (size_t)k]));
		json_object_set_new(v, "top_logprobs", top);
		json_array_append_new(content, v);
	}
	return json_pack("{s:o, s:n}", "content", content, "refusal");
}

json_t *dt_api_scores(const struct dt_completion *c, const struct dt_serve_req *r, bool prompt, int from,
		      int to, int *offset)
{
	struct score_lists l;

	if (r->ask->logprobs < 0)
		return json_null();
	if (c->chat)
		return chat_scores(c, r, from, to);
	l = lists_new();
	if (prompt)
		add_prompt_scores(&l, c, r, offset);
	add_scores(&l, c, r, from, to, offset);
	return lists_json(&l);
}

static void add_by_id(json_t *to, const struct dt_completion *c, const struct dt_logprob *p, int rank)
{
	char id[16];
	json_t *v = json_pack("{s:f, s:o}", "logprob", (double)p->logprob, "decoded_token",
			      dt_api_token_name(c->tok, p->id));

	snprintf(id, sizeof(id), "%d", p->id);
	json_object_set_new(v, "rank", json_integer(rank));
	json_object_set_new(to, id, v);
}

json_t *dt_completion_prompt_logprobs(const struct dt_completion *c, int i)
{
	const struct dt_scores *s = &c->call->req[i].prompt_scores;
	json_t *list = json_array();

	json_array_append_new(list, json_null()); /* the first token has no prediction */
	for (int t = 0; t < s->n; t++) {
		json_t *v = json_object();

		add_by_id(v, c, &s->chosen[t], s->chosen[t].rank);
		for (int k = 0; k < s->ntop; k++)
			add_by_id(v, c, &s->top[(size_t)t * (size_t)s->ntop + (size_t)k], k + 1);
		json_array_append_new(list, v);
	}
	return list;
}

json_t *dt_completion_logprobs(const struct dt_completion *c, int i)
{
	const struct dt_serve_req *r = &c->call->req[i];
	int offset = 0;

	return dt_api_scores(c, r, c->echo, 0, r->scores.n, &offset);
}
/* SPDX-License-Identifier: Apache-2.0 */
