#include "serve/capacity/plan.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Marks the plan if it needs more devices than there are. */
static void count_devices(const struct dt_serve_query *q, struct dt_serve_plan *p)
{
	const int each = dt_serve_plan_devices(p), least = each * p->ep;

	if (!q->devices || !p->fits || each * p->replicas <= q->devices)
		return;
	p->meets = false;
	if (least > q->devices)
		snprintf(p->note, sizeof(p->note), "needs %d devices, there %s %d", least,
			 q->devices == 1 ? "is" : "are", q->devices);
	else
		snprintf(p->note, sizeof(p->note), "the rate needs %d devices, there %s %d",
			 each * p->replicas, q->devices == 1 ? "is" : "are", q->devices);
}

static void say_what_is_missed(const struct dt_serve_query *q, struct dt_serve_plan *p)
{
	if (p->sim.refused > 0)
		snprintf(p->note, sizeof(p->note), "%d requests do not fit into the KV cache",
			 p->sim.refused);
	else if (p->sim.ttft_p99 > q->ttft_s)
		snprintf(p->note, sizeof(p->note), "%d replicas exceed the TTFT limit at P99", p->replicas);
	else
		snprintf(p->note, sizeof(p->note), "%d replicas exceed the TPOT limit at P99", p->replicas);
}

/* Chooses the replicas that the rate needs at full load, then as many as the limits need. */
static int choose_replicas(const struct dt_serve_query *q, struct dt_serve_clock *clock,
			   struct dt_serve_plan *p, struct dt_err *err)
{
	const int rc = dt_serve_search(q, p, dt_serve_replicas(p, 4 * p->replicas + 4), clock, err);

	p->meets = rc == 0 && dt_serve_meets(q, &p->sim);
	if (!p->meets)
		say_what_is_missed(q, p);
	else /* the simulation shows it is possible: batched prompts take less time */
		p->tokens_per_s = fmax(p->tokens_per_s, q->rate * (double)q->output / p->replicas);
	count_devices(q, p);
	return rc;
}

static int open_clock(const struct dt_serve_query *q, const struct dt_serve_plan *p,
		      struct dt_serve_clock **ret, struct dt_err *err)
{
	return dt_serve_clock_open(
		&(struct dt_serve_site){.cluster = q->cluster,
					.config = &q->config,
					.tp = p->tp,
					.pp = p->pp,
					.ep = p->ep,
					.cp = p->cp,
					.weight_bits = dt_weight_bits((enum dt_weight_format)q->weights),
					.cache_bits = q->cache_bits > 0 ? q->cache_bits : 16,
					.max_rows = (int)q->max_tokens},
		ret, err);
}

/* Computes memory, sequences and replicas of p for its layout. */
static int plan_layout(const struct dt_serve_query *q, struct dt_serve_plan *p, struct dt_err *err)
{
	struct dt_serve_clock *clock;
	bool good = false;
	int rc = dt_serve_weigh(q, p, err);

	if (rc < 0 || (rc = open_clock(q, p, &clock, err)) < 0)
		return rc;
	rc = dt_serve_load(q, p, clock, &good, err);
	p->replicas = dt_serve_replicas(p, (int)fmax(1, ceil(q->rate * (double)q->output / p->most_per_s)));
	if (good && rc == 0)
		rc = choose_replicas(q, clock, p, err);
	else if (rc == 0)
		count_devices(q, p);
	dt_serve_clock_close(clock);
	return rc;
}

static int by_devices(const void *x, const void *y)
{
	const struct dt_serve_plan *a = x, *b = y;
	int da = dt_serve_plan_devices(a) * a->replicas, db = dt_serve_plan_devices(b) * b->replicas;

	if (a->meets != b->meets)
		return b->meets - a->meets;
	if (a->fits != b->fits)
		return b->fits - a->fits;
	return da != db ? da - db : (a->tpot_s > b->tpot_s) - (a->tpot_s < b->tpot_s);
}

static bool cuts(const struct dt_serve_query *q, const struct dt_serve_plan *p)
{
	const struct dt_layout l = dt_serve_plan_layout(p);

	return dt_layout_check(&l, &q->config, NULL) == 0 &&
	       (p->cp == 1 || dt_serving_check(&q->config, &l, NULL) == 0);
}

static int check(const struct dt_serve_query *q, struct dt_err *err)
{
	int64_t longest = q->prompt + q->output;

	if (q->config.tower.hidden)
		return dt_err_set(err, -ENOTSUP, "'%s' reads images: servers of it are not planned",
				  q->config.name);
	if (q->config.ssm_heads)
		return dt_err_set(err, -ENOTSUP, "'%s' has layers of Mamba-2: servers of it are not planned",
				  q->config.name);
	for (int i = 0; i < q->nask; i++)
		if (q->ask[i].prompt + q->ask[i].output > longest)
			longest = q->ask[i].prompt + q->ask[i].output;
	if (longest > dt_config_positions(&q->config))
		return dt_err_set(
			err, -EINVAL,
			"prompt and output have %lld tokens, but the context length of '%s' is %lld: lower "
			"--prompt-len or --output-len",
			(long long)longest, q->config.name, (long long)dt_config_positions(&q->config));
	return q->nask > 0 ? 0 : dt_err_set(err, -EINVAL, "there are no requests to plan for");
}

