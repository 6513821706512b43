#include "rl/unroll.h"

#include "base/arena.h"
#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int dt_unroll_open(struct dt_unroll *u, const struct dt_unroll_size *s, struct dt_err *err)
{
	const size_t n = (size_t)s->envs * (size_t)s->steps, na = n * (size_t)s->agents,
		     no = na * (size_t)s->observation;
	char *p;

	*u = (struct dt_unroll){.size = *s};
	u->bytes = (n * 2 + (size_t)s->envs * DT_ACTOR_PLACE) * sizeof(double) +
		   (2 * no + 3 * na) * sizeof(float) + n;
	u->memory = p = calloc(1, u->bytes);
	if (!p)
		return dt_err_sys(err, -ENOMEM, "cannot keep an unroll");
	u->reward = (double *)(void *)p;
	u->score = u->reward + n;
	u->place = u->score + n;
	u->now = (float *)(u->place + s->envs * DT_ACTOR_PLACE);
	u->next = u->now + no;
	u->said = u->next + no;
	u->value = u->said + na;
	u->action = (int32_t *)(u->value + na);
	u->over = (uint8_t *)(u->action + na);
	return 0;
}

void dt_unroll_release(struct dt_unroll *u)
{
	free(u->memory);
	memset(u, 0, sizeof(*u));
}

double dt_log_sum(const float *y, int n)
{
	double top = -INFINITY, sum = 0;

	for (int i = 0; i < n; i++)
		top = fmax(top, (double)y[i]);
	for (int i = 0; i < n; i++)
		sum += exp((double)y[i] - top);
	return top + log(sum);
}

struct dt_actor {
	struct dt_actor_opts o;
	struct dt_env *env;
	struct dt_pass *pass;
	int outputs;
	uint64_t step;
	float *seen;	 /* [envs, agents, dt_actor_row] current observations */
	int32_t *action; /* [envs, agents] */
	double *sum;	 /* [envs] rewards of the current episode */
};

int dt_actor_row(const struct dt_env *e, bool ids)
{
	return e->observation + (ids ? e->agents : 0);
}

/* Writes the rows of environment i with observations `from`. */
static void see(const struct dt_actor *a, int i, const float *from, float *to)
{
	const int width = dt_actor_row(a->env, a->o.ids), n = a->env->observation;

	for (int j = 0; j < a->env->agents; j++, to += width) {
		memcpy(to, from + ((size_t)i * (size_t)a->env->agents + (size_t)j) * (size_t)n,
		       (size_t)n * sizeof(*to));
		for (int k = n; k < width; k++)
			to[k] = k - n == j;
	}
}

static void go_on(struct dt_actor *a)
{
	for (int i = 0; i < a->env->n; i++) {
		const double *p = a->o.place + i * DT_ACTOR_PLACE;

		if (p[0] > 0) {
			a->step = (uint64_t)p[0];
			a->sum[i] = p[1];
			dt_env_go_on(a->env, i, p + 2);
		}
	}
}

static void tell_place(const struct dt_actor *a, double *ret)
{
	for (int i = 0; i < a->env->n; i++, ret += DT_ACTOR_PLACE) {
		ret[0] = dt_env_place(a->env, i, ret + 2) ? (double)a->step : 0;
		ret[1] = a->sum[i];
	}
}

int dt_actor_open(struct dt_actor **ret, struct dt_env *env, struct dt_net *net,
		  const struct dt_actor_opts *o, struct dt_err *err)
{
	struct dt_actor *a = calloc(1, sizeof(*a));
	const size_t n = (size_t)(env->n * env->agents);
	int rc;

	if (!a)
		return dt_err_sys(err, -ENOMEM, "cannot open an actor");
	a->o = *o;
	a->env = env;
	a->outputs = (int)net->config->vocab;
	a->action = calloc(n, sizeof(*a->action));
	a->sum = calloc((size_t)env->n, sizeof(*a->sum));
	a->seen = calloc(n * (size_t)dt_actor_row(env, o->ids), sizeof(*a->seen));
	rc = a->action && a->sum && a->seen
		     ? dt_pass_open(&a->pass, net, (int64_t)n, net->weights, false, err)
		     : dt_err_sys(err, -ENOMEM, "cannot open an actor");
	if (rc == 0 && o->place)
		go_on(a);
	if (rc < 0)
		dt_actor_close(a);
	else
		*ret = a;
	return rc;
}

