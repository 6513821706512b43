#include "plan/objective.h"

#include <math.h>
#include <stddef.h>

/* -log sigma(x) without overflow; *slope: its derivative. */
static double softplus(double x, double *slope)
{
	*slope = x > 0 ? -exp(-x) / (1 + exp(-x)) : -1 / (1 + exp(x));
	return x > 0 ? log1p(exp(-x)) : -x + log1p(exp(x));
}

static struct dt_pair_loss dpo(const struct dt_pair *p, double beta, double gamma)
{
	struct dt_pair_loss l;
	double slope;

	l.loss = softplus(beta * (p->chosen - p->rejected), &slope);
	l.dchosen = beta * slope;
	l.drejected = -beta * slope;
	return l;
}

static struct dt_pair_loss ipo(const struct dt_pair *p, double beta, double gamma)
{
	double nc = (double)p->nchosen, nr = (double)p->nrejected;
	double off = p->chosen / nc - p->rejected / nr - 1 / (2 * beta);

	return (struct dt_pair_loss){off * off, 2 * off / nc, -2 * off / nr};
}

static struct dt_pair_loss hinge(const struct dt_pair *p, double beta, double gamma)
{
	double left = 1 - beta * (p->chosen - p->rejected);

	return left > 0 ? (struct dt_pair_loss){left, -beta, beta} : (struct dt_pair_loss){0, 0, 0};
}

static struct dt_pair_loss simpo(const struct dt_pair *p, double beta, double gamma)
{
	double nc = (double)p->nchosen, nr = (double)p->nrejected, slope;
	double loss = softplus(beta * (p->chosen / nc - p->rejected / nr) - gamma, &slope);

	return (struct dt_pair_loss){loss, beta * slope / nc, -beta * slope / nr};
}

/* log(p / (1 - p)) of p = exp x, x < 0; *slope: its derivative 1 / (1 - p). */
static double log_odds(double x, double *slope)
{
	double rest = -expm1(x < -1e-12 ? x : -1e-12);

	*slope = 1 / rest;
	return x - log(rest);
}

static struct dt_pair_loss orpo(const struct dt_pair *p, double beta, double gamma)
{
	double nc = (double)p->nchosen, nr = (double)p->nrejected, sc, sr, slope;
	double odds = log_odds(p->chosen / nc, &sc) - log_odds(p->rejected / nr, &sr);
	double loss = beta * softplus(odds, &slope) - p->chosen / nc;

	return (struct dt_pair_loss){loss, (beta * slope * sc - 1) / nc, -beta * slope * sr / nr};
}

static struct dt_answer_loss kto(double a, bool good, double beta, double z, double weight)
{
	const double x = good ? beta * (a - z) : beta * (z - a), bad = 1 / (1 + exp(x)); /* 1 - sigma(x) */

	return (struct dt_answer_loss){weight * bad, weight * (good ? -beta : beta) * bad * (1 - bad)};
}

static const struct dt_objective_rule rules[DT_OBJECTIVE_N] = {
	[DT_OBJECTIVE_NLL] = {"nll", false, 0, 0, NULL},
	[DT_OBJECTIVE_DPO] = {"dpo", true, 0.1, 0, dpo},
	[DT_OBJECTIVE_IPO] = {"ipo", true, 0.1, 0, ipo},
	[DT_OBJECTIVE_HINGE] = {"hinge", true, 0.1, 0, hinge},
	[DT_OBJECTIVE_SIMPO] = {"simpo", false, 2, 1, simpo},
	[DT_OBJECTIVE_ORPO] = {"orpo", false, 0.1, 0, orpo},
	[DT_OBJECTIVE_KTO] = {"kto", true, 0.1, .alone = kto},
	[DT_OBJECTIVE_GRPO] = {"grpo", .rewards = true, .group = 2, .clips = true},
	[DT_OBJECTIVE_DRGRPO] = {"drgrpo", .rewards = true, .group = 2, .clips = true},
	[DT_OBJECTIVE_DAPO] = {"dapo", .rewards = true, .group = 2, .clips = true},
	[DT_OBJECTIVE_RLOO] = {"rloo", .rewards = true, .group = 2, .caps = true},
	[DT_OBJECTIVE_REINFORCE] = {"reinforce", .rewards = true, .group = 2, .caps = true},
	[DT_OBJECTIVE_CISPO] = {"cispo", .rewards = true, .group = 2, .caps = true},
	[DT_OBJECTIVE_GSPO] = {"gspo", .rewards = true, .group = 2, .clips = true},
	[DT_OBJECTIVE_PPO] = {"ppo", .rewards = true, .values = true, .group = 1, .clips = true},
	[DT_OBJECTIVE_VTRACE] = {"vtrace", .rewards = true, .values = true, .group = 1, .caps = true},
};

const struct dt_objective_rule *dt_objective_rule(int kind)
{
	return &rules[kind];
}
/* SPDX-License-Identifier: Apache-2.0 */
