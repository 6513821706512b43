/*
 * Answers drawn from the weights that learn, between two steps: a copy of them behind the engine of dt-serve,
 * in this process. Its memory stays while steps compute, and new weights overwrite the old ones: fresh pages
 * would cost more than the copy. With --refresh above 1 the weights stay too, and draw what the next steps
 * learn from, ever staler. With --overlap a thread draws for the next step while one is learnt from: answers
 * are older by a step, always the same ones.
 *
 * Prompts are shared out over the ranks, which all have the same weights. What a rank draws is a function of
 * weights, seed, prompt and position, so the answers do not depend on how many ranks there are.
 */
#include "rl/feed_priv.h"

#include "base/progress.h"
#include "ckpt/adapter.h"
#include "data/tokenizer.h"
#include "kernels/attention.h"
#include "plan/draws.h"
#include "serve/api/served.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE 4096

/* This rank's groups of a round. */
struct draw {
	struct dt_group *group; /* [n] */
	int64_t n, first;	/* number of the round's first prompt, of all ranks */
	int64_t step;		/* whose weights answer */
	double draw_s, score_s;
	int rc;
	struct dt_err err;
};

struct feed_server {
	struct dt_dev *dev;
	struct dt_tokenizer *tok;
	struct dt_infer *model;	  /* NULL: none is open */
	struct dt_engine *engine; /* with a cache of these weights; NULL: none is open */
	int64_t step;		  /* whose weights it has */
	struct draw ahead;
	pthread_t thread;
	bool running; /* the thread, with what is ahead */
};

static int open_engine(struct feed *f, int blocks, struct dt_err *err)
{
	struct feed_server *s = f->server;
	const struct dt_config *c = f->site.config;
	struct dt_engine_params p = {.model = dt_served_model(s->model, s->tok, c),
				     .tok = s->tok,
				     .max_seqs = DT_DRAWS_SEQS,
				     .max_tokens = DT_DRAWS_TOKENS,
				     .max_len = (int)f->site.run->seq,
				     .blocks = blocks,
				     .block_size = DT_DRAWS_BLOCK,
				     .window = (int)dt_config_span(c),
				     .queue = QUEUE,
				     .share_prefixes = true,
				     .stuck_after = 1e9};

	return dt_engine_open(&s->engine, &p, err);
}

/* The weights as they are now. */
static int open_model(struct feed *f, int64_t step, struct dt_err *err)
{
	struct feed_server *s = f->server;
	const struct dt_run *r = f->site.run;
	const int blocks = (int)((r->seq + DT_DRAWS_BLOCK - 1) / DT_DRAWS_BLOCK) * DT_DRAWS_SEQS;
	const struct dt_infer_params p = {.dtype = r->compute,
					  .cache = r->compute,
					  .weights = -1,
					  .max_tokens = DT_DRAWS_TOKENS,
					  .max_seqs = DT_DRAWS_SEQS,
					  .max_len = (int)r->seq,
					  .blocks = blocks,
					  .block_size = DT_DRAWS_BLOCK,
					  .as_trained = true};
	struct dt_source *src = NULL;
	double t0 = dt_now();
	int rc = f->site.gather(f->site.gather_arg, err);

	if (rc == 0)
		rc = dt_source_memory_adapted(f->site.config, f->site.weights, r->compute, &src, err);
	if (rc == 0)
		rc = s->model ? dt_infer_reload(s->model, src, err)
			      : dt_infer_open(&s->model, s->dev, src, &p, err);
	dt_source_close(src);
	dt_dev_rest(s->dev); /* from here on it is the engine thread's */
	if (rc == 0)
		rc = open_engine(f, blocks, err);
	s->step = step;
	f->sync_s = dt_now() - t0;
	return rc;
}

