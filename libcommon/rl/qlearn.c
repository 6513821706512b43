#include "rl/qlearn.h"

#include "base/arena.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A net, its target weights, and passes over both. */
struct pair {
	struct dt_net *net;
	float *old;			     /* target weights [net->n]; NULL: the net's own */
	struct dt_pass *now, *next, *target; /* the net's weights on now and next; target weights on next */
};

struct dt_qlearn {
	struct dt_qlearn_opts o;
	int n, agents, actions, outputs;
	size_t row; /* numbers in an observation of all agents */
	struct pair agent, mix;
	int64_t updates;
	const struct dt_transition *t;
	const double *weight;
	float *now, *next;   /* [n, agents, observation] */
	double *goal;	     /* [n, agents] target: reward + follows Q'; with a mixer [n] */
	double *q, *dq, *dh; /* [n, agents] values of the taken actions; dloss/dq; [outputs of the mixer] */
	double *error;	     /* [n] */
	double mean;
};

/* q(a) of one row of outputs. */
static double value_of(const float *y, int actions, int a)
{
	double sum = 0;

	for (int i = 0; i < actions; i++)
		sum += (double)y[i];
	return (double)y[actions] + (double)y[a] - sum / actions;
}

static int best_of(const float *y, int actions)
{
	int best = 0;

	for (int i = 1; i < actions; i++)
		best = y[i] > y[best] ? i : best;
	return best;
}

static int open_pair(struct pair *p, int64_t rows, bool learns, bool keeps, struct dt_err *err)
{
	const size_t bytes = (size_t)p->net->n * sizeof(float);
	int rc = 0;

	if (keeps) {
		p->old = aligned_alloc(DT_ALIGN, dt_align_up(bytes));
		if (!p->old)
			return dt_err_sys(err, -ENOMEM, "cannot open a learner");
		memcpy(p->old, p->net->weights, bytes);
	}
	rc = dt_pass_open(&p->now, p->net, rows, p->net->weights, learns, err);
	if (rc == 0)
		rc = dt_pass_open(&p->next, p->net, rows, p->net->weights, false, err);
	if (rc == 0)
		rc = dt_pass_open(&p->target, p->net, rows, p->old ? p->old : p->net->weights, false, err);
	return rc;
}

static void close_pair(struct pair *p)
{
	dt_pass_close(p->now);
	dt_pass_close(p->next);
	dt_pass_close(p->target);
	free(p->old);
}

static int open_mixer(struct dt_qlearn *q, struct dt_err *err)
{
	struct dt_net_opts o = q->o.net;
	char hidden[16];

	snprintf(hidden, sizeof(hidden), "%d", q->o.width);
	o.hidden = hidden;
	o.observation = (int64_t)q->row;
	o.outputs = dt_mix_outputs(q->agents, q->o.width);
	o.seed ^= 0x6d69786572; /* other initial weights than the agents' */
	q->dh = calloc((size_t)o.outputs, sizeof(*q->dh));
	if (!q->dh)
		return dt_err_sys(err, -ENOMEM, "cannot open a learner");
	return dt_net_open(&q->mix.net, &o, err);
}

int dt_qlearn_open(struct dt_qlearn **ret, struct dt_net *net, const struct dt_qlearn_opts *o, int n,
		   int agents, bool learns, struct dt_err *err)
{
	struct dt_qlearn *q = calloc(1, sizeof(*q));
	const size_t rows = (size_t)n * (size_t)agents;
	int rc = 0;

	if (!q)
		return dt_err_sys(err, -ENOMEM, "cannot open a learner");
	q->o = *o;
	q->n = n;
	q->agents = agents;
	q->outputs = (int)net->config->vocab;
	q->actions = q->outputs - 1;
	q->row = (size_t)agents * (size_t)net->config->channels;
	q->agent.net = net;
	q->now = calloc((size_t)n, q->row * sizeof(*q->now));
	q->next = calloc((size_t)n, q->row * sizeof(*q->next));
	q->goal = calloc(rows, sizeof(*q->goal));
	q->q = calloc(rows, sizeof(*q->q));
	q->dq = calloc(rows, sizeof(*q->dq));
	if (!q->now || !q->next || !q->goal || !q->q || !q->dq)
		rc = dt_err_sys(err, -ENOMEM, "cannot open a learner");
	if (rc == 0)
		rc = open_pair(&q->agent, (int64_t)rows, learns, o->target_every > 0, err);
	if (rc == 0 && o->mixer == DT_MIX_NET)
		rc = open_mixer(q, err);
	if (rc == 0 && q->mix.net)
		rc = open_pair(&q->mix, n, learns, o->target_every > 0, err);
	if (rc < 0)
		dt_qlearn_close(q);
	else
		*ret = q;
	return rc;
}

