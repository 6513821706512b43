#include "base/progress.h"
#include "plan/inferplan.h"
#include "serve/engine/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void list_push(struct req_list *l, struct dt_serve_req *r)
{
	r->next = NULL;
	r->prev = l->tail;
	*(l->tail ? &l->tail->next : &l->head) = r;
	l->tail = r;
}

static void list_remove(struct req_list *l, struct dt_serve_req *r)
{
	*(r->prev ? &r->prev->next : &l->head) = r->next;
	*(r->next ? &r->next->prev : &l->tail) = r->prev;
}

/* Nobody waits for r's prompt any more. */
static void leave_followers(struct dt_serve_req *r)
{
	for (int i = 0; i < r->call->n; i++)
		if (r->call->req[i].seq.leader == &r->seq)
			r->call->req[i].seq.leader = NULL;
}

/* What was taken from the tenant's bucket and not used. */
static void refund(struct dt_engine *e, const struct dt_serve_req *r)
{
	if (e->p.ntenants > 0 && e->p.tenant[r->call->tenant].quota > 0)
		e->bucket[r->call->tenant].tokens +=
			r->max_tokens - r->nout + (r->t_start > 0 || r->seq.leader ? 0 : r->nprompt);
}

void dt_engine_retire(struct dt_engine *e, struct dt_serve_req *r, enum dt_finish why)
{
	struct dt_call *c = r->call;
	bool last;

	leave_followers(r);
	dt_schedtrace_remove(e->p.trace, &r->seq);
	dt_sched_remove(&e->sched, &r->seq);
	list_remove(&e->live, r);
	/* The counters, then the place in the queue, then the news: who hears of the end finds both. */
	dt_metrics_finish(&e->metrics, r, why, dt_now());
	dt_metrics_step(&e->metrics, &e->sched, 0);
	pthread_mutex_lock(&e->mu);
	refund(e, r);
	if (--e->inflight == 0)
		pthread_cond_broadcast(&e->idle);
	pthread_mutex_unlock(&e->mu);
	pthread_mutex_lock(&c->mu);
	dt_detok_finish(&r->detok);
	r->finish = why;
	last = --c->open == 0;
	pthread_cond_broadcast(&c->cond);
	pthread_mutex_unlock(&c->mu);
	if (last && c->on_done)
		c->on_done(c->arg);
	dt_call_drop(c);
}

void dt_engine_retire_error(struct dt_engine *e, struct dt_serve_req *r, const struct dt_err *err)
{
	pthread_mutex_lock(&r->call->mu);
	r->err = *err;
	pthread_mutex_unlock(&r->call->mu);
	dt_engine_retire(e, r, DT_FINISH_ERROR);
}

static void drop_cancelled(struct dt_engine *e)
{
	double now = dt_now();
	struct dt_serve_req *next;

	for (struct dt_serve_req *r = e->live.head; r; r = next) {
		next = r->next;
		if (atomic_load(&r->call->cancelled))
			dt_engine_retire(e, r, DT_FINISH_ABORT);
		else if (r->call->deadline > 0 && now > r->call->deadline)
			dt_engine_retire(e, r, DT_FINISH_TIMEOUT);
	}
}

/* Moves the inbox to the scheduler. Sizes were checked on submission. */
static void take_inbox(struct dt_engine *e, struct req_list *in)
{
	struct dt_serve_req *next;

	for (struct dt_serve_req *r = in->head; r; r = next) {
		struct dt_err err;

		next = r->next;
		list_push(&e->live, r);
		dt_schedtrace_submit(e->p.trace, &r->seq);
		if (dt_sched_submit(&e->sched, &r->seq, &err) < 0)
			dt_engine_retire_error(e, r, &err);
	}
}

static void *engine_main(void *arg)
{
	struct dt_engine *e = arg;

	for (;;) {
		struct req_list in;
		bool stop;

		pthread_mutex_lock(&e->mu);
		e->busy_since = 0;
		while (!e->stop && !e->inbox.head && !e->live.head)
			pthread_cond_wait(&e->work, &e->mu);
		e->busy_since = dt_now();
		in = e->inbox;
		e->inbox = (struct req_list){0};
		stop = e->stop;
		pthread_mutex_unlock(&e->mu);

		take_inbox(e, &in);
		if (stop)
			break;
		drop_cancelled(e);
		if (e->live.head)
			dt_engine_step(e);
	}
	while (e->live.head)
		dt_engine_retire(e, e->live.head, DT_FINISH_ABORT);
	return NULL;
}

