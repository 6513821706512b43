/*
 * A model with more tokens: the new rows of its embedding and head are the mean of the old ones, so that a
 * new token starts near all others (Hewitt 2021, "Initializing New Word Embeddings for Pretrained Language
 * Models"). A tied head is the embedding. All else is unchanged.
 */
#include "ckpt/export.h"
#include "ckpt/source_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 64 /* rows read at a time */

static bool has_tokens(const struct dt_param *p)
{
	return p->role == DT_W_EMBED || p->role == DT_W_HEAD;
}

/* The mean row of the embedding or, stored after it, of the head. */
static float *mean_of(struct dt_source *s, const struct dt_param *p)
{
	return s->mean_row + (p->role == DT_W_HEAD) * s->config.hidden;
}

static int read_box(struct dt_source *s, int i, const int64_t *off, const int64_t *shape, float *x,
		    struct dt_err *err)
{
	const struct dt_param *p = &s->params.p[i];
	struct dt_source *old = s->mean[0];
	int64_t have = has_tokens(p) ? old->config.vocab - off[0] : shape[0], part[2] = {0, shape[1]};
	int rc = 0;

	part[0] = have < shape[0] ? have : shape[0];
	if (part[0] > 0)
		rc = dt_source_read(old, s->from[i], off, part, DT_F32, x, err);
	for (int64_t r = part[0] > 0 ? part[0] : 0; r < shape[0] && rc == 0; r++)
		memcpy(x + r * shape[1], mean_of(s, p) + off[1], (size_t)shape[1] * sizeof(*x));
	return rc;
}

/* Computes the mean of the rows of the old model's parameter i, in f64. */
static int find_mean(struct dt_source *s, int i, struct dt_err *err)
{
	struct dt_source *old = s->mean[0];
	const int64_t cols = s->config.hidden, rows = old->config.vocab;
	float *some = malloc((size_t)(ROWS * cols) * sizeof(*some)), *to = mean_of(s, &s->params.p[i]);
	double *sum = calloc((size_t)cols, sizeof(*sum));
	int rc = some && sum ? 0 : -ENOMEM;

	for (int64_t r = 0, n; r < rows && rc == 0; r += n) {
		const int64_t off[2] = {r, 0}, shape[2] = {n = rows - r < ROWS ? rows - r : ROWS, cols};

		rc = dt_source_read(old, s->from[i], off, shape, DT_F32, some, err);
		for (int64_t k = 0; k < n * cols && rc == 0; k++)
			sum[k % cols] += (double)some[k];
	}
	for (int64_t c = 0; c < cols && rc == 0; c++)
		to[c] = (float)(sum[c] / (double)rows);
	free(some);
	free(sum);
	return rc;
}

static int check(const struct dt_source *old, int64_t vocab, struct dt_err *err)
{
	if (dt_config_is_image(&old->config))
		return dt_err_set(err, -EINVAL, "'%s' is an image classifier: it has no vocabulary",
				  old->path);
	if (vocab <= old->config.vocab)
		return dt_err_set(err, -EINVAL, "'%s' already has %lld tokens: --vocab %lld must be larger",
				  old->path, (long long)old->config.vocab, (long long)vocab);
	return 0;
}

static int describe(struct dt_source *s, struct dt_source *old, int64_t vocab, struct dt_err *err)
{
	s->config = old->config;
	s->config.vocab = vocab;
	s->mean_row = calloc(2 * (size_t)s->config.hidden, sizeof(*s->mean_row));
	return s->mean_row ? src_same_names(s, old, err) : -ENOMEM;
}

int dt_source_add_tokens(struct dt_source *old, int64_t vocab, struct dt_source **ret, struct dt_err *err)
{
	struct dt_source *s = calloc(1, sizeof(*s));
	int rc = s ? check(old, vocab, err) : -ENOMEM;

	if (rc == 0)
		rc = describe(s, old, vocab, err);
	if (rc < 0) {
		dt_source_close(old);
		dt_source_close(s);
		return rc == -ENOMEM ? dt_err_sys(err, rc, "cannot add tokens") : rc;
	}
	s->box = read_box;
	src_made_of(s, &old, 1);
	for (int i = 0; i < s->params.n && rc == 0; i++)
		if (has_tokens(&s->params.p[i]))
			rc = find_mean(s, i, err);
	if (rc < 0) {
		dt_source_close(s);
		return rc == -ENOMEM ? dt_err_sys(err, rc, "cannot add tokens") : rc;
	}
	*ret = s;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
