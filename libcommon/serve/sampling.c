#include "serve/sampling.h"

#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

int dt_sampler_init(struct dt_sampler *s, int vocab)
{
	s->vocab = vocab;
	s->count = calloc((size_t)vocab, sizeof(*s->count));
	s->cand = malloc((size_t)vocab * sizeof(*s->cand));
	if (s->count && s->cand)
		return 0;
	dt_sampler_release(s);
	return -ENOMEM;
}

void dt_sampler_release(struct dt_sampler *s)
{
	free(s->count);
	free(s->cand);
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

static int32_t argmax(const float *x, int n)
{
	int32_t best = 0;

	for (int i = 0; i < n; i++) {
		if (isnan(x[i]))
			return -EDOM;
		if (x[i] > x[best])
			best = i;
	}
	return isfinite(x[best]) ? best : -EDOM;
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
	bool cut = top_k > 0 && top_k < n;
	int limit = cut ? top_k : n, kept = 0, share = 0;
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

static int32_t draw(struct dt_sampler *s, const struct dt_sampling *p, const float *logits, float max,
		    uint64_t index)
{
	struct dt_rng rng = dt_rng_make(p->seed, DT_RNG_SAMPLE, p->stream);
	struct dt_cand *c = s->cand;
	double total = 0, u, sum = 0;
	int n = 0, kept;

	for (int i = 0; i < s->vocab; i++) {
		double e = exp(((double)logits[i] - max) / p->temperature);

		if (e > 0 && e >= p->min_p) {
			c[n++] = (struct dt_cand){e, i};
			total += e;
		}
	}
	kept = n;
	if ((p->top_k > 0 && p->top_k < n) || p->top_p < 1)
		kept = keep_best(c, n, p->top_k, p->top_p, total);
	total = 0;
	for (int i = n - kept; i < n; i++)
		total += c[i].p;
	u = dt_rng_uniform53(&rng, index) * total;
	for (int i = n - kept; i < n; i++) {
		sum += c[i].p;
		if (u < sum)
			return c[i].id;
	}
	return c[n - 1].id; /* u rounded up to total */
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
	double max = -INFINITY, sum = 0;
	int have = 0;

	for (int i = 0; i < vocab; i++)
		if (logits[i] > max)
			max = logits[i];
	for (int i = 0; i < vocab; i++)
		sum += exp(logits[i] - max);
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
