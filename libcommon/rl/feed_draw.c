/*
 * Answers drawn from the weights that learn, between two steps: a copy of them behind the engine of dt-serve,
 * in this process. With --refresh 1 the copy and its cache are gone before the step computes; else it stays,
 * and draws what the next steps learn from, ever staler.
 *
 * Prompts are shared out over the ranks, which all have the same weights. What a rank draws is a function of
 * weights, seed, prompt and position, so the answers do not depend on how many ranks there are.
 */
#include "rl/feed_priv.h"

#include "base/progress.h"
#include "ckpt/source.h"
#include "data/tokenizer.h"
#include "kernels/attention.h"
#include "serve/api/served.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SEQS  64
#define BLOCK 16
#define QUEUE 4096

struct feed_server {
	struct dt_dev *dev;
	struct dt_tokenizer *tok;
	struct dt_infer *model; /* NULL: none is open */
	struct dt_engine *engine;
	int64_t step; /* whose weights it has */
};

static void close_model(struct feed_server *s)
{
	dt_engine_close(s->engine);
	dt_infer_close(s->model);
	s->engine = NULL;
	s->model = NULL;
}

static int open_engine(struct feed *f, int blocks, struct dt_err *err)
{
	struct feed_server *s = f->server;
	const struct dt_config *c = f->site.config;
	struct dt_engine_params p = {.model = dt_served_model(s->model, s->tok, c),
				     .tok = s->tok,
				     .max_seqs = SEQS,
				     .max_tokens = 512,
				     .max_len = (int)f->site.run->seq,
				     .blocks = blocks,
				     .block_size = BLOCK,
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
	const int blocks = (int)((r->seq + BLOCK - 1) / BLOCK) * SEQS;
	const struct dt_infer_params p = {.dtype = r->compute,
					  .cache = r->compute,
					  .weights = -1,
					  .max_tokens = 512,
					  .max_seqs = SEQS,
					  .max_len = (int)r->seq,
					  .blocks = blocks,
					  .block_size = BLOCK,
					  .as_trained = true};
	struct dt_source *src = NULL;
	double t0 = dt_now();
	int rc = dt_source_memory(f->site.config, f->site.weights, r->compute, &src, err);

	if (rc == 0)
		rc = dt_infer_open(&s->model, s->dev, src, &p, err);
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
	if (!f->site.weights)
		return dt_err_set(
			err, -ENOTSUP,
			"--task needs ranks that hold all parameters: no tp, z3 or adapters in this version");
	if (r->compute == DT_F16)
		return dt_err_set(err, -ENOTSUP, "--task draws answers in fp32 or bf16, not in fp16");
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

/* This rank's of --prompts prompts from number first on, each answered and scored: mine [n]. */
static int draw_mine(struct feed *f, int64_t first, struct dt_group *mine, int64_t n, struct dt_err *err)
{
	const struct dt_rl_sampler s = {.engine = f->server->engine,
					.tok = f->server->tok,
					.o = {.group = (int)f->o.group,
					      .max_tokens = (int)f->o.answer,
					      .temperature = 1,
					      .seed = f->site.run->data.seed}};
	double t0 = dt_now();
	int rc = 0;

	for (int64_t i = 0; i < n && rc == 0; i++) {
		char prompt[DT_RL_TASK_TEXT], solution[DT_RL_TASK_TEXT];
		const int64_t index = first + f->site.rank + i * f->site.ranks;

		dt_rl_task_make(&f->task, f->site.run->data.seed, (uint64_t)index, prompt, solution);
		mine[i] =
			(struct dt_group){.index = index, .step = f->server->step, .prompt = strdup(prompt)};
		rc = mine[i].prompt ? 0 : dt_err_sys(err, -ENOMEM, "cannot make a prompt");
	}
	if (rc == 0)
		rc = dt_rl_sample(&s, mine, n, err);
	f->draw_s += dt_now() - t0;
	t0 = dt_now();
	if (rc == 0)
		rc = dt_reward_score(f->reward, mine, n, err);
	f->score_s += dt_now() - t0;
	return rc;
}

/* Groups of this rank as text, a line each. */
static int groups_text(const struct dt_group *g, int64_t n, char **ret, size_t *ret_n)
{
	FILE *out = open_memstream(ret, ret_n);
	int rc = out ? 0 : -ENOMEM;

	for (int64_t i = 0; i < n && rc == 0; i++) {
		json_t *o = dt_group_json(&g[i]);

		rc = o ? dt_json_write_line(out, o, NULL) : -ENOMEM;
		json_decref(o);
	}
	if (out && fclose(out) == EOF)
		rc = -ENOMEM;
	return rc;
}

/* The groups of all ranks, in the order of their prompts; text: room * ranks bytes. */
static int take_text(const struct feed *f, const char *text, size_t room, struct dt_group *to,
		     struct dt_err *err)
{
	for (int r = 0; r < f->site.ranks; r++) {
		const char *at = text + (size_t)r * room;

		for (int64_t i = r; i < f->o.batch; i += f->site.ranks) {
			const char *end = strchr(at, '\n');
			json_t *o = NULL;
			int rc = dt_json_parse(at, end ? (size_t)(end - at) : 0, "rollouts of a rank", &o,
					       err);

			if (rc == 0)
				rc = dt_group_parse(o, f->site.config->vocab, &to[i], err);
			json_decref(o);
			if (rc < 0)
				return rc;
			at = end + 1;
		}
	}
	return 0;
}

/* Every rank gets what all have drawn: to [--prompts]. */
static int exchange(struct feed *f, const struct dt_group *mine, int64_t n, int failed, struct dt_group *to,
		    struct dt_err *err)
{
	char *own = NULL, *all = NULL;
	size_t len = 0, room;
	double most;
	int rc = failed < 0 ? failed : groups_text(mine, n, &own, &len);

	most = rc < 0 ? -1e18 : (double)len;
	/* The longest; a rank that failed says so through the smallest. */
	double far[2] = {most, -most};

	if (dt_all_reduce(f->site.all, far, NULL, 2, DT_F64, DT_MAX, "length of rollouts", err) < 0) {
		free(own);
		return err->code;
	}
	if (far[1] > 1e17) {
		free(own);
		if (rc == -ENOMEM && failed == 0)
			return dt_err_sys(err, rc, "cannot hand on rollouts");
		return rc < 0 ? rc : dt_err_set(err, -ECANCELED, "%s", "");
	}
	room = (size_t)far[0] + 1;
	all = calloc((size_t)f->site.ranks, room);
	own = realloc(own, room);
	rc = all && own ? 0 : dt_err_sys(err, -ENOMEM, "cannot hand on rollouts");
	if (rc == 0) {
		memset(own + len, 0, room - len);
		rc = dt_all_gather(f->site.all, all, own, room, DT_U8, "rollouts", err);
	}
	if (rc == 0)
		rc = take_text(f, all, room, to, err);
	free(own);
	free(all);
	return rc;
}

/* A round: --prompts prompts from number first on, answered by all ranks: to [--prompts]. */
static int draw_round(struct feed *f, int64_t first, int failed, struct dt_group *to, struct dt_err *err)
{
	const int64_t ranks = f->site.ranks, n = (f->o.batch - f->site.rank + ranks - 1) / ranks;
	struct dt_group *mine = calloc((size_t)n + 1, sizeof(*mine));
	int rc = failed;

	if (rc == 0 && !mine)
		rc = dt_err_sys(err, -ENOMEM, "cannot draw answers");
	if (rc == 0)
		rc = draw_mine(f, first, mine, n, err);
	if (ranks > 1) {
		rc = exchange(f, mine, n, rc, to, err);
		for (int64_t i = 0; mine && i < n; i++)
			dt_group_release(&mine[i]);
	} else if (mine) {
		memcpy(to, mine, (size_t)n * sizeof(*mine));
	}
	free(mine);
	if (rc == 0)
		dt_rl_count(&f->stats, to, f->o.batch);
	return rc;
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

int feed_draw_step(struct feed *f, int64_t step, struct dt_err *err)
{
	int rc = 0;

	release_groups(f);
	memset(f->now, 0, (size_t)f->o.batch * sizeof(*f->now));
	f->stats = (struct dt_rl_stats){0};
	f->refilled = 0;
	f->sync_s = f->draw_s = f->score_s = 0;
	if (!f->server->engine || step - f->server->step >= f->o.refresh) {
		close_model(f->server);
		rc = open_model(f, step, err);
	}
	rc = draw_groups(f, step, rc, err);
	f->drawn_at = f->server->step;
	if (f->o.refresh == 1)
		close_model(f->server);
	return rc;
}

void feed_draw_close(struct feed *f)
{
	struct feed_server *s = f->server;

	if (!s)
		return;
	if (f->now)
		release_groups(f);
	close_model(s);
	dt_reward_close(f->reward);
	dt_tokenizer_close(s->tok);
	if (s->dev)
		dt_dev_close(s->dev);
	free(s);
}
/* SPDX-License-Identifier: Apache-2.0 */
