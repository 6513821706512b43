#include "rl/control_priv.h"

#include "base/progress.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int give_weights(struct control *c, int number, struct dt_err *err)
{
	struct dt_wire w = {.kind = CONTROL_WEIGHTS, .version = c->updates};
	struct dt_part part[2];
	const int n = control_parts(c->net, c->q, part);
	struct dt_err own = {0};
	int rc = dt_wire_send(dt_crew_fd(c->crew, number), &w, part, n, &own);

	/* The next wait finds and restarts a dead actor. */
	return rc == 0 || rc == -EPIPE ? 0 : dt_err_set(err, rc, "actor %d: %s", number, own.msg);
}

/* Counts the frames and scores of an unroll; `first` is the actor's first environment. */
static void count(struct control *c, const struct dt_unroll *u, int first)
{
	const int64_t n = (int64_t)u->size.envs * u->size.steps;
	const double greedy =
		c->explore ? fmax(DT_CONTROL_GREEDY_PERCENT / 100.0, c->explore[c->o->env.n - 1]) : 0;

	c->frames += n;
	for (int64_t i = 0; i < n; i++)
		if (!isnan(u->score[i]) && (!c->explore || c->explore[first + i / u->size.steps] <= greedy))
			c->score[c->episodes++ % DT_CONTROL_SCORES] = u->score[i];
}

