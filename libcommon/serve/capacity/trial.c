/* Requests on paper: the scheduler's steps, each as long as the program's nodes say. */
#include "serve/capacity/plan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct pace {
	struct dt_serve_clock *clock;
	struct dt_serve_span *span; /* [max_seqs] */
};

static int step_times(void *arg, const struct dt_sched_item *items, int n, struct dt_flow *ret,
		      struct dt_err *err)
{
	struct pace *p = arg;

	for (int i = 0; i < n; i++)
		p->span[i] = (struct dt_serve_span){items[i].first, items[i].n};
	return dt_serve_clock_pass(p->clock, p->span, n, ret, err);
}

static double move_seconds(void *arg, int n)
{
	const struct pace *p = arg;

	return dt_serve_clock_move(p->clock, n);
}

int dt_serve_trial(const struct dt_serve_query *q, const struct dt_serve_plan *p, int prefill,
		   struct dt_serve_clock *clock, struct dt_sim_report *ret, struct dt_err *err)
{
	struct pace pace = {.clock = clock};
	const struct dt_sim_params sim = {.servers = p->replicas - prefill,
					  .prefill = prefill,
					  .prefill_min = DT_SERVE_PREFILL_MIN,
					  .max_seqs = (int)p->sequences,
					  .max_tokens = (int)q->max_tokens,
					  .nblocks = (int)p->blocks,
					  .block_size = DT_SERVE_BLOCK,
					  .stages = p->pp,
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

int dt_serve_search(const struct dt_serve_query *q, struct dt_serve_plan *p, int most,
		    struct dt_serve_clock *clock, struct dt_err *err)
{
	struct dt_sim_report good = {0};
	int too_few, enough = 0, rc;

	rc = dt_serve_trial(q, p, 0, clock, &p->sim, err);
	if (rc < 0 || dt_serve_meets(q, &p->sim) || p->sim.refused > 0)
		return rc;
	for (too_few = p->replicas; too_few < most && !enough && rc == 0;) {
		p->replicas = dt_serve_replicas(p, too_few + (too_few + 3) / 4);
		p->replicas = p->replicas < most ? p->replicas : most;
		rc = dt_serve_trial(q, p, 0, clock, &p->sim, err);
		if (dt_serve_meets(q, &p->sim))
			enough = p->replicas;
		else
			too_few = p->replicas;
	}
	good = p->sim;
	while (rc == 0 && enough - too_few > p->ep) {
		p->replicas = (too_few + enough) / 2 / p->ep * p->ep;
		rc = dt_serve_trial(q, p, 0, clock, &p->sim, err);
		if (dt_serve_meets(q, &p->sim)) {
			enough = p->replicas;
			good = p->sim;
		} else {
			too_few = p->replicas;
		}
	}
	p->replicas = enough ? enough : too_few;
	p->sim = good;
	return rc;
}

/* How far the worse of both is from its limit. */
static double distance(const struct dt_serve_query *q, const struct dt_sim_report *r)
{
	return fmax(r->ttft_p99 / q->ttft_s, r->tpot_p99 / q->tpot_s);
}

static int try_ratio(const struct dt_serve_query *q, struct dt_serve_plan *p, int prefill,
		     struct dt_serve_clock *clock, struct dt_err *err)
{
	struct dt_serve_apart a = {.prefill = prefill};
	int rc;

	if (prefill < 1 || prefill >= p->replicas)
		return 0;
	rc = dt_serve_trial(q, p, prefill, clock, &a.sim, err);
	a.meets = dt_serve_meets(q, &a.sim);
	if (rc == 0 && (!p->apart.prefill || distance(q, &a.sim) < distance(q, &p->apart.sim)))
		p->apart = a;
	return rc;
}

int dt_serve_try_apart(const struct dt_serve_query *q, struct dt_serve_plan *p, struct dt_serve_clock *clock,
		       struct dt_err *err)
{
	int each = (p->replicas + 7) / 8, rc = 0;

	for (int n = (each + 1) / 2; rc == 0 && n < p->replicas; n += each)
		rc = try_ratio(q, p, n, clock, err);
	while (each > 1 && rc == 0) { /* closer around the best */
		int best = p->apart.prefill;

		each /= 2;
		rc = try_ratio(q, p, best - each, clock, err);
		rc = rc < 0 ? rc : try_ratio(q, p, best + each, clock, err);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
