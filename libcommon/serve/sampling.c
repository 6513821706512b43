#include "serve/sampling.h"

#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A vocabulary is long: the loops over all of it are cut into lanes and compiled for wider registers too. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) /* which crashes in resolvers */
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDE
#endif
#define LANES 16
#define BLOCK 512 /* ids whose weights are summed together */

int dt_sampler_init(struct dt_sampler *s, int vocab)
{
	s->vocab = vocab;
	s->count = calloc((size_t)vocab, sizeof(*s->count));
	s->cand = malloc((size_t)vocab * sizeof(*s->cand));
	s->weight = malloc(((size_t)vocab + BLOCK) * sizeof(*s->weight));
	if (s->count && s->cand && s->weight)
		return 0;
	dt_sampler_release(s);
	return -ENOMEM;
}

void dt_sampler_release(struct dt_sampler *s)
{
	free(s->count);
	free(s->cand);
	free(s->weight);
	*s = (struct dt_sampler){0};
}

static void penalise(float *logit, const struct dt_sampling *p, int32_t count)
{
	double x = *logit;

	x = x > 0 ? x / p->repetition_penalty : x * p->repetition_penalty;
	if (count > 0)
		x -= count * p->frequency_penalty + p->presence_penalty;
	*logit = (float)x;
}

static void penalties(struct dt_sampler *s, const struct dt_sampling *p, float *logits, const int32_t *prompt,
		      size_t nprompt, const int32_t *out, size_t nout)
{
	if (p->repetition_penalty == 1 && p->presence_penalty == 0 && p->frequency_penalty == 0)
		return;
	for (size_t i = 0; i < nout; i++)
		s->count[out[i]]++;
	for (size_t i = 0; i < nprompt; i++)
		if (s->count[prompt[i]] == 0)
			s->count[prompt[i]] = -1;
	for (size_t i = 0; i < nprompt + nout; i++) {
		int32_t id = i < nprompt ? prompt[i] : out[i - nprompt];

		if (s->count[id] != 0)
			penalise(&logits[id], p, s->count[id]);
		s->count[id] = 0;
	}
}

/* The largest of x [n]; NaN when there is one. */
static WIDE float sample_max(const float *x, int n)
{
	float lane[LANES], max = -INFINITY;
	int nan[LANES] = {0}, bad = 0, i = 0;

	for (int k = 0; k < LANES; k++)
		lane[k] = -INFINITY;
	for (; i + LANES <= n; i += LANES)
		for (int k = 0; k < LANES; k++) {
			lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
			nan[k] |= x[i + k] != x[i + k];
		}
	for (; i < n; i++) {
		max = x[i] > max ? x[i] : max;
		bad |= isnan(x[i]);
	}
	for (int k = 0; k < LANES; k++) {
		max = lane[k] > max ? lane[k] : max;
		bad |= nan[k];
	}
	return bad ? NAN : max;
}

static int32_t argmax(const float *x, int n)
{
	float max = sample_max(x, n);
	int32_t i = 0;

	if (!isfinite(max))
		return -EDOM;
	while (x[i] != max)
		i++;
	return i;
}

/*
 * e^x for x <= 0, 0 below -700: 2^n e^r with |r| <= ln 2 / 2, e^r by its series up to r^13 / 13!, whose
 * remainder is below 2^-55. The same on every processor.
 */
static inline __attribute__((always_inline)) double exp_of(double x)
{
	const double shift = 0x1.8p52; /* adding it leaves the nearest integer in the low bits */
	double t = x * 1.4426950408889634 + shift, n = t - shift;
	double r = (x - n * 0x1.62e42fefap-1) - n * 0x1.cf79abc9e3b3ap-40; /* ln 2 in two parts */
	double p = 1 / 6227020800.;
	uint64_t u;

	p = p * r + 1 / 479001600.;
	p = p * r + 1 / 39916800.;
	p = p * r + 1 / 3628800.;
	p = p * r + 1 / 362880.;
	p = p * r + 1 / 40320.;
	p = p * r + 1 / 5040.;
	p = p * r + 1 / 720.;
	p = p * r + 1 / 120.;
	p = p * r + 1 / 24.;
	p = p * r + 1 / 6.;
	p = p * r + 0.5;
	p = p * r + 1;
	p = p * r + 1;
	memcpy(&u, &t, 8);
	u = (u + 1023) << 52; /* t's low bits are n's */
	memcpy(&t, &u, 8);
	return x < -700 ? 0 : p * t;
}

