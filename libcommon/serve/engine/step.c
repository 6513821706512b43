#include "base/progress.h"
#include "serve/engine/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool dt_engine_wanted(const struct dt_sched_item *it, int row, bool draft)
{
	if (draft)
		return it->seq->draft > 0 && row == it->first + it->n - 1;
	return dt_seq_scored(it->seq, row) || row >= it->seq->known - 1;
}

/*
 * Fills e->step->batch from the items. draft: for the draft model. A module for a further token reads each
 * token with the hidden state one position before, where its row is in its cache too.
 */
void dt_engine_build(struct dt_engine *e, const struct dt_sched_item *items, int n, bool draft)
{
	struct dt_infer_batch *b = &e->step->batch;
	const int back = draft && e->p.follows;
	int t = 0;

	b->hidden = draft ? NULL : e->out.hidden;
	b->given = draft ? e->out.given : NULL;
	b->nseq = n;
	b->nwant = 0;
	b->adapter = NULL;
	b->pool = NULL;
	b->nseen = 0;
	b->draw = NULL;
	b->max_blocks = 1;
	for (int i = 0; i < n; i++)
		if (items[i].seq->blocks.n > b->max_blocks)
			b->max_blocks = items[i].seq->blocks.n;
	for (int i = 0; i < n; i++) {
		const struct dt_sched_item *it = &items[i];
		const struct dt_serve_req *r = dt_serve_req_of(it->seq);
		int32_t *row = e->step->table + (size_t)i * (size_t)b->max_blocks;

		e->step->q_start[i] = t;
		if (r->call->images && !draft)
			dt_engine_put_rows(e, it, t);
		e->step->kv_len[i] = it->first + it->n - back;
		e->step->state[i] = it->seq->place;
		e->step->replica[i] = it->seq->replica;
		e->step->pool_to[i] = draft ? NULL : r->pooled;
		if (e->step->pool_to[i])
			b->pool = e->step->pool_to;
		e->step->adapter[i] = r->call->adapter ? r->call->adapter->in : NULL;
		if (e->step->adapter[i] && !draft) /* the draft model has no adapters */
			b->adapter = e->step->adapter;
		memcpy(row, it->seq->blocks.b, (size_t)it->seq->blocks.n * sizeof(*row));
		for (int k = it->seq->blocks.n; k < b->max_blocks; k++)
			row[k] = 0;
		for (int at = it->first; at < it->first + it->n; at++, t++) {
			e->step->ids[t] = r->tokens[at];
			e->step->pos[t] = at - back;
			if (e->step->types)
				e->step->types[t] = r->second > 0 && at >= r->second;
			e->step->slot[t] = dt_kvpool_slot(e->pool, &it->seq->blocks, at - back);
			if (dt_engine_wanted(it, at, draft))
				e->step->want[b->nwant++] = t;
		}
	}
	e->step->q_start[n] = t;
	b->ntokens = t;
}

static uint64_t adapter_of(const struct dt_serve_req *r)
{
	return r->call->adapter ? r->call->adapter->number : 0;
}

static bool has_whole(const struct dt_serve_req *r)
{
	return r->call->adapter && dt_infer_adapter_has_whole(r->call->adapter->in);
}

/*
 * Sort order: rows whose adapter replaces whole tensors come last, so that all others use the base's tensors
 * in one product.
 */
static int by_adapter(const void *x, const void *y)
{
	const struct dt_serve_req *a = dt_serve_req_of(((const struct dt_sched_item *)x)->seq),
				  *b = dt_serve_req_of(((const struct dt_sched_item *)y)->seq);
	const uint64_t i = adapter_of(a), k = adapter_of(b);

	if (a->seq.replica != b->seq.replica) /* replicas are in ascending order in a batch */
		return a->seq.replica < b->seq.replica ? -1 : 1;
	if (has_whole(a) != has_whole(b))
		return has_whole(b) ? -1 : 1;
	return i < k ? -1 : i > k ? 1 : a->number < b->number ? -1 : a->number > b->number;
}

