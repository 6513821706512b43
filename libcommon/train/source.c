#include "train/trainer.h"

#include "base/rng.h"
#include "plan/objective.h"
#include "train/masked.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int source_describe(struct trainer *t, struct dt_err *err)
{
	return dt_config_is_image(&t->config) ? images_open(t, err) : labelled_describe(t, err);
}

int64_t source_microbatches(const struct trainer *t)
{
	return t->source.given.g ? t->source.given.rounds
	       : t->shares.n	 ? t->shares.n[t->mesh.at.dp]
				 : t->run.accumulation;
}

int64_t source_samples_of_step(const struct trainer *t)
{
	return t->source.given.g ? t->source.given.now.rows : t->run.global_batch;
}

int64_t source_rows_computed(const struct trainer *t)
{
	return t->source.given.g ? t->source.given.rounds * t->run.microbatch * t->run.layout.dp
				 : t->run.global_batch;
}

double source_tokens_of_step(const struct trainer *t)
{
	return t->source.given.g ? (double)t->source.given.now.tokens
				 : (double)t->run.global_batch * (double)t->run.seq;
}

bool source_evaluates(const struct trainer *t)
{
	return t->source.eval || t->source.images.eval || t->source.labelled.eval;
}

int64_t source_eval_samples(const struct trainer *t)
{
	return t->source.images.eval	 ? images_eval_samples(t)
	       : t->source.labelled.eval ? t->source.labelled.eval_info.documents
					 : t->source.eval_sampler.samples;
}

#define AHEAD	4 /* microbatches */
#define THREADS 2 /* they mostly wait for the disk */

/* Fills rows of a block with samples n .., seq + 1 tokens each. */
static int make_rows(void *ctx, int worker, int64_t n, int at, int count, void *block, struct dt_err *err)
{
	struct trainer *t = ctx;
	int64_t row = t->run.seq + 1;
	int rc = 0;

	for (int i = 0; i < count && rc == 0; i++)
		rc = dt_mixture_get(t->source.data, n + i, (int32_t *)block + (at + i) * row, err);
	return rc;
}

/* Starts threads that read this rank's microbatches ahead. */
static int open_ahead(struct trainer *t, struct dt_err *err)
{
	struct dt_ahead_options o = {
		.make = make_rows,
		.ctx = t,
		.count = (int)t->run.microbatch,
		.grain = 1,
		.block_bytes = (size_t)(t->run.microbatch * (t->run.seq + 1)) * sizeof(int32_t),
		.every = t->run.microbatch * (t->shares.n ? 1 : t->run.layout.dp),
		.workers = dt_mixture_threads(t->source.data) ? THREADS : 0,
		.ahead = AHEAD,
	};

	return dt_ahead_open(&o, &t->source.ahead, err);
}

static int open_tokens(struct trainer *t, struct dt_err *err)
{
	struct dt_dataset_info eval;
	int rc = dt_mixture_check(t->run.data.train, err);

	if (rc < 0) {
		t->status = rc == -EINVAL ? DT_EXIT_USAGE : t->status;
		return dt_err_prefix(err, "--data");
	}
	rc = dt_mixture_open(t->run.data.train, t->run.seq, t->run.data.seed, true, &t->source.data, err);
	if (rc < 0)
		return rc;
	dt_mixture_info(t->source.data, &t->source.info);
	if (t->source.info.labels)
		return dt_err_set(err, -EINVAL,
				  "'%s' has texts with labels: an encoder learns them, from one data set",
				  t->run.data.train);
	if (dt_config_has_labels(&t->config)) {
		dt_err_set(err, -EINVAL, "'%s' learns classes of texts, but '%s' has no labels",
			   t->config.name, t->run.data.train);
		dt_err_hint(err, "make it with 'dt-dataset labels'");
		return -EINVAL;
	}
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
	if (t->run.documents == DT_RUN_DOCUMENTS_AUTO && t->config.encoder)
		t->run.documents = DT_RUN_DOCUMENTS_JOINED;
	if (t->run.documents == DT_RUN_DOCUMENTS_AUTO)
		t->run.documents = t->source.info.apart ? DT_RUN_DOCUMENTS_APART : DT_RUN_DOCUMENTS_JOINED;
	if (dt_run_apart(&t->run) && !t->source.info.apart) {
		dt_err_set(err, -EINVAL, "--documents apart: '%s' does not say where documents begin",
			   t->run.data.train);
		dt_err_hint(err, "build it with 'dt-dataset build --pack documents'");
		return -EINVAL;
	}
	rc = masked_check(t, err);
	if (rc == 0)
		rc = open_ahead(t, err);
	if (rc < 0 || !t->run.data.eval)
		return rc;
	rc = dt_dataset_open(t->run.data.eval, &t->source.eval, err);
	if (rc < 0)
		return rc;
	dt_dataset_info(t->source.eval, &eval);
	if (strcmp(eval.tokenizer_hash, t->source.info.tokenizer_hash))
		return dt_err_set(err, -EINVAL, "'%s' and '%s' were made with different tokenizers",
				  t->run.data.train, t->run.data.eval);
	if (dt_run_apart(&t->run) && !eval.apart) {
		dt_err_set(err, -EINVAL, "'%s' keeps documents apart, '%s' does not", t->run.data.train,
			   t->run.data.eval);
		dt_err_hint(err,
			    "build it with 'dt-dataset build --pack documents', or give --documents joined");
		return -EINVAL;
	}
	return dt_sampler_init(&t->source.eval_sampler, t->source.eval, t->run.seq, t->run.data.seed, false,
			       err);
}