/*
 * w[i] = exp((logits[i] - max) / temperature), 0 where that is below min_p. Returns their sum; block: those
 * of BLOCK each.
 */
static WIDE double sample_weights(double *w, double *block, const float *logits, int n, float max,
				  double temperature, double min_p)
{
	double total = 0;

	for (int first = 0; first < n; first += BLOCK) {
		int last = first + BLOCK < n ? first + BLOCK : n, i = first;
		double lane[LANES] = {0}, sum = 0;

		for (; i + LANES <= last; i += LANES)
			for (int k = 0; k < LANES; k++) {
				double e = exp_of(((double)logits[i + k] - max) / temperature);

				e = e < min_p ? 0 : e;
				w[i + k] = e;
				lane[k] += e;
			}
		for (; i < last; i++) {
			double e = exp_of(((double)logits[i] - max) / temperature);

			w[i] = e < min_p ? 0 : e;
			sum += w[i];
		}
		for (int k = 0; k < LANES; k++)
			sum += lane[k];
		block[first / BLOCK] = sum;
		total += sum;
	}
	return total;
}

/* More likely first, then the lower id. */
static bool before(struct dt_cand a, struct dt_cand b)
{
	return a.p != b.p ? a.p > b.p : a.id < b.id;
}

static void sift_down(struct dt_cand *h, int n, int i)
{
	struct dt_cand x = h[i];

	for (;;) {
		int c = 2 * i + 1;

		if (c >= n)
			break;
		if (c + 1 < n && before(h[c + 1], h[c]))
			c++;
		if (!before(h[c], x))
			break;
		h[i] = h[c];
		i = c;
	}
	h[i] = x;
}

/*
 * Moves the most likely candidates, in order, to the end of c (the best last) until top_k of them or a share
 * of top_p are there; a heap, so that few kept ones cost few comparisons. total: sum of all p. The share is
 * one of what top_k leaves. Returns how many are kept.
 */
static int keep_best(struct dt_cand *c, int n, int top_k, double top_p, double total)
{
	bool cut = top_k > 0;
	int limit = cut && top_k < n ? top_k : n, kept = 0, share = 0;
	double sum = 0, part = 0;

	for (int i = n / 2 - 1; i >= 0; i--)
		sift_down(c, n, i);
	while (kept < limit) {
		struct dt_cand best = c[0];

		c[0] = c[n - 1 - kept];
		c[n - 1 - kept] = best;
		kept++;
		sum += best.p;
		if (!cut && sum >= top_p * total)
			return kept;
		sift_down(c, n - kept, 0);
	}
	do
		part += c[n - 1 - share++].p;
	while (share < kept && part < top_p * sum);
	return top_p < 1 ? share : kept;
}

/* How often e can be doubled before it passes 1, at most 63: who is in a lower class is more likely. */
static int class_of(double e)
{
	uint64_t u;
	int n;

	memcpy(&u, &e, 8);
	n = 1023 - (int)(u >> 52 & 0x7ff);
	return n < 63 ? n : 63;
}

/* Puts all into cand that top_k and top_p can still keep, by classes: few comparisons for what is unlikely.
 */
static int candidates(struct dt_sampler *s, const struct dt_sampling *p, double total)
{
	int count[64] = {0}, have = 0, last = 0, n = 0;
	bool cut = p->top_k > 0 && p->top_k < s->vocab;
	double sum[64] = {0}, part = 0;

	for (int i = 0; i < s->vocab; i++) {
		int c = class_of(s->weight[i]);

		count[c] += s->weight[i] > 0;
		sum[c] += s->weight[i];
	}
	for (; last < 63; last++) {
		have += count[last];
		part += sum[last];
		if (cut ? have >= p->top_k : part > p->top_p * total * (1 + 1e-9))
			break;
	}
	for (int i = 0; i < s->vocab; i++)
		if (s->weight[i] > 0 && class_of(s->weight[i]) <= last)
			s->cand[n++] = (struct dt_cand){s->weight[i], i};
	return n;
}

