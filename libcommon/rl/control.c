#include "rl/control.h"

#include "base/progress.h"
#include "rl/crew.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WEIGHTS = 1, UNROLL };

struct control {
	struct dt_control *o;
	struct dt_unroll_size size; /* of an actor's unroll */
	struct dt_net *net;
	struct dt_critic *critic;
	struct dt_crew *crew;
	struct dt_unroll *u; /* [actors] */
	int64_t *version;    /* [actors] of the weights behind each */
	const struct dt_unroll **full;
	bool *there; /* [actors] whose unroll is in its place */
	int nfull;
	int64_t updates, frames, episodes;
	double score[DT_CONTROL_SCORES];
	struct dt_control_line line;
	double began;
};

/* ---- an actor ---- */

struct actor {
	struct dt_env *env;
	struct dt_net *net;
	struct dt_actor *actor;
	struct dt_critic *critic;
	struct dt_unroll unroll;
};

static int open_actor(struct actor *a, const struct control *c, int number, struct dt_err *err)
{
	const struct dt_control *o = c->o;
	struct dt_env_spec spec = o->env;
	struct dt_actor_opts act = {.seed = o->env.seed};
	int rc;

	spec.n = c->size.envs;
	spec.first = o->env.first + number * spec.n;
	act.first = spec.first;
	rc = dt_env_open(&a->env, &spec, err);
	if (rc == 0 && (a->env->agents != c->size.agents || a->env->observation != c->size.observation))
		return dt_err_set(err, -EINVAL, "the environment is not the one that it was before");
	if (rc == 0)
		rc = dt_net_open(&a->net, &o->net, err);
	if (rc == 0)
		rc = dt_actor_open(&a->actor, a->env, a->net, &act, err);
	if (rc == 0 && o->kind == DT_CONTROL_A3C)
		rc = dt_critic_open(&a->critic, a->net, &c->size, 1, &o->critic, err);
	return rc == 0 ? dt_unroll_open(&a->unroll, &c->size, err) : rc;
}

static int deliver(struct actor *a, int fd, struct dt_wire *w, struct dt_err *err)
{
	const size_t n = (size_t)a->net->n * sizeof(float);
	const struct dt_part part[2] = {{a->unroll.memory, a->unroll.bytes}, {a->net->grads, n}};
	const struct dt_unroll *u = &a->unroll;
	struct dt_critic_stats stats;
	double loss;
	int rc = 0;

	w->kind = UNROLL;
	if (a->critic) {
		rc = dt_critic_learn(a->critic, &u, &loss, &stats, err);
		w->number[0] = loss;
		w->number[1] = stats.entropy;
	}
	return rc == 0 ? dt_wire_send(fd, w, part, a->critic ? 2 : 1, err) : rc;
}

static int act(void *arg, int number, int fd, struct dt_err *err)
{
	struct control *c = arg;
	struct actor a = {0};
	struct dt_wire w;
	int rc = open_actor(&a, c, number, err);

	while (rc == 0) {
		rc = dt_wire_head(fd, &w, err);
		if (rc == 0)
			rc = dt_wire_body(fd, a.net->weights, (size_t)a.net->n * sizeof(float), err);
		if (rc == 0)
			rc = dt_actor_run(a.actor, &a.unroll, err);
		if (rc == 0)
			rc = deliver(&a, fd, &w, err);
	}
	dt_env_close(a.env); /* ends a command; the rest ends with the process */
	return rc;
}

/* ---- the learner ---- */

static int give_weights(struct control *c, int number, struct dt_err *err)
{
	const struct dt_part part = {c->net->weights, (size_t)c->net->n * sizeof(float)};
	struct dt_wire w = {.kind = WEIGHTS, .version = c->updates};
	struct dt_err own = {0};
	int rc = dt_wire_send(dt_crew_fd(c->crew, number), &w, &part, 1, &own);

	/* Who is gone is found, and started anew, by the next wait. */
	return rc == 0 || rc == -EPIPE ? 0 : dt_err_set(err, rc, "actor %d: %s", number, own.msg);
}

static void count(struct control *c, const struct dt_unroll *u)
{
	const int64_t n = (int64_t)u->size.envs * u->size.steps;

	c->frames += n;
	for (int64_t i = 0; i < n; i++)
		if (!isnan(u->score[i]))
			c->score[c->episodes++ % DT_CONTROL_SCORES] = u->score[i];
}