/* Groups the sequences of each adapter within a replica; keeps the order if there are no adapters. */
static void sort_adapters(struct dt_sched_item *items, int n)
{
	for (int i = 0; i < n; i++)
		if (adapter_of(dt_serve_req_of(items[i].seq))) {
			qsort(items, (size_t)n, sizeof(*items), by_adapter);
			return;
		}
}

/* Sets the draft tokens (or their number) of every sequence that decodes. */
static void guess(struct dt_engine *e)
{
	struct dt_seq *q;

	if (e->p.draft == 0 || e->sched.nrunning == 0 || !dt_spec_on(&e->spec, e->sched.nrunning))
		return;
	TAILQ_FOREACH (q, &e->sched.running, in_list) {
		struct dt_serve_req *r = dt_serve_req_of(q);
		int most = r->max_tokens - r->nout - 1;

		if (q->held || q->known - q->computed != 1)
			continue;
		most = most < e->p.draft ? most : e->p.draft;
		if (most > 0 && e->p.follows)
			q->draft = most < r->ahead ? most : r->ahead;
		else if (most > 0)
			q->draft = e->p.drafter.m
					   ? most
					   : dt_spec_lookup(r->tokens, q->known, most, r->tokens + q->known);
	}
}

static void drop_guesses(struct dt_sched_item *it)
{
	it->n -= it->seq->draft;
	it->seq->draft = 0;
}

/* Whether every item is a decode; *ret_guessed: draft tokens. */
static bool is_decode(const struct dt_sched_item *items, int n, int *ret_guessed)
{
	*ret_guessed = 0;
	for (int i = 0; i < n; i++) {
		if (items[i].seq->known - items[i].first != 1)
			return false;
		*ret_guessed += items[i].seq->draft;
	}
	return true;
}

/* Copies blocks that sequences shared so far and that one of them will write. */
static int copy_blocks(struct dt_engine *e, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < e->sched.ncopy && rc == 0; i++) {
		const struct dt_block_copy *c = &e->sched.copy[i];

		rc = e->p.model.copy_block(e->p.model.m, c->replica, c->from, c->to);
		if (rc == 0 && e->p.drafter.m)
			rc = e->p.drafter.copy_block(e->p.drafter.m, c->replica, c->from, c->to);
	}
	return rc < 0 ? dt_err_sys(err, rc, "cannot copy a block of the cache") : 0;
}

/* Handles a failed computation of the step. */
static void fail(struct dt_engine *e, const struct dt_err *err)
{
	const struct dt_engine_buffers *f = e->step;

	if (e->p.model.beat)
		dt_engine_fail(e, err);
	else
		for (int i = 0; i < f->n; i++)
			dt_engine_retire_error(e, dt_serve_req_of(f->items[i].seq), err);
}

/* Out of memory for a block table: ends everything in flight. */
static void cannot_plan(struct dt_engine *e, int rc)
{
	struct dt_err err;

	dt_engine_settle(e);
	dt_err_sys(&err, rc, "cannot plan a step");
	while (!TAILQ_EMPTY(&e->live))
		dt_engine_retire_error(e, TAILQ_FIRST(&e->live), &err);
}

/* Prepares the batch of the planned items; with pipeline stages also starts its computation. */
static int launch(struct dt_engine *e, struct dt_err *err)
{
	struct dt_engine_buffers *f = e->step;
	int rc = copy_blocks(e, err);

	if (e->p.drafter.m && !e->p.follows && rc == 0 && dt_engine_draft(e, f->n) < 0)
		for (int i = 0; i < f->n; i++)
			drop_guesses(&f->items[i]); /* continue without draft tokens */
	if (e->p.model.see && rc == 0)
		rc = dt_engine_see(e, f->items, f->n, err);
	if (rc < 0)
		return rc;
	dt_engine_build(e, f->items, f->n, false);
	f->decode = is_decode(f->items, f->n, &f->guessed);
	dt_metrics_step(&e->metrics, &e->sched, f->batch.ntokens);
	if (rc == 0 && e->depth > 1) {
		rc = e->p.model.begin(e->p.model.m, &f->batch, err);
		e->told = dt_now();
	}
	return rc;
}

