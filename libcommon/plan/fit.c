#include "plan/fit.h"

#include "plan/entries.h"
#include "plan/reform.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dt_fit_guessed(struct dt_fit *f)
{
	for (int i = 0; i < f->n; i++)
		for (int k = 0; k < f->stage[i].est.n; k++)
			f->stage[i].est.e[k].exactness = DT_MODELLED;
}

void dt_fit_release(struct dt_fit *f)
{
	for (int i = 0; i < f->n; i++)
		dt_estimate_release(&f->stage[i].est);
	free(f->stage);
	memset(f, 0, sizeof(*f));
}

const struct dt_estimate *dt_fit_worst(const struct dt_fit *f)
{
	return &f->stage[f->worst].est;
}

const char *dt_fit_layers(const struct dt_fit_query *q, int stage, char *buf, size_t n)
{
	size_t k = 0;
	int first, last;

	buf[0] = '\0';
	for (int c = 0; c < dt_layout_chunks(&q->run.layout) && k < n; c++) {
		dt_layout_stage(&q->run.layout, q->run.config, c * q->run.layout.pp + stage, &first, &last);
		snprintf(buf + k, n - k, "%s%d-%d", c ? "," : "", first, last - 1);
		k += strlen(buf + k);
	}
	return buf;
}

/* Only the trainer's memory plan supports image classifiers; it refuses unsupported layouts by name. */
static bool images(const struct dt_fit_query *q)
{
	return dt_config_is_image(q->run.config);
}

/* Whether --account auto counts by formulas what dt's plan does not support. */
static bool has_formulas(const struct dt_fit_query *q)
{
	return q->any_account && !images(q) && !q->run.config->ssm_heads;
}

static int estimate_stage(const struct dt_fit_query *q, int stage, enum dt_account account,
			  struct dt_estimate *ret, struct dt_err *err)
{
	struct dt_run t = q->run;
	struct dt_coords at = {.pp = stage};
	struct dt_serve_shape s = {.config = q->run.config,
				   .layout = q->run.layout,
				   .stage = stage,
				   .weights = q->precision,
				   .account = account,
				   .cache_bits = q->cache_bits,
				   .weight_bytes = q->weight_bytes,
				   .stored = q->stored,
				   .framework_bytes = q->extras.framework_bytes,
				   .compute = q->run.compute,
				   .max_seqs = q->max_seqs,
				   .max_len = q->max_len,
				   .block = q->block,
				   .max_tokens = q->max_tokens,
				   .loras = q->loras,
				   .lora_rank = q->lora_rank,
				   .loras_dora = q->loras_dora,
				   .loras_whole = q->loras_whole,
				   .weights_memory = q->weights_memory,
				   .weights_host = q->weights_host,
				   .scratch = q->run.scratch};
	int rc;

	if (!t.global_batch && !t.accumulation)
		t.accumulation = 2 * t.layout.pp;
	t.reproducible &= account == DT_ACCOUNT_DT;
	if (t.documents == DT_RUN_DOCUMENTS_AUTO && t.objective.kind && !images(q))
		t.documents = DT_RUN_DOCUMENTS_APART; /* data sets of answers keep them apart */
	if (!q->serve && (rc = dt_run_settle(&t, err)) < 0)
		return rc;
	if (images(q) && account != DT_ACCOUNT_DT)
		return dt_err_set(err, -ENOTSUP, "'%s' is estimated by --account dt", q->run.config->name);
	rc = q->serve ? dt_estimate_serve(&s, ret, err)
		      : dt_estimate_train(&t, at, account, &q->extras, ret, err);
	if (rc == 0)
		ret->account = account;
	return rc;
}

/*
 * Drops the entries of the less full of stage i and the fullest before it: a plan has one for each value and
 * microbatch in flight, and only those of the fullest stage are read.
 */
static void keep_worst(struct dt_fit *f, int i)
{
	const bool worse = i > 0 && f->stage[i].est.peak_bytes > dt_fit_worst(f)->peak_bytes;
	struct dt_estimate *drop = &f->stage[worse ? f->worst : i].est;

	f->worst = worse ? i : f->worst;
	if (i == 0)
		return;
	free(drop->e);
	drop->e = NULL;
	drop->n = drop->cap = 0;
}

int dt_fit_estimate(const struct dt_fit_query *q, struct dt_fit *ret, struct dt_err *err)
{
	struct dt_fit f = {.account = q->any_account ? DT_ACCOUNT_DT : q->account};
	int rc = images(q) ? 0 : dt_layout_check(&q->run.layout, q->run.config, err);

	if (rc < 0)
		return rc;
	f.stage = calloc((size_t)q->run.layout.pp, sizeof(*f.stage));
	if (!f.stage)
		return dt_err_sys(err, -ENOMEM, "cannot estimate");
	for (; f.n < q->run.layout.pp; f.n++) {
		struct dt_fit_stage *s = &f.stage[f.n];

		rc = estimate_stage(q, f.n, f.account, &s->est, err);
		/*
		 * Stage 0 has the most microbatches in flight: what dt's plan supports there it supports on
		 * every stage.
		 */
		if (rc == -ENOTSUP && has_formulas(q) && f.n == 0 && f.account == DT_ACCOUNT_DT) {
			f.account = DT_ACCOUNT_GENERIC;
			rc = estimate_stage(q, f.n, f.account, &s->est, err);
		}
		if (rc < 0) {
			dt_fit_release(&f);
			return rc;
		}
		s->ranks = dt_layout_world(&q->run.layout) / q->run.layout.pp;
		s->first_rank = f.n * s->ranks;
		keep_worst(&f, f.n);
	}
	*ret = f;
	return 0;
}