static double mean_score(const struct control *c)
{
	const int64_t n = c->episodes < DT_CONTROL_SCORES ? c->episodes : DT_CONTROL_SCORES;
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += c->score[i];
	return n ? sum / (double)n : (double)NAN;
}

static bool enough(const struct control *c)
{
	return c->episodes >= DT_CONTROL_SCORES && mean_score(c) >= c->o->until;
}

/* One update by the gradients that are there, and a line where one is due. */
static int update(struct control *c, double loss, const struct dt_critic_stats *s, double lag,
		  struct dt_err *err)
{
	int rc = dt_net_update(c->net, &c->line.grad_norm, err);

	c->updates++;
	c->line.update = c->updates;
	c->line.frames = c->frames;
	c->line.episodes = c->episodes;
	c->line.restarts = dt_crew_restarts(c->crew);
	c->line.score = mean_score(c);
	c->line.loss = loss;
	c->line.entropy = s->entropy;
	c->line.value_loss = s->value_loss;
	c->line.ratio = s->ratio;
	c->line.lag = lag;
	c->line.seconds = dt_now() - c->began;
	if (rc == 0 && c->o->report && (c->updates == 1 || c->updates % c->o->every == 0))
		rc = c->o->report(c->o->arg, &c->line, err);
	return rc;
}

/* By all unrolls that are there. */
static int learn(struct control *c, struct dt_err *err)
{
	struct dt_critic_stats stats = {0};
	double loss = 0, lag = 0;
	int rc = dt_critic_learn(c->critic, c->full, &loss, &stats, err);

	for (int i = 0; i < c->nfull; i++) {
		count(c, c->full[i]);
		lag += (double)(c->updates - c->version[i]) / c->nfull;
	}
	c->nfull = 0;
	memset(c->there, false, (size_t)c->o->actors * sizeof(*c->there));
	return rc == 0 ? update(c, loss, &stats, lag, err) : rc;
}

static int take_gradient(struct control *c, int number, const struct dt_wire *w, struct dt_err *err)
{
	const struct dt_critic_stats stats = {.entropy = w->number[1], .value_loss = (double)NAN, .ratio = 1};
	int rc = dt_crew_body(c->crew, number, c->u[0].memory, c->u[0].bytes, err);

	if (rc > 0)
		rc = dt_crew_body(c->crew, number, c->net->grads, (size_t)c->net->n * sizeof(float), err);
	if (rc <= 0)
		return rc;
	count(c, &c->u[0]);
	rc = update(c, w->number[0], &stats, (double)(c->updates - w->version), err);
	return rc == 0 ? give_weights(c, number, err) : rc;
}

/* a2c: the unroll of an actor has its own place, so that the order in which they come means nothing. */
static int take_unroll(struct control *c, int number, const struct dt_wire *w, struct dt_err *err)
{
	const bool wait = c->o->kind == DT_CONTROL_A2C;
	const int slot = wait ? number : c->nfull;
	int rc = dt_crew_body(c->crew, number, c->u[slot].memory, c->u[slot].bytes, err);

	if (rc <= 0)
		return rc;
	c->full[slot] = &c->u[slot];
	c->version[slot] = w->version;
	c->there[slot] = true;
	c->nfull++;
	rc = wait ? 0 : give_weights(c, number, err);
	if (rc == 0 && c->nfull == c->o->actors) {
		rc = learn(c, err);
		for (int i = 0; i < c->o->actors && rc == 0 && wait; i++)
			rc = give_weights(c, i, err);
	}
	return rc;
}

static int one_event(struct control *c, struct dt_err *err)
{
	enum dt_crew_event event;
	struct dt_wire w;
	int number, rc = dt_crew_wait(c->crew, -1, &event, &number, &w, err);

	if (rc == -EINTR)
		return 0;
	if (rc < 0)
		return rc;
	if (event == DT_CREW_ANEW) /* what it delivered before it ended counts: it waits with the others */
		return c->o->kind == DT_CONTROL_A2C && c->there[number] ? 0 : give_weights(c, number, err);
	return c->o->kind == DT_CONTROL_A3C ? take_gradient(c, number, &w, err)
					    : take_unroll(c, number, &w, err);
}

