#include "rl/policy.h"

#include <math.h>
#include <string.h>

#define FAR	20.0 /* limit of log-ratios */
#define K3_MOST 10.0

static const struct dt_policy policies[] = {
	{"grpo", DT_BASE_MEAN, true, DT_PER_ANSWER, DT_RATIO_CLIP, 0.2, 0.2, 0, false},
	{"drgrpo", DT_BASE_MEAN, false, DT_PER_CONSTANT, DT_RATIO_CLIP, 0.2, 0.2, 0, false},
	{"dapo", DT_BASE_MEAN, true, DT_PER_TOKENS, DT_RATIO_CLIP, 0.2, 0.28, 0, true},
	{"rloo", DT_BASE_OTHERS, false, DT_PER_SUM, DT_RATIO_CAP, 0, 0, 2, false},
	{"reinforce", DT_BASE_BATCH, false, DT_PER_TOKENS, DT_RATIO_CAP, 0, 0, 2, false},
	{"cispo", DT_BASE_MEAN, true, DT_PER_TOKENS, DT_RATIO_CAP, 0, 0, 5, false},
	{"gspo", DT_BASE_MEAN, true, DT_PER_ANSWER, DT_RATIO_WHOLE, 3e-4, 4e-4, 0, false},
	{"ppo", DT_BASE_GAE, true, DT_PER_TOKENS, DT_RATIO_CLIP, 0.2, 0.2, 0, false},
	{"vtrace", DT_BASE_VTRACE, false, DT_PER_TOKENS, DT_RATIO_CAP, 0, 0, 1, false},
};

const struct dt_policy *dt_policy_find(const char *name)
{
	for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++)
		if (!strcmp(policies[i].name, name))
			return &policies[i];
	return NULL;
}

/* Over the finite rewards minus penalties; low and high are without penalties. */
struct spread {
	int n;
	double mean, std, low, high;
};

static double reward_of(const struct dt_group *g, const double *penalty, int k)
{
	return g->answer[k].reward - (penalty ? penalty[k] : 0);
}

static struct spread spread_of(const struct dt_group *g, const double *penalty)
{
	struct spread s = {.low = INFINITY, .high = -INFINITY};
	double sum = 0, squares = 0;

	for (int k = 0; k < g->n; k++) {
		const double x = g->answer[k].reward;

		if (!isfinite(x))
			continue;
		s.n++;
		sum += reward_of(g, penalty, k);
		s.low = fmin(s.low, x);
		s.high = fmax(s.high, x);
	}
	s.mean = s.n ? sum / s.n : 0;
	for (int k = 0; k < g->n; k++)
		if (isfinite(g->answer[k].reward))
			squares += pow(reward_of(g, penalty, k) - s.mean, 2);
	s.std = s.n > 1 ? sqrt(squares / (s.n - 1)) : 0; /* sample deviation, like PyTorch's std */
	return s;
}

static double advantage(const struct dt_policy *p, const struct spread *s, double reward)
{
	const double a = reward - s->mean;

	if (dt_policy_has_values(p))
		return 0;
	if (p->base == DT_BASE_OTHERS)
		return s->n > 1 ? a * s->n / (s->n - 1) : 0;
	return p->std ? a / (s->std + 1e-6) : a;
}

/* Divides by the standard deviation of all advantages, whose mean is 0. */
static void whiten(struct dt_lesson *l, int64_t n, double answers)
{
	double squares = 0, std;

	for (int64_t i = 0; i < n; i++)
		squares += l[i].advantage * l[i].advantage;
	std = sqrt(squares / (answers > 0 ? answers : 1)) + 1e-6;
	for (int64_t i = 0; i < n; i++)
		l[i].advantage /= std;
}

void dt_policy_whiten(double *advantage, int64_t n)
{
	double mean = 0, squares = 0, std;

	for (int64_t i = 0; i < n; i++)
		mean += advantage[i] / (double)n;
	for (int64_t i = 0; i < n; i++)
		squares += (advantage[i] - mean) * (advantage[i] - mean);
	std = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
	for (int64_t i = 0; i < n; i++)
		advantage[i] = (advantage[i] - mean) / (std + 1e-8);
}

/* Whether an answer counts in the numbers of answers and tokens. */
static bool counts(const struct dt_policy *p, const struct spread *s, const struct dt_answer *a)
{
	return isfinite(a->reward) && !(p->drops_flat && s->high <= s->low);
}