/* Plans a step and puts it in flight; false: there is none. */
static bool begin(struct dt_engine *e)
{
	struct dt_engine_buffers *f = &e->flight[(e->oldest + e->nflight) % e->depth];
	struct dt_err err = {0};

	e->step = f;
	guess(e);
	dt_schedtrace_state(e->p.trace, &e->sched);
	f->n = dt_sched_step(&e->sched, f->items);
	if (f->n >= 0)
		dt_schedtrace_plan(e->p.trace, &e->sched, f->items, f->n);
	if (f->n == 0 && e->nflight > 0)
		return false;
	if (f->n == 0 && e->constrained > 0) {
		e->stalled = true;
		return false;
	}
	if (f->n <= 0) {
		cannot_plan(e, f->n < 0 ? f->n : -EPROTO);
		return false;
	}
	e->steps++;
	f->began = dt_now();
	sort_adapters(f->items, f->n);
	for (int i = 0; i < f->n; i++) {
		struct dt_serve_req *r = dt_serve_req_of(f->items[i].seq);

		if (r->t_start == 0)
			dt_serve_req_start(r, f->began);
	}
	if (launch(e, &err) < 0) {
		fail(e, &err);
		return false;
	}
	e->nflight++;
	return true;
}

static int compute(struct dt_engine *e, struct dt_err *err)
{
	struct dt_engine_buffers *f = e->step;
	struct dt_engine_model *m = &e->p.model;
	int rc = dt_engine_plan_draws(e, f->items, f->n, false);

	if (rc < 0)
		return dt_err_sys(err, rc, "cannot plan a step");
	rc = e->depth > 1 ? m->take(m->m, &f->batch, e->out.logits, err)
			  : m->forward(m->m, &f->batch, e->out.logits, err);
	e->told = dt_now();
	if (m->weights_read) {
		struct dt_weights_read read;

		m->weights_read(m->m, &read);
		dt_metrics_weights(&e->metrics, &read);
	}
	if (rc == 0 && f->batch.draw)
		dt_metrics_drawn(&e->metrics);
	return rc;
}

/* Hands out the tokens of the step, and lets a module that follows the model draft those of the next one. */
static int take(struct dt_engine *e)
{
	const struct dt_engine_buffers *f = e->step;
	int given;

	if (!e->p.follows)
		return dt_engine_take(e, f->items, f->n);
	for (int i = 0; i < f->n; i++) /* ending a request may free its call */
		dt_call_ref(dt_serve_req_of(f->items[i].seq)->call);
	given = dt_engine_take(e, f->items, f->n);
	dt_teller_go(&e->teller); /* answers do not wait for the drafts */
	dt_engine_follow(e);
	for (int i = 0; i < f->n; i++)
		dt_call_drop(dt_serve_req_of(f->items[i].seq)->call);
	return given;
}

/* Finishes the oldest step in flight and hands out its tokens. */
static void end(struct dt_engine *e)
{
	struct dt_engine_buffers *f = e->step = &e->flight[e->oldest];
	const double since = f->began > e->ended ? f->began : e->ended;
	const int tokens = f->batch.ntokens;
	struct dt_err err = {0};
	int given = 0, rc;

	e->oldest = (e->oldest + 1) % e->depth;
	e->nflight--;
	for (int i = 0; i < f->n; i++)
		f->items[i].seq->busy = false;
	rc = compute(e, &err);
	if (rc == 0)
		given = take(e);
	else /* before waking waiters: a client with the error may ask for the state at once */
		fail(e, &err);
	dt_teller_go(&e->teller);
	e->ended = dt_now();
	if (f->decode && rc == 0)
		dt_spec_measured(&e->spec, f->n, f->guessed > 0, given, e->ended - f->began);
	if (rc == 0 && tokens >= e->pool->block_size + f->n) /* mostly prompts */
		dt_engine_beyond_measured(e, tokens, e->ended - since);
}

void dt_engine_step(struct dt_engine *e)
{
	const bool began = e->nflight < e->depth && begin(e);

	if (e->nflight > 0 && (!began || e->nflight == e->depth))
		end(e);
}

void dt_engine_settle(struct dt_engine *e)
{
	while (e->nflight > 0)
		end(e);
}
/* SPDX-License-Identifier: Apache-2.0 */