void dt_actor_close(struct dt_actor *a)
{
	if (!a)
		return;
	dt_pass_close(a->pass);
	free(a->seen);
	free(a->action);
	free(a->sum);
	free(a);
}

static int best_of(const float *y, int n)
{
	int best = 0;

	for (int i = 1; i < n; i++)
		best = y[i] > y[best] ? i : best;
	return best;
}

/* Samples an action from logits y with u in [0, 1); *said: its log-probability. */
static int draw(const struct dt_actor *a, const float *y, double u, float *said)
{
	const int n = a->env->actions;
	const double all = dt_log_sum(y, n);
	int k = a->o.best ? best_of(y, n) : 0;

	for (; !a->o.best && k < n - 1; k++) {
		u -= exp((double)y[k] - all);
		if (u < 0)
			break;
	}
	*said = (float)((double)y[k] - all);
	return k;
}

/* The action of agent j of environment i, whose outputs are y. */
static int choose(const struct dt_actor *a, int i, int j, const float *y, float *said, float *value)
{
	const struct dt_rng r = dt_rng_make(a->o.seed, DT_RNG_SAMPLE, (uint32_t)(a->o.first + i));
	const uint64_t at = (a->step * (uint64_t)a->env->agents + (uint64_t)j) * 2;

	*value = y[a->env->actions];
	if (a->o.explore) {
		*said = 0;
		return dt_rng_uniform53(&r, at) < a->o.explore[i]
			       ? (int)dt_rng_below(&r, at + 1, (uint64_t)a->env->actions)
			       : best_of(y, a->env->actions);
	}
	return draw(a, y, dt_rng_uniform53(&r, at), said);
}

/* Step t of the unroll, in all environments. */
static int one_step(struct dt_actor *a, struct dt_unroll *u, int t, struct dt_err *err)
{
	const struct dt_env *e = a->env;
	const int agents = e->agents, steps = u->size.steps;
	const size_t row = (size_t)(agents * dt_actor_row(e, a->o.ids));
	const float *y;
	int rc;

	for (int i = 0; i < e->n; i++)
		see(a, i, e->now, a->seen + (size_t)i * row);
	rc = dt_pass_forward(a->pass, a->seen, &y, err);
	for (int i = 0; i < e->n && rc == 0; i++) {
		const size_t at = (size_t)i * (size_t)steps + (size_t)t;

		memcpy(u->now + at * row, a->seen + (size_t)i * row, row * sizeof(float));
		for (int j = 0; j < agents; j++) {
			const size_t k = at * (size_t)agents + (size_t)j;

			u->action[k] = a->action[i * agents + j] =
				choose(a, i, j, y + (i * agents + j) * a->outputs, &u->said[k], &u->value[k]);
		}
	}
	a->step++;
	if (rc == 0)
		rc = dt_env_step(a->env, a->action, err);
	for (int i = 0; i < e->n && rc == 0; i++) {
		const size_t at = (size_t)i * (size_t)steps + (size_t)t;

		see(a, i, e->next, u->next + at * row);
		u->reward[at] = e->reward[i];
		u->over[at] = e->ended[i] ? DT_ENDED : e->cut[i] ? DT_CUT : DT_GOES_ON;
		a->sum[i] += e->reward[i];
		u->score[at] = u->over[at] ? a->sum[i] : (double)NAN;
		if (u->over[at])
			a->sum[i] = 0;
	}
	return rc;
}

int dt_actor_run(struct dt_actor *a, struct dt_unroll *u, struct dt_err *err)
{
	int rc = 0;

	for (int t = 0; t < u->size.steps && rc == 0; t++)
		rc = one_step(a, u, t, err);
	tell_place(a, u->place);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
