/*
 * When every row of a step allows it, tokens are drawn where the model is computed, and returned in place of
 * logits. Rows of draft tokens are drawn as if all draft tokens before them were accepted; rows behind a
 * rejected one are ignored.
 */
#include "serve/engine/priv.h"

/* Whether the host needs the logits of the item's rows, not only one drawn token a row. */
static bool wants_logits(const struct dt_sched_item *it)
{
	const struct dt_serve_req *r = dt_serve_req_of(it->seq);

	if (it->first < it->seq->score_end && it->first + it->n > it->seq->score_first)
		return true;
	if (it->first + it->n < it->seq->known)
		return false;
	for (int i = 0; r->nout == 0 && i < r->call->n; i++)
		if (r->call->req[i].seq.leader == &r->seq) /* other choices start from the same logits */
			return true;
	return r->ask->logprobs > 0 || r->matcher || dt_sampling_own(&r->ask->sampling);
}

/* Sampling parameters of row `at`; min_tokens does not apply to the draft model. */
static int draw_of(struct dt_engine *e, const struct dt_serve_req *r, int at, bool draft, struct dt_draw *ret)
{
	struct dt_sampling s = dt_serve_req_sampling(r);
	int nout = at + 1 > r->nprompt ? at + 1 - r->nprompt : 0; /* a prompt may end before its last token */

	if (!draft && nout < r->ask->min_tokens) {
		s.ban = r->ask->stop_ids;
		s.nban = r->ask->nstop_ids;
	}
	return dt_sampling_draw(&e->sampler, &s, r->tokens, (size_t)r->nprompt, dt_serve_req_out(r),
				(size_t)nout, ret);
}

int dt_engine_plan_draws(struct dt_engine *e, const struct dt_sched_item *items, int n, bool draft)
{
	int want = 0, rc = 0;

	e->step->batch.draw = NULL;
	e->sampler.nedits = 0;
	if (!(draft ? e->p.drafter.draws : e->p.model.draws))
		return 0;
	for (int i = 0; i < n && !draft; i++)
		if (wants_logits(&items[i]))
			return 0;
	for (int i = 0; i < n; i++) {
		const struct dt_sched_item *it = &items[i];
		const struct dt_serve_req *r = dt_serve_req_of(it->seq);

		for (int at = it->first; at < it->first + it->n; at++) {
			if (!dt_engine_wanted(it, at, draft))
				continue;
			rc = draw_of(e, r, at, draft, &e->out.draw[want]);
			if (rc < 0)
				return rc;
			e->out.draw[want++].score = !draft && r->ask->logprobs == 0;
		}
	}
	if (want == 0)
		return 0;
	e->step->batch.draw = e->out.draw;
	e->step->batch.edit = e->sampler.edit;
	e->step->batch.nedits = e->sampler.nedits;
	e->step->batch.drawn = e->out.drawn;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