static int alloc_batch(struct dt_engine *e)
{
	const struct dt_engine_params *p = &e->p;
	size_t seqs = (size_t)p->max_seqs, tokens = (size_t)p->max_tokens;
	size_t table = (size_t)dt_kvpool_blocks(&e->pool, p->max_len) * seqs;

	e->items = calloc(seqs, sizeof(*e->items));
	e->drafts = calloc(seqs, sizeof(*e->drafts));
	e->ids = calloc(tokens, sizeof(*e->ids));
	e->pos = calloc(tokens, sizeof(*e->pos));
	e->slot = calloc(tokens, sizeof(*e->slot));
	e->q_start = calloc(seqs + 1, sizeof(*e->q_start));
	e->kv_len = calloc(seqs, sizeof(*e->kv_len));
	e->want = calloc(seqs, sizeof(*e->want));
	e->table = calloc(table, sizeof(*e->table));
	e->pool_to = calloc(seqs, sizeof(*e->pool_to));
	e->logits = malloc(DT_INFER_LOGITS_ROWS(seqs) * (size_t)p->model.vocab * sizeof(*e->logits));
	e->draw = calloc(seqs, sizeof(*e->draw));
	e->drawn = calloc(seqs, sizeof(*e->drawn));
	e->top = calloc(DT_LOGPROBS_MAX, sizeof(*e->top));
	if (!e->items || !e->drafts || !e->ids || !e->pos || !e->slot || !e->q_start || !e->kv_len ||
	    !e->want || !e->table || !e->pool_to || !e->logits || !e->draw || !e->drawn || !e->top)
		return -ENOMEM;
	e->batch = (struct dt_infer_batch){.ids = e->ids,
					   .pos = e->pos,
					   .slot = e->slot,
					   .q_start = e->q_start,
					   .kv_len = e->kv_len,
					   .block_table = e->table,
					   .want = e->want,
					   .pool = e->pool_to};
	return dt_serve_sampler_init(&e->sampler, p->model.vocab);
}

static void engine_free(struct dt_engine *e)
{
	free(e->items);
	free(e->drafts);
	free(e->ids);
	free(e->pos);
	free(e->slot);
	free(e->q_start);
	free(e->kv_len);
	free(e->want);
	free(e->table);
	free(e->pool_to);
	free(e->bucket);
	free(e->logits);
	free(e->draw);
	free(e->drawn);
	free(e->allow);
	dt_vocab_order_release(&e->order);
	free(e->top);
	dt_serve_sampler_release(&e->sampler);
	dt_teller_close(&e->teller);
	dt_sched_release(&e->sched);
	dt_kvpool_release(&e->pool);
	dt_metrics_release(&e->metrics);
	pthread_cond_destroy(&e->work);
	pthread_cond_destroy(&e->idle);
	pthread_mutex_destroy(&e->mu);
	free(e);
}

static int init_tenants(struct dt_engine *e, struct dt_err *err)
{
	int n = e->p.ntenants, rc;
	struct dt_share *share = n > 0 ? calloc((size_t)n, sizeof(*share)) : NULL;

	e->bucket = calloc((size_t)n + 1, sizeof(*e->bucket));
	if (!e->bucket || (n > 0 && !share)) {
		free(share);
		return dt_err_sys(err, -ENOMEM, "cannot start the engine");
	}
	for (int i = 0; i < n; i++) {
		share[i] = e->p.tenant[i].share;
		e->bucket[i] = (struct dt_bucket){e->p.tenant[i].quota, dt_now()};
	}
	rc = dt_sched_init(&e->sched, &e->pool, e->p.max_seqs, e->p.max_tokens, share, n, err);
	e->sched.window = e->p.window;
	free(share);
	return rc;
}

