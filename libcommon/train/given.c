#include "train/given.h"

#include "ckpt/tokenizer_file.h"
#include "data/tokenizer.h"
#include "plan/objective.h"
#include "train/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int given_open(struct trainer *t, struct dt_err *err)
{
	struct dt_dataset_info *info = &t->source.info;
	struct given *g = &t->source.given;
	struct dt_tokenizer *tok = NULL;
	size_t n = 0;
	int rc;

	t->run.documents = DT_RUN_DOCUMENTS_APART;
	rc = dt_tokenizer_file_text(t->run.model, &g->tokenizer, &n, err);
	if (rc == 0)
		rc = dt_tokenizer_from_text(g->tokenizer, n, &tok, err);
	if (rc == -ENOENT && access(t->run.model, F_OK) < 0) {
		dt_err_set(err, rc, "'%s' is a preset, which has no tokenizer to sample answers with",
			   t->run.model);
		dt_err_hint(err, "train it with --data and --save DIR first, then give DIR to --model");
		return rc;
	}
	if (rc < 0)
		return dt_err_prefix(err, "tokenizer of '%s'", t->run.model);
	snprintf(g->hash, sizeof(g->hash), "%s", dt_tokenizer_hash(tok));
	*info = (struct dt_dataset_info){.vocab = dt_tokenizer_vocab(tok),
					 .tokenizer_hash = g->hash,
					 .tokenizer_text = g->tokenizer,
					 .tokenizer_bytes = n,
					 .apart = true};
	dt_tokenizer_close(tok);
	return 0;
}

int given_start(struct trainer *t, struct dt_err *err)
{
	struct given *g = &t->source.given;
	const int64_t rows = t->run.microbatch * t->run.seq;
	struct dt_given_site site = {.run = &t->run,
				     .config = &t->config,
				     .all = dt_mesh_comm(&t->mesh, DT_ON_ALL),
				     .rank = t->info.rank,
				     .ranks = t->info.size,
				     .counts = t->mesh.at.tp == 0,
				     .log = &t->root_log,
				     .gather = t->source.drawn.gather,
				     .gather_arg = t,
				     .tokenizer = t->source.info.tokenizer_text,
				     .tokenizer_n = t->source.info.tokenizer_bytes,
				     .device = t->dev->kind,
				     .card = t->dev->index,
				     .threads = t->dev->nthreads,
				     .patience = dt_world_timeout(t->world)};

	t->exec.objective = (struct dt_objective){.arg = g->g->arg,
						  .judge = g->g->judge,
						  .logprob = calloc((size_t)rows, sizeof(float)),
						  .weight = calloc((size_t)rows, sizeof(float))};
	if (dt_objective_rule(t->run.objective.kind)->values) {
		t->exec.objective.value = calloc((size_t)rows, sizeof(float));
		t->exec.objective.dvalue = calloc((size_t)rows, sizeof(float));
		site.value = t->exec.objective.value;
		site.dvalue = t->exec.objective.dvalue;
		if (!site.value || !site.dvalue)
			return dt_err_sys(err, -ENOMEM, "cannot set up the objective");
	}
	if (!t->exec.objective.logprob || !t->exec.objective.weight)
		return dt_err_sys(err, -ENOMEM, "cannot set up the objective");
	site.weights = t->source.drawn.at;
	return g->g->open(g->g->arg, &site, err);
}

void given_close(struct trainer *t)
{
	free(t->source.given.tokenizer);
}

int given_begin(struct trainer *t, struct dt_err *err)
{
	const int64_t each = t->run.microbatch * t->run.layout.dp;
	struct given *g = &t->source.given;
	int rc = g->g->rows(g->g->arg, t->loop.step, &g->now, err);

	g->rounds = g->now.rows > each ? (g->now.rows + each - 1) / each : 1;
	return rc;
}

void given_next(struct trainer *t, const struct dt_flight *f, int64_t n)
{
	const struct dt_given_rows *now = &t->source.given.now;
	const int64_t seq = t->run.seq;

	for (int64_t b = 0; b < t->run.microbatch; b++)
		for (int64_t p = 0; p < seq; p++) {
			const bool any = now->rows > 0, real = n + b < now->rows;
			const int64_t to = b * seq + p, from = (any ? (n + b) % now->rows : 0) * seq + p;

			f->host_ids[to] = any ? now->ids[from] : 0;
			f->host_targets[to] = real ? now->targets[from] : -1;
			f->host_first[to] = any ? now->first[from] : 0;
			f->host_pos[to] = (int32_t)p - f->host_first[to];
		}
}
/* SPDX-License-Identifier: Apache-2.0 */
