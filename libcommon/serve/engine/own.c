/* XTC and mirostat (serve/engine/sampling.h), over the weights of kernels/sample.h in descending order. */
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

/* Collects the tokens with a weight of at least `least` in descending order; returns their number. */
static int rank(const struct dt_draw *d, const float *logits, int vocab, float max, uint64_t least,
		struct ranked *to)
{
	int n = 0;

	for (int i = 0; i < vocab; i++) {
		const uint64_t w = dt_sample_weight(dt_sample_x(logits[i], max, d->cold));

		if (w >= least)
			to[n++] = (struct ranked){w, logits[i], i};
	}
	qsort(to, (size_t)n, sizeof(*to), by_rank);
	return n;
}

static uint64_t sum_of(const struct ranked *r, int n)
{
	uint64_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += r[i].w;
	return sum;
}

/* Number of tokens that top_k and top_p keep. */
static int truncate_ranks(const struct dt_draw *d, const struct ranked *r, int n)
{
	uint64_t want, sum = 0;
	int k = 0;

	if (d->top_k > 0 && d->top_k < n)
		n = d->top_k;
	if (d->top_p >= 1)
		return n;
	want = dt_sample_share(d->top_p, sum_of(r, n));
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

int32_t dt_sampling_draw_own(const struct dt_sampling *p, const struct dt_draw *d, const float *logits,
			     int vocab)
{
	const float max = dt_sample_max(logits, vocab);
	struct ranked *r;
	int32_t id = -EDOM;
	int n, from = 0, at;

	if (!isfinite(max))
		return -EDOM;
	r = malloc((size_t)vocab * sizeof(*r));
	if (!r)
		return -ENOMEM;
	n = rank(d, logits, vocab, max, p->mirostat ? 1 : dt_sample_least(d->min_p), r);
	if (p->mirostat) {
		if (d->index == 0)
			*p->mu = 2 * p->tau;
		n = p->mirostat == 1 ? zipf_count(r, n, *p->mu, vocab) : bits_count(r, n, *p->mu);
	} else {
		n = truncate_ranks(d, r, n);
		from = exclude(p, d, r, n);
	}
	at = from + pick(d, r + from, n - from);
	id = r[at].id;
	if (p->mirostat)
		*p->mu -= p->eta * (-log2((double)r[at].w / (double)sum_of(r, n)) - p->tau);
	free(r);
	return id;
}
/* SPDX-License-Identifier: Apache-2.0 */
