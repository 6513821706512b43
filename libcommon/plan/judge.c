/* Evaluates a candidate: whether it can run, its step time, its memory. */
#include "plan/judge.h"

#include "plan/reform.h"

#include <errno.h>

struct dt_run dt_candidate_run(const struct dt_plan_query *q, const struct dt_candidate *c)
{
	struct dt_run r = q->fit.run;

	r.layout = c->layout;
	r.microbatch = c->microbatch;
	r.accumulation = c->accumulation;
	r.recompute = (struct dt_keep){.mode = c->recompute};
	r.global_batch = 0;
	if (r.reproducible) /* gradients are summed sample by sample */
		r.microbatch = 1, r.accumulation = c->accumulation * c->microbatch;
	return r;
}

int dt_plan_can_run(const struct dt_plan_query *q, const struct dt_run *r, struct dt_err *err)
{
	const struct dt_layout *l = &r->layout;
	int rc;

	if (q->dt_train)
		return dt_run_check(r, err);
	if ((rc = dt_layout_check(l, r->config, err)) < 0)
		return rc;
	if (l->chunks > 1 && r->accumulation % l->pp)
		return dt_err_set(
			err, -EINVAL,
			"an interleaved pipeline needs a multiple of pp (%d) microbatches, not %lld", l->pp,
			(long long)r->accumulation);
	if (r->seq % l->cp)
		return dt_err_set(err, -EINVAL, "cp%d does not divide the %lld tokens of a sequence", l->cp,
				  (long long)r->seq);
	return 0;
}

int dt_plan_step_time(const struct dt_plan_query *q, const struct dt_run *s, bool table,
		      struct dt_step_time *ret, struct dt_err *err)
{
	const struct dt_work *w;

	if (!q->work)
		return dt_step_time(q->cluster, s, q->stack, ret, err);
	w = dt_step_work_get(q->work, s, q->stack, err);
	return w ? dt_step_time_of(q->cluster, s, q->stack, w, table, ret, err) : -ENOMEM;
}

/* Layers of a pipeline stage in all its chunks, with or without experts. */
static int stage_layers(const struct dt_layout *l, const struct dt_config *c, int stage, bool experts)
{
	int n = 0;

	for (int v = stage; v < l->pp * dt_layout_chunks(l); v += l->pp) {
		int first, last;

		dt_layout_stage(l, c, v, &first, &last);
		for (int i = first; i < last; i++)
			n += experts == (c->experts && i >= c->dense_layers);
	}
	return n;
}

/*
 * Whether a stage may be the one with most memory. The first and last have the ends of the model; among the
 * others an earlier stage has at least as many microbatches in flight, so it uses more if it has as many
 * layers. Where expressions select what is trained, or layers mix tokens differently, any stage may.
 */
static bool may_be_fullest(const struct dt_layout *l, const struct dt_config *c, int stage)
{
	if (c->freeze[0] || c->lora.rank || (c->ssm_heads && dt_config_attends(c)))
		return true;
	for (int s = 1; s < stage && stage < l->pp - 1; s++)
		if (stage_layers(l, c, s, false) >= stage_layers(l, c, stage, false) &&
		    stage_layers(l, c, s, true) >= stage_layers(l, c, stage, true))
			return false;
	return true;
}

int dt_plan_peak_of(const struct dt_plan_query *q, struct dt_candidate *c, struct dt_err *err)
{
	struct dt_run s = dt_candidate_run(q, c);
	struct dt_extras extras = q->fit.extras;
	int pp = c->layout.pp, rc = 0;

	extras.sums = true;
	/* At most 2 pp microbatches are ever in flight, except with GPipe. */
	if (pp > 1 && s.accumulation > 2 * pp && s.pipeline != DT_PIPE_GPIPE && !s.schedule)
		s.accumulation = 2 * pp;
	c->peak_bytes = 0;
	for (int i = 0; i < pp && rc == 0; i++) {
		struct dt_estimate e;

		if (!may_be_fullest(&c->layout, q->fit.run.config, i))
			continue;
		rc = dt_estimate_train(&s, (struct dt_coords){.pp = i}, q->fit.account, &extras, &e, err);
		if (rc < 0)
			break;
		if (e.peak_bytes > c->peak_bytes)
			c->peak_bytes = e.peak_bytes;
		dt_estimate_release(&e);
	}
	c->fits = rc == 0 && c->peak_bytes <= q->room &&
		  (q->fit.account != DT_ACCOUNT_DT || dt_reform_most(&s) <= q->room);
	return rc;
}

int dt_plan_judge(const struct dt_plan_query *q, struct dt_candidate *c, struct dt_err *err)
{
	int64_t each = c->microbatch * c->layout.dp;
	struct dt_run s;
	int rc = dt_layout_check(&c->layout, q->fit.run.config, err);

	if (rc < 0)
		return rc;
	if (q->fit.run.global_batch % each)
		return dt_err_set(err, -EINVAL,
				  "global batch %lld is not a multiple of microbatch x dp = %lld",
				  (long long)q->fit.run.global_batch, (long long)each);
	c->accumulation = q->fit.run.global_batch / each;
	s = dt_candidate_run(q, c);
	if ((rc = dt_plan_can_run(q, &s, err)) < 0)
		return rc;
	rc = dt_plan_step_time(q, &s, true, &c->t, err);
	return rc < 0 ? rc : dt_plan_peak_of(q, c, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
