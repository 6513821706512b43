/* Simulates the scheduler over the requests; step times come from the program's nodes. */
#include "serve/capacity/plan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct pace {
	const struct dt_serve_servers *s;
	struct dt_serve_span *span; /* [max_seqs] */
};

static int step_times(void *arg, bool prefill, const struct dt_sched_item *items, int n, struct dt_flow *ret,
		      struct dt_err *err)
{
	struct pace *p = arg;

	for (int i = 0; i < n; i++)
		p->span[i] = (struct dt_serve_span){items[i].first, items[i].n};
	return dt_serve_clock_pass(prefill ? p->s->prompts : p->s->clock, p->span, n, ret, err);
}

static double move_seconds(void *arg, int n)
{
	const struct pace *p = arg;

	return dt_serve_clock_move(p->s->clock, n);
}

int dt_serve_trial(const struct dt_serve_query *q, const struct dt_serve_plan *p,
		   const struct dt_serve_servers *s, struct dt_sim_report *ret, struct dt_err *err)
{
	struct pace pace = {.s = s};
	const struct dt_sim_params sim = {.servers = s->n,
					  .prefill = s->prefill,
					  .prefill_min = DT_SERVE_PREFILL_MIN,
					  .max_seqs = (int)p->sequences,
					  .max_tokens = (int)q->max_tokens,
					  .nblocks = (int)p->blocks,
					  .block_size = DT_SERVE_BLOCK,
					  .stages = p->pp,
					  .ttft_s = s->within * q->ttft_s,
					  .tpot_s = s->within * q->tpot_s,
					  .step_s = step_times,
					  .move_s = move_seconds,
					  .arg = &pace};
	struct dt_sim_answer *answer = calloc((size_t)q->nask + 1, sizeof(*answer));
	int rc;

	pace.span = calloc((size_t)p->sequences, sizeof(*pace.span));
	if (answer && pace.span)
		rc = dt_simulate(&sim, q->ask, q->nask, answer, ret, err);
	else
		rc = dt_err_sys(err, -ENOMEM, "cannot plan a server");
	free(pace.span);
	free(answer);
	return rc;
}

bool dt_serve_meets(const struct dt_serve_query *q, const struct dt_sim_report *r)
{
	return r->refused == 0 && r->ttft_p99 <= q->ttft_s && r->tpot_p99 <= q->tpot_s;
}

/* whole: also if the limits are not kept; else that may be all that is known then. */
static int trial_of_replicas(const struct dt_serve_query *q, struct dt_serve_plan *p, bool whole,
			     struct dt_serve_clock *clock, struct dt_err *err)
{
	const struct dt_serve_servers s = {.n = p->replicas, .clock = clock, .within = whole ? 0 : 1};

	return dt_serve_trial(q, p, &s, &p->sim, err);
}

/* Tries n replicas; *enough or *too_few becomes n, and *good the report of the former. */
static int bound(const struct dt_serve_query *q, struct dt_serve_plan *p, int n, bool whole,
		 struct dt_serve_clock *clock, int *too_few, int *enough, struct dt_sim_report *good,
		 struct dt_err *err)
{
	int rc;

	p->replicas = n;
	rc = trial_of_replicas(q, p, whole, clock, err);
	if (rc == 0 && dt_serve_meets(q, &p->sim)) {
		*enough = n;
		*good = p->sim;
	} else {
		*too_few = n;
	}
	return rc;
}

int dt_serve_search(const struct dt_serve_query *q, struct dt_serve_plan *p, int most,
		    struct dt_serve_clock *clock, struct dt_err *err)
{
	struct dt_sim_report good = {0};
	int too_few = 0, enough = 0;
	int rc = bound(q, p, p->replicas, p->replicas >= most, clock, &too_few, &enough, &good, err);

	if (rc == 0 && p->sim.stopped && p->sim.refused > 0)
		rc = trial_of_replicas(q, p, true, clock, err);
	if (rc < 0 || p->sim.refused > 0)
		return rc;
	while (enough > p->ep && !too_few && rc == 0) /* prompts of one step take less time than alone */
		rc = bound(q, p, dt_serve_replicas(p, enough / 2), false, clock, &too_few, &enough, &good,
			   err);
	while (too_few < most && !enough && rc == 0) {
		int n = dt_serve_replicas(p, too_few + (too_few + 3) / 4);

		n = n < most ? n : most;
		rc = bound(q, p, n, n == most, clock, &too_few, &enough, &good, err);
	}
	if (!enough)
		return rc;
	while (rc == 0 && enough - too_few > p->ep)
		rc = bound(q, p, (too_few + enough) / 2 / p->ep * p->ep, false, clock, &too_few, &enough,
			   &good, err);
	p->replicas = enough;
	p->sim = good;
	return rc;
}

/* The larger ratio of a latency to its limit. */
static double distance(const struct dt_serve_query *q, const struct dt_sim_report *r)
{
	return fmax(r->ttft_p99 / q->ttft_s, r->tpot_p99 / q->tpot_s);
}

/*
 * Search for the best split: some prefill servers of cp ranks each; the rest of n devices of equal size
 * decodes.
 */
struct split {
	const struct dt_serve_query *q;
	struct dt_serve_plan *p;
	struct dt_serve_clock *clock, *prompts;
	struct dt_serve_apart best; /* prefill 0: none so far */
	int n, cp;
};

static int try_ratio(struct split *x, int prefill, struct dt_err *err)
{
	struct dt_serve_apart a = {.prefill = prefill, .decode = x->n - prefill * x->cp, .cp = x->cp};
	/* what is surely no better need not be simulated to its end */
	const double within = x->best.prefill ? distance(x->q, &x->best.sim) * (1 + 1e-9) : 0;
	const struct dt_serve_servers s = {a.decode, prefill, x->clock, x->prompts, within};
	int rc;

	if (prefill < 1 || a.decode < 1)
		return 0;
	rc = dt_serve_trial(x->q, x->p, &s, &a.sim, err);
	a.meets = dt_serve_meets(x->q, &a.sim);
	if (rc == 0 && (!x->best.prefill || distance(x->q, &a.sim) < distance(x->q, &x->best.sim)))
		x->best = a;
	return rc;
}

int dt_serve_try_apart(const struct dt_serve_query *q, struct dt_serve_plan *p, int cp,
		       struct dt_serve_clock *clock, struct dt_serve_clock *prompts, struct dt_err *err)
{
	struct split x = {q, p, clock, prompts, .n = dt_serve_plan_servers(p), .cp = cp};
	int most = (x.n - 1) / cp, each = (most + 8) / 8, rc = 0;

	for (int n = (each + 1) / 2; rc == 0 && n <= most; n += each)
		rc = try_ratio(&x, n, err);
	while (each > 1 && rc == 0) { /* refine around the best */
		int best = x.best.prefill;

		each /= 2;
		rc = try_ratio(&x, best - each, err);
		rc = rc < 0 ? rc : try_ratio(&x, best + each, err);
	}
	if (rc == 0 && x.best.prefill &&
	    (!p->apart.prefill || distance(q, &x.best.sim) < distance(q, &p->apart.sim)))
		p->apart = x.best;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
