/*
 * Samplers in any order, XTC and mirostat (serve/engine/sampling.h), over the weights of kernels/sample.h in
 * descending order. Each sampler drops tokens at one end of the ranks, so what is left is always a range.
 */
#include "serve/engine/sampling.h"

#include <errno.h>

#define ZIPF	   100		       /* most likely tokens that mirostat 1 uses */
#define COIN_INDEX ((uint64_t)1 << 48) /* offset of XTC's random number from that of the draw */

#define DIGIT_BITS 11 /* of a rank, by which ranks are sorted */
#define DIGITS	   (1u << DIGIT_BITS)
#define BLOCK	   512 /* ids whose weights are computed together */

_Static_assert(3 * sizeof(uint64_t) <= DT_SAMPLE_ROOM, "room of rank()");

/* The tokens that the samplers have left, in order of rank. */
struct left {
	const float *logits; /* [vocab] */
	uint64_t *rank;	     /* [n] dt_sample_rank */
	uint64_t *w;	     /* [n] weights */
	int n, keep;	     /* no sampler looks at ranks from `keep` on */
	double cold;
	bool stale;	    /* the weights are not those of cold */
	double weighed;	    /* w is of this cold ... */
	const uint64_t *by; /* ... and relative to this weight */
};

static int32_t id_at(const struct left *l, int i)
{
	return (int32_t)(l->rank[i] & 0xffffffff);
}

/* Sorts from [n], which has ascending ids, in steps of a digit; to [n] is room. Returns where they are. */
static uint64_t *sort(uint64_t *from, uint64_t *to, int n)
{
	for (int shift = 32; shift < 64; shift += DIGIT_BITS) {
		uint64_t *const was = from;
		int at[DIGITS] = {0}, sum = 0;

		for (int i = 0; i < n; i++)
			at[from[i] >> shift & (DIGITS - 1)]++;
		for (unsigned i = 0; i < DIGITS; i++) {
			sum += at[i];
			at[i] = sum - at[i];
		}
		for (int i = 0; i < n; i++)
			to[at[from[i] >> shift & (DIGITS - 1)]++] = from[i];
		from = to;
		to = was;
	}
	return from;
}

/* Drops ranks of r [n] that are not among the k first, by their highest digit; returns how many are left. */
static int drop_beyond(uint64_t *r, int n, int k)
{
	int count[DIGITS] = {0}, last = 0, left = 0;

	if (k >= n)
		return n;
	for (int i = 0; i < n; i++)
		count[r[i] >> (64 - DIGIT_BITS)]++;
	for (int sum = count[0]; sum < k;)
		sum += count[++last];
	for (int i = 0; i < n; i++) {
		const uint64_t x = r[i];

		r[left] = x;
		left += (int)(x >> (64 - DIGIT_BITS)) <= last;
	}
	return left;
}

/* Sets l to the first l->keep tokens, and maybe more, that weigh at least `least`, in room [3 vocab]. */
static void rank(struct left *l, double cold, int vocab, float max, uint64_t least, uint64_t *room)
{
	uint64_t *const w = room, *const from = w + vocab, *const to = from + vocab;

	l->n = 0;
	for (int i = 0; i < vocab; i += BLOCK) {
		const int end = vocab - i < BLOCK ? vocab : i + BLOCK;

		dt_sample_weights(w + i, l->logits + i, end - i, max, cold, least);
		for (int k = i; k < end; k++) {
			from[l->n] = dt_sample_rank(l->logits[k], k);
			l->n += w[k] > 0;
		}
	}
	l->n = drop_beyond(from, l->n, l->keep);
	l->rank = sort(from, to, l->n);
	l->w = l->rank == from ? to : from;
	for (int i = 0; i < l->n; i++)
		l->w[i] = w[id_at(l, i)];
	l->weighed = cold;
	l->by = l->w;
}

/* Sets the weights, relative to that of the most likely token left, and drops tokens that weigh nothing. */
static void weigh(struct left *l)
{
	const float max = l->logits[id_at(l, 0)];
	const bool same = l->weighed == l->cold && l->by == l->w;

	if (!l->stale)
		return;
	for (int i = 0; i < l->n && !same; i++)
		l->w[i] = dt_sample_weight(dt_sample_x(l->logits[id_at(l, i)], max, l->cold));
	l->weighed = l->cold;
	l->by = l->w;
	while (l->w[l->n - 1] == 0)
		l->n--;
	l->stale = false;
}

static uint64_t sum_of(const uint64_t *w, int n)
{
	uint64_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += w[i];
	return sum;
}

/* Number of tokens whose share is top_p. */
static int share(const uint64_t *w, int n, double top_p)
{
	const uint64_t want = dt_sample_share(top_p, sum_of(w, n));
	uint64_t sum = 0;
	int k = 0;

	while (k < n && sum < want)
		sum += w[k++];
	return k;
}

/* Number of leading tokens that XTC removes: all with at least the threshold, except the last of them. */
static int exclude(const struct dt_sampling *p, const struct dt_draw *d, const uint64_t *w, int n)
{
	const double least = p->xtc_threshold * (double)sum_of(w, n);
	struct dt_draw coin = *d;
	int k = 0;

	coin.index += COIN_INDEX;
	if ((double)dt_sample_below(&coin, (uint64_t)1 << DT_SAMPLE_BITS) >= p->xtc_probability * 0x1p42)
		return 0;
	while (k < n && (double)w[k] >= least)
		k++;
	return k > 1 ? k - 1 : 0;
}

