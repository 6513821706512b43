#include "serve/engine.h"

#include "base/progress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct req_list {
	struct dt_req *head, *tail;
};

struct dt_engine {
	struct dt_engine_params p;
	struct dt_metrics metrics;
	pthread_t thread;

	pthread_mutex_t mu;
	pthread_cond_t work; /* for the engine: something was submitted or cancelled */
	pthread_cond_t idle; /* for dt_engine_wait_idle, on CLOCK_MONOTONIC */
	struct req_list inbox;
	int inflight;
	bool draining, stop;
	double busy_since; /* dt_now() when the step in progress began, 0: none */

	/* the engine thread's own */
	struct dt_kvpool pool;
	struct dt_sched sched;
	struct req_list live; /* taken from the inbox, in order of arrival */
	struct dt_sampler sampler;
	struct dt_sched_item *items;
	struct dt_infer_batch batch;
	int32_t *ids, *pos, *q_start, *kv_len, *table, *want;
	int64_t *slot;
	float *logits;
	struct dt_logprob *top;
};

static void list_push(struct req_list *l, struct dt_req *r)
{
	r->next = NULL;
	r->prev = l->tail;
	*(l->tail ? &l->tail->next : &l->head) = r;
	l->tail = r;
}

static void list_remove(struct req_list *l, struct dt_req *r)
{
	*(r->prev ? &r->prev->next : &l->head) = r->next;
	*(r->next ? &r->next->prev : &l->tail) = r->prev;
}

static struct dt_req *req_of(struct dt_seq *seq)
{
	return (struct dt_req *)((char *)seq - offsetof(struct dt_req, seq));
}

/* Ends a request for its caller and for the engine. The call may be gone afterwards. */
static void retire(struct dt_engine *e, struct dt_req *r, enum dt_finish why)
{
	struct dt_call *c = r->call;

	dt_sched_remove(&e->sched, &r->seq);
	list_remove(&e->live, r);
	/* The counters, then the place in the queue, then the news: who hears of the end finds both. */
	dt_metrics_finish(&e->metrics, r, why, dt_now());
	dt_metrics_step(&e->metrics, &e->sched, 0);
	pthread_mutex_lock(&e->mu);
	if (--e->inflight == 0)
		pthread_cond_broadcast(&e->idle);
	pthread_mutex_unlock(&e->mu);
	pthread_mutex_lock(&c->mu);
	dt_detok_finish(&r->detok);
	r->finish = why;
	c->open--;
	pthread_cond_broadcast(&c->cond);
	pthread_mutex_unlock(&c->mu);
	dt_call_drop(c);
}

static void retire_error(struct dt_engine *e, struct dt_req *r, const struct dt_err *err)
{
	pthread_mutex_lock(&r->call->mu);
	r->err = *err;
	pthread_mutex_unlock(&r->call->mu);
	retire(e, r, DT_FINISH_ERROR);
}

static void drop_cancelled(struct dt_engine *e)
{
	double now = dt_now();
	struct dt_req *next;

	for (struct dt_req *r = e->live.head; r; r = next) {
		next = r->next;
		if (atomic_load(&r->call->cancelled))
			retire(e, r, DT_FINISH_ABORT);
		else if (r->call->deadline > 0 && now > r->call->deadline)
			retire(e, r, DT_FINISH_TIMEOUT);
	}
}

/* Rows of an item whose logits are wanted: the prompt's when it is scored, and the last known token's. */
static bool wanted(const struct dt_sched_item *it, int row)
{
	return row < it->seq->score_end || row == it->seq->known - 1;
}