/* ---- the largest that fits ---- */

/* Whether all stages fit. The first and the last are checked first, as they usually decide. */
static int fits_as(const struct dt_fit_query *q, enum dt_account account, uint64_t room, struct dt_err *err)
{
	int pp = q->run.layout.pp;

	for (int i = 0; i < pp; i++) {
		int stage = i == 0 ? 0 : i == 1 ? pp - 1 : i - 1;
		struct dt_estimate e = {0};
		int rc = estimate_stage(q, stage, account, &e, err);
		bool fit = rc == 0 && e.peak_bytes <= room;

		/* more tokens than a microbatch may have, or more than --recompute auto can save */
		if (rc == -ERANGE || rc == -ENOSPC)
			return 0;
		if (rc < 0)
			return rc;
		dt_estimate_release(&e);
		if (!fit)
			return 0;
	}
	return 1;
}

uint64_t dt_fit_reform_bytes(const struct dt_fit_query *q, enum dt_account account)
{
	return q->serve || account != DT_ACCOUNT_DT ? 0 : dt_reform_most(&q->run);
}

static int fits(const struct dt_fit_query *q, uint64_t room, struct dt_err *err)
{
	enum dt_account account = q->any_account ? DT_ACCOUNT_DT : q->account;
	int rc = images(q) ? 0 : dt_layout_check(&q->run.layout, q->run.config, err);

	if (rc < 0)
		return rc;
	rc = fits_as(q, account, room, err);
	if (rc == -ENOTSUP && has_formulas(q))
		rc = fits_as(q, account = DT_ACCOUNT_GENERIC, room, err);
	return rc > 0 ? dt_fit_reform_bytes(q, account) <= room : rc;
}

/* The first value from 1 on that the run takes; *value is it. Returns whether it fits. */
static int fits_least(const struct dt_fit_query *q, int64_t *value, int64_t max, uint64_t room,
		      struct dt_err *err)
{
	/* cp cuts a sequence into 2 cp parts, s1 the tokens of a part over tp */
	const int64_t period = 2 * (int64_t)q->run.layout.cp * q->run.layout.tp;
	int rc, first;

	*value = 1;
	rc = first = fits(q, room, err);
	while (rc == -EINVAL && *value < max && *value < period) {
		++*value;
		rc = fits(q, room, NULL);
	}
	return rc == -EINVAL ? first : rc;
}

/* The largest value in (low, *value] that the run takes; *value is it, or low. Returns whether it fits. */
static int fits_below(const struct dt_fit_query *q, int64_t *value, int64_t low, uint64_t room,
		      struct dt_err *err)
{
	int rc = -EINVAL;

	for (; *value > low && (rc = fits(q, room, err)) == -EINVAL; --*value)
		;
	return rc == -EINVAL ? 0 : rc;
}

/* Doubles until it does not fit, then bisects. */
int dt_fit_largest(const struct dt_fit_query *q, int64_t *value, int64_t max, uint64_t room,
		   struct dt_err *err)
{
	int64_t good = 0, low, bad = max + 1, next; /* low: nothing in (good, low] is a better value */
	int rc = fits_least(q, value, max, room, err);

	if (rc <= 0)
		return rc;
	for (good = low = *value; bad - low > 1;) {
		*value = next = bad > max && 2 * low <= max ? 2 * low : low + (bad - low) / 2;
		rc = fits_below(q, value, low, room, err);
		if (rc < 0)
			return rc;
		if (rc > 0)
			good = *value;
		if (rc > 0 || *value == low)
			low = next;
		else
			bad = *value;
	}
	*value = good;
	return 1;
}

int dt_fit_fewest_ranks(struct dt_fit_query *q, int min, int max, uint64_t room, struct dt_err *err)
{
	struct dt_fit_query t = *q;
	int estimated = 0, rc;

	for (int n = min; n <= max; n *= 2) {
		for (int pp = 1; pp <= (q->serve ? 1 : n); pp *= 2) {
			if (n % pp)
				continue;
			for (int tp = q->serve ? n : 1; tp <= n / pp && tp <= 8; tp *= 2) {
				for (int z = 0; z <= (n / pp / tp > 1 ? 3 : 0); z++) {
					if (n / pp % tp)
						continue;
					t.run.layout = (struct dt_layout){
						.dp = n / pp / tp,
						.tp = tp,
						.pp = pp,
						.cp = 1,
						.ep = 1,
						.zero = z,
						.chunks = pp > 1 ? q->run.layout.chunks : 1};
					if (dt_layout_check(&t.run.layout, t.run.config, NULL) < 0)
						continue;
					rc = fits(&t, room, err);
					if (rc < 0 && rc != -ENOTSUP && rc != -EINVAL)
						return rc;
					estimated |= rc >= 0;
					if (rc > 0) {
						q->run.layout = t.run.layout;
						return 1;
					}
				}
			}
		}
	}
	return estimated ? 0 : -ENOTSUP;
}

int dt_fit_lowest_zero(struct dt_fit_query *q, uint64_t room, struct dt_err *err)
{
	bool estimated = false;
	int rc = 0;

	for (int z = 0; z <= (q->run.layout.dp > 1 ? 3 : 0); z++) {
		struct dt_fit_query t = *q;

		t.run.layout.zero = z;
		rc = fits(&t, room, err);
		if (rc < 0 && rc != -EINVAL && rc != -ENOTSUP)
			return rc;
		estimated |= rc >= 0;
		if (rc > 0) {
			*q = t;
			return 1;
		}
	}
	return estimated ? 0 : rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
