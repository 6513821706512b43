#include "base/progress.h"
#include "serve/engine/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool dt_engine_wanted(const struct dt_sched_item *it, int row, bool draft)
{
	if (draft)
		return it->seq->draft > 0 && row == it->first + it->n - 1;
	return row < it->seq->score_end || row >= it->seq->known - 1;
}

/* Puts the items into e->step.batch. draft: for the model that guesses. */
int dt_engine_build(struct dt_engine *e, const struct dt_sched_item *items, int n, bool draft)
{
	struct dt_infer_batch *b = &e->step.batch;
	int t = 0;

	b->nseq = n;
	b->nwant = 0;
	b->adapter = NULL;
	b->max_blocks = 1;
	for (int i = 0; i < n; i++)
		if (items[i].seq->blocks.n > b->max_blocks)
			b->max_blocks = items[i].seq->blocks.n;
	for (int i = 0; i < n; i++) {
		const struct dt_sched_item *it = &items[i];
		const struct dt_serve_req *r = dt_serve_req_of(it->seq);
		int32_t *row = e->step.table + (size_t)i * (size_t)b->max_blocks;

		e->step.q_start[i] = t;
		e->step.kv_len[i] = it->first + it->n;
		e->step.replica[i] = it->seq->replica;
		e->step.pool_to[i] = draft ? NULL : r->pooled;
		e->step.adapter[i] = r->call->adapter ? r->call->adapter->in : NULL;
		if (e->step.adapter[i] && !draft) /* whoever guesses has the base alone */
			b->adapter = e->step.adapter;
		memcpy(row, it->seq->blocks.b, (size_t)it->seq->blocks.n * sizeof(*row));
		for (int k = it->seq->blocks.n; k < b->max_blocks; k++)
			row[k] = 0;
		for (int at = it->first; at < it->first + it->n; at++, t++) {
			e->step.ids[t] = r->tokens[at];
			e->step.pos[t] = at;
			e->step.slot[t] = dt_kvpool_slot(e->pool, &it->seq->blocks, at);
			if (dt_engine_wanted(it, at, draft))
				e->step.want[b->nwant++] = t;
		}
	}
	e->step.q_start[n] = t;
	b->ntokens = t;
	return dt_engine_plan_draws(e, items, n, draft);
}

static uint64_t adapter_of(const struct dt_serve_req *r)
{
	return r->call->adapter ? r->call->adapter->number : 0;
}

static int by_adapter(const void *x, const void *y)
{
	const struct dt_serve_req *a = dt_serve_req_of(((const struct dt_sched_item *)x)->seq),
				  *b = dt_serve_req_of(((const struct dt_sched_item *)y)->seq);
	const uint64_t i = adapter_of(a), k = adapter_of(b);

	if (a->seq.replica != b->seq.replica) /* which ascend in a batch */
		return a->seq.replica < b->seq.replica ? -1 : 1;
	return i < k ? -1 : i > k ? 1 : a->number < b->number ? -1 : a->number > b->number;
}

/* Within a replica, sequences of one adapter next to each other; where there is none the order stays. */
static void sort_adapters(struct dt_sched_item *items, int n)
{
	for (int i = 0; i < n; i++)
		if (adapter_of(dt_serve_req_of(items[i].seq))) {
			qsort(items, (size_t)n, sizeof(*items), by_adapter);
			return;
		}
}

/* Guesses for every sequence that decodes; whether there are any to be made. */
static void guess(struct dt_engine *e)
{
	struct dt_seq *q;

	if (e->p.draft == 0 || e->sched.nrunning == 0 || !dt_spec_on(&e->spec, e->sched.nrunning))
		return;
	TAILQ_FOREACH (q, &e->sched.running, in_list) {
		struct dt_serve_req *r = dt_serve_req_of(q);
		int most = r->max_tokens - r->nout - 1;

		if (q->known - q->computed != 1)
			continue;
		most = most < e->p.draft ? most : e->p.draft;
		if (most > 0)
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

/* Every item decodes; *ret_guessed: tokens guessed. */
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

/* What sequences shared so far and one of them will write. */
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

void dt_engine_step(struct dt_engine *e)
{
	int n, rc, guessed, given = 0;
	struct dt_err err = {0};
	double now = dt_now();
	bool decode;

	e->steps++;
	guess(e);
	dt_schedtrace_state(e->p.trace, &e->sched);
	n = dt_sched_step(&e->sched, e->step.items);
	if (n > 0)
		dt_schedtrace_plan(e->p.trace, &e->sched, e->step.items, n);
	if (n <= 0) { /* out of memory for a block table: everything in flight ends, nothing is half done */
		dt_err_sys(&err, n < 0 ? n : -EPROTO, "cannot plan a step");
		while (!TAILQ_EMPTY(&e->live))
			dt_engine_retire_error(e, TAILQ_FIRST(&e->live), &err);
		return;
	}
	sort_adapters(e->step.items, n);
	for (int i = 0; i < n; i++) {
		struct dt_serve_req *r = dt_serve_req_of(e->step.items[i].seq);

		if (r->t_start == 0)
			r->t_start = now;
	}
	rc = copy_blocks(e, &err);
	if (e->p.drafter.m && rc == 0 && dt_engine_draft(e, n) < 0) /* guesses are not needed */
		for (int i = 0; i < n; i++)
			drop_guesses(&e->step.items[i]);
	if (rc == 0 && (rc = dt_engine_build(e, e->step.items, n, false)) < 0)
		dt_err_sys(&err, rc, "cannot plan a step");
	decode = is_decode(e->step.items, n, &guessed);
	dt_metrics_step(&e->metrics, &e->sched, e->step.batch.ntokens);
	if (rc == 0)
		rc = e->p.model.forward(e->p.model.m, &e->step.batch, e->step.logits, &err);
	e->told = dt_now();
	if (e->p.model.weights_read) {
		struct dt_weights_read read;

		e->p.model.weights_read(e->p.model.m, &read);
		dt_metrics_weights(&e->metrics, &read);
	}
	if (rc == 0 && e->step.batch.draw)
		dt_metrics_drawn(&e->metrics);
	if (rc == 0)
		given = dt_engine_take(e, e->step.items, n);
	if (rc < 0 && e->p.model.beat) /* failed first: who has the error may ask for the state at once */
		dt_engine_fail(e, &err);
	else
		for (int i = 0; i < n && rc < 0; i++)
			dt_engine_retire_error(e, dt_serve_req_of(e->step.items[i].seq), &err);
	dt_teller_go(&e->teller);
	if (decode && rc == 0)
		dt_spec_measured(&e->spec, n, guessed > 0, given, dt_now() - now);
	if (rc == 0 && e->step.batch.ntokens >= e->pool->block_size + n) /* mostly prompts */
		dt_engine_beyond_measured(e, e->step.batch.ntokens, dt_now() - now);
}
/* SPDX-License-Identifier: Apache-2.0 */