/* Stores an actor's place after a delivered unroll, where a replacement would continue. */
static void keep_place(struct control *c, int number, const struct dt_unroll *u)
{
	const size_t n = (size_t)c->size.envs * DT_ACTOR_PLACE;

	memcpy(c->place + (size_t)number * n, u->place, n * sizeof(*u->place));
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

static void set_counts(struct control *c)
{
	c->line.update = c->updates;
	c->line.frames = c->frames;
	c->line.episodes = c->episodes;
	c->line.score = mean_score(c);
}

/* Makes one update with the present gradients, and writes a metrics line if due; the line's means are set. */
static int update(struct control *c, double lag, struct dt_err *err)
{
	int rc;

	if (c->q) {
		rc = dt_qlearn_update(c->q, &c->line.grad_norm, err);
	} else {
		c->line.grad_norm = dt_net_norm(c->net);
		rc = dt_net_update(c->net, c->line.grad_norm, err);
	}
	c->updates++;
	set_counts(c);
	c->line.restarts = dt_crew_restarts(c->crew);
	c->line.kept = c->replay ? dt_replay_kept(c->replay) : 0;
	c->line.lag = lag;
	c->line.seconds = dt_now() - c->began;
	if (rc < 0)
		return rc;
	if (c->o->report && (c->updates == 1 || c->updates % c->o->every == 0))
		rc = c->o->report(c->o->arg, &c->line, err);
	c->outside = rc < 0;
	if (rc == 0 && c->o->save && c->o->save_every > 0 && c->updates % c->o->save_every == 0)
		rc = control_save(c, err);
	return rc;
}

static void set_means(struct control *c, double loss, const struct dt_critic_stats *s)
{
	c->line.loss = loss;
	c->line.entropy = s->entropy;
	c->line.value_loss = s->value_loss;
	c->line.ratio = s->ratio;
	c->line.value = (double)NAN;
}

/* Learns from all present unrolls. */
static int learn(struct control *c, struct dt_err *err)
{
	struct dt_critic_stats stats = {0};
	double loss = 0, lag = 0;
	int rc = dt_critic_learn(c->critic, c->full, &loss, &stats, err);

	for (int i = 0; i < c->nfull; i++) {
		count(c, c->full[i], 0);
		lag += (double)(c->updates - c->version[i]) / c->nfull;
	}
	c->nfull = 0;
	memset(c->there, false, (size_t)c->o->actors * sizeof(*c->there));
	set_means(c, loss, &stats);
	return rc == 0 ? update(c, lag, err) : rc;
}

static int take_gradient(struct control *c, int number, const struct dt_wire *w, struct dt_err *err)
{
	const struct dt_critic_stats stats = {.entropy = w->number[1], .value_loss = (double)NAN, .ratio = 1};
	int rc = dt_crew_body(c->crew, number, c->u[0].memory, c->u[0].bytes, err);

	if (rc > 0)
		rc = dt_crew_body(c->crew, number, c->net->grads, (size_t)c->net->n * sizeof(float), err);
	if (rc <= 0)
		return rc;
	keep_place(c, number, &c->u[0]);
	count(c, &c->u[0], 0);
	set_means(c, w->number[0], &stats);
	rc = update(c, (double)(c->updates - w->version), err);
	return rc == 0 ? give_weights(c, number, err) : rc;
}

/* a2c: each actor has a fixed slot, so that the order of arrival does not matter. */
static int take_unroll(struct control *c, int number, const struct dt_wire *w, struct dt_err *err)
{
	const bool wait = c->rule->waits;
	const int slot = wait ? number : c->nfull;
	int rc = dt_crew_body(c->crew, number, c->u[slot].memory, c->u[slot].bytes, err);

	if (rc <= 0)
		return rc;
	keep_place(c, number, &c->u[slot]);
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

/* Learns from transitions of the replay buffer. */
static int learn_values(struct control *c, double lag, struct dt_err *err)
{
	const int n = c->o->values.batch;
	const struct dt_critic_stats none = {(double)NAN, (double)NAN, (double)NAN};
	double loss = 0, value = 0;
	int rc;

	dt_replay_draw(c->replay, n, c->drawn, c->number, c->weight);
	rc = dt_qlearn_learn(c->q, c->drawn, c->weight, c->error, &loss, &value, err);
	if (rc < 0)
		return rc;
	for (int i = 0; i < n; i++)
		dt_replay_judge(c->replay, c->number[i], c->error[i]);
	set_means(c, loss, &none);
	c->line.value = value;
	return update(c, lag, err);
}

/* Adds an actor's transitions to the replay, and makes the updates due. The actor goes on meanwhile. */
static int take_transitions(struct control *c, int number, const struct dt_wire *w, struct dt_err *err)
{
	const struct dt_control_values *o = &c->o->values;
	const int n = c->size.envs * c->size.steps;
	const double lag = (double)(c->updates - w->version);
	const struct dt_unroll *u = &c->u[0];
	int rc = dt_crew_body(c->crew, number, u->memory, u->bytes, err);

	if (rc > 0)
		rc = dt_crew_body(c->crew, number, c->error, (size_t)n * sizeof(*c->error), err);
	if (rc <= 0)
		return rc;
	for (int i = 0; i < n; i++) {
		const struct dt_transition t = dt_unroll_ahead(u, i / c->size.steps, i % c->size.steps,
							       o->ahead, c->o->critic.returns.discount);

		dt_replay_push(c->replay, &t, c->error[i]);
	}
	keep_place(c, number, u);
	count(c, u, number * c->size.envs);
	rc = give_weights(c, number, err);
	if (dt_replay_kept(c->replay) >= o->begin)
		c->due += o->ratio * n / o->batch;
	for (; rc == 0 && c->due >= 1 && !(c->o->stop && *c->o->stop); c->due--)
		rc = learn_values(c, lag, err);
	return rc;
}

static int one_event(struct control *c, struct dt_err *err)
{
	enum dt_crew_event event;
	struct dt_wire w;
	int number, rc = dt_crew_wait(c->crew, -1, &event, &number, &w, err);

	if (rc == -EAGAIN)
		return 0;
	c->outside = rc < 0;
	if (rc < 0)
		return rc;
	if (event == DT_CREW_ANEW) /* what it delivered before it died counts: it waits with the others */
		return c->rule->waits && c->there[number] ? 0 : give_weights(c, number, err);
	return c->rule->values	    ? take_transitions(c, number, &w, err)
	       : c->rule->gradients ? take_gradient(c, number, &w, err)
				    : take_unroll(c, number, &w, err);
}

/* Opens one environment to get its sizes. */
static int look(struct control *c, struct dt_err *err)
{
	struct dt_control *o = c->o;
	struct dt_env_spec spec = o->env;
	struct dt_env *e = NULL;
	int rc;

	if (o->env.n % o->actors)
		return dt_err_set(
			err, -EINVAL,
			"the number of environments, %d, is not a multiple of the number of actors, %d",
			o->env.n, o->actors);
	spec.n = 1;
	rc = dt_env_open(&e, &spec, err);
	if (rc == 0)
		rc = control_choose_ids(c, e->agents, err);
	if (rc < 0) {
		dt_env_close(e);
		return rc;
	}
	o->net.observation = dt_actor_row(e, c->ids);
	c->size = (struct dt_unroll_size){o->env.n / o->actors, o->steps, e->agents, (int)o->net.observation};
	o->net.outputs = e->actions + 1;
	dt_env_close(e);
	return 0;
}

struct dt_qlearn_opts control_values(const struct control *c, bool learns)
{
	return (struct dt_qlearn_opts){.mixer = c->rule->mixer,
				       .width = c->o->values.width,
				       .target_every = learns ? c->o->values.target_every : 0,
				       .net = c->o->net};
}

static int open_replay(struct control *c, struct dt_err *err)
{
	const struct dt_control_values *o = &c->o->values;
	const struct dt_replay_opts replay = {o->capacity, o->priority, o->importance, c->o->env.seed};
	const struct dt_qlearn_opts q = control_values(c, true);
	const int n = c->size.envs * c->size.steps, envs = c->o->env.n;
	const size_t batch = (size_t)o->batch;
	int rc = dt_replay_open(&c->replay, &replay, c->size.agents, c->size.observation, err);

	if (rc < 0)
		return rc;
	c->drawn = calloc(batch, sizeof(*c->drawn));
	c->number = calloc(batch, sizeof(*c->number));
	c->weight = calloc(batch, sizeof(*c->weight));
	c->error = calloc(n > o->batch ? (size_t)n : batch, sizeof(*c->error));
	c->explore = calloc((size_t)envs, sizeof(*c->explore));
	if (!c->drawn || !c->number || !c->weight || !c->error || !c->explore)
		return dt_err_sys(err, -ENOMEM, "cannot open a learner");
	for (int e = 0; e < envs; e++)
		c->explore[e] = pow(o->explore, 1 + o->spread * e / (envs > 1 ? envs - 1 : 1));
	return dt_qlearn_open(&c->q, c->net, &q, o->batch, c->size.agents, true, err);
}

static void close_learner(struct control *c)
{
	dt_crew_close(c->crew);
	dt_critic_close(c->critic);
	dt_qlearn_close(c->q);
	dt_replay_close(c->replay);
	for (int i = 0; i < c->o->actors && c->u; i++)
		dt_unroll_release(&c->u[i]);
	free(c->drawn);
	free(c->number);
	free(c->weight);
	free(c->error);
	free(c->explore);
	free(c->u);
	free(c->place);
	free(c->full);
	free(c->there);
	free(c->version);
	dt_net_close(c->net);
}

static void tell_anew(void *arg, int number, const char *why)
{
	const struct control *c = arg;

	c->o->anew(c->o->arg, number, why);
}

static int open_learner(struct control *c, struct dt_err *err)
{
	const struct dt_control *o = c->o;
	const struct dt_crew_opts crew = {
		.n = o->actors, .work = control_act, .arg = c, .anew = o->anew ? tell_anew : NULL};
	int rc = control_find(c, err);

	if (rc == 0)
		rc = look(c, err);
	if (rc == 0)
		rc = dt_net_open(&c->net, &o->net, err);
	c->u = calloc((size_t)o->actors, sizeof(*c->u));
	c->full = calloc((size_t)o->actors, sizeof(*c->full));
	c->version = calloc((size_t)o->actors, sizeof(*c->version));
	c->there = calloc((size_t)o->actors, sizeof(*c->there));
	c->place = calloc((size_t)o->env.n, DT_ACTOR_PLACE * sizeof(*c->place));
	if (rc == 0 && (!c->place || !c->u || !c->full || !c->version || !c->there))
		rc = dt_err_sys(err, -ENOMEM, "cannot open a learner");
	for (int i = 0; i < o->actors && rc == 0; i++)
		rc = dt_unroll_open(&c->u[i], &c->size, err);
	if (rc == 0 && c->rule->values)
		rc = open_replay(c, err);
	if (rc == 0 && c->from[0])
		rc = control_resume(c, err);
	if (rc == 0)
		rc = dt_control_check_frames(o, c->frames, err);
	if (rc == 0)
		rc = control_folder(c, err);
	if (rc == 0)
		rc = dt_crew_open(&c->crew, &crew, err);
	if (rc == 0 && !c->rule->gradients && !c->rule->values)
		rc = dt_critic_open(&c->critic, c->net, &c->size, o->actors, &o->critic, err);
	return rc;
}

int dt_control_run(struct dt_control *o, struct dt_control_line *last, struct dt_err *err)
{
	struct control c = {.o = o, .rule = &dt_control_rules[o->kind], .lock = -1, .began = dt_now()};
	int64_t before;
	int rc;

	o->critic.vtrace = c.rule->vtrace;
	rc = open_learner(&c, err);
	before = c.updates;
	set_counts(&c); /* of a run that has nothing left to do */
	for (int i = 0; i < o->actors && rc == 0; i++)
		rc = give_weights(&c, i, err);
	while (rc == 0 && c.frames < o->frames && !enough(&c)) {
		rc = one_event(&c, err);
		if (rc == 0 && o->stop && *o->stop)
			rc = -EINTR;
	}
	if (rc == 0)
		rc = enough(&c);
	if (o->save && (rc >= 0 || rc == -EINTR || (c.outside && c.updates > before))) {
		struct dt_err own = {0}; /* for saving alone: it would clear the reason of rc */
		const int kept = control_save(&c, &own);

		if (kept < 0) {
			rc = kept;
			if (err)
				*err = own;
		}
	}
	close_learner(&c);
	control_folder_release(&c);
	*last = c.line;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
