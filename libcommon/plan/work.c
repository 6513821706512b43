#include "plan/work.h"

#include "model/flops.h"
#include "plan/formulas.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static double kept_bytes(const struct dt_cost_site *s, const struct dt_node *n)
{
	double sum = 0;

	for (int i = 0; i < DT_NODE_OUT; i++) {
		const struct dt_value *v = &s->p->value[n->out[i] < 0 ? 0 : n->out[i]];

		if (n->out[i] >= 0 && v->life == DT_LIFE_KEPT && v->over < 0)
			sum += dt_cost_bytes(s, n->out[i]);
	}
	return sum;
}

static void put_node(struct dt_work_node *to, const struct dt_cost_site *s, const struct dt_step *step)
{
	*to = (struct dt_work_node){.list = step->list, .again = step->again, .cost = dt_step_cost(s, step)};
	dt_step_timed(s, step, &to->timed);
	to->weights = to->cost.flops > 0;
	for (int i = 0; i < DT_NODE_OUT; i++)
		to->weights &= step->n.out[i] < 0;
}

/* Collects nodes by unit, in the program's order. */
static int collect(const struct dt_stage *stage, const struct dt_cost_site *s, struct dt_work *w,
		   struct dt_err *err)
{
	int n = 0;

	w->node = calloc((size_t)s->p->nstep + 1, sizeof(*w->node));
	w->unit = calloc((size_t)w->layers + 2, sizeof(*w->unit));
	if (!w->node || !w->unit)
		return dt_err_sys(err, -ENOMEM, "cannot work out what a step costs");
	for (int u = 0; u < w->layers + 2; u++) {
		w->unit[u].first = n;
		for (int i = 0; i < s->p->nstep; i++) {
			const struct dt_step *step = &s->p->step[i];

			if (step->n.unit != u - 1)
				continue;
			put_node(&w->node[n++], s, step);
			w->unit[u].kept += step->list == DT_LIST_FORWARD ? kept_bytes(s, &step->n) : 0;
		}
		w->unit[u].n = n - w->unit[u].first;
	}
	for (int i = 0; i < stage->local.n; i++) {
		const struct dt_local_param *p = &stage->local.p[i];
		struct dt_work_unit *u = &w->unit[stage->local.unit[p->unit].layer + 1];

		u->params += (double)p->numel;
		u->experts += stage->local.unit[p->unit].experts ? (double)p->numel : 0;
		if (dt_config_shares_embed(w->config) && stage->graph.params.p[p->index].role == DT_W_EMBED)
			w->unit[w->layers + 1].tied = (double)p->numel;
	}
	return 0;
}

const struct dt_work_unit *dt_work_unit(const struct dt_work *w, int64_t layer)
{
	if (layer < 0 || layer >= w->config->layers)
		return &w->unit[layer < 0 ? 0 : w->layers + 1];
	return &w->unit[1 + dt_layer_alike(w->config, w->layers, layer)];
}

static void sum_up(struct dt_work *w)
{
	struct dt_work_sum r = {0};

	for (int64_t layer = -1; layer <= w->config->layers; layer++) {
		const struct dt_work_unit *u = dt_work_unit(w, layer);

		for (int i = u->first; i < u->first + u->n; i++) {
			const struct dt_work_node *n = &w->node[i];

			r.flops += n->cost.flops;
			r.model_flops += n->cost.model_flops;
			r.again += n->again ? n->cost.flops : 0;
			r.attention += n->cost.kind == DT_COST_ATTENTION && n->list == DT_LIST_FORWARD
					       ? n->cost.model_flops
					       : 0;
			r.bytes += n->cost.read + n->cost.written;
		}
	}
	w->sum = r;
}

int dt_work_stage(const struct dt_run *r, struct dt_config *few, struct dt_stage *ret, struct dt_err *err)
{
	struct dt_run one = *r;

	dt_config_short(r->config, few);
	one.config = few;
	one.layout.pp = one.layout.chunks = 1;
	one.layout.zero = 0;
	one.schedule = NULL;
	one.recompute.every = 1;
	return dt_stage_build(&one, (struct dt_coords){0}, ret, err);
}

int dt_work_open_rank(const struct dt_run *r, struct dt_work *ret, struct dt_err *err)
{
	struct dt_config few;
	struct dt_stage stage;
	struct dt_cost_site site;
	int rc = dt_work_stage(r, &few, &stage, err);

	*ret = (struct dt_work){.config = r->config, .layers = few.layers};
	if (rc < 0)
		return rc;
	ret->tokens = (double)(r->microbatch * dt_run_local_seq(r));
	site = dt_stage_site(&stage, r, 0); /* attention sees the whole sequence */
	rc = collect(&stage, &site, ret, err);
	dt_stage_release(&stage);
	if (rc == 0)
		sum_up(ret);
	return rc;
}

int64_t dt_work_times(const struct dt_work *w, int64_t i)
{
	int64_t n = 0;

	for (int64_t layer = 0; layer < w->config->layers; layer++)
		n += dt_layer_alike(w->config, w->layers, layer) == i;
	return n;
}