int feed_draw_open(struct feed *f, struct dt_err *err)
{
	const struct dt_run *r = f->site.run;
	struct feed_server *s = calloc(1, sizeof(*s));
	const struct dt_reward_opts o = {.command = f->o.reward, .workers = 2, .timeout = 60};
	struct dt_reward_opts ro = o;
	int rc;

	f->server = s;
	if (!s)
		return dt_err_sys(err, -ENOMEM, "cannot draw answers");
	if ((rc = dt_config_servable(f->site.config, err)) < 0)
		return rc;
	if (r->seq > f->site.config->max_seq)
		return dt_err_set(err, -EINVAL, "--seq %lld is more than the model's %lld positions",
				  (long long)r->seq, (long long)f->site.config->max_seq);
	if ((rc = dt_rl_task_parse(f->o.task, &f->task, err)) < 0)
		return rc;
	ro.task = f->task;
	if ((rc = dt_reward_open(&ro, &f->reward, err)) < 0 ||
	    (rc = dt_tokenizer_from_text(f->site.tokenizer, f->site.tokenizer_n, &s->tok, err)) < 0)
		return rc;
	rc = dt_dev_open(&s->dev, DT_DEV_CPU, 0, f->site.threads);
	if (rc < 0)
		return dt_err_set(err, rc, "cannot open the processor: %s", dt_dev_why(rc));
	s->dev->batch_invariant = true;
	f->now = calloc((size_t)f->o.batch, sizeof(*f->now));
	return f->now ? 0 : dt_err_sys(err, -ENOMEM, "cannot draw answers");
}

static void release_groups(struct feed *f)
{
	for (int64_t i = 0; i < f->nnow; i++)
		dt_group_release(&f->now[i]);
	f->nnow = 0;
}

static int make_prompts(const struct feed *f, struct draw *d, struct dt_err *err)
{
	for (int64_t i = 0; i < d->n; i++) {
		char prompt[DT_RL_TASK_TEXT], solution[DT_RL_TASK_TEXT];
		const int64_t index = d->first + f->site.rank + i * f->site.ranks;

		dt_rl_task_make(&f->task, f->site.run->data.seed, (uint64_t)index, prompt, solution);
		d->group[i] = (struct dt_group){.index = index, .step = d->step, .prompt = strdup(prompt)};
		if (!d->group[i].prompt)
			return dt_err_sys(err, -ENOMEM, "cannot make a prompt");
	}
	return 0;
}

/* Answers and scores; touches nothing of the feed that a step under way does. */
static void draw_mine(const struct feed *f, struct draw *d)
{
	const struct dt_rl_sampler s = {.engine = f->server->engine,
					.tok = f->server->tok,
					.o = {.group = (int)f->o.group,
					      .max_tokens = (int)f->o.answer,
					      .temperature = 1,
					      .seed = f->site.run->data.seed}};
	double t0 = dt_now();

	d->rc = make_prompts(f, d, &d->err);
	if (d->rc == 0)
		d->rc = dt_rl_sample(&s, d->group, d->n, &d->err);
	d->draw_s = dt_now() - t0;
	t0 = dt_now();
	if (d->rc == 0)
		d->rc = dt_reward_score(f->reward, d->group, d->n, &d->err);
	d->score_s = dt_now() - t0;
}

static int draw_open(const struct feed *f, int64_t first, struct draw *d, struct dt_err *err)
{
	const int64_t ranks = f->site.ranks;

	*d = (struct draw){.n = (f->o.batch - f->site.rank + ranks - 1) / ranks,
			   .first = first,
			   .step = f->server->step};
	d->group = calloc((size_t)d->n + 1, sizeof(*d->group));
	return d->group ? 0 : dt_err_sys(err, -ENOMEM, "cannot draw answers");
}

/* Groups go with it. */
static void draw_release(struct draw *d)
{
	for (int64_t i = 0; d->group && i < d->n; i++)
		dt_group_release(&d->group[i]);
	free(d->group);
	*d = (struct draw){0};
}