static void build_batch(struct dt_engine *e, int n)
{
	struct dt_infer_batch *b = &e->batch;
	int t = 0;

	b->nseq = n;
	b->nwant = 0;
	b->max_blocks = 1;
	for (int i = 0; i < n; i++)
		if (e->items[i].seq->blocks.n > b->max_blocks)
			b->max_blocks = e->items[i].seq->blocks.n;
	for (int i = 0; i < n; i++) {
		const struct dt_sched_item *it = &e->items[i];
		const struct dt_req *r = req_of(it->seq);
		int32_t *row = e->table + (size_t)i * (size_t)b->max_blocks;

		e->q_start[i] = t;
		e->kv_len[i] = it->first + it->n;
		memcpy(row, it->seq->blocks.b, (size_t)it->seq->blocks.n * sizeof(*row));
		for (int k = it->seq->blocks.n; k < b->max_blocks; k++)
			row[k] = 0;
		for (int at = it->first; at < it->first + it->n; at++, t++) {
			e->ids[t] = r->tokens[at];
			e->pos[t] = at;
			e->slot[t] = dt_kvpool_slot(&e->pool, &it->seq->blocks, at);
			if (wanted(it, at))
				e->want[b->nwant++] = t;
		}
	}
	e->q_start[n] = t;
	b->ntokens = t;
}

static bool is_stop_id(const struct dt_req *r, int32_t id)
{
	for (int i = 0; i < r->nstop_ids; i++)
		if (r->stop_ids[i] == id)
			return true;
	return false;
}

/* Gives r the token id. Call locked. Returns why it ends, NONE, or a negative errno. */
static int take_token(struct dt_req *r, int32_t id, const struct dt_logprob *chosen,
		      const struct dt_logprob *top)
{
	int rc;

	if (r->logprobs >= 0) {
		rc = dt_scores_push(&r->scores, *chosen, top);
		if (rc < 0)
			return rc;
	}
	dt_req_out(r)[r->nout++] = id;
	r->seq.known++;
	if (r->nout > r->min_tokens && is_stop_id(r, id)) {
		r->stop_id = id;
		if (r->include_stop) {
			rc = dt_detok_push(&r->detok, id);
			if (rc < 0)
				return rc;
		}
		return DT_FINISH_STOP;
	}
	rc = dt_detok_push(&r->detok, id);
	if (rc < 0)
		return rc;
	if (rc > 0)
		return DT_FINISH_STOP;
	return r->nout == r->max_tokens ? DT_FINISH_LENGTH : DT_FINISH_NONE;
}

/* Samples the next token of r from its last row and hands it over. */
static void next_token(struct dt_engine *e, struct dt_req *r, float *logits)
{
	struct dt_sampling s = r->sampling;
	struct dt_logprob chosen = {0};
	struct dt_err err = {0};
	double now, gap;
	int32_t id;
	int rc;

	if (r->nout == r->max_tokens) { /* max_tokens 0: only the prompt was asked about */
		retire(e, r, DT_FINISH_LENGTH);
		return;
	}
	if (r->nout < r->min_tokens) {
		s.ban = r->stop_ids;
		s.nban = r->nstop_ids;
	}
	/* The sampler overwrites the logits: the alternatives first, the chosen one's value with them. */
	if (r->logprobs >= 0) {
		float *raw = e->logits + (size_t)e->p.max_seqs * (size_t)e->p.model.vocab;

		memcpy(raw, logits, (size_t)e->p.model.vocab * sizeof(*raw));
		id = dt_sample(&e->sampler, &s, logits, r->tokens, (size_t)r->nprompt, dt_req_out(r),
			       (size_t)r->nout);
		if (id >= 0)
			dt_logprobs(raw, e->p.model.vocab, id, &chosen, r->logprobs, e->top);
	} else {
		id = dt_sample(&e->sampler, &s, logits, r->tokens, (size_t)r->nprompt, dt_req_out(r),
			       (size_t)r->nout);
	}
	if (id < 0) {
		dt_err_set(&err, -EDOM, "the model's output at token %d is not a number", r->seq.known);
		retire_error(e, r, &err);
		return;
	}
	now = dt_now();
	pthread_mutex_lock(&r->call->mu);
	gap = r->nout > 0 ? now - r->t_last : -1;
	if (r->nout == 0)
		r->t_first = now;
	r->t_last = now;
	rc = take_token(r, id, &chosen, e->top);
	if (rc == DT_FINISH_NONE)
		pthread_cond_broadcast(&r->call->cond);
	pthread_mutex_unlock(&r->call->mu);
	dt_metrics_token(&e->metrics, r, gap);
	if (rc < 0) {
		dt_err_sys(&err, rc, "cannot keep token %d", r->seq.known);
		retire_error(e, r, &err);
	} else if (rc != DT_FINISH_NONE) {
		retire(e, r, (enum dt_finish)rc);
	}
}

