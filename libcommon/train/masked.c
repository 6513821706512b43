#include "train/masked.h"

#include "base/rng.h"
#include "ckpt/tokenizer_file.h"
#include "data/tokenizer.h"
#include "train/trainer.h"

#include <errno.h>
#include <stdlib.h>

/* The token of a tokenizer that masks others, named as BERT's or RoBERTa's; 0: none. */
static int64_t mask_of(const struct dt_tokenizer *tok, int64_t vocab)
{
	static const char *const names[] = {"[MASK]", "<mask>"};
	int64_t id = 0;

	for (int i = 0; i < 2 && id <= 0; i++)
		id = dt_tokenizer_find(tok, names[i], 6);
	return id > 0 && id < vocab ? id : 0;
}

/* That of the tokenizer beside the weights, else of the data's; 0: none. */
static int find_mask(const struct trainer *t, int64_t *ret, struct dt_err *err)
{
	const struct dt_dataset_info *info = &t->source.info;
	struct dt_tokenizer *tok;
	char *own = NULL;
	size_t n;
	int rc;

	*ret = 0;
	if (t->init && dt_tokenizer_file_text(t->run.model, &own, &n, NULL) == 0 &&
	    dt_tokenizer_from_text(own, n, &tok, NULL) == 0) {
		*ret = mask_of(tok, t->config.vocab);
		dt_tokenizer_close(tok);
	}
	free(own);
	if (*ret || !info->tokenizer_text)
		return 0;
	rc = dt_tokenizer_from_text(info->tokenizer_text, info->tokenizer_bytes, &tok, err);
	if (rc < 0)
		return rc;
	*ret = mask_of(tok, t->config.vocab);
	dt_tokenizer_close(tok);
	return 0;
}

int masked_check(struct trainer *t, struct dt_err *err)
{
	int64_t own;
	int rc;
	const char *what =
		dt_mixture_at(t->source.data, 0, &own)->marked ? "marks the tokens to be predicted" : NULL;

	if (!t->config.encoder)
		return 0;
	if (what)
		return dt_err_set(err, -ENOTSUP, "'%s' %s, which training of an encoder chooses itself",
				  t->run.data.train, what);
	if (t->config.mask_token > 0)
		return 0;
	rc = find_mask(t, &t->config.mask_token, err);
	if (rc < 0 || t->config.mask_token > 0)
		return rc;
	dt_err_set(err, -EINVAL, "'%s' does not say which token takes the place of those to be predicted",
		   t->config.name);
	dt_err_hint(err, "--mask-token ID names it");
	return -EINVAL;
}

/* What stands in the place of token id. p: its position. */
static int32_t instead(const struct trainer *t, const struct dt_rng *r, int64_t p, int32_t id)
{
	const float u = dt_rng_uniform(r, 2 * (uint64_t)p);

	if (u < 0.8f)
		return (int32_t)t->config.mask_token;
	return u < 0.9f ? (int32_t)dt_rng_below(r, 2 * (uint64_t)p + 1, (uint64_t)t->config.vocab) : id;
}

void masked_put(const struct trainer *t, const struct dt_flight *f, bool eval, int64_t b, int64_t n,
		const int32_t *row)
{
	const uint32_t sub = 2 * (uint32_t)n + eval;
	const struct dt_rng where = dt_rng_make(t->run.data.seed, DT_RNG_MASK_WHERE, sub),
			    what = dt_rng_make(t->run.data.seed, DT_RNG_MASK_WHAT, sub);
	const int64_t seq = t->run.seq, targets = row ? dt_run_masked(&t->run) : 0;
	int32_t *ids = f->host_ids + b * seq, *target = f->host_targets + b * seq;

	for (int64_t p = 0; p < seq; p++) {
		ids[p] = row ? row[p] : 0;
		target[p] = -1;
	}
	for (int64_t i = 0; i < targets; i++) {
		const int64_t p = (int64_t)dt_rng_permute(&where, (uint64_t)i, (uint64_t)seq);

		target[p] = row[p];
		ids[p] = instead(t, &what, p, row[p]);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