void dt_qlearn_close(struct dt_qlearn *q)
{
	if (!q)
		return;
	close_pair(&q->agent);
	close_pair(&q->mix);
	dt_net_close(q->mix.net);
	free(q->now);
	free(q->next);
	free(q->goal);
	free(q->q);
	free(q->dq);
	free(q->dh);
	free(q);
}

struct dt_net *dt_qlearn_mixer(const struct dt_qlearn *q)
{
	return q->mix.net;
}

/* Computes the targets from the following states. */
static int find_goals(struct dt_qlearn *q, const struct dt_transition *t, struct dt_err *err)
{
	const float *choice, *value, *h = NULL;
	int rc = 0;

	for (int i = 0; i < q->n; i++) {
		memcpy(q->now + (size_t)i * q->row, t[i].now, q->row * sizeof(float));
		memcpy(q->next + (size_t)i * q->row, t[i].next, q->row * sizeof(float));
	}
	rc = dt_pass_forward(q->agent.next, q->next, &choice, err);
	if (rc == 0)
		rc = dt_pass_forward(q->agent.target, q->next, &value, err);
	if (rc == 0 && q->mix.net)
		rc = dt_pass_forward(q->mix.target, q->next, &h, err);
	for (int i = 0; i < q->n && rc == 0; i++) {
		double *best = q->q + (size_t)i * (size_t)q->agents, /* used as scratch */
			*dq = q->dq + (size_t)i * (size_t)q->agents, all = 0;

		for (int a = 0; a < q->agents; a++) {
			const int64_t r = ((int64_t)i * q->agents + a) * q->outputs;

			best[a] = value_of(value + r, q->actions, best_of(choice + r, q->actions));
			q->goal[i * q->agents + a] = t[i].reward + t[i].follows * best[a];
			all += best[a];
		}
		if (h)
			all = dt_mix(q->agents, q->o.width,
				     h + (size_t)i * (size_t)dt_mix_outputs(q->agents, q->o.width), best, dq,
				     NULL);
		if (q->o.mixer != DT_MIX_NONE)
			q->goal[i] = t[i].reward + t[i].follows * all;
	}
	return rc;
}

/* Computes the values of the actions taken. */
static void find_values(struct dt_qlearn *q, const float *y)
{
	q->mean = 0;
	for (int i = 0; i < q->n; i++)
		for (int a = 0; a < q->agents; a++) {
			const int64_t r = (int64_t)i * q->agents + a;

			q->q[r] = value_of(y + r * q->outputs, q->actions, q->t[i].action[a]);
			q->mean += q->q[r] / (q->n * q->agents);
		}
}

/* The loss of transition i with Q `all`; *d: its derivative by Q. */
static double square(struct dt_qlearn *q, int i, double all, double *d)
{
	const double off = all - q->goal[i], w = q->weight ? q->weight[i] / q->n : 0;

	q->error[i] = fabs(off);
	*d = w * off;
	return w * off * off / 2;
}

/* Loss with outputs h of the mixer's net; also fills dq. */
static int judge_mixed(void *arg, const float *h, float *dy, double *loss, struct dt_err *err)
{
	struct dt_qlearn *q = arg;
	const int n = dt_mix_outputs(q->agents, q->o.width);

	(void)err;
	for (int i = 0; i < q->n; i++) {
		double *dq = q->dq + (size_t)i * (size_t)q->agents, d,
		       all = dt_mix(q->agents, q->o.width, h + (size_t)i * (size_t)n,
				    q->q + (size_t)i * (size_t)q->agents, dq, dy ? q->dh : NULL);

		*loss += square(q, i, all, &d);
		for (int a = 0; a < q->agents; a++)
			dq[a] *= d;
		for (int k = 0; k < n && dy; k++)
			dy[(size_t)i * (size_t)n + (size_t)k] = (float)(d * q->dh[k]);
	}
	return 0;
}

