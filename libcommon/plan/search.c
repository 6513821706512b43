/*
 * Searches the layouts of a cluster: predicts the step time of all that can run, then takes the fastest that
 * fit.
 */
#include "plan/judge.h"

#include "base/room.h"
#include "plan/run_options.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct list {
	struct dt_candidate *c;
	int n, cap;
};

static int add(struct list *l, const struct dt_candidate *c, struct dt_err *err)
{
	if (!DT_ROOM(l->c, l->n, l->cap, 256))
		return dt_err_sys(err, -ENOMEM, "cannot search");
	l->c[l->n++] = *c;
	return 0;
}

static int by_time(const void *a, const void *b)
{
	double x = ((const struct dt_candidate *)a)->t.step, y = ((const struct dt_candidate *)b)->t.step;

	return (x > y) - (x < y);
}

/* Records why a candidate was rejected; reasons that differ only in numbers are merged. */
static void pass_over(struct dt_plan *p, const struct dt_candidate *c, const struct dt_err *why)
{
	char layout[80];
	int i = 0;

	p->passed++;
	for (; i < p->nreason; i++) {
		const char *a = p->reason[i].text, *b = why->msg;

		while (*a && *b) {
			size_t na = strspn(a, "0123456789"), nb = strspn(b, "0123456789");

			if (!!na != !!nb || (!na && *a != *b))
				break;
			a += na ? na : 1;
			b += nb ? nb : 1;
		}
		if (!*a && !*b)
			break;
	}
	if (i == DT_PLAN_REASONS)
		return;
	if (i == p->nreason) {
		p->nreason++;
		p->reason[i].n = 0;
		snprintf(p->reason[i].text, sizeof(p->reason[i].text), "%s", why->msg);
		snprintf(p->reason[i].layout, sizeof(p->reason[i].layout), "%s",
			 dt_layout_format(&c->layout, layout, sizeof(layout)));
	}
	p->reason[i].n++;
}

/* Whether a layout is worth trying; memory is checked later. */
static bool sensible(const struct dt_plan_query *q, const struct dt_layout *l)
{
	if (l->zero && dt_layout_data(l) == 1)
		return false;
	/* z2 gathers and scatters for every microbatch, and a pipeline has many. */
	return !(l->zero >= 2 && l->pp > 1) || (l->zero == 2 && !q->dt_train);
}

/* Adds a layout with each microbatch size and kind of recomputation. */
static int add_variants(const struct dt_plan_query *q, const struct dt_layout *l, struct dt_plan *p,
			struct list *out, struct dt_err *err)
{
	int64_t per = q->fit.run.global_batch / l->dp, only = q->fit.run.microbatch;
	int rc = 0;

	if (q->fit.run.global_batch % l->dp || !sensible(q, l))
		return 0;
	for (int64_t b = only ? only : 1; b <= per && (only || b <= 64) && rc == 0;
	     b = only ? per + 1 : 2 * b) {
		if (per % b)
			continue;
		for (int r = 0; r < 3 && rc == 0; r++) {
			struct dt_candidate c = {
				.layout = *l, .microbatch = b, .accumulation = per / b, .recompute = r};
			struct dt_run s;
			struct dt_err why = {0};

			/* Sample by sample, every microbatch size is the same run. */
			if ((q->recompute >= 0 && r != q->recompute) ||
			    (b > 1 && !only && q->fit.run.reproducible))
				continue;
			s = dt_candidate_run(q, &c);
			if (dt_plan_can_run(q, &s, &why) < 0) {
				pass_over(p, &c, &why);
				continue;
			}
			rc = dt_plan_step_time(q, &s, false, &c.t, err);
			if (rc == 0)
				rc = add(out, &c, err);
		}
	}
	return rc;
}

/* Adds all z, v, s and ep of a mesh. */
static int add_mesh(const struct dt_plan_query *q, int tp, int pp, int cp, struct dt_plan *p,
		    struct list *out, struct dt_err *err)
{
	struct dt_layout l = {.dp = q->cluster->gpus / (tp * pp * cp), .tp = tp, .pp = pp, .cp = cp, .ep = 1};
	int64_t experts = q->fit.run.config->experts;
	int rc = 0;

