#include "train/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define AHEAD	4 /* microbatches */
#define THREADS 2 /* they wait for the disk more than they compute */

/* Samples n .. into the rows of a block, seq + 1 tokens each. */
static int make_rows(void *ctx, int worker, int64_t n, int at, int count, void *block, struct dt_err *err)
{
	struct trainer *t = ctx;
	int64_t row = t->run.seq + 1;
	int rc = 0;

	for (int i = 0; i < count && rc == 0; i++)
		rc = dt_mixture_get(t->source.data, n + i, (int32_t *)block + (at + i) * row, err);
	return rc;
}

/* Microbatches of this rank, read by threads while the ones before are computed. */
static int open_ahead(struct trainer *t, struct dt_err *err)
{
	struct dt_ahead_options o = {
		.make = make_rows,
		.ctx = t,
		.count = (int)t->run.microbatch,
		.grain = 1,
		.block_bytes = (size_t)(t->run.microbatch * (t->run.seq + 1)) * sizeof(int32_t),
		.every = t->run.microbatch * t->run.layout.dp,
		.workers = dt_mixture_threads(t->source.data) ? THREADS : 0,
		.ahead = AHEAD,
	};

	return dt_ahead_open(&o, &t->source.ahead, err);
}

int source_open(struct trainer *t, struct dt_err *err)
{
	struct dt_dataset_info eval;
	int rc = dt_mixture_open(t->run.data.train, t->run.seq, t->run.data.seed, true, &t->source.data, err);

	if (rc < 0)
		return rc;
	dt_mixture_info(t->source.data, &t->source.info);
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
	return dt_sampler_init(&t->source.eval_sampler, t->source.eval, t->run.seq, t->run.data.seed, false,
			       err);
}

void source_close(struct trainer *t)
{
	dt_ahead_close(t->source.ahead);
	dt_mixture_close(t->source.data);
	if (t->source.eval)
		dt_dataset_close(t->source.eval);
}

static void put_row(const struct dt_flight *f, int64_t b, int64_t seq, const int32_t *row)
{
	for (int64_t i = 0; i < seq; i++) {
		f->host_ids[b * seq + i] = row ? row[i] : 0;
		f->host_targets[b * seq + i] = row ? row[i + 1] : -1;
	}
}

static int next_eval(struct trainer *t, const struct dt_flight *f, int64_t n, int64_t end, struct dt_err *err)
{
	int64_t seq = t->run.seq;
	int32_t *row = malloc((size_t)(seq + 1) * sizeof(*row));
	int rc = row ? 0 : dt_err_sys(err, -ENOMEM, "cannot load a sample");

	for (int64_t b = 0; b < t->run.microbatch && rc == 0; b++) {
		bool real = n + b < end;

		if (real)
			rc = dt_sampler_get(&t->source.eval_sampler, n + b, row, err);
		put_row(f, b, seq, real ? row : NULL);
	}
	free(row);
	return rc;
}

int source_next(struct trainer *t, bool eval, const struct dt_flight *f, int64_t n, int64_t end,
		struct dt_err *err)
{
	const void *block;
	int rc = eval ? next_eval(t, f, n, end, err) : dt_ahead_get(t->source.ahead, n, &block, err);

	for (int64_t b = 0; !eval && b < t->run.microbatch && rc == 0; b++)
		put_row(f, b, t->run.seq, n + b < end ? (const int32_t *)block + b * (t->run.seq + 1) : NULL);
	return rc == 0 ? dt_flight_upload(f, &t->exec, err) : rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
