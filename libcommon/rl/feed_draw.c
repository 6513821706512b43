/*
 * Samples answers with the current weights between two steps: with an engine in this process, or with actors
 * (--actors). With --refresh above 1 the sampling weights are kept for several steps and become staler. With
 * --overlap the next step's answers are sampled during a step: their weights are always one step older. With
 * --max-staleness actors sample that many steps ahead, each prompt with the newest weights.
 * Prompts are divided among the ranks, which all have the same weights. A sample depends only on weights,
 * seed, prompt and position, so answers do not depend on the number of ranks.
 */
#include "rl/feed_priv.h"

#include "base/progress.h"
#include "rl/actors.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* This rank's groups of a round of prompts. */
struct draw {
	struct dt_batch b;
	int rc;
	struct dt_err err;
};

struct feed_server {
	struct dt_answerer *own; /* one of own and actors is set */
	struct dt_actors *actors;
	/* Batches sampled ahead: step s is ahead[s % nahead]. */
	struct draw *ahead;
	int64_t nahead, posted; /* posted: the last step whose sampling was started; -1: none */
	pthread_t thread;	/* samples ahead if there are no actors */
	bool running;
};

static int64_t weights_step(const struct feed *f)
{
	return f->server->actors ? dt_actors_step(f->server->actors) : dt_answerer_step(f->server->own);
}

static int open_server(struct feed *f, struct dt_err *err)
{
	const struct dt_run *r = f->site.run;
	const struct dt_answerer_opts o = {.config = *f->site.config,
					   .compute = r->compute,
					   .seq = r->seq,
					   .sample = {.group = (int)f->o.group,
						      .max_tokens = (int)f->o.answer,
						      .temperature = 1,
						      .seed = r->data.seed,
						      .piece = (int)f->o.piece},
					   .prompts = r->data.seed,
					   .task = f->task,
					   .device = f->site.device,
					   .card = f->site.card,
					   .threads = f->site.threads,
					   .reward = f->o.reward,
					   .reward_workers = 2,
					   .tokenizer = f->site.tokenizer,
					   .tokenizer_n = f->site.tokenizer_n};

	const struct dt_actors_opts actors = {(int)f->o.actors, f->site.patience, f->site.log};

	if (f->o.stale)
		dt_log_msg(f->site.log,
			   "--max-staleness: which weights sample an answer depends on timing, so "
			   "two runs differ");
	return f->o.actors ? dt_actors_open(&f->server->actors, &o, &actors, err)
			   : dt_answerer_open(&o, &f->server->own, err);
}

int feed_draw_open(struct feed *f, struct dt_err *err)
{
	const struct dt_run *r = f->site.run;
	struct feed_server *s = calloc(1, sizeof(*s));
	int rc;

	f->server = s;
	if (!s)
		return dt_err_sys(err, -ENOMEM, "cannot draw answers");
	if ((rc = dt_config_servable(f->site.config, err)) < 0)
		return rc;
	if (r->seq > dt_config_positions(f->site.config))
		return dt_err_set(err, -EINVAL, "--seq %lld is more than the model's %lld positions",
				  (long long)r->seq, (long long)dt_config_positions(f->site.config));
	if ((rc = dt_rl_task_parse(f->o.task, &f->task, err)) < 0 || (rc = open_server(f, err)) < 0)
		return rc;
	s->nahead = 1 + (f->o.stale > 1 ? f->o.stale : 1);
	s->posted = -1;
	s->ahead = calloc((size_t)s->nahead, sizeof(*s->ahead));
	f->now = calloc((size_t)f->o.batch, sizeof(*f->now));
	return f->now && s->ahead ? 0 : dt_err_sys(err, -ENOMEM, "cannot draw answers");
}

static void release_groups(struct feed *f)
{
	for (int64_t i = 0; i < f->nnow; i++)
		dt_group_release(&f->now[i]);
	f->nnow = 0;
}

/* Samples and scores answers in this process. */
static void draw_own(const struct feed *f, struct draw *d)
{
	d->rc = dt_answerer_draw(f->server->own, d->b.group, d->b.n, &d->b.draw_s, &d->b.score_s, &d->err);
}

static void draw_mine(const struct feed *f, struct draw *d)
{
	struct dt_actors *a = f->server->actors;

	if (a)
		dt_actors_post(a, &d->b);
	else
		draw_own(f, d);
	if (a)
		d->rc = dt_actors_wait(a, &d->b, &d->err);
}