/* What all ranks have drawn: to [--prompts]. d is used up. */
static int gather(struct feed *f, struct draw *d, int failed, struct dt_group *to, struct dt_err *err)
{
	int rc = failed;

	if (rc == 0 && d->rc < 0) {
		rc = d->rc;
		*err = d->err;
	}
	f->draw_s += d->draw_s;
	f->score_s += d->score_s;
	if (f->site.ranks > 1) {
		rc = feed_exchange(f, d->group, d->n, rc, to, err);
	} else if (d->group) {
		memcpy(to, d->group, (size_t)d->n * sizeof(*to));
		d->n = 0;
	}
	draw_release(d);
	if (rc == 0)
		dt_rl_count(&f->stats, to, f->o.batch);
	return rc;
}

/* A round: --prompts prompts from number first on, answered by all ranks: to [--prompts]. */
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

/* Groups with variance come to the front in their order; their number. */
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

/* Groups of a round that have variance replace those of f->now from number *good on, in their order. */
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

/* Every step has numbers of prompts of its own, also for the rounds that it may not need. */
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

	draw_mine(f, &f->server->ahead);
	return NULL;
}

/* From here on a thread draws for `step`. */
static int start_ahead(struct feed *f, int64_t step, struct dt_err *err)
{
	struct feed_server *s = f->server;
	int rc = draw_open(f, step * f->o.batch, &s->ahead, err);

	if (rc < 0)
		return rc;
	rc = -pthread_create(&s->thread, NULL, draw_ahead, f);
	s->running = rc == 0;
	return rc == 0 ? 0 : dt_err_sys(err, rc, "cannot draw answers ahead");
}

static void wait_ahead(struct feed_server *s)
{
	if (s->running)
		pthread_join(s->thread, NULL);
	s->running = false;
}

/* Weights as they are, where those that are there have drawn long enough. */
static int refresh(struct feed *f, int64_t step, struct dt_err *err)
{
	if (f->server->engine && step - f->server->step < f->o.refresh)
		return 0;
	dt_engine_close(f->server->engine);
	f->server->engine = NULL;
	return open_model(f, step, err);
}

/* --overlap: what a thread has drawn for this step, or it is drawn now; then the next begins. */
static int step_overlapped(struct feed *f, int64_t step, struct dt_err *err)
{
	struct feed_server *s = f->server;
	const bool ahead = s->running;
	int rc = 0;

	wait_ahead(s);
	f->nnow = f->o.batch;
	if (ahead) {
		f->drawn_at = s->ahead.step;
		rc = gather(f, &s->ahead, 0, f->now, err);
		if (rc == 0)
			rc = refresh(f, step, err);
	} else {
		rc = refresh(f, step, err);
		rc = draw_round(f, step * f->o.batch, rc, f->now, err);
		f->drawn_at = s->step;
	}
	return rc == 0 && step + 1 < f->site.run->steps ? start_ahead(f, step + 1, err) : rc;
}

int feed_draw_step(struct feed *f, int64_t step, struct dt_err *err)
{
	int rc;

	release_groups(f);
	memset(f->now, 0, (size_t)f->o.batch * sizeof(*f->now));
	f->stats = (struct dt_rl_stats){0};
	f->refilled = 0;
	f->sync_s = f->draw_s = f->score_s = 0;
	if (f->o.overlap)
		return step_overlapped(f, step, err);
	rc = refresh(f, step, err);
	rc = draw_groups(f, step, rc, err);
	f->drawn_at = f->server->step;
	return rc;
}

void feed_draw_close(struct feed *f)
{
	struct feed_server *s = f->server;

	if (!s)
		return;
	wait_ahead(s);
	draw_release(&s->ahead);
	if (f->now)
		release_groups(f);
	dt_engine_close(s->engine);
	dt_infer_close(s->model);
	dt_reward_close(f->reward);
	dt_tokenizer_close(s->tok);
	if (s->dev)
		dt_dev_close(s->dev);
	free(s);
}
/* SPDX-License-Identifier: Apache-2.0 */