/* Tries prefill servers with each cp that divides a node; decode servers have cp 1. */
static int try_apart(const struct dt_serve_query *q, struct dt_serve_plan *best, struct dt_err *err)
{
	struct dt_serve_plan p = *best;
	struct dt_serve_clock *clock, *prompts;
	int rc;

	p.cp = 1;
	rc = open_clock(q, &p, &clock, err);
	if (rc < 0)
		return rc;
	for (; p.tp * p.cp <= q->cluster->gpus_a_node && rc == 0; p.cp++) {
		if (q->cluster->gpus_a_node % (p.tp * p.cp) || !cuts(q, &p))
			continue;
		rc = open_clock(q, &p, &prompts, err);
		if (rc < 0)
			break;
		rc = dt_serve_try_apart(q, best, p.cp, clock, prompts, err);
		dt_serve_clock_close(prompts);
	}
	dt_serve_clock_close(clock);
	return rc;
}

/* Adds a plan if the model can be cut so and there is room; *fits: it fits in memory. */
static int add_plan(const struct dt_serve_query *q, struct dt_serve_plan p, struct dt_serve_plan *ret, int *n,
		    bool *fits, struct dt_err *err)
{
	int rc;

	if (*n == DT_SERVE_PLANS || !cuts(q, &p))
		return 0;
	rc = plan_layout(q, &p, err);
	*fits = rc == 0 && p.fits;
	ret[*n] = p;
	*n += rc == 0;
	return rc;
}

/* Whether prompts that fill a whole step are frequent enough to affect P99. */
static bool has_long_prompts(const struct dt_serve_query *q)
{
	int n = 0;

	for (int i = 0; i < q->nask; i++)
		n += q->ask[i].prompt >= q->max_tokens;
	return n > 0 && n >= q->nask / 100;
}

/* Adds the pipeline that needs the fewest devices of those that fit, if there is one. */
static int add_pipeline(const struct dt_serve_query *q, struct dt_serve_plan p, struct dt_serve_plan *ret,
			int *n, struct dt_err *err)
{
	const int before = *n;
	bool fits;
	int rc = 0;

	for (p.pp = 2; rc == 0 && p.pp <= DT_FLOW_STAGES; p.pp++) {
		const int had = *n;

		fits = false;
		rc = add_plan(q, p, ret, n, &fits, err);
		if (fits && had > before && by_devices(&ret[had], &ret[before]) < 0)
			ret[before] = ret[had];
		*n = fits ? before + 1 : had;
	}
	return rc;
}

static int plan_tp(const struct dt_serve_query *q, int tp, struct dt_serve_plan *ret, int *n,
		   struct dt_err *err)
{
	const int rest = q->cluster->gpus_a_node / tp;
	struct dt_serve_plan p = {.tp = tp, .pp = 1, .cp = 1, .ep = 1};
	bool fits = false, whole;
	int rc = add_plan(q, p, ret, n, &fits, err);

	whole = fits;
	if (rc == 0 && !whole)
		rc = add_pipeline(q, p, ret, n, err);
	for (p.cp = 2; whole && has_long_prompts(q) && rc == 0 && p.cp <= rest; p.cp++)
		rc = rest % p.cp ? 0 : add_plan(q, p, ret, n, &fits, err);
	p.cp = 1;
	fits = false;
	for (p.ep = rest > 1 ? rest : 2; q->config.experts && rc == 0 && !fits && p.ep <= 8 * rest; p.ep *= 2)
		rc = add_plan(q, p, ret, n, &fits, err);
	return rc;
}

int dt_serve_plans(const struct dt_serve_query *q, struct dt_serve_plan ret[DT_SERVE_PLANS],
		   struct dt_err *err)
{
	int n = 0, rc = check(q, err);

	for (int tp = 1; tp <= q->cluster->gpus_a_node && rc == 0; tp++)
		if (q->cluster->gpus_a_node % tp == 0)
			rc = plan_tp(q, tp, ret, &n, err);
	if (rc < 0)
		return rc;
	qsort(ret, (size_t)n, sizeof(*ret), by_devices);
	if (n > 0 && ret[0].meets && dt_serve_plan_servers(&ret[0]) > 1 && ret[0].ep == 1)
		rc = try_apart(q, &ret[0], err);
	return rc < 0 ? rc : n;
}
/* SPDX-License-Identifier: Apache-2.0 */