int source_open(struct trainer *t, struct dt_err *err)
{
	int rc;

	if (t->source.given.g)
		return given_open(t, err);
	if (dt_config_is_image(&t->config))
		return images_start(t, err);
	if (trainer_labels(t))
		return labelled_open(t, err);
	rc = open_tokens(t, err);
	return rc == 0 ? taught_open(t, err) : rc;
}

void source_close(struct trainer *t)
{
	free(t->source.noise_width);
	free(t->source.noise_token);
	free(t->source.length);
	taught_close(t);
	images_close(t);
	labelled_close(t);
	given_close(t);
	dt_ahead_close(t->source.ahead);
	dt_mixture_close(t->source.data);
	if (t->source.eval)
		dt_dataset_close(t->source.eval);
}

/* The data set of global sample *n, and in *n the sample's number in it. */
static const struct dt_sampler *sampler_of(const struct trainer *t, bool eval, int64_t *n)
{
	return eval ? &t->source.eval_sampler : dt_mixture_at(t->source.data, *n, n);
}

const struct dt_sampler *source_sampler(const struct trainer *t, bool eval, int64_t n, int64_t *ret_own)
{
	*ret_own = n;
	return sampler_of(t, eval, ret_own);
}

int64_t source_samples(const struct trainer *t)
{
	int64_t n = 0;

	return sampler_of(t, false, &n)->samples;
}

/* Marked targets never begin a document; without marks, each document's first token is no target. */
int64_t source_targets(struct trainer *t, bool eval, int64_t first, int64_t end)
{
	int64_t n = 0, seq = t->run.seq;

	if (t->source.given.g) /* its loss is over the whole step */
		return 1;
	if (dt_config_is_image(&t->config))
		return (end - first) * seq;
	if (trainer_labels(t))
		return end - first;
	if (dt_objective_compares(dt_objective_rule(t->run.objective.kind)))
		return objective_pairs(t, eval, first, end);
	if (t->config.encoder)
		return (end - first) * dt_run_masked(&t->run);
	for (int64_t i = first; i < end; i++) {
		int64_t own = i, at;
		const struct dt_sampler *s = sampler_of(t, eval, &own);

		at = dt_sampler_at(s, own) + 1;
		n += s->marked		     ? dt_dataset_targets(s->data, at, seq)
		     : dt_run_apart(&t->run) ? seq - dt_dataset_starts(s->data, at, seq)
					     : seq;
	}
	return n;
}

/* This rank's tokens of sequence b: ids, targets (shifted before cp cuts it), positions, documents. */
static void cut(const struct trainer *t, const struct dt_flight *f, int64_t b, const int32_t *row,
		const int32_t *first, const uint8_t *mask)
{
	int64_t n = t->exec.seq;
	bool whole = t->exec.firsts > t->run.microbatch * n;

	for (int64_t i = b * n; i < (b + 1) * n; i++) {
		int64_t p = t->exec.host_pos[i];
		bool last = !row || (first && first[p + 1] != first[p]) || (mask && !mask[p + 1]);

		if (f->host_ids) {
			f->host_ids[i] = row ? row[p] : 0;
			f->host_targets[i] = last ? -1 : row[p + 1];
		}
		if (f->host_ids_ahead) {
			bool end = p + 1 >= t->run.seq || !row || (first && first[p + 2] != first[p]) ||
				   (mask && !mask[p + 2]);

			f->host_ids_ahead[i] = row ? row[p + 1] : 0;
			f->host_targets_ahead[i] = end ? -1 : row[p + 2];
		}
		if (f->host_first) {
			int32_t doc = row ? first[p] : 0;

			f->host_pos[i] = (int32_t)p - doc;
			if (!whole)
				f->host_first[i] = doc;
		}
	}
	for (int64_t p = 0; p < t->run.seq && whole && f->host_first; p++)
		f->host_first[b * t->run.seq + p] = row ? first[p] : 0;
}

