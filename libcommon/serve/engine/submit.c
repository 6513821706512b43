/*
 * Functions for other threads: submitting, cancelling, draining. Requests are checked here, so that the
 * engine's thread need not check them.
 */
#include "base/cond.h"
#include "base/progress.h"
#include "serve/engine/priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int dt_engine_gate_init(struct dt_engine *e)
{
	struct dt_engine_gate *g = &e->gate;

	pthread_mutex_init(&g->mu, NULL);
	dt_cond_init_monotonic(&g->work);
	dt_cond_init_monotonic(&g->idle);
	dt_cond_init_monotonic(&g->shown);
	TAILQ_INIT(&g->inbox);
	g->quota = calloc((size_t)e->p.ntenants + 1, sizeof(*g->quota));
	for (int i = 0; g->quota && i < e->p.ntenants; i++)
		g->quota[i] = dt_quota_full(e->p.tenant[i].quota, dt_now());
	return g->quota ? 0 : -ENOMEM;
}

bool dt_engine_gate_wait(struct dt_engine_gate *g)
{
	bool begun;

	pthread_mutex_lock(&g->mu);
	while (!g->begun && !g->stop)
		pthread_cond_wait(&g->work, &g->mu);
	begun = g->begun;
	pthread_mutex_unlock(&g->mu);
	return begun;
}

void dt_engine_begin(struct dt_engine *e)
{
	pthread_mutex_lock(&e->gate.mu);
	e->gate.begun = true;
	pthread_cond_signal(&e->gate.work);
	pthread_mutex_unlock(&e->gate.mu);
}

void dt_engine_gate_release(struct dt_engine *e)
{
	pthread_cond_destroy(&e->gate.work);
	pthread_cond_destroy(&e->gate.idle);
	pthread_cond_destroy(&e->gate.shown);
	pthread_mutex_destroy(&e->gate.mu);
	free(e->gate.quota);
}

static int check_id(const struct dt_engine *e, int32_t id, struct dt_err *err)
{
	if (id < 0 || id >= e->p.model.vocab)
		return dt_err_set(err, -EINVAL, "token id %d is not below the vocabulary size %d", id,
				  e->p.model.vocab);
	return 0;
}

static int check_ask(const struct dt_engine *e, const struct dt_ask *a, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < a->nstop_ids && rc == 0; i++)
		rc = check_id(e, a->stop_ids[i], err);
	for (int i = 0; i < a->sampling.nbias && rc == 0; i++)
		rc = check_id(e, a->sampling.bias[i].id, err);
	if (rc == 0 && (a->logprobs > e->p.model.vocab || a->logprobs > DT_LOGPROBS_MAX))
		rc = dt_err_set(err, -EINVAL, "%d alternatives per token are too many", a->logprobs);
	if (rc == 0 && (a->prompt_logprobs > e->p.model.vocab || a->prompt_logprobs > DT_PROMPT_LOGPROBS_MAX))
		rc = dt_err_set(err, -EINVAL, "%d alternatives per token are too many", a->prompt_logprobs);
	return rc;
}

/* The tenant's part of block keys: a hash of its name, because its index may change after a restart. */
static uint64_t owner_of(const struct dt_engine *e, int tenant)
{
	uint64_t h = 0;

	for (const char *s = e->p.ntenants > 0 ? e->p.tenant[tenant].name : ""; *s; s++)
		h = dt_kvkey_mix(h, (unsigned char)*s);
	return h;
}