	for (int ep = 1; ep <= (experts ? l.dp * cp : 1) && rc == 0; ep++) {
		l.ep = ep;
		if (l.dp * cp % ep || (experts && experts % ep))
			continue;
		for (l.chunks = 1; l.chunks <= (pp > 1 ? 4 : 1); l.chunks++)
			for (l.zero = 0; l.zero <= 3; l.zero++)
				for (int s = 0; s <= (tp > 1) && rc == 0; s++) {
					l.seq_parallel = s;
					rc = add_variants(q, &l, p, out, err);
				}
	}
	return rc;
}

static int enumerate(const struct dt_plan_query *q, struct dt_plan *p, struct list *out, struct dt_err *err)
{
	int n = q->cluster->gpus, node = q->cluster->gpus_a_node, rc = 0;

	for (int pp = 1; pp <= n && pp <= q->fit.run.config->layers && rc == 0; pp++) {
		if (n % pp)
			continue;
		for (int tp = 1; tp <= n / pp && tp <= node && rc == 0; tp++) {
			if (n / pp % tp || node % tp)
				continue;
			/* Only long sequences are cut over cp. */
			for (int cp = 1; cp <= n / pp / tp &&
					 q->fit.run.seq / cp >= 4096 / (cp > 1 ? 1 : 4096) && rc == 0;
			     cp++)
				if (n / pp / tp % cp == 0)
					rc = add_mesh(q, tp, pp, cp, p, out, err);
		}
	}
	return rc;
}

static bool same_mesh(const struct dt_candidate *a, const struct dt_candidate *b)
{
	return a->layout.dp == b->layout.dp && a->layout.tp == b->layout.tp && a->layout.pp == b->layout.pp &&
	       a->layout.cp == b->layout.cp && a->layout.ep == b->layout.ep;
}

/*
 * At most two plans of a mesh are kept: ZeRO stages, chunks and microbatches often make no difference. Two
 * with and two without interleaving are judged, because the guess may favour the wrong ones of these.
 */
static bool already(const struct dt_plan *p, const struct dt_candidate *c)
{
	int same = 0;

	for (int i = 0; i < p->n; i++)
		same += same_mesh(&p->best[i], c) && (p->best[i].layout.chunks > 1) == (c->layout.chunks > 1);
	return same >= 2;
}

/* Of the plans of a mesh, keeps the two fastest. */
static void keep_two(struct dt_plan *p)
{
	int n = 0;

	for (int i = 0; i < p->n; i++) {
		int same = 0;

		for (int k = 0; k < n; k++)
			same += same_mesh(&p->best[k], &p->best[i]);
		if (same < 2)
			p->best[n++] = p->best[i];
	}
	p->n = n;
}

/*
 * Bytes of states for each parameter of a rank: no more than any account counts. Of a run that trains a part
 * of its parameters only the weights are counted, as if all were in blocks of 4 bits if some may be. States
 * that are offloaded, or that parameter servers divide, are not counted.
 */
static double states_at_least(const struct dt_plan_query *q, const struct dt_run *s)
{
	const enum dt_account account = q->fit.account;
	const bool dt = account == DT_ACCOUNT_DT, book = account == DT_ACCOUNT_BOOK;
	const bool part = s->config->lora.rank || s->config->freeze[0] || q->fit.extras.lora_rank;
	const bool away = s->offload.what & (DT_OFFLOAD_OPTIMIZER | DT_OFFLOAD_WEIGHTS);
	const double n = dt_layout_data(&s->layout), size = dt_dtype_size(s->compute);
	const double e = account == DT_ACCOUNT_DEEPSPEED ? fmin(size, 2) : size; /* always counts 16 bits */
	double weights = e / (s->layout.zero >= 3 ? n : 1), grads = e / (s->layout.zero >= 2 ? n : 1),
	       states = dt_optim_element_bytes(s->optim.kind) * (book ? size / 4 : 1);

	if (dt ? dt_run_masters(s) : !book && s->compute != DT_F32)
		states += 4;
	if (s->offload.what & DT_OFFLOAD_WEIGHTS)
		weights = 0;
	if (part)
		return dt && !s->config->lora.base ? weights : weights / e * fmin(e, 0.5);
	if (away && !dt)
		grads = 0;
	return weights + grads + (away || dt_run_served(s) ? 0 : states / (s->layout.zero >= 1 ? n : 1));
}

/*
 * A lower bound of memory on a rank of the first stage, in any account: its states, and what its layers keep
 * for backward. It is cheap, so most layouts that do not fit need no memory plan.
 */
