#include "rl/critic.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct dt_critic {
	struct dt_critic_opts o;
	struct dt_unroll_size size;
	struct dt_pass *pass, *behind;
	int n, outputs;
	int64_t rows; /* n x envs x steps x agents */
	const struct dt_unroll *const *u;
	struct dt_critic_stats stats;
	float *now, *next, *follow;	    /* [rows, observation]; follow: [rows] values of next states */
	float *value;			    /* [steps] of part of an episode */
	double *reward, *ratio, *adv, *ret; /* likewise */
};

int dt_critic_open(struct dt_critic **ret, struct dt_net *net, const struct dt_unroll_size *s, int n,
		   const struct dt_critic_opts *o, struct dt_err *err)
{
	struct dt_critic *c = calloc(1, sizeof(*c));
	const size_t steps = (size_t)s->steps;
	size_t in;
	int rc = 0;

	if (!c)
		return dt_err_sys(err, -ENOMEM, "cannot open a learner");
	c->o = *o;
	c->size = *s;
	c->n = n;
	c->outputs = (int)net->config->vocab;
	c->rows = (int64_t)n * s->envs * s->steps * s->agents;
	in = (size_t)c->rows * (size_t)s->observation;
	c->now = calloc(in, sizeof(float));
	c->next = calloc(in, sizeof(float));
	c->follow = calloc((size_t)c->rows, sizeof(float));
	c->value = calloc(steps, sizeof(float));
	c->reward = calloc(4 * steps, sizeof(double));
	if (!c->now || !c->next || !c->follow || !c->value || !c->reward)
		rc = dt_err_sys(err, -ENOMEM, "cannot open a learner");
	c->ratio = c->reward + steps;
	c->adv = c->ratio + steps;
	c->ret = c->adv + steps;
	if (rc == 0)
		rc = dt_pass_open(&c->pass, net, c->rows, net->weights, true, err);
	if (rc == 0)
		rc = dt_pass_open(&c->behind, net, c->rows, net->weights, false, err);
	if (rc < 0)
		dt_critic_close(c);
	else
		*ret = c;
	return rc;
}

void dt_critic_close(struct dt_critic *c)
{
	if (!c)
		return;
	dt_pass_close(c->pass);
	dt_pass_close(c->behind);
	free(c->now);
	free(c->next);
	free(c->follow);
	free(c->value);
	free(c->reward);
	free(c);
}

/* The loss of a row with outputs y; fills dy. adv: the advantage; ret: the value's target. */
static double row_loss(struct dt_critic *c, const float *y, float *dy, int action, double weight, double adv,
		       double ret)
{
	const int k = c->outputs - 1;
	const double all = dt_log_sum(y, k), each = 1 / (double)c->rows, off = (double)y[k] - ret;
	double entropy = 0, logp = (double)y[action] - all;

	for (int i = 0; i < k; i++) {
		const double l = (double)y[i] - all;

		entropy -= exp(l) * l;
	}
	for (int i = 0; i < k; i++) {
		const double l = (double)y[i] - all, p = exp(l);

		dy[i] = (float)(each *
				(weight * adv * (p - (i == action)) + c->o.entropy_coef * p * (l + entropy)));
	}
	dy[k] = (float)(each * c->o.value_coef * off);
	c->stats.entropy += each * entropy;
	c->stats.value_loss += each * off * off / 2;
	return each * (-weight * adv * logp + c->o.value_coef * off * off / 2 - c->o.entropy_coef * entropy);
}

/* Steps [first, first + n) of agent j in environment e of unroll `number`, all of one episode. */
static void piece(struct dt_critic *c, int number, int e, int j, int first, int n, const float *y, float *dy,
		  double *loss)
{
	const struct dt_unroll *u = c->u[number];
	const int agents = c->size.agents;
	const int64_t base = (int64_t)number * c->size.envs * c->size.steps;
	int64_t s = (int64_t)e * c->size.steps + first; /* index of the step in u */

	for (int t = 0; t < n; t++) {
		const int64_t k = (s + t) * agents + j, r = base * agents + k;
		const float *row = y + r * c->outputs;

		c->value[t] = row[c->outputs - 1];
		c->reward[t] = u->reward[s + t];
		c->ratio[t] = c->o.vtrace ? exp(fmax(-20, fmin(20, (double)row[u->action[k]] -
									   dt_log_sum(row, c->outputs - 1) -
									   (double)u->said[k])))
					  : 1;
	}
	if (u->over[s + n - 1] != DT_ENDED)
		c->reward[n - 1] +=
			c->o.returns.discount * (double)c->follow[base * agents + (s + n - 1) * agents + j];
	if (c->o.vtrace)
		dt_vtrace(&c->o.returns, n, c->reward, c->value, c->ratio, c->adv, c->ret);
	else
		dt_gae(&c->o.returns, n, c->reward, c->value, c->adv, c->ret);
	for (int t = 0; t < n; t++) {
		const int64_t k = (s + t) * agents + j, r = base * agents + k;

		c->stats.ratio += c->ratio[t] / (double)c->rows;
		*loss +=
			row_loss(c, y + r * c->outputs, dy + r * c->outputs, u->action[k],
				 c->o.vtrace ? fmin(c->o.returns.rho, c->ratio[t]) : 1, c->adv[t], c->ret[t]);
	}
}

static int judge(void *arg, const float *y, float *dy, double *loss, struct dt_err *err)
{
	struct dt_critic *c = arg;

	(void)err;
	for (int i = 0; i < c->n; i++)
		for (int e = 0; e < c->size.envs; e++)
			for (int j = 0; j < c->size.agents; j++)
				for (int first = 0, t = 0; t < c->size.steps; t++)
					if (t == c->size.steps - 1 || c->u[i]->over[e * c->size.steps + t]) {
						piece(c, i, e, j, first, t + 1 - first, y, dy, loss);
						first = t + 1;
					}
	return 0;
}

int dt_critic_learn(struct dt_critic *c, const struct dt_unroll *const *u, double *ret_loss,
		    struct dt_critic_stats *ret, struct dt_err *err)
{
	const size_t n = (size_t)(c->rows / c->n) * (size_t)c->size.observation;
	const float *y;
	int rc;

	c->u = u;
	c->stats = (struct dt_critic_stats){0};
	for (int i = 0; i < c->n; i++) {
		memcpy(c->now + (size_t)i * n, u[i]->now, n * sizeof(float));
		memcpy(c->next + (size_t)i * n, u[i]->next, n * sizeof(float));
	}
	rc = dt_pass_forward(c->behind, c->next, &y, err);
	for (int64_t r = 0; r < c->rows && rc == 0; r++)
		c->follow[r] = y[(r + 1) * c->outputs - 1];
	if (rc == 0)
		rc = dt_pass_learn(c->pass, c->now, judge, c, ret_loss, err);
	*ret = c->stats;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