/* What the environments are like: one is opened for that. */
static int look(struct control *c, struct dt_err *err)
{
	struct dt_control *o = c->o;
	struct dt_env_spec spec = o->env;
	struct dt_env *e = NULL;
	int rc;

	if (o->env.n % o->actors)
		return dt_err_set(err, -EINVAL, "%d environments are not divided among %d actors", o->env.n,
				  o->actors);
	spec.n = 1;
	rc = dt_env_open(&e, &spec, err);
	if (rc < 0)
		return rc;
	c->size = (struct dt_unroll_size){o->env.n / o->actors, o->steps, e->agents, e->observation};
	o->net.observation = e->observation;
	o->net.outputs = e->actions + 1;
	dt_env_close(e);
	return 0;
}

static int open_learner(struct control *c, struct dt_err *err)
{
	const struct dt_control *o = c->o;
	const struct dt_crew_opts crew = {.n = o->actors, .work = act, .arg = c};
	int rc = look(c, err);

	if (rc == 0)
		rc = dt_net_open(&c->net, &o->net, err);
	c->u = calloc((size_t)o->actors, sizeof(*c->u));
	c->full = calloc((size_t)o->actors, sizeof(*c->full));
	c->version = calloc((size_t)o->actors, sizeof(*c->version));
	c->there = calloc((size_t)o->actors, sizeof(*c->there));
	if (rc == 0 && (!c->u || !c->full || !c->version || !c->there))
		rc = dt_err_sys(err, -ENOMEM, "cannot open a learner");
	for (int i = 0; i < o->actors && rc == 0; i++)
		rc = dt_unroll_open(&c->u[i], &c->size, err);
	if (rc == 0)
		rc = dt_crew_open(&c->crew, &crew, err);
	if (rc == 0 && o->kind != DT_CONTROL_A3C)
		rc = dt_critic_open(&c->critic, c->net, &c->size, o->actors, &o->critic, err);
	return rc;
}

int dt_control_run(struct dt_control *o, struct dt_net **ret_net, struct dt_control_line *last,
		   struct dt_err *err)
{
	struct control c = {.o = o, .began = dt_now()};
	int rc = open_learner(&c, err);

	for (int i = 0; i < o->actors && rc == 0; i++)
		rc = give_weights(&c, i, err);
	while (rc == 0 && c.frames < o->frames && !enough(&c)) {
		rc = one_event(&c, err);
		if (rc == 0 && o->stop && *o->stop)
			rc = -EINTR;
	}
	if (rc == 0)
		rc = enough(&c);
	dt_crew_close(c.crew);
	dt_critic_close(c.critic);
	for (int i = 0; i < o->actors && c.u; i++)
		dt_unroll_release(&c.u[i]);
	free(c.u);
	free(c.full);
	free(c.there);
	free(c.version);
	*last = c.line;
	if (rc >= 0 || rc == -EINTR)
		*ret_net = c.net;
	else
		dt_net_close(c.net);
	return rc;
}

int dt_control_play(const struct dt_control *o, struct dt_net *net, int64_t episodes, double *ret,
		    struct dt_err *err)
{
	struct dt_env_spec spec = o->env;
	struct dt_actor_opts act = {.best = true};
	struct dt_unroll_size size = {.steps = 1};
	struct dt_unroll u = {0};
	struct dt_actor *a = NULL;
	struct dt_env *e = NULL;
	int64_t done = 0;
	double sum = 0;
	int rc;

	spec.n = 1;
	spec.seed += 1; /* none that it has learnt in */
	rc = dt_env_open(&e, &spec, err);
	if (rc == 0 && (net->config->channels != e->observation || net->config->vocab != e->actions + 1))
		rc = dt_err_set(err, -EINVAL,
				"the policy observes %lld numbers and knows %lld actions, the environment "
				"has %d and %d",
				(long long)net->config->channels, (long long)net->config->vocab - 1,
				e->observation, e->actions);
	if (rc == 0)
		rc = dt_actor_open(&a, e, net, &act, err);
	if (rc == 0) {
		size = (struct dt_unroll_size){1, 1, e->agents, e->observation};
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
