/* Memory of a training rank. */
#include "plan/draws.h"
#include "plan/entries.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Makes the kind "layers.N.qkv" of the name "layers.12.qkv #3". */
static void set_kind(struct dt_entry *e, const struct dt_buf *b)
{
	const char *rest = b->name;
	int n;

	if (!strncmp(rest, "layers.", 7)) {
		rest = strchr(strchr(rest, '.') + 1, '.');
		memcpy(e->kind, "layers.N", 8);
		dt_layer_name(e->kind + 8, sizeof(e->kind) - 8, -1, rest);
	}
	n = (int)strcspn(e->kind, "#");
	while (n > 0 && e->kind[n - 1] == ' ')
		n--;
	e->kind[n] = '\0';
}

static void list_plan(const struct dt_memory_plan *p, struct dt_estimate *t)
{
	for (int i = 0; i < p->n; i++) {
		const struct dt_buf *b = &p->buf[i];
		struct dt_entry *e =
			dt_entry_put(t, b->cat, (double)b->bytes, b->first, b->last, b->name, b->formula);

		if (e) {
			set_kind(e, b);
			e->exactness = DT_EXACT;
			e->at_peak = b->at_peak;
			e->place = b->place;
		}
	}
	if (p->gap_bytes) {
		struct dt_entry *e = dt_entry_put(t, DT_MEM_WORKSPACE, (double)p->gap_bytes, p->peak, p->peak,
						  "gaps between buffers", "left by the placement of buffers");

		if (e) {
			e->exactness = DT_EXACT;
			e->at_peak = true;
		}
	}
}

static int train_plan(const struct dt_run *s, struct dt_coords at, bool list, struct dt_estimate *t,
		      struct dt_err *err)
{
	struct dt_memory_plan p;
	int rc = dt_memory_plan(s, at, &p, err);

	if (rc < 0)
		return rc;
	if (list)
		list_plan(&p, t);
	t->summed = true;
	t->peak = p.peak;
	memcpy(t->phase_bytes, p.phase_bytes, sizeof(p.phase_bytes));
	memcpy(t->cat_bytes, p.cat_bytes, sizeof(p.cat_bytes));
	for (int i = 0; i < p.stage.local.n && !s->config->lora.rank; i++)
		t->params += p.stage.local.p[i].numel;
	dt_memory_plan_release(&p);
	return s->config->lora.rank ? dt_rank_params(s, at, t, err) : 0; /* adapters are not counted */
}

/* --task: the engine that samples answers, present in every phase besides the arena. */
static int put_draws(const struct dt_run *s, struct dt_estimate *t, struct dt_err *err)
{
	struct dt_estimate d;
	int rc = dt_draws_estimate(s, &d, err);

	if (rc < 0)
		return rc;
	for (int i = 0; i < d.n; i++) {
		char name[sizeof(d.e[i].name)];
		struct dt_entry *e;

		snprintf(name, sizeof(name), "to answer: %.30s", d.e[i].name);
		e = dt_entry_put(t, d.e[i].cat, (double)d.e[i].bytes, DT_PH_FORWARD, DT_PH_STEP, name,
				 d.e[i].formula);
		if (e)
			e->exactness = d.e[i].exactness, e->at_peak = !d.e[i].place, e->place = d.e[i].place;
		if (d.e[i].place)
			continue;
		t->cat_bytes[d.e[i].cat] += d.e[i].bytes;
		for (int ph = 0; ph < DT_PH_N; ph++)
			t->phase_bytes[ph] += d.e[i].bytes;
	}
	dt_estimate_release(&d);
	return 0;
}

static int check_extras(const struct dt_run *s, const struct dt_extras *x, struct dt_err *err)
{
	/* The formats start with the compute types. */
	bool base = x && x->lora_rank &&
		    (!s->config->lora.rank || ((int)x->base != (int)s->compute && !s->config->lora.base));

	if (!base)
		return 0;
	dt_err_set(err, -ENOTSUP, "--account dt has no estimate for adapters on a base of this type");
	dt_err_hint(err, "use --account generic");
	return -ENOTSUP;
}

