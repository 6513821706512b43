/* Rollouts from a file: groups in order, restarting at the end. */
#include "rl/feed_priv.h"

#include "base/jsonl.h"
#include "ckpt/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* -EINVAL for rollouts that are valid but cannot be learned from. */
static int check_group(const struct dt_group *g, struct dt_err *err)
{
	if (g->temperature != 1)
		return dt_err_set(err, -EINVAL,
				  "sampled at temperature %g, but training needs answers sampled at 1",
				  g->temperature);
	for (int k = 0; k < g->n; k++)
		if (!g->answer[k].logprob)
			return dt_err_set(err, -EINVAL, "answer %d has no log-probabilities", k);
	return 0;
}

static int add_group(struct feed *f, const json_t *o, struct dt_err *err)
{
	struct dt_group *grown = f->pool;
	int rc;

	if ((f->npool & (f->npool - 1)) == 0) {
		grown = realloc(f->pool, (size_t)(f->npool ? 2 * f->npool : 1) * sizeof(*grown));
		if (!grown)
			return dt_err_sys(err, -ENOMEM, "cannot read rollouts");
		f->pool = grown;
	}
	rc = dt_group_parse(o, f->site.config->vocab, &f->pool[f->npool], err);
	f->npool++; /* counted also on failure, to be released */
	return rc < 0 ? rc : check_group(&f->pool[f->npool - 1], err);
}

static int read_file(struct feed *f, struct dt_err *err)
{
	struct dt_jsonl file;
	json_t *o;
	int rc = dt_jsonl_open(&file, f->o.rollouts, err);

	if (rc < 0)
		return rc;
	file.texts = true;
	while ((rc = dt_jsonl_next(&file, &o, err)) > 0) {
		rc = add_group(f, o, err);
		json_decref(o);
		if (rc < 0) {
			dt_err_prefix(err, "%s:%zu", file.name, file.line);
			break;
		}
	}
	dt_jsonl_close(&file);
	if (rc == 0 && f->npool == 0)
		return dt_err_set(err, -EINVAL, "'%s' holds no rollouts", f->o.rollouts);
	return rc;
}

/* Compares the fingerprint in the rollouts, of which a server's have none, with that of the run's weights. */
static int compare_weights(struct feed *f, struct dt_err *err)
{
	char name[DT_FINGERPRINT] = "";
	struct dt_source *src = NULL;
	bool same = true, named = true;
	int rc = dt_source_open(f->site.run->model, DT_SOURCE_AUTO, "none", &src, err);

	if (rc == 0)
		rc = dt_source_fingerprint(src, name, err);
	dt_source_close(src);
	for (int64_t i = 0; i < f->npool; i++) {
		named &= f->pool[i].weights[0] != '\0';
		same &= !f->pool[i].weights[0] || !strcmp(f->pool[i].weights, name);
	}
	f->foreign = rc < 0 || !same || !named;
	if (rc == 0 && same && !named)
		dt_log_msg(f->site.log, "'%s' does not say which weights sampled it", f->o.rollouts);
	if (rc == 0 && !same)
		dt_log_msg(f->site.log, "'%s' was sampled from other weights than '%s'", f->o.rollouts,
			   f->site.run->model);
	return rc;
}

/*
 * The most tokens that an answer of the file may have, the same in all steps: what the groups say, or the
 * longest answer.
 */
static int64_t most_tokens(const struct feed *f)
{
	int64_t most = 1;

	for (int64_t i = 0; i < f->npool; i++) {
		const struct dt_group *g = &f->pool[i];

		most = g->max_tokens > most ? g->max_tokens : most;
		for (int k = 0; k < g->n; k++)
			most = g->answer[k].n > most ? g->answer[k].n : most;
	}
	return most;
}

int feed_file_open(struct feed *f, struct dt_err *err)
{
	int rc = read_file(f, err);

	f->most = most_tokens(f);
	f->now = rc == 0 ? calloc((size_t)f->o.batch, sizeof(*f->now)) : NULL;
	if (rc == 0 && !f->now)
		rc = dt_err_sys(err, -ENOMEM, "cannot read rollouts");
	return rc < 0 ? rc : compare_weights(f, err);
}

int feed_file_step(struct feed *f, int64_t step, struct dt_err *err)
{
	f->nnow = f->o.batch < f->npool ? f->o.batch : f->npool;
	for (int64_t i = 0; i < f->nnow; i++)
		f->now[i] = f->pool[(step * f->nnow + i) % f->npool];
	f->staleness = f->most_stale = f->foreign ? (double)NAN : (double)step;
	return 0;
}

void feed_file_close(struct feed *f)
{
	for (int64_t i = 0; i < f->npool; i++)
		dt_group_release(&f->pool[i]);
	free(f->pool);
}
/* SPDX-License-Identifier: Apache-2.0 */