/* Sets the noise of sample n's tokens, in sequence b. first: starts of its documents; NULL: one document. */
static void set_noise(struct trainer *t, int64_t b, int64_t n, const int32_t *first)
{
	const struct source *z = &t->source;
	int64_t rows = t->exec.seq, seq = t->run.seq, *length = t->source.length;

	for (int64_t p = seq - 1, end = seq; p >= 0; p--) {
		bool last = first && p + 1 < seq && first[p + 1] != first[p];

		end = last ? p + 1 : end;
		length[p] = end - (first ? first[p] : 0);
	}
	for (int64_t i = b * rows; i < (b + 1) * rows; i++) {
		int64_t p = t->exec.host_pos[i];

		z->noise_token[i] = n * seq + p;
		z->noise_width[i] = (float)(t->run.neftune / sqrt((double)(length[p] * t->config.hidden)));
	}
}

int source_noise(struct trainer *t, struct dt_err *err)
{
	struct source *z = &t->source;
	size_t rows = (size_t)(t->run.microbatch * t->exec.seq);

	if (t->run.neftune <= 0)
		return 0;
	z->noise_width = calloc(rows, sizeof(*z->noise_width));
	z->noise_token = calloc(rows, sizeof(*z->noise_token));
	z->length = calloc((size_t)t->run.seq, sizeof(*z->length));
	if (!z->noise_width || !z->noise_token || !z->length)
		return dt_err_sys(err, -ENOMEM, "cannot hold the noise of a microbatch");
	t->exec.noise = (struct dt_noise){
		dt_rng_make(t->run.data.seed, DT_RNG_DROPOUT, dt_hash_str("embedding noise")).stream,
		z->noise_width, z->noise_token};
	return 0;
}

/* Copies samples n .. into f: from rows, or where that is NULL from the evaluation set. */
static int put_samples(struct trainer *t, const struct dt_flight *f, int64_t n, int64_t end,
		       const int32_t *rows, struct dt_err *err)
{
	int64_t seq = t->run.seq;
	int32_t *own_row = malloc((size_t)(seq + 1) * 3 * sizeof(*own_row)), *first = own_row + seq + 1;
	uint8_t *mask = (uint8_t *)(first + seq + 1);
	bool apart = dt_run_apart(&t->run);
	int rc = own_row ? 0 : dt_err_sys(err, -ENOMEM, "cannot load a sample");

	objective_clear(t);
	for (int64_t b = 0; b < t->run.microbatch && rc == 0; b++) {
		bool real = n + b < end;
		int64_t own = n + b;
		const struct dt_sampler *s = sampler_of(t, !rows, &own);
		const int32_t *row = rows ? rows + b * (seq + 1) : own_row;

		if (real && !rows)
			rc = dt_sampler_get(s, own, own_row, err);
		if (real && apart)
			dt_dataset_first(s->data, dt_sampler_at(s, own), seq + 1, first);
		if (real && s->marked)
			dt_dataset_mask(s->data, dt_sampler_at(s, own), seq + 1, mask);
		if (real && rows && t->exec.noise.width)
			set_noise(t, b, n + b, apart ? first : NULL);
		if (real && rc == 0 && apart && t->exec.objective.judge)
			rc = objective_add(t, s->data, dt_sampler_at(s, own), b * seq, first, err);
		if (rc == 0 && t->config.encoder)
			masked_put(t, f, !rows, b, n + b, real ? row : NULL);
		else if (rc == 0)
			cut(t, f, b, real ? row : NULL, real && apart ? first : NULL,
			    real && s->marked ? mask : NULL);
		if (rc == 0 && real && rows && f->host_columns)
			rc = taught_rows(t, f, b, dt_sampler_at(s, own), err);
	}
	free(own_row);
	return rc;
}

static int next_tokens(struct trainer *t, bool eval, const struct dt_flight *f, int64_t n, int64_t end,
		       struct dt_err *err)
{
	const void *block = NULL;
	int rc = eval ? 0 : dt_ahead_get(t->source.ahead, n, &block, err);

	if (rc == 0)
		rc = put_samples(t, f, n, end, block, err);
	return rc == 0 ? dt_flight_upload(f, &t->exec, err) : rc;
}

double source_part_targets(struct trainer *t, int64_t part)
{
	const int64_t mb = t->run.microbatch, end = t->loop.cursor + t->run.global_batch;
	double n = 0;

	for (int64_t k = 0; k < t->run.accumulation; k++) {
		int64_t first = t->loop.cursor + (k * t->run.layout.dp + part) * mb;

		if (first < end)
			n += (double)source_targets(t, false, first, first + mb < end ? first + mb : end);
	}
	return n;
}

int source_next(struct trainer *t, bool eval, const struct dt_flight *f, int64_t n, int64_t end,
		struct dt_err *err)
{
	if (t->source.given.g) {
		given_next(t, f, n - t->loop.cursor);
		return dt_flight_upload(f, &t->exec, err);
	}
	return trainer_images(t)   ? images_next(t, eval, f, n, end, err)
	       : trainer_labels(t) ? labelled_next(t, eval, f, n, end, err)
				   : next_tokens(t, eval, f, n, end, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