/* The id at which the weights, added up in order, pass u. */
static int32_t find(const double *w, const double *block, int n, double u)
{
	int32_t last = 0;
	double sum = 0;
	int i = 0;

	while (i + BLOCK < n && sum + block[i / BLOCK] <= u) {
		sum += block[i / BLOCK];
		i += BLOCK;
	}
	for (; i < n; i++) {
		sum += w[i];
		last = w[i] > 0 ? i : last;
		if (u < sum)
			return i;
	}
	while (w[last] == 0) /* u rounded up to the total, in a block of zeros */
		last = last > 0 ? last - 1 : n - 1;
	return last;
}

static int32_t draw(struct dt_sampler *s, const struct dt_sampling *p, const float *logits, float max,
		    uint64_t index)
{
	struct dt_rng rng = dt_rng_make(p->seed, DT_RNG_SAMPLE, p->stream);
	double *block = (double *)s->cand; /* not needed at the same time */
	double total, u, sum = 0;
	struct dt_cand *c = s->cand;
	int n, kept;

	total = sample_weights(s->weight, block, logits, s->vocab, max, p->temperature, p->min_p);
	u = dt_rng_uniform53(&rng, index);
	if ((p->top_k <= 0 || p->top_k >= s->vocab) && p->top_p >= 1)
		return find(s->weight, block, s->vocab, u * total);
	n = candidates(s, p, total);
	kept = keep_best(c, n, p->top_k < s->vocab ? p->top_k : 0, p->top_p, total);
	total = 0;
	for (int i = n - kept; i < n; i++)
		total += c[i].p;
	for (int i = n - kept; i < n; i++) {
		sum += c[i].p;
		if (u * total < sum)
			return c[i].id;
	}
	return c[n - 1].id; /* u rounded up to 1 */
}

int32_t dt_sample(struct dt_sampler *s, const struct dt_sampling *p, float *logits, const int32_t *prompt,
		  size_t nprompt, const int32_t *out, size_t nout)
{
	int32_t best;

	for (int i = 0; i < p->nbias; i++)
		logits[p->bias[i].id] += p->bias[i].bias;
	penalties(s, p, logits, prompt, nprompt, out, nout);
	for (int i = 0; i < p->nban; i++)
		logits[p->ban[i]] = -INFINITY;
	for (int i = 0; p->allow && i < s->vocab; i++)
		if (!(p->allow[i / 32] >> i % 32 & 1))
			logits[i] = -INFINITY;
	best = argmax(logits, s->vocab);
	if (best < 0 || p->temperature == 0)
		return best;
	return draw(s, p, logits, logits[best], nout);
}

void dt_logprobs(const float *logits, int vocab, int32_t id, struct dt_logprob *chosen, int n,
		 struct dt_logprob *top)
{
	double max = sample_max(logits, vocab), sum = 0;
	int have = 0;

	for (int i = 0; i < vocab; i += BLOCK) {
		double w[BLOCK], part;

		sum += sample_weights(w, &part, logits + i, vocab - i < BLOCK ? vocab - i : BLOCK, (float)max,
				      1, 0);
	}
	sum = max + log(sum);
	for (int i = 0; i < vocab && n > 0; i++) {
		float lp = (float)(logits[i] - sum);
		int at = have;

		if (have == n && lp <= top[n - 1].logprob)
			continue;
		if (have < n)
			have++;
		else
			at = n - 1;
		for (; at > 0 && top[at - 1].logprob < lp; at--)
			top[at] = top[at - 1];
		top[at] = (struct dt_logprob){i, lp};
	}
	*chosen = (struct dt_logprob){id, (float)(logits[id] - sum)};
}