/* Checks the request and that its largest size fits, and fills in the scheduler's view of it. */
static int prepare(struct dt_engine *e, struct dt_serve_req *r, struct dt_err *err)
{
	const struct dt_ask *ask = r->ask;
	const int read = r->nprompt - dt_ask_last_unread(ask, (size_t)r->nprompt, r->max_tokens);
	const int64_t len = (int64_t)read + r->max_tokens;
	int rc;

	if (r->nprompt < 1)
		return dt_err_set(err, -EINVAL, "the prompt is empty");
	if (len > e->p.max_len)
		return dt_err_set(err, -E2BIG, DT_TOO_LONG, e->p.max_len, (size_t)r->nprompt, r->max_tokens);
	for (int i = 0; i < r->nprompt; i++)
		if (check_id(e, r->tokens[i], err) < 0)
			return -EINVAL;
	if (r->call->images && (rc = dt_engine_key_images(e, r, err)) < 0)
		return rc;
	r->seq = (struct dt_seq){.known = read,
				 .tokens = ask->embed ? NULL
					   : r->keys  ? r->keys
						      : r->tokens,
				 .salt = {.owner = owner_of(e, r->call->tenant),
					  .word = r->call->salt,
					  .adapter = r->call->adapter ? r->call->adapter->sum : 0},
				 .tenant = r->call->tenant,
				 .urgency = -ask->priority};
	r->seq.max_rows = (int)(r->max_tokens > 0 ? len - 1 : len); /* the last token is never computed */
	r->seq.score_end = ask->score_prompt ? read : 0;
	if (ask->score_prompt) /* the last row is needed even if nothing is scored */
		r->seq.score_first = ask->score_from < read ? ask->score_from : read - 1;
	r->seq.mark = ask->mark;
	r->seq.nmarks = ask->nmarks;
	r->seq.mark_tokens = ask->mark_share * r->nprompt;
	if (dt_kvpool_blocks(e->pool, r->seq.max_rows) > e->pool->nblocks)
		return dt_err_set(err, -E2BIG,
				  "%lld tokens do not fit into the KV cache of %d blocks of %d tokens",
				  (long long)len, e->pool->nblocks, e->pool->block_size);
	if (ask->embed && !r->pooled)
		r->pooled = calloc((size_t)e->p.model.hidden, sizeof(*r->pooled));
	if (ask->embed && !r->pooled)
		return dt_err_sys(err, -ENOMEM, "cannot take the request");
	r->scores.ntop = r->prompt_scores.ntop = ask->logprobs > 0 ? ask->logprobs : 0;
	if (ask->prompt_logprobs >= 0)
		r->prompt_scores.ntop = ask->prompt_logprobs;
	dt_detok_init(&r->detok, e->p.tok, ask->stop, ask->nstop);
	r->detok.special = !ask->skip_special;
	r->detok.include_stop = ask->include_stop;
	return 0;
}

/*
 * For several choices of one prompt: all but the first wait until the first has computed it, then share its
 * blocks.
 */
static void set_leaders(struct dt_engine *e, struct dt_call *c)
{
	for (int i = 1, first = 0; i < c->n && e->p.model.copy_block; i++) {
		struct dt_serve_req *r = &c->req[i], *o = &c->req[first];

		if (r->nprompt != o->nprompt || !r->seq.tokens || r->ask->score_prompt ||
		    r->max_tokens == 0 ||
		    memcmp(r->tokens, o->tokens, (size_t)r->nprompt * sizeof(*r->tokens)))
			first = i;
		else
			r->seq.leader = &o->seq;
	}
}

/*
 * Charges the call's tokens to the quotas of its tenant and its adapter, or sets how long to wait. Call with
 * the gate locked.
 */
static int charge(struct dt_engine *e, struct dt_call *c, double now, struct dt_err *err)
{
	struct dt_quota *q = &e->gate.quota[c->tenant];
	double want = 0, wait;

	for (int i = 0; i < c->n; i++) {
		struct dt_serve_req *r = &c->req[i];

		r->charged_prompt = r->seq.leader ? 0 : r->nprompt; /* computed once for all choices */
		r->charged_out = r->max_tokens;
		want += r->charged_prompt + r->charged_out;
	}
	wait = e->p.ntenants ? dt_quota_take(q, want, now) : 0;
	if (wait == 0 && c->adapter) {
		wait = dt_quota_take(&c->adapter->quota, want, now);
		if (wait > 0 && e->p.ntenants)
			dt_quota_give(q, want, now);
		q = &c->adapter->quota;
	}
	if (wait == 0)
		return 0;
	c->retry_after = isfinite(wait) ? wait : 0;
	if (!isfinite(wait))
		return dt_err_set(
			err, -EDQUOT,
			"the request needs %.0f tokens, more than the whole quota of %.0f per minute", want,
			q->rate);
	return dt_err_set(err, -EDQUOT,
			  "the request needs %.0f tokens; of the quota of %.0f per minute %.0f are left",
			  want, q->rate, q->tokens);
}