/* Loss with the sum of the agents' values as Q. */
static void judge_sum(struct dt_qlearn *q, double *loss)
{
	for (int i = 0; i < q->n; i++) {
		double all = 0, d;

		for (int a = 0; a < q->agents; a++)
			all += q->q[i * q->agents + a];
		*loss += square(q, i, all, &d);
		for (int a = 0; a < q->agents; a++)
			q->dq[i * q->agents + a] = d;
	}
}

static void judge_each(struct dt_qlearn *q, double *loss)
{
	for (int i = 0; i < q->n; i++) {
		const double w = q->weight ? q->weight[i] / (q->n * q->agents) : 0;

		q->error[i] = 0;
		for (int a = 0; a < q->agents; a++) {
			const int r = i * q->agents + a;
			const double off = q->q[r] - q->goal[r];

			q->error[i] += fabs(off) / q->agents;
			q->dq[r] = w * off;
			*loss += w * off * off / 2;
		}
	}
}

static int judge_values(struct dt_qlearn *q, const float *y, bool learns, double *loss, struct dt_err *err)
{
	double mixed = 0;
	const float *h;
	int rc = 0;

	find_values(q, y);
	if (q->o.mixer == DT_MIX_NONE) {
		judge_each(q, loss);
	} else if (q->o.mixer == DT_MIX_SUM) {
		judge_sum(q, loss);
	} else if (learns) {
		rc = dt_pass_learn(q->mix.now, q->now, judge_mixed, q, &mixed, err);
		*loss += mixed;
	} else {
		rc = dt_pass_forward(q->mix.now, q->now, &h, err);
		if (rc == 0)
			rc = judge_mixed(q, h, NULL, loss, err);
	}
	return rc;
}

static int judge(void *arg, const float *y, float *dy, double *loss, struct dt_err *err)
{
	struct dt_qlearn *q = arg;
	int rc = judge_values(q, y, true, loss, err);

	for (int r = 0; r < q->n * q->agents && rc == 0; r++) {
		const int taken = q->t[r / q->agents].action[r % q->agents];
		float *d = dy + (int64_t)r * q->outputs;

		for (int k = 0; k < q->actions; k++)
			d[k] = (float)(q->dq[r] * ((k == taken) - 1.0 / q->actions));
		d[q->actions] = (float)q->dq[r];
	}
	return rc;
}

int dt_qlearn_learn(struct dt_qlearn *q, const struct dt_transition *t, const double *weight, double *error,
		    double *ret_loss, double *ret_mean, struct dt_err *err)
{
	int rc;

	q->t = t;
	q->weight = weight;
	q->error = error;
	rc = find_goals(q, t, err);
	if (rc == 0)
		rc = dt_pass_learn(q->agent.now, q->now, judge, q, ret_loss, err);
	if (ret_mean)
		*ret_mean = q->mean;
	return rc;
}

int dt_qlearn_errors(struct dt_qlearn *q, const struct dt_transition *t, double *error, struct dt_err *err)
{
	const float *y;
	double loss = 0;
	int rc;

	q->t = t;
	q->weight = NULL;
	q->error = error;
	rc = find_goals(q, t, err);
	if (rc == 0)
		rc = dt_pass_forward(q->agent.now, q->now, &y, err);
	return rc == 0 ? judge_values(q, y, false, &loss, err) : rc;
}

static void follow(struct pair *p)
{
	if (p->old)
		memcpy(p->old, p->net->weights, (size_t)p->net->n * sizeof(float));
}

void dt_qlearn_follow(struct dt_qlearn *q)
{
	follow(&q->agent);
	follow(&q->mix);
}

int dt_qlearn_update(struct dt_qlearn *q, double *ret_norm, struct dt_err *err)
{
	const double norm = hypot(dt_net_norm(q->agent.net), q->mix.net ? dt_net_norm(q->mix.net) : 0);
	int rc = dt_net_update(q->agent.net, norm, err);

	if (rc == 0 && q->mix.net)
		rc = dt_net_update(q->mix.net, norm, err);
	if (ret_norm)
		*ret_norm = norm;
	if (rc == 0 && ++q->updates % (q->o.target_every > 0 ? q->o.target_every : 1) == 0)
		dt_qlearn_follow(q);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
