#include "train/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int source_describe(struct trainer *t, struct dt_err *err)
{
	return dt_config_is_image(&t->config) ? images_open(t, err) : 0;
}

bool source_evaluates(const struct trainer *t)
{
	return t->source.eval || t->source.images.eval;
}

int64_t source_eval_samples(const struct trainer *t)
{
	return t->source.images.eval ? images_eval_samples(t) : t->source.eval_sampler.samples;
}

static int open_tokens(struct trainer *t, struct dt_err *err)
{
	struct dt_dataset_info eval;
	int rc = dt_dataset_open(t->run.data.train, &t->source.data, err);

	if (rc < 0)
		return rc;
	dt_dataset_info(t->source.data, &t->source.info);
	if (t->config.vocab < t->source.info.vocab) {
		dt_err_set(err, -EINVAL,
			   "model vocabulary %lld is smaller than the %d of the tokenizer of '%s'",
			   (long long)t->config.vocab, t->source.info.vocab, t->run.data.train);
		dt_err_hint(err,
			    "--vocab %d gives a new model that many; weights need a data set of their own "
			    "tokenizer",
			    t->source.info.vocab);
		return -EINVAL;
	}
	if (t->run.documents == DT_RUN_DOCUMENTS_AUTO)
		t->run.documents = t->source.info.apart ? DT_RUN_DOCUMENTS_APART : DT_RUN_DOCUMENTS_JOINED;
	if (dt_run_apart(&t->run) && !t->source.info.apart) {
		dt_err_set(err, -EINVAL, "--documents apart: '%s' does not say where documents begin",
			   t->run.data.train);
		dt_err_hint(err, "build it with 'dt-dataset build --pack documents'");
		return -EINVAL;
	}
	rc = dt_sampler_init(&t->source.sampler, t->source.data, t->run.seq, t->run.data.seed, true, err);
	if (rc < 0)
		return rc;
	if (!t->run.data.eval)
		return 0;
	rc = dt_dataset_open(t->run.data.eval, &t->source.eval, err);
	if (rc < 0)
		return rc;
	dt_dataset_info(t->source.eval, &eval);
	if (strcmp(eval.tokenizer_hash, t->source.info.tokenizer_hash))
		return dt_err_set(err, -EINVAL, "'%s' and '%s' were made with different tokenizers",
				  t->run.data.train, t->run.data.eval);
	if (dt_run_apart(&t->run) && !eval.apart)
		return dt_err_set(err, -EINVAL, "'%s' keeps documents apart, '%s' does not",
				  t->run.data.train, t->run.data.eval);
	return dt_sampler_init(&t->source.eval_sampler, t->source.eval, t->run.seq, t->run.data.seed, false,
			       err);
}

int source_open(struct trainer *t, struct dt_err *err)
{
	return dt_config_is_image(&t->config) ? images_start(t, err) : open_tokens(t, err);
}

void source_close(struct trainer *t)
{
	images_close(t);
	if (t->source.data)
		dt_dataset_close(t->source.data);
	if (t->source.eval)
		dt_dataset_close(t->source.eval);
}

static struct dt_sampler *sampler_of(struct trainer *t, bool eval)
{
	return eval ? &t->source.eval_sampler : &t->source.sampler;
}

int64_t source_targets(struct trainer *t, bool eval, int64_t first, int64_t end)
{
	struct dt_sampler *s = sampler_of(t, eval);
	int64_t n = (end - first) * t->run.seq;

	if (dt_config_is_image(&t->config))
		return n;
	for (int64_t i = first; i < end && dt_run_apart(&t->run); i++)
		n -= dt_dataset_starts(s->data, dt_sampler_at(s, i) + 1, t->run.seq);
	return n;
}

/* The rank's tokens of sequence b: ids, targets (shifted before the cut), positions and documents. */
static void cut(const struct trainer *t, const struct dt_flight *f, int64_t b, const int32_t *row,
		const int32_t *first)
{
	int64_t n = t->exec.seq;

	for (int64_t i = b * n; i < (b + 1) * n; i++) {
		int64_t p = t->exec.host_pos[i];
		bool last = !row || (first && first[p + 1] != first[p]);

		if (f->host_ids) {
			f->host_ids[i] = row ? row[p] : 0;
			f->host_targets[i] = last ? -1 : row[p + 1];
		}
		if (f->host_first) {
			f->host_first[i] = row ? first[p] : 0;
			f->host_pos[i] = (int32_t)p - f->host_first[i];
		}
	}
}

static int next_tokens(struct trainer *t, bool eval, const struct dt_flight *f, int64_t n, int64_t end,
		       struct dt_err *err)
{
	struct dt_sampler *s = sampler_of(t, eval);
	int64_t seq = t->run.seq;
	int32_t *row = malloc((size_t)(seq + 1) * 2 * sizeof(*row)), *first = row + seq + 1;
	bool apart = dt_run_apart(&t->run);
	int rc = 0;

	if (!row)
		return dt_err_sys(err, -ENOMEM, "cannot load a sample");
	for (int64_t b = 0; b < t->run.microbatch && rc == 0; b++) {
		bool real = n + b < end;

		if (real)
			rc = dt_sampler_get(s, n + b, row, err);
		if (real && apart)
			dt_dataset_first(s->data, dt_sampler_at(s, n + b), seq + 1, first);
		if (rc == 0)
			cut(t, f, b, real ? row : NULL, real && apart ? first : NULL);
	}
	free(row);
	return rc == 0 ? dt_flight_upload(f, &t->exec, err) : rc;
}

int source_next(struct trainer *t, bool eval, const struct dt_flight *f, int64_t n, int64_t end,
		struct dt_err *err)
{
	return t->source.images.data ? images_next(t, eval, f, n, end, err)
				     : next_tokens(t, eval, f, n, end, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