/* Row `at` of a scored prompt predicts its token at + 1. */
static int score(struct dt_engine *e, struct dt_req *r, int at, const float *logits)
{
	struct dt_logprob chosen;
	int rc = 0;

	if (at + 1 >= r->nprompt || at != r->prompt_scores.n)
		return 0; /* the last row is sampled from; a recomputed row is already there */
	dt_logprobs(logits, e->p.model.vocab, r->tokens[at + 1], &chosen, r->logprobs, e->top);
	pthread_mutex_lock(&r->call->mu);
	rc = dt_scores_push(&r->prompt_scores, chosen, e->top);
	pthread_mutex_unlock(&r->call->mu);
	return rc;
}

static void take_item(struct dt_engine *e, const struct dt_sched_item *it, int *want)
{
	struct dt_req *r = req_of(it->seq);
	int known = it->seq->known, end = it->first + it->n, score_end = it->seq->score_end, rc = 0;
	float *last = NULL;

	for (int at = it->first; at < end; at++) {
		float *row = e->logits + (size_t)*want * (size_t)e->p.model.vocab;

		if (at >= score_end && at != known - 1)
			continue;
		(*want)++;
		if (at < score_end && rc == 0)
			rc = score(e, r, at, row);
		if (at == known - 1)
			last = row;
	}
	it->seq->computed = end;
	if (rc < 0) {
		struct dt_err err;

		dt_err_sys(&err, rc, "cannot score the prompt");
		retire_error(e, r, &err);
	} else if (last) {
		next_token(e, r, last);
	}
}

static void step(struct dt_engine *e)
{
	int n = dt_sched_step(&e->sched, e->items), want = 0, rc;
	struct dt_err err = {0};
	double now = dt_now();

	if (n <= 0) { /* out of memory for a block table: everything in flight ends, nothing is half done */
		dt_err_sys(&err, n < 0 ? n : -EPROTO, "cannot plan a step");
		while (e->live.head)
			retire_error(e, e->live.head, &err);
		return;
	}
	for (int i = 0; i < n; i++) {
		struct dt_req *r = req_of(e->items[i].seq);

		if (r->t_start == 0)
			r->t_start = now;
	}
	build_batch(e, n);
	dt_metrics_step(&e->metrics, &e->sched, e->batch.ntokens);
	rc = e->p.model.forward(e->p.model.m, &e->batch, e->logits, &err);
	for (int i = 0; i < n; i++) {
		if (rc < 0)
			retire_error(e, req_of(e->items[i].seq), &err);
		else
			take_item(e, &e->items[i], &want);
	}
	dt_metrics_step(&e->metrics, &e->sched, 0);
}

/* Moves the inbox to the scheduler. Sizes were checked on submission. */
static void take_inbox(struct dt_engine *e, struct req_list *in)
{
	struct dt_req *next;

	for (struct dt_req *r = in->head; r; r = next) {
		struct dt_err err;

		next = r->next;
		list_push(&e->live, r);
		if (dt_sched_submit(&e->sched, &r->seq, &err) < 0)
			retire_error(e, r, &err);
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
			step(e);
	}
	while (e->live.head)
		retire(e, e->live.head, DT_FINISH_ABORT);
	return NULL;
}