static double at_least(const struct dt_plan_query *q, const struct dt_candidate *c)
{
	const struct dt_layout *l = &c->layout;
	const struct dt_run s = dt_candidate_run(q, c);
	const struct dt_work *w = dt_work_get(q->work, &s, NULL);
	double kept = 0;
	int first, last;

	if (!w) /* out of memory: later calls report it */
		return 0;
	dt_layout_stage(l, s.config, 0, &first, &last);
	for (int i = first; i < last; i++)
		kept += dt_work_unit(w, i)->kept;
	if (q->fit.account != DT_ACCOUNT_DT) /* other accounts keep less of some models */
		kept *= 0.5;
	if (s.offload.what & DT_OFFLOAD_ACTIVATIONS)
		kept = 0;
	return dt_stage_params(w, l, 0, NULL) * states_at_least(q, &s) +
	       kept * (double)dt_in_flight(l->pp, 0, c->accumulation);
}

static int take_error(struct dt_err *err, const struct dt_err *from)
{
	if (err)
		*err = *from;
	return from->code;
}

/* Takes the fastest that fit; more than requested, as schedule tables may change the order. */
static int choose(const struct dt_plan_query *q, struct list *all, int most, struct dt_plan *p,
		  struct dt_err *err)
{
	for (int i = 0; i < all->n && p->n < most; i++) {
		struct dt_candidate *c = &all->c[i];
		struct dt_err why = {0};
		struct dt_run s;
		int rc;

		if (already(p, c))
			continue;
		if (0.98 * at_least(q, c) > (double)q->room) {
			p->tried++;
			p->too_large++;
			if (!p->smallest.peak_bytes || (double)p->smallest.peak_bytes > at_least(q, c)) {
				p->smallest = *c;
				p->smallest.peak_bytes = (uint64_t)at_least(q, c);
			}
			continue;
		}
		rc = dt_plan_peak_of(q, c, &why);
		if (rc == -ENOTSUP || rc == -ERANGE || rc == -EINVAL) {
			pass_over(p, c, &why);
			continue;
		}
		if (rc < 0)
			return take_error(err, &why);
		p->tried++;
		if (!c->fits) {
			p->too_large++;
			if (!p->smallest.peak_bytes || c->peak_bytes < p->smallest.peak_bytes)
				p->smallest = *c;
			continue;
		}
		s = dt_candidate_run(q, c); /* was checked before it was listed */
		rc = dt_plan_step_time(q, &s, true, &c->t, &why);
		if (rc == -ERANGE || rc == -EINVAL || rc == -ENOTSUP) {
			pass_over(p, c, &why);
			continue;
		}
		if (rc < 0)
			return take_error(err, &why);
		p->best[p->n++] = *c;
	}
	qsort(p->best, (size_t)p->n, sizeof(*p->best), by_time);
	keep_two(p);
	return 0;
}

int dt_plan_search(const struct dt_plan_query *asked, int most, struct dt_plan *ret, struct dt_err *err)
{
	struct dt_work_cache own = {0};
	struct dt_plan_query query = *asked, *q = &query;
	struct list all = {0};
	struct dt_plan p = {.account = q->fit.account};
	int want = 2 * most + 4, rc;

	q->work = q->work ? q->work : &own;
	rc = enumerate(q, &p, &all, err);

	p.best = calloc((size_t)want, sizeof(*p.best));
	if (rc == 0 && !p.best)
		rc = dt_err_sys(err, -ENOMEM, "cannot search");
	if (rc == 0 && all.n == 0) {
		rc = dt_err_set(
			err, -EINVAL, "'%s' cannot be split over %d devices with a global batch of %lld",
			q->fit.run.config->name, q->cluster->gpus, (long long)q->fit.run.global_batch);
		if (p.nreason) /* the first is pure data parallelism */
			dt_err_hint(err, "%s: %s", p.reason[0].layout, p.reason[0].text);
	}
	if (rc == 0) {
		p.cut = all.n;
		qsort(all.c, (size_t)all.n, sizeof(*all.c), by_time);
		rc = choose(q, &all, want, &p, err);
	}
	free(all.c);
	dt_work_cache_release(&own);
	if (rc < 0) {
		dt_plan_release(&p);
		return rc;
	}
	p.n = p.n < most ? p.n : most;
	*ret = p;
	return 0;
}

void dt_plan_release(struct dt_plan *p)
{
	free(p->best);
	memset(p, 0, sizeof(*p));
}
/* SPDX-License-Identifier: Apache-2.0 */
