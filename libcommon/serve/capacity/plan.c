#include "serve/capacity/plan.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Largest memory of a device: that of the first or the last pipeline stage. */
static int memory(const struct dt_serve_query *q, const struct dt_serve_plan *p, int64_t seqs, uint64_t *ret,
		  struct dt_err *err)
{
	uint64_t most = 0;
	int rc = 0;

	for (int stage = 0; stage < p->pp && rc == 0; stage += p->pp > 1 ? p->pp - 1 : 1) {
		struct dt_serve_shape s = {.config = &q->config,
					   .layout = {.dp = p->ep,
						      .tp = p->tp,
						      .pp = p->pp,
						      .cp = 1,
						      .ep = p->ep}, /* as if one rank had all rows */
					   .stage = stage,
					   .weights = (enum dt_weight_format)q->weights,
					   .account = DT_ACCOUNT_GENERIC,
					   .compute = DT_BF16,
					   .cache_bits = q->cache_bits,
					   .max_seqs = seqs,
					   .max_len = q->prompt + q->output,
					   .block = DT_SERVE_BLOCK,
					   .loras = q->loras,
					   .lora_rank = q->lora_rank,
					   .max_tokens = q->max_tokens,
					   .scratch = q->scratch};
		struct dt_estimate e;

		rc = dt_estimate_serve(&s, &e, err);
		if (rc < 0)
			break;
		most = e.peak_bytes > most ? e.peak_bytes : most;
		dt_estimate_release(&e);
	}
	if (rc == 0)
		*ret = most;
	return rc;
}

struct prompt_s {	       /* seconds of a prompt alone, in as many passes as needed */
	double until, slowest; /* until it is computed; and of these, of the slowest stage */
};

static int prompt_seconds(const struct dt_serve_query *q, struct dt_serve_clock *clock, struct prompt_s *ret,
			  struct dt_err *err)
{
	struct dt_flow t;
	int rc = 0;

	*ret = (struct prompt_s){0};
	for (int64_t at = 0, n; at < q->prompt && rc == 0; at += n) {
		n = q->prompt - at < q->max_tokens ? q->prompt - at : q->max_tokens;
		rc = dt_serve_clock_pass(clock, &(struct dt_serve_span){(int)at, (int)n}, 1, &t, err);
		if (rc < 0)
			break;
		ret->until += dt_flow_alone(&t);
		ret->slowest += dt_flow_slowest(&t);
	}
	return rc;
}

/*
 * Seconds in which each of seqs sequences gets one token, at half of its answer. With pipeline stages, as
 * many steps as stages, with equal shares of the sequences, follow one another as fast as the slowest stage
 * allows; a sequence's next step begins when its previous one has ended.
 */
static int round_seconds(const struct dt_serve_query *q, int64_t seqs, int stages,
			 struct dt_serve_clock *clock, double *ret, struct dt_err *err)
{
	const int64_t each = (seqs + stages - 1) / stages, steps = (seqs + each - 1) / each;
	struct dt_serve_span *span = calloc((size_t)each, sizeof(*span));
	struct dt_flow t;
	int rc;

	if (!span)
		return dt_err_sys(err, -ENOMEM, "cannot plan a server");
	for (int64_t i = 0; i < each; i++)
		span[i] = (struct dt_serve_span){(int)(q->prompt + q->output / 2 - 1), 1};
	rc = dt_serve_clock_pass(clock, span, (int)each, &t, err);
	free(span);
	if (rc == 0)
		*ret = fmax(dt_flow_alone(&t), (double)steps * dt_flow_slowest(&t));
	return rc;
}

struct full_load { /* of a replica with a given number of running sequences */
	double tpot_s, ttft_s, tokens_per_s;
};

/* During the decode steps of one answer, seqs answers are completed and as many prompts prefilled. */
static struct full_load full_load(const struct dt_serve_query *q, int64_t seqs, struct prompt_s prompt,
				  double round)
{
	const double out = (double)q->output, whole = out * round + (double)seqs * prompt.slowest;

	/* TTFT: its own prefill, half of another's on average, and the step in progress. */
	return (struct full_load){whole / out, prompt.until + prompt.slowest + round,
				  (double)seqs * out / whole};
}

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

static void take(struct dt_serve_plan *p, struct full_load f)
{
	p->tpot_s = f.tpot_s;
	p->ttft_s = f.ttft_s;
	p->tokens_per_s = f.tokens_per_s;
}

/*
 * Finds the most sequences that keep TPOT, without prompts, and fit; the number of blocks that fit; and the
 * load of as many sequences as keep TPOT with prompts in between.
 */
static int choose_sequences(const struct dt_serve_query *q, struct dt_serve_clock *clock,
			    struct prompt_s prompt, struct dt_serve_plan *p, struct dt_err *err)
{
	const int64_t each = (q->prompt + q->output + DT_SERVE_BLOCK - 1) / DT_SERVE_BLOCK;
	uint64_t bytes = 0;
	int64_t n;

