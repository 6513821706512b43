/* Acting: an actor's process, and playing with what was learned. */
#include "rl/control_priv.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

struct actor {
	struct dt_env *env;
	struct dt_net *net;
	struct dt_actor *actor;
	struct dt_critic *critic;
	struct dt_qlearn *q;
	struct dt_unroll unroll;
	double *error; /* [envs, steps] */
};

int control_parts(struct dt_net *net, const struct dt_qlearn *q, struct dt_part part[2])
{
	struct dt_net *mixer = q ? dt_qlearn_mixer(q) : NULL;

	part[0] = (struct dt_part){net->weights, (size_t)net->n * sizeof(float)};
	if (mixer)
		part[1] = (struct dt_part){mixer->weights, (size_t)mixer->n * sizeof(float)};
	return mixer ? 2 : 1;
}

static int open_actor(struct actor *a, const struct control *c, int number, struct dt_err *err)
{
	const struct dt_control *o = c->o;
	struct dt_env_spec spec = o->env;
	struct dt_actor_opts act = {.seed = o->env.seed, .ids = c->ids};
	int rc;

	spec.n = c->size.envs;
	spec.first = o->env.first + number * spec.n;
	act.first = spec.first;
	act.place = c->place + (ptrdiff_t)number * spec.n * DT_ACTOR_PLACE; /* the forked process's copy */
	rc = dt_env_open(&a->env, &spec, err);
	if (rc == 0 &&
	    (a->env->agents != c->size.agents || dt_actor_row(a->env, c->ids) != c->size.observation))
		return dt_err_set(err, -EINVAL,
				  "the environment has another number of agents or observations than before");
	if (rc == 0)
		rc = dt_net_open(&a->net, &o->net, err);
	if (c->rule->values)
		act.explore = c->explore + act.first - o->env.first;
	if (rc == 0)
		rc = dt_actor_open(&a->actor, a->env, a->net, &act, err);
	if (rc == 0 && c->rule->gradients)
		rc = dt_critic_open(&a->critic, a->net, &c->size, 1, &o->critic, err);
	if (rc == 0 && c->rule->values) {
		const struct dt_qlearn_opts q = control_values(c, false);
		const int n = c->size.envs * c->size.steps;

		a->error = calloc((size_t)n, sizeof(*a->error));
		rc = a->error ? dt_qlearn_open(&a->q, a->net, &q, n, c->size.agents, false, err)
			      : dt_err_sys(err, -ENOMEM, "cannot open an actor");
	}
	return rc == 0 ? dt_unroll_open(&a->unroll, &c->size, err) : rc;
}

/* Computes the errors of all transitions of the unroll with the weights that made it. */
static int find_errors(struct actor *a, const struct control *c, struct dt_err *err)
{
	const int n = c->size.envs * c->size.steps;
	struct dt_transition *t = calloc((size_t)n, sizeof(*t));
	int rc;

	if (!t)
		return dt_err_sys(err, -ENOMEM, "cannot judge an unroll");
	for (int i = 0; i < n; i++)
		t[i] = dt_unroll_ahead(&a->unroll, i / c->size.steps, i % c->size.steps, c->o->values.ahead,
				       c->o->critic.returns.discount);
	rc = dt_qlearn_errors(a->q, t, a->error, err);
	free(t);
	return rc;
}

static int deliver(struct actor *a, const struct control *c, int fd, struct dt_wire *w, struct dt_err *err)
{
	struct dt_part part[2] = {{a->unroll.memory, a->unroll.bytes}};
	const struct dt_unroll *u = &a->unroll;
	struct dt_critic_stats stats;
	int n = 1, rc = 0;
	double loss;

	w->kind = CONTROL_UNROLL;
	if (a->critic) {
		rc = dt_critic_learn(a->critic, &u, &loss, &stats, err);
		w->number[0] = loss;
		w->number[1] = stats.entropy;
		part[n++] = (struct dt_part){a->net->grads, (size_t)a->net->n * sizeof(float)};
	} else if (a->q) {
		rc = find_errors(a, c, err);
		part[n++] =
			(struct dt_part){a->error, (size_t)(c->size.envs * c->size.steps) * sizeof(double)};
	}
	return rc == 0 ? dt_wire_send(fd, w, part, n, err) : rc;
}

int control_act(void *arg, int number, int fd, struct dt_err *err)
{
	struct control *c = arg;
	struct actor a = {0};
	struct dt_wire w;
	struct dt_part part[2];
	int rc = open_actor(&a, c, number, err);

	while (rc == 0) {
		const int n = control_parts(a.net, a.q, part);

		rc = dt_wire_head(fd, &w, err);
		for (int i = 0; i < n && rc == 0; i++)
			rc = dt_wire_body(fd, (void *)(uintptr_t)part[i].data, part[i].bytes, err);
		if (rc == 0)
			rc = dt_actor_run(a.actor, &a.unroll, err);
		if (rc == 0)
			rc = deliver(&a, c, fd, &w, err);
	}
	dt_env_close(a.env); /* ends a command; the rest ends with the process */
	return rc;
}

int dt_control_play(const struct dt_control *o, struct dt_net *net, int64_t episodes, double *ret,
		    struct dt_err *err)
{
	struct dt_env_spec spec = o->env;
	struct dt_actor_opts act = {.best = true, .ids = o->agent_id > 0};
	struct dt_unroll_size size = {.steps = 1};
	struct dt_unroll u = {0};
	struct dt_actor *a = NULL;
	struct dt_env *e = NULL;
	int64_t done = 0;
	double sum = 0;
	int rc;

	spec.n = 1;
	spec.seed += 1; /* a seed not used in training */
	rc = dt_env_open(&e, &spec, err);
	if (rc == 0 &&
	    (net->config->channels != dt_actor_row(e, act.ids) || net->config->vocab != e->actions + 1))
		rc = dt_err_set(err, -EINVAL,
				"the policy has %lld observations and %lld actions, the environment has "
				"%d and %d",
				(long long)net->config->channels, (long long)net->config->vocab - 1,
				dt_actor_row(e, act.ids), e->actions);
	if (rc == 0)
		rc = dt_actor_open(&a, e, net, &act, err);
	if (rc == 0) {
		size = (struct dt_unroll_size){1, 1, e->agents, dt_actor_row(e, act.ids)};
		rc = dt_unroll_open(&u, &size, err);
	}
	while (rc == 0 && done < episodes && !(o->stop && *o->stop)) {
		rc = dt_actor_run(a, &u, err);
		if (rc == 0 && !isnan(u.score[0])) {
			sum += u.score[0];
			done++;
		}
	}
	dt_unroll_release(&u);
	dt_actor_close(a);
	dt_env_close(e);
	*ret = done ? sum / (double)done : (double)NAN;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