static int alloc_batch(struct dt_engine *e)
{
	const struct dt_engine_params *p = &e->p;
	size_t seqs = (size_t)p->max_seqs, tokens = (size_t)p->max_tokens;
	size_t table = (size_t)dt_kvpool_blocks(&e->pool, p->max_len) * seqs;

	e->items = calloc(seqs, sizeof(*e->items));
	e->ids = calloc(tokens, sizeof(*e->ids));
	e->pos = calloc(tokens, sizeof(*e->pos));
	e->slot = calloc(tokens, sizeof(*e->slot));
	e->q_start = calloc(seqs + 1, sizeof(*e->q_start));
	e->kv_len = calloc(seqs, sizeof(*e->kv_len));
	e->want = calloc(seqs, sizeof(*e->want));
	e->table = calloc(table, sizeof(*e->table));
	e->logits = malloc((seqs + 1) * (size_t)p->model.vocab * sizeof(*e->logits));
	e->top = calloc(DT_LOGPROBS_MAX, sizeof(*e->top));
	if (!e->items || !e->ids || !e->pos || !e->slot || !e->q_start || !e->kv_len || !e->want ||
	    !e->table || !e->logits || !e->top)
		return -ENOMEM;
	e->batch = (struct dt_infer_batch){.ids = e->ids,
					   .pos = e->pos,
					   .slot = e->slot,
					   .q_start = e->q_start,
					   .kv_len = e->kv_len,
					   .block_table = e->table,
					   .want = e->want};
	return dt_sampler_init(&e->sampler, p->model.vocab);
}

static void engine_free(struct dt_engine *e)
{
	free(e->items);
	free(e->ids);
	free(e->pos);
	free(e->slot);
	free(e->q_start);
	free(e->kv_len);
	free(e->want);
	free(e->table);
	free(e->logits);
	free(e->top);
	dt_sampler_release(&e->sampler);
	dt_kvpool_release(&e->pool);
	dt_metrics_release(&e->metrics);
	pthread_cond_destroy(&e->work);
	pthread_cond_destroy(&e->idle);
	pthread_mutex_destroy(&e->mu);
	free(e);
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
	rc = dt_kvpool_init(&e->pool, p->blocks, p->block_size);
	if (rc < 0) {
		dt_err_sys(err, rc, "cannot make a cache of %d blocks of %d tokens", p->blocks,
			   p->block_size);
		goto fail;
	}
	rc = dt_sched_init(&e->sched, &e->pool, p->max_seqs, p->max_tokens, err);
	if (rc < 0)
		goto fail;
	rc = alloc_batch(e);
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

static int check_ids(const struct dt_engine *e, const struct dt_req *r, struct dt_err *err)
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
static int prepare(struct dt_engine *e, struct dt_req *r, struct dt_err *err)
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
	r->seq = (struct dt_seq){.known = r->nprompt};
	r->seq.max_rows = (int)(r->max_tokens > 0 ? len - 1 : len); /* the last token is never computed */
	r->seq.score_end = r->score_prompt ? r->nprompt : 0;
	if (dt_kvpool_blocks(&e->pool, r->seq.max_rows) > e->pool.nblocks)
		return dt_err_set(err, -E2BIG, "%lld tokens do not fit the cache of %d blocks of %d",
				  (long long)len, e->pool.nblocks, e->pool.block_size);
	r->sampling.bias = r->bias;
	r->scores.ntop = r->prompt_scores.ntop = r->logprobs > 0 ? r->logprobs : 0;
	dt_detok_init(&r->detok, e->p.tok, r->stop, r->nstop);
	r->detok.special = r->show_special;
	r->detok.include_stop = r->include_stop;
	return 0;
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
	pthread_mutex_lock(&e->mu);
	if (e->draining) {
		rc = dt_err_set(err, -ESHUTDOWN, "the server is shutting down");
	} else if (e->inflight + c->n > e->p.max_seqs + e->p.queue) {
		rc = dt_err_set(err, -EAGAIN, "the queue is full: %d requests are in flight", e->inflight);
	} else {
		for (int i = 0; i < c->n; i++) {
			dt_call_ref(c);
			list_push(&e->inbox, &c->req[i]);
		}
		e->inflight += c->n;
		pthread_cond_signal(&e->work);
		rc = 0;
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
