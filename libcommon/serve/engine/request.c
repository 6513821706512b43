#include "serve/engine/request.h"

#include "base/cond.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *dt_finish_name(enum dt_finish f)
{
	static const char *const name[DT_FINISH_N] = {NULL, "stop", "length", "abort", "timeout", "error"};

	return name[f];
}

struct dt_call *dt_call_new(int n)
{
	struct dt_call *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->req = calloc((size_t)n, sizeof(*c->req));
	if (!c->req) {
		free(c);
		return NULL;
	}
	pthread_mutex_init(&c->mu, NULL);
	dt_cond_init_monotonic(&c->cond);
	atomic_init(&c->refs, 1);
	atomic_init(&c->cancelled, false);
	c->n = c->open = n;
	c->ask = DT_ASK_DEFAULT;
	for (int i = 0; i < n; i++) {
		c->req[i].call = c;
		c->req[i].ask = &c->ask;
		c->req[i].stop_id = -1;
		atomic_init(&c->req[i].working, false);
		c->req[i].detok.stopped = -1;
	}
	return c;
}

void dt_call_ref(struct dt_call *c)
{
	atomic_fetch_add(&c->refs, 1);
}

void dt_ask_release(struct dt_ask *a)
{
	free(a->bias);
	free(a->dry_break);
	free(a->stop_ids);
	for (int i = 0; i < a->nstop; i++)
		free(a->stop[i].s);
	free(a->stop);
	dt_grammar_drop(a->grammar);
	free(a->mark);
	*a = (struct dt_ask){0};
}

void dt_call_images_free(struct dt_call_images *x)
{
	for (int i = 0; x && i < x->n; i++) {
		free(x->tile[i].pixels);
		free(x->tile[i].rows);
	}
	free(x);
}

static void req_release(struct dt_serve_req *r)
{
	free(r->tokens);
	free(r->keys);
	dt_detok_release(&r->detok);
	free(r->scores.chosen);
	free(r->scores.top);
	free(r->prompt_scores.chosen);
	free(r->prompt_scores.top);
	free(r->pooled);
	dt_matcher_free(r->matcher);
	free(r->allow);
}

void dt_call_drop(struct dt_call *c)
{
	if (!c || atomic_fetch_sub(&c->refs, 1) != 1)
		return;
	for (int i = 0; i < c->n; i++)
		req_release(&c->req[i]);
	dt_ask_release(&c->ask);
	dt_call_images_free(c->images);
	dt_adapters_drop(c->adapter);
	if (c->out)
		dt_kvshare_release(&c->out->to);
	free(c->out);
	pthread_cond_destroy(&c->cond);
	pthread_mutex_destroy(&c->mu);
	free(c->req);
	free(c);
}

void dt_call_cancel(struct dt_call *c)
{
	atomic_store(&c->cancelled, true);
}

void dt_call_wait_locked(struct dt_call *c, double seconds)
{
	dt_cond_wait_s(&c->cond, &c->mu, seconds);
}

void dt_call_wait_done(struct dt_call *c)
{
	pthread_mutex_lock(&c->mu);
	while (c->open > 0)
		pthread_cond_wait(&c->cond, &c->mu);
	pthread_mutex_unlock(&c->mu);
}

int dt_serve_req_set_prompt(struct dt_serve_req *r, const int32_t *ids, size_t n, int max_tokens)
{
	int32_t *p = malloc((n + (size_t)max_tokens) * sizeof(*p));

	if (!p)
		return -ENOMEM;
	if (n > 0)
		memcpy(p, ids, n * sizeof(*p));
	free(r->tokens);
	r->tokens = p;
	r->nprompt = (int)n;
	r->max_tokens = max_tokens;
	return 0;
}

void dt_serve_req_start(struct dt_serve_req *r, double at)
{
	r->t_start = at;
	pthread_mutex_lock(&r->call->mu);
	r->cached = r->seq.cached;
	pthread_mutex_unlock(&r->call->mu);
}

int dt_scores_push(struct dt_scores *s, struct dt_logprob chosen, const struct dt_logprob *top)
{
	if (s->n == s->cap) {
		size_t cap = s->cap ? 2 * (size_t)s->cap : 16;
		struct dt_logprob *c = realloc(s->chosen, cap * sizeof(*c)), *t;

		if (!c)
			return -ENOMEM;
		s->chosen = c;
		t = realloc(s->top, cap * (size_t)(s->ntop ? s->ntop : 1) * sizeof(*t));
		if (!t)
			return -ENOMEM;
		s->top = t;
		s->cap = (int)cap;
	}
	s->chosen[s->n] = chosen;
	if (s->ntop)
		memcpy(s->top + (size_t)s->n * (size_t)s->ntop, top, (size_t)s->ntop * sizeof(*top));
	s->n++;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