int dt_engine_open(struct dt_engine **ret, const struct dt_engine_params *p, struct dt_err *err)
{
	struct dt_engine *e = calloc(1, sizeof(*e));
	pthread_condattr_t a;
	int rc;

	if (!e)
		return dt_err_sys(err, -ENOMEM, "cannot start the engine");
	e->p = *p;
	pthread_mutex_init(&e->mu, NULL);
	pthread_cond_init(&e->work, NULL);
	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&e->idle, &a);
	pthread_condattr_destroy(&a);
	dt_metrics_init(&e->metrics);
	rc = dt_kvpool_init(&e->pool, p->blocks, p->block_size, p->share_prefixes);
	if (rc < 0) {
		dt_err_sys(err, rc, "cannot make a cache of %d blocks of %d tokens", p->blocks,
			   p->block_size);
		goto fail;
	}
	rc = init_tenants(e, err);
	if (rc < 0)
		goto fail;
	dt_schedtrace_begin(p->trace, &e->sched);
	e->spec.max = p->draft;
	rc = alloc_batch(e);
	if (rc == 0)
		rc = dt_teller_open(&e->teller, p->max_seqs);
	if (rc < 0) {
		dt_err_sys(err, rc, "cannot start the engine");
		goto fail;
	}
	rc = -pthread_create(&e->thread, NULL, engine_main, e);
	if (rc < 0) {
		dt_err_sys(err, rc, "cannot start the engine's thread");
		goto fail;
	}
	*ret = e;
	return 0;
fail:
	engine_free(e);
	return rc;
}

void dt_engine_close(struct dt_engine *e)
{
	if (!e)
		return;
	pthread_mutex_lock(&e->mu);
	e->draining = e->stop = true;
	pthread_cond_signal(&e->work);
	pthread_mutex_unlock(&e->mu);
	pthread_join(e->thread, NULL);
	engine_free(e);
}

const struct dt_engine_params *dt_engine_params(const struct dt_engine *e)
{
	return &e->p;
}

struct dt_metrics *dt_engine_metrics(struct dt_engine *e)
{
	return &e->metrics;
}

static int check_id(const struct dt_engine *e, int32_t id, struct dt_err *err)
{
	if (id < 0 || id >= e->p.model.vocab)
		return dt_err_set(err, -EINVAL, "token id %d is not below the vocabulary of %d", id,
				  e->p.model.vocab);
	return 0;
}

static int check_ids(const struct dt_engine *e, const struct dt_serve_req *r, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < r->nprompt && rc == 0; i++)
		rc = check_id(e, r->tokens[i], err);
	for (int i = 0; i < r->nstop_ids && rc == 0; i++)
		rc = check_id(e, r->stop_ids[i], err);
	for (int i = 0; i < r->sampling.nbias && rc == 0; i++)
		rc = check_id(e, r->bias[i].id, err);
	if (rc == 0 && (r->logprobs > e->p.model.vocab || r->logprobs > DT_LOGPROBS_MAX))
		rc = dt_err_set(err, -EINVAL, "%d alternatives a token are too many", r->logprobs);
	return rc;
}

/* Checks the request, that its largest size fits, and sets what the scheduler needs to know. */
static int prepare(struct dt_engine *e, struct dt_serve_req *r, struct dt_err *err)
{
	int64_t len = (int64_t)r->nprompt + r->max_tokens;

	if (r->nprompt < 1)
		return dt_err_set(err, -EINVAL, "the prompt is empty");
	if (len > e->p.max_len)
		return dt_err_set(err, -E2BIG,
				  "%d prompt tokens and %d to generate are more than the context of %d",
				  r->nprompt, r->max_tokens, e->p.max_len);
	if (check_ids(e, r, err) < 0)
		return -EINVAL;
	r->seq = (struct dt_seq){.known = r->nprompt,
				 .tokens = r->embed ? NULL : r->tokens,
				 .salt = {.owner = (uint64_t)r->call->tenant, .word = r->call->salt},
				 .tenant = r->call->tenant};
	r->seq.max_rows = (int)(r->max_tokens > 0 ? len - 1 : len); /* the last token is never computed */
	r->seq.score_end = r->score_prompt ? r->nprompt : 0;
	if (dt_kvpool_blocks(&e->pool, r->seq.max_rows) > e->pool.nblocks)
		return dt_err_set(err, -E2BIG, "%lld tokens do not fit the cache of %d blocks of %d",
				  (long long)len, e->pool.nblocks, e->pool.block_size);
	if (r->embed && !r->pooled)
		r->pooled = calloc((size_t)e->p.model.hidden, sizeof(*r->pooled));
	if (r->embed && !r->pooled)
		return dt_err_sys(err, -ENOMEM, "cannot take the request");
	r->sampling.bias = r->bias;
	r->scores.ntop = r->prompt_scores.ntop = r->logprobs > 0 ? r->logprobs : 0;
	dt_detok_init(&r->detok, e->p.tok, r->stop, r->nstop);
	r->detok.special = r->show_special;
	r->detok.include_stop = r->include_stop;
	return 0;
}