int dt_work_open(const struct dt_run *r, struct dt_work *ret, struct dt_err *err)
{
	const struct dt_layout *l = &r->layout;
	struct dt_run alone = *r;
	struct dt_work w = {0};
	int rc = dt_work_open_rank(r, ret, err);

	if (rc == 0 && (l->tp > 1 || l->cp > 1)) {
		alone.layout = (struct dt_layout){.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1};
		rc = dt_work_open_rank(&alone, &w, err);
	}
	ret->model_flops = w.node ? w.sum.model_flops : ret->sum.model_flops;
	ret->attention_flops = w.node ? w.sum.attention : ret->sum.attention;
	dt_work_release(&w);
	return rc;
}

struct dt_cost_site dt_serving_site(const struct dt_work_serving *s, const struct dt_stage *stage)
{
	return (struct dt_cost_site){.p = &stage->chunk[0],
				     .seq = s->rows,
				     .tp = s->tp,
				     .cp = s->cp > 1 ? s->cp : 1,
				     .ep = s->ep > 1 ? s->ep : 1,
				     .compute = s->compute,
				     .param = (const int64_t(*)[2])stage->shape,
				     .context = s->context,
				     .cache_row = dt_kv_token_bytes(s->config, s->tp, s->cache_bits / 8) /
						  (double)s->config->layers,
				     .weight_bytes = s->weight_bits / 8};
}

int dt_work_open_serving(const struct dt_work_serving *s, struct dt_work *ret, struct dt_err *err)
{
	const int ep = s->ep > 1 ? s->ep : 1, cp = s->cp > 1 ? s->cp : 1;
	struct dt_config few;
	struct dt_stage stage;
	struct dt_cost_site site;
	int rc;

	*ret = (struct dt_work){
		.config = s->config, .layers = dt_config_short(s->config, &few), .tokens = (double)s->rows};
	rc = dt_stage_build_serving(
		&(struct dt_serving){.config = &few,
				     .compute = s->compute,
				     .rows = s->rows,
				     .outputs = s->outputs,
				     .fold = dt_config_is_image(s->config),
				     .layout = {.dp = ep, .tp = s->tp, .pp = 1, .cp = cp, .ep = ep}},
		&stage, err);
	if (rc < 0)
		return rc;
	site = dt_serving_site(s, &stage);
	rc = collect(&stage, &site, ret, err);
	dt_stage_release(&stage);
	if (rc == 0)
		sum_up(ret);
	return rc;
}

void dt_work_release(struct dt_work *w)
{
	free(w->node);
	free(w->unit);
	memset(w, 0, sizeof(*w));
}

int dt_run_model_flops(const struct dt_run *r, double *ret, struct dt_err *err)
{
	struct dt_work w;
	int rc = dt_work_open(r, &w, err);

	*ret = w.model_flops * (double)r->layout.dp * (double)dt_run_accumulation(r);
	dt_work_release(&w);
	return rc;
}

/* ---- the cache ---- */

struct dt_work_cached {
	struct dt_work_cached *next;
	struct dt_run of;
	struct dt_work work;
};

static bool same(const struct dt_run *a, const struct dt_run *b)
{
	return a->config == b->config && a->layout.tp == b->layout.tp && a->layout.cp == b->layout.cp &&
	       a->cp_comm == b->cp_comm && a->stream_overlap == b->stream_overlap &&
	       a->layout.ep == b->layout.ep && a->mixture.in_turn == b->mixture.in_turn &&
	       a->layout.seq_parallel == b->layout.seq_parallel && a->microbatch == b->microbatch &&
	       a->seq == b->seq && a->compute == b->compute && a->fp8 == b->fp8 &&
	       a->recompute.mode == b->recompute.mode && a->loss_chunk == b->loss_chunk &&
	       !a->teacher.top_k == !b->teacher.top_k && dt_run_masked(a) == dt_run_masked(b) &&
	       !a->scratch.threads == !b->scratch.threads;
}

static unsigned hash(const struct dt_run *r)
{
	const int64_t of[] = {r->layout.tp,  r->layout.cp, r->layout.ep,      r->layout.seq_parallel,
			      r->microbatch, r->seq,	   r->recompute.mode, (int64_t)(intptr_t)r->config};
	uint64_t h = 0;

	for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++)
		h = (h ^ (uint64_t)of[i]) * 0x9e3779b97f4a7c15u;
	return (unsigned)(h >> 56);
}

const struct dt_work *dt_work_get(struct dt_work_cache *c, const struct dt_run *r, struct dt_err *err)
{
	struct dt_work_cached **at = &c->bucket[hash(r)], *e = *at;

	while (e && !same(&e->of, r))
		e = e->next;
	if (e)
		return &e->work;
	e = calloc(1, sizeof(*e));
	if (!e || dt_work_open(r, &e->work, err) < 0) {
		if (!e)
			dt_err_sys(err, -ENOMEM, "cannot work out what a step costs");
		else
			dt_work_release(&e->work);
		free(e);
		return NULL;
	}
	e->of = *r;
	e->next = *at;
	*at = e;
	return &e->work;
}

void dt_work_cache_release(struct dt_work_cache *c)
{
	for (size_t i = 0; i < sizeof(c->bucket) / sizeof(*c->bucket); i++)
		while (c->bucket[i]) {
			struct dt_work_cached *e = c->bucket[i];

			c->bucket[i] = e->next;
			dt_work_release(&e->work);
			free(e);
		}
}
/* SPDX-License-Identifier: Apache-2.0 */
