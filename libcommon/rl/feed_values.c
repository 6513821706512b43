/* Values of a step's tokens, and the returns and advantages computed from them. */
#include "rl/feed_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FAR 20.0 /* limit of log-ratios */

int feed_values_begin(struct feed *f, struct dt_err *err)
{
	const size_t n = (size_t)(f->pack.rows * f->pack.seq) + 1, tokens = (size_t)f->pack.tokens + 1;
	struct feed_values *v = &f->values;

	if (!dt_policy_has_values(&f->policy))
		return 0;
	feed_values_release(f);
	v->value = calloc(n, sizeof(*v->value));
	v->logprob = calloc(n, sizeof(*v->logprob));
	v->advantage = calloc(tokens, sizeof(*v->advantage));
	v->ret = calloc(tokens, sizeof(*v->ret));
	v->reward = calloc(2 * tokens, sizeof(*v->reward));
	return v->value && v->logprob && v->advantage && v->ret && v->reward
		       ? 0
		       : dt_err_sys(err, -ENOMEM, "cannot hold the values of rollouts");
}

void feed_values_release(struct feed *f)
{
	struct feed_values *v = &f->values;

	free(v->value);
	free(v->logprob);
	free(v->advantage);
	free(v->ret);
	free(v->reward);
	*v = (struct feed_values){0};
}

void feed_values_look(struct feed *f, const struct dt_flight *flight, const float *logprob)
{
	const int64_t seq = f->pack.seq, first = flight->sample, left = f->pack.rows - first,
		      n = left < f->site.run->microbatch ? left : f->site.run->microbatch;

	if (n <= 0 || !f->site.counts)
		return;
	memcpy(f->values.value + first * seq, f->site.value, (size_t)(n * seq) * sizeof(float));
	memcpy(f->values.logprob + first * seq, logprob, (size_t)(n * seq) * sizeof(float));
}

/* Returns and advantages of an answer: the reward is on its last token, the divergence on each. */
static void answer_returns(struct feed *f, const struct dt_placed *d, double *advantage, double *ret)
{
	const struct dt_policy *p = &f->policy;
	const struct dt_answer *a = &f->now[d->group].answer[d->answer];
	const struct dt_returns how = {f->o.discount, f->o.lambda, 1, 1};
	const int64_t at = d->row * f->pack.seq + d->at;
	double *reward = f->values.reward, *ratio = reward + f->pack.tokens;

	for (int t = 0; t < a->n; t++) {
		const double x = (double)f->values.logprob[at + t] - (double)a->logprob[t];

		reward[t] = t + 1 == a->n ? a->reward : 0;
		if (f->reference && p->in_reward)
			reward[t] -= dt_policy_penalty(p, 1, a->logprob + t, f->reference + at + t);
		ratio[t] = exp(fmax(-FAR, fmin(FAR, x)));
	}
	if (p->base == DT_BASE_GAE)
		dt_gae(&how, a->n, reward, f->values.value + at, advantage, ret);
	else
		dt_vtrace(&how, a->n, reward, f->values.value + at, ratio, advantage, ret);
}

int feed_values_ready(struct feed *f, struct dt_err *err)
{
	const size_t n = (size_t)(f->pack.rows * f->pack.seq);
	struct feed_values *v = &f->values;
	int rc = dt_all_reduce(f->site.all, v->value, NULL, n, DT_F32, DT_SUM, "values", err);

	return rc < 0 ? rc
		      : dt_all_reduce(f->site.all, v->logprob, NULL, n, DT_F32, DT_SUM, "log-probabilities",
				      err);
}

void feed_values_teach(struct feed *f)
{
	struct feed_values *v = &f->values;
	int64_t at = 0;

	for (int64_t i = 0; i < f->pack.n; i++) {
		const struct dt_placed *d = &f->pack.placed[i];

		answer_returns(f, d, v->advantage + at, v->ret + at);
		f->lesson[d->number].token = v->advantage + at;
		at += f->now[d->group].answer[d->answer].n;
	}
	if (f->policy.std)
		dt_policy_whiten(v->advantage, at);
}
/* SPDX-License-Identifier: Apache-2.0 */