/* The choices of one prompt: all but the first wait until it is computed, then share it. */
static void set_leaders(struct dt_engine *e, struct dt_call *c)
{
	for (int i = 1, first = 0; i < c->n && e->p.model.copy_block; i++) {
		struct dt_serve_req *r = &c->req[i], *o = &c->req[first];

		if (r->nprompt != o->nprompt || !r->seq.tokens || r->score_prompt || r->max_tokens == 0 ||
		    memcmp(r->tokens, o->tokens, (size_t)r->nprompt * sizeof(*r->tokens)))
			first = i;
		else
			r->seq.leader = &o->seq;
	}
}

/* Takes the call's tokens from its tenant's bucket, or says how long to wait. Locked. */
static int charge(struct dt_engine *e, struct dt_call *c, double now, struct dt_err *err)
{
	struct dt_bucket *b = &e->bucket[c->tenant];
	double quota = e->p.ntenants > 0 ? e->p.tenant[c->tenant].quota : 0, want = 0;

	if (quota <= 0)
		return 0;
	for (int i = 0; i < c->n; i++)
		want += (c->req[i].seq.leader ? 0 : c->req[i].nprompt) + c->req[i].max_tokens;
	b->tokens += (now - b->at) * quota / 60;
	b->tokens = b->tokens < quota ? b->tokens : quota;
	b->at = now;
	if (want <= b->tokens) {
		b->tokens -= want;
		return 0;
	}
	c->retry_after = want <= quota ? (want - b->tokens) * 60 / quota : 0;
	if (want > quota)
		return dt_err_set(
			err, -EDQUOT,
			"%.0f tokens are asked for, which is more than the whole quota of %.0f a minute",
			want, quota);
	return dt_err_set(err, -EDQUOT,
			  "%.0f tokens are asked for; of the quota of %.0f a minute %.0f are left", want,
			  quota, b->tokens > 0 ? b->tokens : 0);
}

int dt_engine_submit(struct dt_engine *e, struct dt_call *c, struct dt_err *err)
{
	double now = dt_now();
	int rc;

	for (int i = 0; i < c->n; i++) {
		rc = prepare(e, &c->req[i], err);
		if (rc < 0)
			return rc;
		c->req[i].t_arrive = now;
	}
	set_leaders(e, c);
	pthread_mutex_lock(&e->mu);
	if (e->draining) {
		rc = dt_err_set(err, -ESHUTDOWN, "the server is shutting down");
	} else if (e->inflight + c->n > e->p.max_seqs + e->p.queue) {
		rc = dt_err_set(err, -EAGAIN, "the queue is full: %d requests are in flight", e->inflight);
	} else if ((rc = charge(e, c, now, err)) == 0) {
		for (int i = 0; i < c->n; i++) {
			dt_call_ref(c);
			list_push(&e->inbox, &c->req[i]);
		}
		e->inflight += c->n;
		pthread_cond_signal(&e->work);
	}
	pthread_mutex_unlock(&e->mu);
	return rc;
}

void dt_engine_cancel(struct dt_engine *e, struct dt_call *c)
{
	dt_call_cancel(c);
	pthread_mutex_lock(&e->mu);
	pthread_cond_signal(&e->work);
	pthread_mutex_unlock(&e->mu);
}

void dt_engine_drain(struct dt_engine *e)
{
	pthread_mutex_lock(&e->mu);
	e->draining = true;
	pthread_mutex_unlock(&e->mu);
}

int dt_engine_wait_idle(struct dt_engine *e, double seconds)
{
	struct timespec t;
	int n;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += (time_t)seconds;
	t.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&e->mu);
	while (e->inflight > 0 && pthread_cond_timedwait(&e->idle, &e->mu, &t) == 0)
		continue;
	n = e->inflight;
	pthread_mutex_unlock(&e->mu);
	return n;
}

enum dt_engine_state dt_engine_state(struct dt_engine *e)
{
	enum dt_engine_state s = DT_ENGINE_READY;

	pthread_mutex_lock(&e->mu);
	if (e->busy_since > 0 && dt_now() - e->busy_since > e->p.stuck_after)
		s = DT_ENGINE_STUCK;
	else if (e->draining)
		s = DT_ENGINE_DRAINING;
	pthread_mutex_unlock(&e->mu);
	return s;
}
