/*
 * Speculation with a draft model (Leviathan et al. 2023; Chen et al. 2023). Its KV cache has the same blocks
 * as the model's own, so block tables, sharing and copies apply to both. It computes every token that the
 * model computes. It draws with the request's own parameters and random number: where the two models agree on
 * the probabilities, they draw the same token.
 */
#include "serve/engine/priv.h"

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
	int m = 0;

	for (int i = 0; i < n; i++) {
		struct dt_sched_item *it = &e->step->drafts[i];
		int end = it->first + it->n;

		if (end < it->seq->known + it->seq->draft - 1)
			e->step->drafts[m++] = (struct dt_sched_item){.seq = it->seq, .first = end, .n = 1};
	}
	return m;
}

int dt_engine_draft(struct dt_engine *e, int n)
{
	struct dt_err err;
	int rc = 0, spare = e->p.max_tokens;

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
	while (n > 0 && rc == 0) {
		dt_engine_build(e, e->step->drafts, n, true);
		rc = dt_engine_plan_draws(e, e->step->drafts, n, true);
		if (rc == 0)
			rc = e->p.drafter.forward(e->p.drafter.m, &e->step->batch, e->out.logits, &err);
		if (rc == 0)
			rc = draw(e, n);
		n = rc < 0 ? 0 : go_on(e, n);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