static int estimate(const struct dt_run *s, struct dt_coords at, enum dt_account account,
		    const struct dt_extras *x, struct dt_estimate *ret, struct dt_err *err)
{
	struct dt_estimate t = {0};
	int rc;

	if (s->microbatch < 1 || s->seq < 1)
		return dt_err_set(err, -EINVAL, "a microbatch and a sequence have at least one token");
	if (s->config->pos == DT_POS_LEARNED && s->seq > s->config->max_seq)
		return dt_err_set(err, -EINVAL, "sequence length %lld exceeds the %lld positions of '%s'",
				  (long long)s->seq, (long long)s->config->max_seq, s->config->name);
	if (s->config->tower.hidden)
		return dt_err_set(err, -ENOTSUP,
				  "'%s' reads images with a tower of vision, which is served but not trained",
				  s->config->name);
	if (s->config->ssm_heads && account != DT_ACCOUNT_DT)
		return dt_err_set(err, -ENOTSUP,
				  "'%s' has layers of Mamba-2, which other accounts than dt do not know",
				  s->config->name);
	if (s->offload.what & DT_OFFLOAD_ACTIVATIONS && account != DT_ACCOUNT_DT)
		return dt_err_set(err, -ENOTSUP, "offloaded activations need --account dt");
	if (s->freeze && account != DT_ACCOUNT_DT)
		return dt_err_set(err, -ENOTSUP, "--freeze needs --account dt");
	if (s->lora.modules_to_save && account != DT_ACCOUNT_DT)
		return dt_err_set(err, -ENOTSUP, "--lora-modules-to-save needs --account dt");
	if (s->qat && account != DT_ACCOUNT_DT)
		return dt_err_set(err, -ENOTSUP, "--qat needs --account dt");
	if (s->fp8 && account != DT_ACCOUNT_DT)
		return dt_err_set(err, -ENOTSUP, "--fp8 needs --account dt");
	if (account == DT_ACCOUNT_DT && (rc = check_extras(s, x, err)) < 0)
		return rc;
	rc = account == DT_ACCOUNT_DT ? train_plan(s, at, !(x && x->sums), &t, err)
				      : dt_account_train(s, at, account, x, &t, err);
	if (rc == 0 && account == DT_ACCOUNT_DT && s->rl.task)
		rc = put_draws(s, &t, err);
	if (rc == 0 && x && x->framework_bytes) {
		struct dt_entry *e = dt_entry_put(&t, DT_EST_FRAMEWORK, (double)x->framework_bytes,
						  DT_PH_FORWARD, DT_PH_STEP, "framework", "as given");

		if (e)
			e->exactness = DT_CALIBRATED, e->at_peak = true;
		for (int ph = 0; ph < DT_PH_N && t.summed; ph++)
			t.phase_bytes[ph] += x->framework_bytes;
		t.cat_bytes[DT_EST_FRAMEWORK] = t.summed ? x->framework_bytes : 0;
	}
	if (rc == 0)
		rc = dt_entries_finish(&t, err);
	if (rc == 0)
		*ret = t;
	else
		dt_estimate_release(&t);
	return rc;
}

int dt_estimate_train(const struct dt_run *s, struct dt_coords at, enum dt_account account,
		      const struct dt_extras *x, struct dt_estimate *ret, struct dt_err *err)
{
	struct dt_coords last = at;
	struct dt_estimate other;
	int rc = estimate(s, at, account, x, ret, err);

	last.tp = s->layout.tp - 1;
	/* The first rank of a tensor-parallel group has the larger cuts, the last perhaps more scratch. */
	if (rc < 0 || account != DT_ACCOUNT_DT || !s->scratch.threads || last.tp <= at.tp)
		return rc;
	rc = estimate(s, last, account, x, &other, err);
	if (rc == 0 && other.peak_bytes > ret->peak_bytes) {
		struct dt_estimate less = *ret;

		*ret = other;
		other = less;
	}
	dt_estimate_release(rc == 0 ? &other : ret);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
