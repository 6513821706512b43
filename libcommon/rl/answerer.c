#include "rl/answerer.h"

#include "base/progress.h"
#include "ckpt/adapter.h"
#include "data/tokenizer.h"
#include "kernels/attention.h"
#include "plan/draws.h"
#include "serve/api/served.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE 4096

struct dt_answerer {
	struct dt_answerer_opts o;
	struct dt_dev *dev;
	struct dt_tokenizer *tok;
	struct dt_reward *reward;
	struct dt_infer *model;	  /* NULL: not open */
	struct dt_engine *engine; /* with a cache for these weights; NULL: not open */
	struct dt_rl_renew renew;
	int64_t step;
};

static int blocks(const struct dt_answerer *a)
{
	return (int)((a->o.seq + DT_DRAWS_BLOCK - 1) / DT_DRAWS_BLOCK) * DT_DRAWS_SEQS;
}

static int open_engine(struct dt_answerer *a, struct dt_err *err)
{
	const struct dt_config *c = &a->o.config;
	struct dt_engine_params p = {.model = dt_served_model(a->model, a->tok, c),
				     .tok = a->tok,
				     .max_seqs = DT_DRAWS_SEQS,
				     .max_tokens = DT_DRAWS_TOKENS,
				     .max_len = (int)a->o.seq,
				     .blocks = blocks(a),
				     .block_size = DT_DRAWS_BLOCK,
				     .window = (int)dt_config_span(c),
				     .queue = QUEUE,
				     .share_prefixes = true,
				     .stuck_after = 1e9};

	return dt_engine_open(&a->engine, &p, err);
}

int dt_answerer_take(struct dt_answerer *a, const void *const *weights, int64_t step, struct dt_err *err)
{
	const struct dt_infer_params p = {.dtype = a->o.compute,
					  .cache = a->o.compute,
					  .weights = -1,
					  .max_tokens = DT_DRAWS_TOKENS,
					  .max_seqs = DT_DRAWS_SEQS,
					  .max_len = (int)a->o.seq,
					  .blocks = blocks(a),
					  .block_size = DT_DRAWS_BLOCK,
					  .as_trained = true};
	struct dt_source *src = NULL;
	int rc;

	dt_engine_close(a->engine);
	a->engine = NULL;
	a->step = -1;
	rc = dt_source_memory_adapted(&a->o.config, weights, a->o.compute, &src, err);
	if (rc == 0)
		rc = a->model ? dt_infer_reload(a->model, src, err)
			      : dt_infer_open(&a->model, a->dev, src, &p, err);
	dt_source_close(src);
	dt_dev_rest(a->dev); /* from here on the engine's thread uses the device */
	if (rc == 0)
		rc = open_engine(a, err);
	if (rc == 0)
		a->step = step;
	return rc;
}

int64_t dt_answerer_step(const struct dt_answerer *a)
{
	return a->step;
}

int dt_answerer_open(const struct dt_answerer_opts *o, struct dt_answerer **ret, struct dt_err *err)
{
	const struct dt_reward_opts reward = {
		.command = o->reward, .task = o->task, .workers = o->reward_workers, .timeout = 60};
	struct dt_answerer *a = calloc(1, sizeof(*a));
	int rc = a ? 0 : dt_err_sys(err, -ENOMEM, "cannot draw answers");

	*ret = a;
	if (rc < 0)
		return rc;
	a->o = *o;
	a->step = -1;
	if ((rc = dt_reward_open(&reward, &a->reward, err)) < 0 ||
	    (rc = dt_tokenizer_from_text(o->tokenizer, o->tokenizer_n, &a->tok, err)) < 0)
		return rc;
	rc = dt_dev_open(&a->dev, o->device, o->card, o->threads);
	if (rc < 0)
		return dt_err_set(err, rc, "cannot open the device that samples answers: %s", dt_dev_why(rc));
	a->dev->batch_invariant = true;
	return 0;
}

void dt_answerer_close(struct dt_answerer *a)
{
	if (!a)
		return;
	dt_engine_close(a->engine);
	dt_infer_close(a->model);
	dt_reward_close(a->reward);
	dt_tokenizer_close(a->tok);
	if (a->dev)
		dt_dev_close(a->dev);
	free(a);
}

void dt_answerer_renews(struct dt_answerer *a, const struct dt_rl_renew *renew)
{
	a->renew = *renew;
}

/* Sampling of a piece, with the engine of that time. */
struct drawing {
	struct dt_answerer *a;
	struct dt_rl_sampler s;
};

static int renew(void *arg, struct dt_err *err)
{
	struct drawing *d = arg;
	const int rc = d->a->renew.renew(d->a->renew.arg, err);

	d->s.engine = d->a->engine;
	return rc;
}

static int make_prompts(const struct dt_answerer *a, struct dt_group *g, int64_t n, struct dt_err *err)
{
	for (int64_t i = 0; i < n; i++) {
		char prompt[DT_RL_TASK_TEXT], solution[DT_RL_TASK_TEXT];

		dt_rl_task_make(&a->o.task, a->o.prompts, (uint64_t)g[i].index, prompt, solution);
		g[i].step = a->step;
		g[i].prompt = strdup(prompt);
		if (!g[i].prompt)
			return dt_err_sys(err, -ENOMEM, "cannot make a prompt");
	}
	return 0;
}

int dt_answerer_draw(struct dt_answerer *a, struct dt_group *g, int64_t n, double *draw_s, double *score_s,
		     struct dt_err *err)
{
	struct drawing d = {a, {a->engine, a->tok, a->o.sample}};
	const struct dt_rl_renew by = {renew, &d};
	double t0 = dt_now(), t1;
	int rc = make_prompts(a, g, n, err);

	if (rc == 0)
		rc = a->renew.renew && a->o.sample.piece > 0 ? dt_rl_sample_pieces(&d.s, g, n, &by, err)
							     : dt_rl_sample(&d.s, g, n, err);
	t1 = dt_now();
	*draw_s += t1 - t0;
	if (rc == 0)
		rc = dt_reward_score(a->reward, g, n, err);
	*score_s += dt_now() - t1;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
