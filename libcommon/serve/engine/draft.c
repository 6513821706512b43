/*
 * Speculation with a draft model (Leviathan et al. 2023; Chen et al. 2023). Its KV cache has the same blocks
 * as the model's own, so block tables, sharing and copies apply to both. It computes every token that the
 * model computes. It draws with the request's own parameters and random number: where the two models agree on
 * the probabilities, they draw the same token.
 *
 * Or speculation with the model's own module for a further token (DeepSeek-V3, 2024, section 2.2;
 * model/block/mtp.c), whose cache has the same blocks too. It runs behind the model, on the rows of the same
 * step: the row of token i at position i - 1 reads the final hidden state of position i - 1, and drafts token
 * i + 1. Beyond the known tokens it reads its own hidden states. Items of the module are in terms of the
 * tokens that it reads.
 */
#include "serve/engine/priv.h"

#include <string.h>

/* Draws the next draft token of each item of e->step->drafts from the logits just computed. */
static int draw(struct dt_engine *e, int n)
{
	size_t vocab = (size_t)e->p.model.vocab;
	int want = 0;

	for (int i = 0; i < n; i++) {
		struct dt_sched_item *it = &e->step->drafts[i];
		struct dt_serve_req *r = dt_serve_req_of(it->seq);
		int end = it->first + it->n;
		struct dt_sampling s = dt_serve_req_sampling(r);
		double mu = r->mu; /* a draft token that is rejected leaves no trace */
		int32_t id;

		r->drafted = end;
		if (it->seq->draft == 0)
			continue;
		s.mu = &mu;
		id = e->step->batch.draw
			     ? e->out.drawn[want].id
			     : dt_sample(&e->sampler, &s, e->out.logits + (size_t)want * vocab, r->tokens,
					 (size_t)r->nprompt, dt_serve_req_out(r), (size_t)(end - r->nprompt));
		want++;
		if (id < 0)
			return id;
		r->tokens[end] = id;
	}
	return 0;
}

/* Moves the items that need another draft token to the front; returns their number. */
static int go_on(struct dt_engine *e, int n)
{
	const size_t row = e->p.follows;
	int m = 0;

	for (int i = 0; i < n; i++) {
		struct dt_sched_item *it = &e->step->drafts[i];
		int end = it->first + it->n;

		if (end >= it->seq->known + it->seq->draft - 1)
			continue;
		if (row)
			memcpy(e->out.given + (size_t)m * row,
			       e->out.hidden + (size_t)(e->step->q_start[i + 1] - 1) * row, row);
		e->step->drafts[m++] = (struct dt_sched_item){.seq = it->seq, .first = end, .n = 1};
	}
	return m;
}

/* Computes the n items of e->step->drafts, and further ones until all have their draft tokens. */
static int rounds(struct dt_engine *e, int n)
{
	struct dt_err err;
	int rc = 0;

	while (n > 0 && rc == 0) {
		dt_engine_build(e, e->step->drafts, n, true);
		if (e->p.draft > 1)
			e->step->batch.hidden = e->out.hidden;
		rc = dt_engine_plan_draws(e, e->step->drafts, n, true);
		if (rc == 0)
			rc = e->p.drafter.forward(e->p.drafter.m, &e->step->batch, e->out.logits, &err);
		if (rc == 0)
			rc = draw(e, n);
		n = rc < 0 ? 0 : go_on(e, n);
	}
	return rc;
}

int dt_engine_draft(struct dt_engine *e, int n)
{
	int spare = e->p.max_tokens;

	for (int i = 0; i < n; i++)
		spare -= e->step->items[i].n - e->step->items[i].seq->draft;
	for (int i = 0; i < n; i++) {
		struct dt_sched_item it = e->step->items[i];
		int behind = it.first - dt_serve_req_of(it.seq)->drafted;

		it.n -= it.seq->draft;
		/*
		 * When all draft tokens were accepted, the draft model has not computed the last one; it does
		 * so here. Tokens of a shared prefix may be missing in its cache too: that only costs
		 * accepted draft tokens.
		 */
		if (behind > 0 && behind <= it.first && behind <= spare && behind <= e->p.draft) {
			it.first -= behind;
			it.n += behind;
			spare -= behind;
		}
		e->step->drafts[i] = it;
	}
	return rounds(e, n);
}

/*
 * Draft tokens that r may get: none while its next token is not known or its grammar waits; rows beyond the
 * known tokens need a place in its blocks.
 */
static int allowed(const struct dt_engine *e, const struct dt_serve_req *r)
{
	const struct dt_seq *q = &r->seq;
	const int most = r->max_tokens - r->nout - 1, n = most < e->p.draft ? most : e->p.draft,
		  room = q->blocks.n * e->pool->block_size - q->known + 2;

	return q->held || q->known - q->computed != 1 || n <= 0 ? 0 : n < room ? n : room;
}

void dt_engine_follow(struct dt_engine *e)
{
	const struct dt_engine_buffers *f = e->step;
	const bool on = e->sched.nrunning > 0 && dt_spec_on(&e->spec, e->sched.nrunning);
	const size_t row = e->p.follows;
	size_t t = 0;
	int n = 0, rc;

	for (int i = 0; i < f->n; i++) {
		const struct dt_sched_item *it = &f->items[i];
		struct dt_serve_req *r = dt_serve_req_of(it->seq);
		const int known = it->seq->known - 1, computed = it->seq->computed,
			  rows = (computed < known ? computed : known) - it->first;

		if (it->seq->state != DT_SEQ_RUNNING || r->pooled || rows <= 0)
			continue;
		it->seq->draft = on ? allowed(e, r) : 0;
		memcpy(e->out.given + t * row, e->out.hidden + (size_t)f->q_start[i] * row,
		       (size_t)rows * row);
		t += (size_t)rows;
		f->drafts[n++] = (struct dt_sched_item){.seq = it->seq, .first = it->first + 1, .n = rows};
	}
	rc = rounds(e, n);
	for (int i = 0; i < f->n; i++) {
		struct dt_seq *q = f->items[i].seq;

		dt_serve_req_of(q)->ahead = rc < 0 ? 0 : q->draft; /* without any, the next step goes on */
		q->draft = 0;
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
