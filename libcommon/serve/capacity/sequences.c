/* Memory and speed of one replica: how many sequences it runs at a time, and the blocks of its cache. */
#include "serve/capacity/plan.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int stage_memory(const struct dt_serve_shape *s, uint64_t *most, struct dt_err *err)
{
	struct dt_estimate e;
	int rc = dt_estimate_serve(s, &e, err);

	if (rc < 0)
		return rc;
	*most = e.peak_bytes > *most ? e.peak_bytes : *most;
	dt_estimate_release(&e);
	return 0;
}

/*
 * Largest memory of a device over the pipeline stages; those in the middle may have more layers. It is what
 * dt-serve allocates, or a formula if it cannot run the model or its cache.
 */
static int memory(const struct dt_serve_query *q, const struct dt_serve_plan *p, int64_t seqs, uint64_t *ret,
		  struct dt_err *err)
{
	struct dt_serve_shape s = {.config = &q->config,
				   .layout = {.dp = p->ep,
					      .tp = p->tp,
					      .pp = p->pp,
					      .cp = 1,
					      .ep = p->ep}, /* as if one rank had all rows */
				   .weights = (enum dt_weight_format)q->weights,
				   .account = DT_ACCOUNT_DT,
				   .compute = DT_BF16,
				   .cache_bits = q->cache_bits,
				   .max_seqs = seqs,
				   .max_len = q->prompt + q->output,
				   .block = DT_SERVE_BLOCK,
				   .loras = q->loras,
				   .lora_rank = q->lora_rank,
				   .max_tokens = q->max_tokens,
				   .scratch = q->scratch};
	uint64_t most = 0;
	int rc = stage_memory(&s, &most, err);

	if (rc == -ENOTSUP) {
		s.account = DT_ACCOUNT_GENERIC;
		rc = stage_memory(&s, &most, err);
	}
	while (rc == 0 && ++s.stage < p->pp)
		rc = stage_memory(&s, &most, err);
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

static void take(struct dt_serve_plan *p, struct full_load f)
{
	p->tpot_s = f.tpot_s;
	p->ttft_s = f.ttft_s;
	p->tokens_per_s = f.tokens_per_s;
}

/* Answers of one token have no time between tokens. */
static bool keeps_tpot(const struct dt_serve_query *q, double seconds)
{
	return q->output < 2 || seconds <= q->tpot_s;
}

/* What n sequences at a time need and do. */
struct tried {
	uint64_t bytes;
	bool fits, quick; /* quick: keeps TPOT without prompts */
	struct full_load load;
};

static int try_sequences(const struct dt_serve_query *q, const struct dt_serve_plan *p,
			 struct dt_serve_clock *clock, struct prompt_s prompt, int64_t n, struct tried *ret,
			 struct dt_err *err)
{
	double round;
	int rc = round_seconds(q, n, p->pp, clock, &round, err);

	if (rc < 0)
		return rc;
	ret->fits = memory(q, p, n, &ret->bytes, NULL) == 0 && ret->bytes <= q->room;
	ret->quick = keeps_tpot(q, round);
	ret->load = full_load(q, n, prompt, round);
	return 0;
}

/* The most sequences, at least p's, for which there is room. */
static int64_t most_in_room(const struct dt_serve_query *q, const struct dt_serve_plan *p, int64_t most)
{
	int64_t good = p->sequences, bad = most + 1;
	uint64_t bytes;

	while (bad - good > 1) {
		const int64_t next = 2 * good < bad ? 2 * good : good + (bad - good) / 2;

		*(memory(q, p, next, &bytes, NULL) == 0 && bytes <= q->room ? &good : &bad) = next;
	}
	return good;
}

/*
 * Finds the most sequences that keep TPOT, without prompts, and fit: in steps of an eighth, then one by one
 * between the last two. Also finds the load of the most that keep TPOT with prompts in between.
 */
static int choose_sequences(const struct dt_serve_query *q, struct dt_serve_clock *clock,
			    struct prompt_s prompt, struct dt_serve_plan *p, struct dt_err *err)
{
	int64_t good = 1, bad = q->max_tokens + 1, keeps = 1, exceeds;
	struct tried t;
	bool room = true;

	while (bad - good > 1) {
		const int64_t step = bad <= q->max_tokens ? (bad - good) / 2 : (good + 7) / 8;
		const int64_t n = good + step < bad ? good + step : bad - 1;
		int rc = try_sequences(q, p, clock, prompt, n, &t, err);

		if (rc < 0)
			return rc;
		if (!t.fits || !t.quick) {
			bad = n;
			room = t.fits;
			continue;
		}
		good = n;
		p->peak_bytes = t.bytes;
		p->most_per_s = t.load.tokens_per_s;
	}
	p->sequences = good;
	snprintf(p->note, sizeof(p->note), "%s",
		 bad > q->max_tokens ? "sequences limited by tokens per step"
		 : room		     ? "sequences limited by the TPOT"
				     : "sequences limited by memory");
	for (exceeds = good + 1; exceeds - keeps > 1;) {
		const int64_t n = exceeds > good ? good : keeps + (exceeds - keeps) / 2;
		int rc = try_sequences(q, p, clock, prompt, n, &t, err);

		if (rc < 0)
			return rc;
		if (keeps_tpot(q, t.load.tpot_s))
			take(p, t.load);
		*(keeps_tpot(q, t.load.tpot_s) ? &keeps : &exceeds) = n;
	}
	return 0;
}

/* Whether a single request on an idle replica already exceeds a limit. */
static bool hopeless(const struct dt_serve_query *q, double prompt, double step, struct dt_serve_plan *p)
{
	if (keeps_tpot(q, step) && prompt <= q->ttft_s)
		return false;
	if (p->fits)
		snprintf(p->note, sizeof(p->note), "%s",
			 keeps_tpot(q, step) ? "prefill alone exceeds the TTFT limit"
					     : "a single sequence exceeds the TPOT limit");
	return true;
}

int dt_serve_weigh(const struct dt_serve_query *q, struct dt_serve_plan *p, struct dt_err *err)
{
	int rc = memory(q, p, 1, &p->peak_bytes, err);

	p->sequences = 1;
	p->fits = rc == 0 && p->peak_bytes <= q->room;
	if (!p->fits)
		snprintf(p->note, sizeof(p->note), "does not fit");
	return rc;
}

int dt_serve_load(const struct dt_serve_query *q, struct dt_serve_plan *p, struct dt_serve_clock *clock,
		  bool *ret_good, struct dt_err *err)
{
	const int64_t each = (q->prompt + q->output + DT_SERVE_BLOCK - 1) / DT_SERVE_BLOCK;
	const int64_t most = DT_SERVE_BLOCKS / each;
	struct prompt_s prompt;
	double step = 0;
	int rc = prompt_seconds(q, clock, &prompt, err);

	if (rc == 0)
		rc = round_seconds(q, 1, p->pp, clock, &step, err);
	if (rc < 0)
		return rc;
	take(p, full_load(q, 1, prompt, step));
	p->most_per_s = p->tokens_per_s;
	*ret_good = !hopeless(q, prompt.until, step, p) && p->fits;
	if (!*ret_good)
		return 0;
	rc = choose_sequences(q, clock, prompt, p, err);
	p->blocks = each * (rc == 0 && p->sequences < most ? most_in_room(q, p, most) : p->sequences);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