/* Opens this rank's part of the round that begins with prompt number `first`. */
static int draw_open(const struct feed *f, int64_t first, struct draw *d, struct dt_err *err)
{
	const int64_t ranks = f->site.ranks;

	*d = (struct draw){.b = {.n = (f->o.batch - f->site.rank + ranks - 1) / ranks}};
	d->b.group = calloc((size_t)d->b.n + 1, sizeof(*d->b.group));
	for (int64_t i = 0; i < d->b.n && d->b.group; i++)
		d->b.group[i].index = first + f->site.rank + i * ranks;
	return d->b.group ? 0 : dt_err_sys(err, -ENOMEM, "cannot draw answers");
}

/* Also releases the groups. */
static void draw_release(struct draw *d)
{
	for (int64_t i = 0; d->b.group && i < d->b.n; i++)
		dt_group_release(&d->b.group[i]);
	free(d->b.group);
	*d = (struct draw){0};
}

/* Gathers all ranks' groups into to [--prompts], and releases d. */
static int gather(struct feed *f, struct draw *d, int failed, struct dt_group *to, struct dt_err *err)
{
	int rc = failed;

	if (rc == 0 && d->rc < 0) {
		rc = d->rc;
		*err = d->err;
	}
	f->draw_s += d->b.draw_s;
	f->score_s += d->b.score_s;
	if (f->site.ranks > 1) {
		rc = feed_exchange(f, d->b.group, d->b.n, rc, to, err);
	} else if (rc == 0) {
		memcpy(to, d->b.group, (size_t)d->b.n * sizeof(*to));
		d->b.n = 0;
	}
	draw_release(d);
	if (rc == 0)
		dt_rl_count(&f->stats, to, f->o.batch);
	return rc;
}

/* One round: samples answers to --prompts prompts from number first, over all ranks, into to. */
static int draw_round(struct feed *f, int64_t first, int failed, struct dt_group *to, struct dt_err *err)
{
	struct draw d = {0};
	int rc = failed < 0 ? failed : draw_open(f, first, &d, err);

	if (rc == 0)
		draw_mine(f, &d);
	return gather(f, &d, rc, to, err);
}

static bool flat(const struct dt_group *g)
{
	struct dt_rl_stats s = {0};

	dt_rl_count(&s, g, 1);
	return s.flat > 0;
}

/* Moves groups with reward variance to the front, in order; returns their number. */
static int64_t sort_flat(struct dt_group *g, int64_t n)
{
	int64_t good = 0;

	for (int64_t i = 0; i < n; i++)
		if (!flat(&g[i])) {
			const struct dt_group moved = g[i];

			memmove(&g[good + 1], &g[good], (size_t)(i - good) * sizeof(*g));
			g[good++] = moved;
		}
	return good;
}

/* Replaces groups of f->now from *good on by groups of the round with variance, in order. */
static void refill(struct feed *f, struct dt_group *round, int64_t *good)
{
	for (int64_t i = 0; i < f->o.batch; i++) {
		if (*good < f->o.batch && !flat(&round[i])) {
			dt_group_release(&f->now[*good]);
			f->now[(*good)++] = round[i];
			f->refilled++;
		} else {
			dt_group_release(&round[i]);
		}
	}
}

/* Each step has its own prompt numbers, also for refill rounds that it may not need. */
static int draw_groups(struct feed *f, int64_t step, int failed, struct dt_err *err)
{
	const int64_t rounds = 1 + f->o.refill, first = step * rounds * f->o.batch;
	struct dt_group *more = calloc((size_t)f->o.batch, sizeof(*more));
	int rc = failed;
	int64_t good;

	if (rc == 0 && !more)
		rc = dt_err_sys(err, -ENOMEM, "cannot draw answers");
	rc = draw_round(f, first, rc, f->now, err);
	good = rc == 0 && rounds > 1 ? sort_flat(f->now, f->o.batch) : f->o.batch;

	f->nnow = f->o.batch;
	for (int64_t r = 1; r < rounds && rc == 0 && good < f->o.batch; r++) {
		memset(more, 0, (size_t)f->o.batch * sizeof(*more));
		rc = draw_round(f, first + r * f->o.batch, 0, more, err);
		refill(f, more, &good);
	}
	free(more);
	return rc;
}

static void *draw_ahead(void *arg)
{
	struct feed *f = arg;

	draw_own(f, &f->server->ahead[f->server->posted % f->server->nahead]);
	return NULL;
}

