/* Turns a body's prompts and parameters into a call of the engine. */
#include "base/utf8.h"
#include "serve/api/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

const char *dt_body_prompt_key(const struct dt_body *b)
{
	return b->kind & DT_BODY_EMBEDDING		      ? "input"
	       : b->kind & (DT_BODY_CHAT | DT_BODY_CHAT_LINE) ? "messages"
							      : "prompt";
}

/* The limit of output tokens that the body sets; below 0: none. */
static int limit_of(const struct dt_body *b)
{
	return b->max_completion_tokens >= 0 ? b->max_completion_tokens
	       : b->max_tokens >= 0	     ? b->max_tokens
					     : b->n_predict;
}

/*
 * Most output tokens for a prompt of n ids: the body's limit, which must fit the context, or the default,
 * reduced to fit.
 */
static int room_for(struct dt_body *b, const struct dt_ask *ask, size_t n, int *ret)
{
	const int unasked = b->n_predict == -1 ? INT32_MAX : b->default_tokens;
	int asked = limit_of(b);
	int64_t left = b->m->engine->max_len - (int64_t)n;
	int want = asked >= 0 ? asked : b->kind & DT_BODY_EMBEDDING ? 0 : 1;

	if (n == 0)
		return dt_body_bad(b->e, dt_body_prompt_key(b), "'%s' is empty", dt_body_prompt_key(b));
	left += dt_ask_last_unread(ask, n, asked);
	if (left < want) {
		dt_api_fail_length(b->e, n, want, b->m->engine->max_len);
		snprintf(b->e->param, sizeof(b->e->param), "%s", dt_body_prompt_key(b));
		return -EINVAL;
	}
	if (asked < 0)
		asked = unasked < left ? unasked : (int)left;
	*ret = asked;
	return 0;
}

/*
 * Drops tokens of prompts that are longer than truncate_prompt_tokens allows: in front, what is farthest from
 * the answer; of texts to be embedded behind, as vLLM does.
 */
static int truncate_prompts(struct dt_body *b)
{
	const int asked = limit_of(b), least = b->kind & DT_BODY_EMBEDDING ? 0 : 1;
	int keep = b->truncate;

	if (b->truncate == 0)
		return 0;
	if (b->echo)
		return dt_body_bad(b->e, "truncate_prompt_tokens",
				   "'truncate_prompt_tokens' cannot be combined with 'echo'");
	if (b->truncate < 0) /* what leaves room for the answer */
		keep = b->m->engine->max_len - (asked >= 0 ? asked : least);
	if (b->images)
		return dt_body_bad(b->e, "truncate_prompt_tokens",
				   "'truncate_prompt_tokens' cannot be combined with images");
	keep = keep > 0 ? keep : 1;
	for (size_t i = 0; i < b->nprompts; i++) {
		struct dt_prompt *p = &b->prompt[i];

		if (p->n <= (size_t)keep)
			continue;
		if (!(b->kind & DT_BODY_EMBEDDING))
			memmove(p->ids, p->ids + p->n - (size_t)keep, (size_t)keep * sizeof(*p->ids));
		p->n = (size_t)keep;
	}
	return 0;
}

/* Fills in r as choice number `choice` of prompt p. */
static int fill_request(struct dt_body *b, struct dt_serve_req *r, const struct dt_prompt *p, uint32_t choice)
{
	int max_tokens = 0;

	if (room_for(b, r->ask, p->n, &max_tokens) < 0)
		return -EINVAL;
	if (r->ask->min_tokens > max_tokens)
		return dt_body_bad(b->e, "min_tokens", "'min_tokens' exceeds 'max_tokens'");
	r->choice = choice;
	r->matcher = r->ask->grammar ? dt_matcher_new(r->ask->grammar) : NULL;
	r->dormant = r->ask->trigger != NULL;
	if ((r->ask->grammar && !r->matcher) || dt_serve_req_set_prompt(r, p->ids, p->n, max_tokens) < 0)
		return dt_body_no_memory(b->e);
	return 0;
}

static void make_id(const char *prefix, char id[40])
{
	size_t n = strlen(prefix);
	unsigned char r[12];

	while (getrandom(r, sizeof(r), 0) != sizeof(r))
		continue;
	strcpy(id, prefix);
	for (size_t i = 0; i < sizeof(r); i++)
		sprintf(id + n + 2 * i, "%02x", r[i]);
}

/* Embedding inputs beyond max_seqs may wait (dt_engine_submit); prompts must all fit the queue. */
static int check_count(struct dt_body *b)
{
	size_t room = (size_t)(b->m->engine->max_seqs + b->m->engine->queue);

	if (b->kind & DT_BODY_EMBEDDING && b->nprompts > DT_INPUTS_MAX)
		return dt_body_bad(b->e, "input", "'input' has %zu elements, more than the %d allowed",
				   b->nprompts, DT_INPUTS_MAX);
	if (b->kind & DT_BODY_EMBEDDING || b->nprompts * (size_t)b->n <= room)
		return 0;
	return dt_body_bad(b->e, b->nprompts > 1 ? "prompt" : "n",
			   "%zu prompts with %d choices each exceed the %zu allowed", b->nprompts, b->n,
			   room);
}

int dt_body_call(struct dt_body *b, struct dt_completion *c)
{
	if (check_count(b) < 0 || truncate_prompts(b) < 0)
		return -EINVAL;
	c->nprompts = (int)b->nprompts;
	c->n = b->n;
	c->call = dt_call_new(c->nprompts * c->n);
	c->prompt = calloc(b->nprompts, sizeof(*c->prompt));
	if (!c->call || !c->prompt)
		return dt_body_no_memory(b->e);
	c->call->ask = b->ask; /* the call owns it now */
	b->ask = (struct dt_ask){0};
	c->call->salt = b->salt;
	c->call->images = b->images;
	b->images = NULL;
	c->call->tenant = b->m->tenant;
	c->call->adapter = b->adapter;
	b->adapter = NULL;
	make_id(c->chat ? "chatcmpl-" : "cmpl-", c->id);
	c->model = c->call->adapter ? c->call->adapter->name : b->m->name;
	c->tok = b->m->engine->tok;
	c->max_len = b->m->engine->max_len;
	c->created = time(NULL);
	for (int i = 0; i < c->nprompts; i++) {
		for (int k = 0; k < c->n; k++)
			if (fill_request(b, &c->call->req[i * c->n + k], &b->prompt[i], (uint32_t)k) < 0)
				return -EINVAL;
		if (!c->echo)
			continue;
		c->prompt[i].s = dt_utf8_clean(b->prompt[i].text.s, b->prompt[i].text.n, &c->prompt[i].n);
		if (!c->prompt[i].s)
			return dt_body_no_memory(b->e);
		if (b->logprobs_from > 0) /* there is one prompt */
			c->call->ask.score_from = dt_api_score_from(c, &c->call->req[0], b->logprobs_from);
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