/*
 * Mirostat 1: estimates Zipf's exponent from the most likely tokens by least squares, and from it the number
 * of candidates for a surprise of mu bits.
 */
static int zipf_count(const uint64_t *w, int n, double mu, int vocab)
{
	double tb = 0, tt = 0, s, eps, k;

	for (int i = 0; i + 1 < n && i + 1 < ZIPF; i++) {
		const double t = log((double)(i + 2) / (i + 1)), b = log((double)w[i] / (double)w[i + 1]);

		tb += t * b;
		tt += t * t;
	}
	s = tt > 0 ? tb / tt : 0;
	eps = s - 1;
	k = pow(eps * exp2(mu) / (1 - pow(vocab, -eps)), 1 / s);
	return !(k > 1) ? 1 : k < n ? (int)k : n; /* NaN: 1 */
}

/* Mirostat 2: number of tokens with a surprise of at most mu bits. */
static int bits_count(const uint64_t *w, int n, double mu)
{
	const double all = (double)sum_of(w, n);
	int k = 0;

	while (k < n && -log2((double)w[k] / all) <= mu)
		k++;
	return k > 0 ? k : 1;
}

/* The index in [0, n) at which the weights, summed from the last one, exceed the random number. */
static int pick(const struct dt_draw *d, const uint64_t *w, int n)
{
	uint64_t u = dt_sample_below(d, sum_of(w, n));
	int i = n - 1;

	while (i > 0 && u >= w[i])
		u -= w[i--];
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
		while ((double)l->w[l->n - 1] < d->min_p * (double)l->w[0])
			l->n--;
		break;
	case DT_SAMPLER_TOP_K:
		l->n = d->top_k > 0 && d->top_k < l->n ? d->top_k : l->n;
		break;
	case DT_SAMPLER_TOP_P:
		l->n = d->top_p < 1 ? share(l->w, l->n, d->top_p) : l->n;
		break;
	case DT_SAMPLER_XTC:
		gone = exclude(p, d, l->w, l->n);
		l->rank += gone;
		l->w += gone;
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
		      const struct dt_draw *d, int vocab, float max, uint64_t *room)
{
	const bool begins = n > 1 && order[0] == usual[0] && order[1] == usual[1];
	const double by = d->cold == 0 ? 1 : d->cold;
	double cold = 1, hot = n > 0 && order[0] == DT_SAMPLER_TEMPERATURE ? by : 1;

	for (int i = 0; i < n; i++) {
		cold *= order[i] == DT_SAMPLER_TEMPERATURE ? by : 1;
		hot = i > 0 && cold < hot ? cold : hot;
	}
	for (int i = 0; i < n && order[i] != DT_SAMPLER_TOP_P && order[i] != DT_SAMPLER_XTC; i++)
		if (order[i] == DT_SAMPLER_TOP_K && d->top_k > 0 && d->top_k < l->keep)
			l->keep = d->top_k;
	l->cold = 1;
	l->stale = true;
	rank(l, hot, vocab, max, begins && !(hot < by) ? dt_sample_least(d->min_p) : 1, room);
	for (int i = 0; i < n; i++)
		apply(l, order[i], p, d);
	weigh(l);
}

/* Sets p->drawn to the token at `at` and the best of those left. */
static void tell_drawn(const struct dt_sampling *p, const struct left *l, int at)
{
	const double sum = log((double)sum_of(l->w, l->n));

	for (int i = -1; i < p->ndrawn; i++) {
		const int k = i < 0 ? at : i;

		p->drawn[1 + i] = (struct dt_logprob){-1, 0, 0};
		if (k < l->n)
			p->drawn[1 + i] =
				(struct dt_logprob){id_at(l, k), (float)(log((double)l->w[k]) - sum), 0};
	}
}

/* Mirostat replaces the chain; returns the index that is drawn. */
static int run_mirostat(struct left *l, const struct dt_sampling *p, const struct dt_draw *d, int vocab,
			float max, uint64_t *room)
{
	int at;

	rank(l, d->cold, vocab, max, 1, room);
	if (d->index == p->from) /* the first draw */
		*p->mu = 2 * p->tau;
	l->n = p->mirostat == 1 ? zipf_count(l->w, l->n, *p->mu, vocab) : bits_count(l->w, l->n, *p->mu);
	at = pick(d, l->w, l->n);
	*p->mu -= p->eta * (-log2((double)l->w[at] / (double)sum_of(l->w, l->n)) - p->tau);
	return at;
}

int32_t dt_sampling_draw_own(const struct dt_sampling *p, const struct dt_draw *d, const float *logits,
			     int vocab, void *room)
{
	const float max = dt_sample_max(logits, vocab);
	const bool own = p->norder >= 0;
	struct left l = {.logits = logits, .keep = vocab};
	int at;

	if (!isfinite(max))
		return -EDOM;
	if (p->mirostat && p->temperature > 0) {
		at = run_mirostat(&l, p, d, vocab, max, room);
	} else {
		run_chain(&l, own ? p->order : usual, own ? p->norder : (int)sizeof(usual), p, d, vocab, max,
			  room);
		at = pick(d, l.w, l.n);
	}
	if (p->drawn)
		tell_drawn(p, &l, at);
	return id_at(&l, at);
}
/* SPDX-License-Identifier: Apache-2.0 */