	for (n = 2; n <= q->max_tokens; n = n < 16 ? n + 1 : n + n / 8) {
		double round;
		int rc = round_seconds(q, n, p->pp, clock, &round, err);
		struct full_load f;

		if (rc < 0)
			return rc;
		if (memory(q, p, n, &bytes, NULL) < 0 || bytes > q->room || round > q->tpot_s)
			break;
		f = full_load(q, n, prompt, round);
		p->sequences = n;
		p->peak_bytes = bytes;
		p->most_per_s = f.tokens_per_s;
		if (f.tpot_s <= q->tpot_s)
			take(p, f);
	}
	snprintf(p->note, sizeof(p->note), "%s",
		 bytes > q->room     ? "sequences limited by memory"
		 : n > q->max_tokens ? "sequences limited by tokens per step"
				     : "sequences limited by the TPOT");
	for (n = p->sequences; memory(q, p, n + (n + 7) / 8, &bytes, NULL) == 0 && bytes <= q->room;)
		if ((n += (n + 7) / 8) * each > 1 << 22) /* no simulation uses more */
			break;
	p->blocks = n * each;
	return 0;
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

/* Whether a single request on an idle replica already exceeds a limit. */
static bool hopeless(const struct dt_serve_query *q, double prompt, double step, struct dt_serve_plan *p)
{
	if (step <= q->tpot_s && prompt <= q->ttft_s)
		return false;
	if (p->fits)
		snprintf(p->note, sizeof(p->note), "%s",
			 step > q->tpot_s ? "a single sequence exceeds the TPOT limit"
					  : "prefill alone exceeds the TTFT limit");
	return true;
}

/* Computes memory, sequences and replicas of p for its layout. */
static int plan_layout(const struct dt_serve_query *q, struct dt_serve_plan *p, struct dt_err *err)
{
	struct dt_serve_clock *clock;
	struct prompt_s prompt;
	double step = 0;
	bool good;
	int rc = memory(q, p, 1, &p->peak_bytes, err);

	p->sequences = 1;
	snprintf(p->note, sizeof(p->note), "does not fit");
	if (rc < 0 || (rc = open_clock(q, p, &clock, err)) < 0)
		return rc;
	p->fits = p->peak_bytes <= q->room;
	rc = prompt_seconds(q, clock, &prompt, err);
	if (rc == 0)
		rc = round_seconds(q, 1, p->pp, clock, &step, err);
	take(p, full_load(q, 1, prompt, step));
	p->most_per_s = p->tokens_per_s;
	good = rc == 0 && !hopeless(q, prompt.until, step, p) && p->fits;
	if (good)
		rc = choose_sequences(q, clock, prompt, p, err);
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

	for (int i = 0; i < q->nask; i++)
		if (q->ask[i].prompt + q->ask[i].output > longest)
			longest = q->ask[i].prompt + q->ask[i].output;
	if (q->config.pos == DT_POS_LEARNED && longest > q->config.max_seq)
		return dt_err_set(
			err, -EINVAL,
			"prompt and output have %lld tokens, but the context length of '%s' is %lld",
			(long long)longest, q->config.name, (long long)q->config.max_seq);
	return q->nask > 0 ? 0 : dt_err_set(err, -EINVAL, "there are no requests to plan for");
}

/* Tries prefill servers with cp of 1, 2, 4 ... ranks of a node; decode servers have cp 1. */
static int try_apart(const struct dt_serve_query *q, struct dt_serve_plan *best, struct dt_err *err)
{
	struct dt_serve_plan p = *best;
	struct dt_serve_clock *clock, *prompts;
	int rc;

	p.cp = 1;
	rc = open_clock(q, &p, &clock, err);
	if (rc < 0)
		return rc;
	for (; p.tp * p.cp <= q->cluster->gpus_a_node && cuts(q, &p) && rc == 0; p.cp *= 2) {
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

static int plan_tp(const struct dt_serve_query *q, int tp, struct dt_serve_plan *ret, int *n,
		   struct dt_err *err)
{
	const int rest = q->cluster->gpus_a_node / tp;
	struct dt_serve_plan p = {.tp = tp, .pp = 1, .cp = 1, .ep = 1};
	bool fits = false, whole;
	int rc = add_plan(q, p, ret, n, &fits, err);

	whole = fits;
	for (p.pp = 2; rc == 0 && !fits && p.pp <= DT_FLOW_STAGES; p.pp *= 2)
		rc = add_plan(q, p, ret, n, &fits, err);
	p.pp = 1;
	for (p.cp = 2; whole && has_long_prompts(q) && rc == 0 && p.cp <= rest; p.cp *= 2)
		rc = add_plan(q, p, ret, n, &fits, err);
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

	for (int tp = 1; tp <= q->cluster->gpus_a_node && rc == 0; tp *= 2)
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