/* Starts sampling for `step` in the background. */
static int start_ahead(struct feed *f, int64_t step, struct dt_err *err)
{
	struct feed_server *s = f->server;
	struct draw *d = &s->ahead[step % s->nahead];
	int rc = draw_open(f, step * f->o.batch, d, err);

	if (rc < 0)
		return rc;
	s->posted = step;
	if (s->actors) {
		dt_actors_post(s->actors, &d->b);
		return 0;
	}
	rc = -pthread_create(&s->thread, NULL, draw_ahead, f);
	s->running = rc == 0;
	return rc == 0 ? 0 : dt_err_sys(err, rc, "cannot draw answers ahead");
}

static void join(struct feed_server *s)
{
	if (s->running)
		pthread_join(s->thread, NULL);
	s->running = false;
}

/* Waits for the answers started for this step, and gathers them from all ranks. */
static int finish_ahead(struct feed *f, int64_t step, struct dt_err *err)
{
	struct feed_server *s = f->server;
	struct draw *d = &s->ahead[step % s->nahead];

	join(s);
	if (s->actors)
		d->rc = dt_actors_wait(s->actors, &d->b, &d->err);
	f->nnow = f->o.batch;
	return gather(f, d, 0, f->now, err);
}

/* Updates the sampling weights if they have been used for --refresh steps. */
static int refresh(struct feed *f, int64_t step, struct dt_err *err)
{
	struct feed_server *s = f->server;
	double t0 = dt_now();
	int rc = 0;

	if (weights_step(f) >= 0 && step - weights_step(f) < f->o.refresh)
		return 0;
	rc = f->site.gather(f->site.gather_arg, err);
	if (rc == 0)
		rc = s->actors ? dt_actors_give(s->actors, f->site.weights, step, err)
			       : dt_answerer_take(s->own, f->site.weights, step, err);
	f->sync_s = dt_now() - t0;
	return rc;
}

/* --overlap: takes this step's answers, or samples them now, then starts the next step's. */
static int step_overlapped(struct feed *f, int64_t step, struct dt_err *err)
{
	const bool ahead = f->server->posted == step;
	int rc = ahead ? finish_ahead(f, step, err) : 0;

	if (rc == 0)
		rc = refresh(f, step, err);
	if (!ahead) {
		rc = draw_round(f, step * f->o.batch, rc, f->now, err);
		f->nnow = f->o.batch;
	}
	return rc == 0 && step + 1 < f->site.run->steps ? start_ahead(f, step + 1, err) : rc;
}

/* --max-staleness: keeps actors busy that many steps ahead; new prompts use the newest weights. */
static int step_apart(struct feed *f, int64_t step, struct dt_err *err)
{
	struct feed_server *s = f->server;
	int rc = refresh(f, step, err);

	for (int64_t k = s->posted < step ? step : s->posted + 1;
	     k <= step + f->o.stale && k < f->site.run->steps && rc == 0; k++)
		rc = start_ahead(f, k, err);
	return rc == 0 ? finish_ahead(f, step, err) : rc;
}

/* The age of the answers' weights in steps: mean and maximum. */
static void measure_age(struct feed *f, int64_t step)
{
	f->staleness = f->most_stale = 0;
	f->renewed = 0;
	for (int64_t i = 0; i < f->nnow; i++) {
		const double age = (double)(step - f->now[i].step);

		f->staleness += age / (double)f->nnow;
		f->most_stale = fmax(f->most_stale, age);
		f->renewed += f->now[i].renewed > 0;
	}
}

int feed_draw_step(struct feed *f, int64_t step, struct dt_err *err)
{
	int rc;

	release_groups(f);
	memset(f->now, 0, (size_t)f->o.batch * sizeof(*f->now));
	f->stats = (struct dt_rl_stats){0};
	f->refilled = 0;
	f->sync_s = f->draw_s = f->score_s = 0;
	if (f->o.overlap) {
		rc = step_overlapped(f, step, err);
	} else if (f->o.stale) {
		rc = step_apart(f, step, err);
	} else {
		rc = refresh(f, step, err);
		rc = draw_groups(f, step, rc, err);
	}
	measure_age(f, step);
	return rc;
}

void feed_draw_close(struct feed *f)
{
	struct feed_server *s = f->server;

	if (!s)
		return;
	join(s);
	dt_actors_close(s->actors);
	for (int64_t i = 0; i < s->nahead && s->ahead; i++)
		draw_release(&s->ahead[i]);
	free(s->ahead);
	if (f->now)
		release_groups(f);
	dt_answerer_close(s->own);
	free(s);
}
/* SPDX-License-Identifier: Apache-2.0 */