void dt_policy_lessons(const struct dt_policy *p, const struct dt_group *g, int64_t n, int64_t most,
		       const double *penalty, struct dt_lesson *ret)
{
	double answers = 0, tokens = 0;
	int64_t at = 0;

	for (int64_t i = 0; i < n; i++) {
		const double *less = penalty ? penalty + at : NULL;
		const struct spread s = spread_of(&g[i], less);

		for (int k = 0; k < g[i].n; k++, at++) {
			const struct dt_answer *a = &g[i].answer[k];

			ret[at] = (struct dt_lesson){0, counts(p, &s, a), NULL};
			if (!counts(p, &s, a))
				continue;
			ret[at].advantage = advantage(p, &s, reward_of(&g[i], less, k));
			answers++;
			tokens += a->n;
		}
	}
	if (p->base == DT_BASE_BATCH)
		whiten(ret, at, answers);
	at = 0;
	for (int64_t i = 0; i < n; i++)
		for (int k = 0; k < g[i].n; k++, at++) {
			const double per[] = {[DT_PER_ANSWER] = answers * g[i].answer[k].n,
					      [DT_PER_CONSTANT] = answers * (double)most,
					      [DT_PER_TOKENS] = tokens,
					      [DT_PER_SUM] = answers};

			ret[at].weight = ret[at].weight > 0 ? 1 / per[p->over] : 0;
		}
}

double dt_kl(enum dt_kl kind, double logp, double ref, double *slope)
{
	const double log_q = fmax(-FAR, fmin(FAR, ref - logp)), k3 = expm1(log_q) - log_q;
	const bool open = fabs(ref - logp) < FAR && (kind != DT_KL_K3 || k3 < K3_MOST);

	if (kind == DT_KL_K3) {
		*slope = open ? -expm1(log_q) : 0;
		return fmin(k3, K3_MOST);
	}
	*slope = !open ? 0 : kind == DT_KL_K1 ? 1 : -log_q;
	return kind == DT_KL_K1 ? -log_q : log_q * log_q / 2;
}

double dt_policy_penalty(const struct dt_policy *p, int n, const float *mu, const float *ref)
{
	double sum = 0, slope;

	for (int t = 0; t < n; t++)
		sum += dt_kl(p->kl, (double)mu[t], (double)ref[t], &slope);
	return p->beta * sum;
}

static double log_ratio(const float *logp, const float *mu, int t)
{
	return fmax(-FAR, fmin(FAR, (double)logp[t] - (double)mu[t]));
}

static void count_ratio(struct dt_ratio_stats *s, double x, double logp)
{
	s->tokens++;
	s->ratio += exp(x);
	s->low = fmin(s->low, exp(x));
	s->high = fmax(s->high, exp(x));
	s->nll -= logp;
	s->kl += expm1(x) - x;
}

/* -min(r A, clip(r) A); *ret_free: whether the first term is taken and has a gradient. */
static double clipped(const struct dt_policy *p, double r, double a, bool *ret_free)
{
	const double c = fmax(1 - p->low, fmin(1 + p->high, r)) * a;

	*ret_free = r * a <= c;
	return -fmin(r * a, c);
}

/* KL divergence from the reference: returns the token's extra loss and lowers its weight. */
static double diverge(const struct dt_policy *p, const struct dt_lesson *l, double logp, double ref,
		      float *weight, struct dt_ratio_stats *s)
{
	double slope, k = dt_kl(p->kl, logp, ref, &slope);

	s->reference += k;
	if (p->in_reward)
		return 0;
	*weight -= (float)(l->weight * p->beta * slope);
	return l->weight * p->beta * k;
}

double dt_policy_loss(const struct dt_policy *p, const struct dt_lesson *l, int n, const float *logp,
		      const float *mu, const float *ref, float *weight, struct dt_ratio_stats *s)
{
	double loss = 0, mean = 0;
	bool open = true;

	for (int t = 0; t < n && p->ratio == DT_RATIO_WHOLE; t++)
		mean += log_ratio(logp, mu, t) / n;
	for (int t = 0; t < n; t++) {
		const double x = log_ratio(logp, mu, t), a = l->token ? l->token[t] : l->advantage;
		double r = exp(p->ratio == DT_RATIO_WHOLE ? mean : x);

		count_ratio(s, x, (double)logp[t]);
		if (p->ratio == DT_RATIO_CAP) {
			open = p->cap <= 0 || r <= p->cap;
			r = p->cap > 0 ? fmin(r, p->cap) : 1;
			loss -= l->weight * r * a * (double)logp[t];
			weight[t] = (float)(l->weight * r * a);
		} else { /* with WHOLE, 1 / n of the answer's loss per token is in its weight */
			loss += l->weight * clipped(p, r, a, &open);
			weight[t] = open ? (float)(l->weight * r * a) : 0;
		}
		s->clipped += !open;
		if (ref)
			loss += diverge(p, l, (double)logp[t], (double)ref[t], &weight[t], s);
	}
	return loss;
}

double dt_policy_value_loss(const struct dt_lesson *l, double coef, int n, const float *value,
			    const double *ret, float *slope, double *ret_square)
{
	double loss = 0;

	for (int t = 0; t < n; t++) {
		const double off = (double)value[t] - ret[t];

		slope[t] = (float)(l->weight * coef * off);
		loss += l->weight * coef * off * off / 2;
		*ret_square += off * off;
	}
	return loss;
}
/* SPDX-License-Identifier: Apache-2.0 */
