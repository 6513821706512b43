/*
 * Samplers in any order, XTC and mirostat (serve/engine/sampling.h), over the weights of kernels/sample.h in
 * descending order. Each sampler drops tokens at one end of the ranks, so what is left is always a range.
 */
#include "serve/engine/sampling.h"

#include <errno.h>
#include <stdlib.h>

#define ZIPF	   100		       /* most likely tokens that mirostat 1 uses */
#define COIN_INDEX ((uint64_t)1 << 48) /* offset of XTC's random number from that of the draw */

struct ranked {
	uint64_t w;
	float logit;
	int32_t id;
};

static int by_rank(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	if (x->logit != y->logit)
		return x->logit > y->logit ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

struct left {		  /* the tokens that the samplers have left */
	struct ranked *r; /* [n] */
	int n;
	double cold;
	bool stale; /* the weights are not those of cold */
};

/* Collects the tokens with a weight of at least `least` in descending order; returns their number. */
static int rank(double cold, const float *logits, int vocab, float max, uint64_t least, struct ranked *to)
{
	int n = 0;

	for (int i = 0; i < vocab; i++) {
		const uint64_t w = dt_sample_weight(dt_sample_x(logits[i], max, cold));

		if (w >= least)
			to[n++] = (struct ranked){w, logits[i], i};
	}
	qsort(to, (size_t)n, sizeof(*to), by_rank);
	return n;
}

/* Sets the weights, relative to that of the most likely token left, and drops tokens that weigh nothing. */
static void weigh(struct left *l)
{
	if (!l->stale)
		return;
	for (int i = 0; i < l->n; i++)
		l->r[i].w = dt_sample_weight(dt_sample_x(l->r[i].logit, l->r[0].logit, l->cold));
	while (l->r[l->n - 1].w == 0)
		l->n--;
	l->stale = false;
}

static uint64_t sum_of(const struct ranked *r, int n)
{
	uint64_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += r[i].w;
	return sum;
}

/* Number of tokens whose share is top_p. */
static int share(const struct ranked *r, int n, double top_p)
{
	const uint64_t want = dt_sample_share(top_p, sum_of(r, n));
	uint64_t sum = 0;
	int k = 0;

	while (k < n && sum < want)
		sum += r[k++].w;
	return k;
}

/* Number of leading tokens that XTC removes: all with at least the threshold, except the last of them. */
static int exclude(const struct dt_sampling *p, const struct dt_draw *d, const struct ranked *r, int n)
{
	const double least = p->xtc_threshold * (double)sum_of(r, n);
	struct dt_draw coin = *d;
	int k = 0;

	coin.index += COIN_INDEX;
	if ((double)dt_sample_below(&coin, (uint64_t)1 << DT_SAMPLE_BITS) >= p->xtc_probability * 0x1p42)
		return 0;
	while (k < n && (double)r[k].w >= least)
		k++;
	return k > 1 ? k - 1 : 0;
}

/*
 * Mirostat 1: estimates Zipf's exponent from the most likely tokens by least squares, and from it the number
 * of candidates for a surprise of mu bits.
 */
static int zipf_count(const struct ranked *r, int n, double mu, int vocab)
{
	double tb = 0, tt = 0, s, eps, k;

	for (int i = 0; i + 1 < n && i + 1 < ZIPF; i++) {
		const double t = log((double)(i + 2) / (i + 1)), b = log((double)r[i].w / (double)r[i + 1].w);

		tb += t * b;
		tt += t * t;
	}
	s = tt > 0 ? tb / tt : 0;
	eps = s - 1;
	k = pow(eps * exp2(mu) / (1 - pow(vocab, -eps)), 1 / s);
	return !(k > 1) ? 1 : k < n ? (int)k : n; /* NaN: 1 */
}

/* Mirostat 2: number of tokens with a surprise of at most mu bits. */
static int bits_count(const struct ranked *r, int n, double mu)
{
	const double all = (double)sum_of(r, n);
	int k = 0;

	while (k < n && -log2((double)r[k].w / all) <= mu)
		k++;
	return k > 0 ? k : 1;
}

/* The index in [0, n) at which the weights, summed from the last one, exceed the random number. */
static int pick(const struct dt_draw *d, const struct ranked *r, int n)
{
	uint64_t u = dt_sample_below(d, sum_of(r, n));
	int i = n - 1;

	while (i > 0 && u >= r[i].w)
		u -= r[i--].w;
	return i;
}

/* ---- the chain of samplers ---- */

static const uint8_t usual[] = {DT_SAMPLER_TEMPERATURE, DT_SAMPLER_MIN_P, DT_SAMPLER_TOP_K, DT_SAMPLER_TOP_P,
				DT_SAMPLER_XTC};

static void apply(struct left *l, enum dt_sampling_step what, const struct dt_sampling *p,
		  const struct dt_draw *d)
{
	int gone;

	if (what != DT_SAMPLER_TEMPERATURE && what != DT_SAMPLER_TOP_K)
		weigh(l);
	switch (what) {
	case DT_SAMPLER_TEMPERATURE:
		l->n = d->cold == 0 ? 1 : l->n;
		l->cold *= d->cold == 0 ? 1 : d->cold;
		l->stale = true;
		break;
	case DT_SAMPLER_MIN_P:
		while ((double)l->r[l->n - 1].w < d->min_p * (double)l->r[0].w)
			l->n--;
		break;
	case DT_SAMPLER_TOP_K:
		l->n = d->top_k > 0 && d->top_k < l->n ? d->top_k : l->n;
		break;
	case DT_SAMPLER_TOP_P:
		l->n = d->top_p < 1 ? share(l->r, l->n, d->top_p) : l->n;
		break;
	case DT_SAMPLER_XTC:
		gone = exclude(p, d, l->r, l->n);
		l->r += gone;
		l->n -= gone;
		break;
	}
}

/*
 * Applies the n samplers of order to all tokens. Ranked are only those that weigh something at the highest
 * temperature that the order comes to, since no others can be drawn; and where the usual order begins, only
 * those that min_p leaves.
 */
static void run_chain(struct left *l, const uint8_t *order, int n, const struct dt_sampling *p,
		      const struct dt_draw *d, const float *logits, int vocab, float max)
{
	const bool begins = n > 1 && order[0] == usual[0] && order[1] == usual[1];
	const double by = d->cold == 0 ? 1 : d->cold;
	double cold = 1, hot = n > 0 && order[0] == DT_SAMPLER_TEMPERATURE ? by : 1;

	for (int i = 0; i < n; i++) {
		cold *= order[i] == DT_SAMPLER_TEMPERATURE ? by : 1;
		hot = i > 0 && cold < hot ? cold : hot;
	}
	l->cold = 1;
	l->stale = true;
	l->n = rank(hot, logits, vocab, max, begins && !(hot < by) ? dt_sample_least(d->min_p) : 1, l->r);
	for (int i = 0; i < n; i++)
		apply(l, order[i], p, d);
	weigh(l);
}

/* Sets p->drawn to the token at `at` and the best of those left. */
static void tell_drawn(const struct dt_sampling *p, const struct left *l, int at)
{
	const double sum = log((double)sum_of(l->r, l->n));

	for (int i = -1; i < p->ndrawn; i++) {
		const struct ranked *r = &l->r[i < 0 ? at : i];

		p->drawn[1 + i] = i < l->n ? (struct dt_logprob){r->id, (float)(log((double)r->w) - sum), 0}
					   : (struct dt_logprob){-1, 0, 0};
	}
}

/* Mirostat replaces the chain; returns the index that is drawn. */
static int run_mirostat(struct left *l, const struct dt_sampling *p, const struct dt_draw *d,
			const float *logits, int vocab, float max)
{
	int at;

	l->n = rank(d->cold, logits, vocab, max, 1, l->r);
	if (d->index == p->from) /* the first draw */
		*p->mu = 2 * p->tau;
	l->n = p->mirostat == 1 ? zipf_count(l->r, l->n, *p->mu, vocab) : bits_count(l->r, l->n, *p->mu);
	at = pick(d, l->r, l->n);
	*p->mu -= p->eta * (-log2((double)l->r[at].w / (double)sum_of(l->r, l->n)) - p->tau);
	return at;
}

int32_t dt_sampling_draw_own(const struct dt_sampling *p, const struct dt_draw *d, const float *logits,
			     int vocab)
{
	const float max = dt_sample_max(logits, vocab);
	const bool own = p->norder >= 0;
	struct ranked *r;
	struct left l = {0};
	int32_t id;
	int at;

	if (!isfinite(max))
		return -EDOM;
	l.r = r = malloc((size_t)vocab * sizeof(*r));
	if (!r)
		return -ENOMEM;
	if (p->mirostat && p->temperature > 0) {
		at = run_mirostat(&l, p, d, logits, vocab, max);
	} else {
		run_chain(&l, own ? p->order : usual, own ? p->norder : (int)sizeof(usual), p, d, logits,
			  vocab, max);
		at = pick(d, l.r, l.n);
	}
	id = l.r[at].id;
	if (p->drawn)
		tell_drawn(p, &l, at);
	free(r);
	return id;
}
/* SPDX-License-Identifier: Apache-2.0 */