/* Number of its requests that count as in flight (engine.h). */
static int counted(const struct dt_engine *e, const struct dt_call *c)
{
	return c->ask.embed && c->n > e->p.max_seqs ? e->p.max_seqs : c->n;
}

int dt_engine_submit(struct dt_engine *e, struct dt_call *c, struct dt_err *err)
{
	double now = dt_now();
	int rc = check_ask(e, &c->ask, err);

	if (rc < 0)
		return rc;
	for (int i = 0; i < c->n; i++) {
		rc = prepare(e, &c->req[i], err);
		if (rc < 0)
			return rc;
		c->req[i].t_arrive = now;
	}
	set_leaders(e, c);
	if (c->adapter) {
		rc = dt_adapters_hold(c->adapter, c->deadline, &c->cancelled, err);
		if (rc < 0)
			return rc;
		c->held = true;
	}
	pthread_mutex_lock(&e->gate.mu);
	if (e->gate.failed) {
		rc = dt_err_set(err, -ESHUTDOWN, "the server has failed: %s", e->gate.why.msg);
	} else if (e->gate.draining) {
		rc = dt_err_set(err, -ESHUTDOWN, "the server is shutting down");
	} else if (e->gate.counted + counted(e, c) > e->p.max_seqs + e->p.queue) {
		rc = dt_err_set(err, -EAGAIN, "the queue is full: %d requests are in flight",
				e->gate.inflight);
	} else if ((rc = charge(e, c, now, err)) == 0) {
		for (int i = 0; i < c->n; i++) {
			dt_call_ref(c);
			c->req[i].counted = i < counted(e, c);
			TAILQ_INSERT_TAIL(&e->gate.inbox, &c->req[i], in_list);
		}
		e->gate.inflight += c->n;
		e->gate.counted += counted(e, c);
		pthread_cond_signal(&e->gate.work);
	}
	pthread_mutex_unlock(&e->gate.mu);
	if (rc < 0 && c->held) {
		c->held = false;
		dt_adapters_release(c->adapter);
	}
	return rc;
}

void dt_engine_cancel(struct dt_engine *e, struct dt_call *c)
{
	dt_call_cancel(c);
	pthread_mutex_lock(&e->gate.mu);
	pthread_cond_signal(&e->gate.work);
	pthread_mutex_unlock(&e->gate.mu);
}

void dt_engine_drain(struct dt_engine *e)
{
	pthread_mutex_lock(&e->gate.mu);
	e->gate.draining = true;
	pthread_mutex_unlock(&e->gate.mu);
}

int dt_engine_wait_idle(struct dt_engine *e, double seconds)
{
	const double end = dt_now() + seconds;
	int n;

	pthread_mutex_lock(&e->gate.mu);
	while (e->gate.inflight > 0 && dt_cond_wait_until(&e->gate.idle, &e->gate.mu, end) == 0)
		continue;
	n = e->gate.inflight;
	pthread_mutex_unlock(&e->gate.mu);
	return n;
}

void dt_engine_failure(struct dt_engine *e, struct dt_err *ret)
{
	pthread_mutex_lock(&e->gate.mu);
	*ret = e->gate.why;
	pthread_mutex_unlock(&e->gate.mu);
}

enum dt_engine_state dt_engine_state(struct dt_engine *e)
{
	enum dt_engine_state s = DT_ENGINE_READY;

	pthread_mutex_lock(&e->gate.mu);
	if (e->gate.failed)
		s = DT_ENGINE_FAILED;
	else if (e->gate.busy_since > 0 && dt_now() - e->gate.busy_since > e->p.stuck_after)
		s = DT_ENGINE_STUCK;
	else if (e->gate.draining)
		s = DT_ENGINE_DRAINING;
	pthread_mutex_unlock(&e->gate.mu);
	return s;
}
/* SPDX-License-Identifier: Apache-2.0 */
