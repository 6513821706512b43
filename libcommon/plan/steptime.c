#include "plan/stepcost.h"

#include "model/flops.h"
#include "plan/offtime.h"
#include "plan/outer.h"
#include "plan/unlike.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

const struct dt_stack dt_stack_dt = {.shares = true, .dp_hidden = true, .grad_bytes = 4};
const struct dt_stack dt_stack_megatron = {.scores = true, .tp_hidden = true, .grad_bytes = 4};

/* Forward and backward time of virtual stage v; adds its parts, times n, to sum. */
static struct dt_pipe_cost stage_cost(const struct dt_step_model *m, int v, double n,
				      struct dt_step_time *sum)
{
	const struct dt_run *s = m->s;
	int first, last, stages = s->layout.pp * dt_layout_chunks(&s->layout);
	struct dt_pipe_cost r = {0};

	dt_layout_stage(&s->layout, s->config, v, &first, &last);
	for (int i = first; i < last; i++) {
		const struct dt_layer_cost c = m->layer[dt_layer_alike(s->config, m->work->layers, i)];

		r.f += dt_cost_sum(&c.f);
		r.b += dt_cost_sum(&c.b) + c.again;
		r.w += c.w;
		sum->matmul += n * (c.f.matmul + c.b.matmul + c.w);
		sum->attention += n * (c.f.attention + c.b.attention);
		sum->memory += n * (c.f.memory + c.b.memory);
		sum->recompute += n * c.again;
		sum->tp += n * (c.f.tp + c.b.tp);
		sum->ep += n * (c.f.ep + c.b.ep);
		sum->cp += n * (c.f.cp + c.b.cp);
	}
	for (int head = 0; head < 2; head++) {
		struct dt_pipe_cost end = {0};

		if (v == (head ? stages - 1 : 0))
			end = dt_ends_time(m, head);
		r.f += end.f;
		r.b += end.b;
		sum->head += n * (end.f + end.b);
	}
	return r;
}

double dt_stage_params(const struct dt_work *w, const struct dt_layout *l, int p, double *ret_experts)
{
	const struct dt_config *c = w->config;
	int stages = l->pp * dt_layout_chunks(l), first, last;
	double n = 0, experts = 0;

	for (int v = p; v < stages; v += l->pp) {
		dt_layout_stage(l, c, v, &first, &last);
		for (int i = first; i < last; i++) {
			n += dt_work_unit(w, i)->params;
			experts += dt_work_unit(w, i)->experts;
		}
		if (v == 0)
			n += dt_work_unit(w, -1)->params;
		if (v == stages - 1)
			n += dt_work_unit(w, c->layers)->params +
			     (p > 0 ? dt_work_unit(w, c->layers)->tied : 0);
	}
	if (ret_experts)
		*ret_experts = experts;
	return n;
}

/* The stage after p: all of them, or for a guess the first two and the last two, which differ most. */
static int next_stage(const struct dt_layout *l, int p, bool all)
{
	return !all && p == 1 && l->pp > 4 ? l->pp - 2 : p + 1;
}

/* The share of parameters that is trained. */
static double trained_share(const struct dt_config *c)
{
	struct dt_params t;
	double r = 1;

	if (dt_model_params(c, &t, NULL) == 0) {
		r = (double)dt_params_trained(&t) / (double)dt_params_total(&t);
		dt_params_release(&t);
	}
	return r;
}

/* The most parameters of a stage, and its experts' part of them. */
static double most_params(const struct dt_step_model *m, bool all, double *ret_experts)
{
	const struct dt_layout *l = &m->s->layout;
	double most = 0;

	for (int p = 0; p < l->pp; p = next_stage(l, p, all)) {
		double some, of = dt_stage_params(m->work, l, p, &some);

		*ret_experts = of > most ? some : *ret_experts;
		most = fmax(most, of);
	}
	return most;
}

/* Sets the optimizer's time from measurements, for the slowest stage. */
static int put_measured(const struct dt_step_model *m, bool all, struct dt_step_time *r, struct dt_err *err)
{
	r->optimizer = 0;
	for (int p = 0; p < (all ? m->s->layout.pp : 1); p++) { /* a guess uses the first stage only */
		double t = 0;
		int rc = dt_ops_update(m, p, &t, err);

		if (rc < 0)
			return rc;
		r->optimizer = fmax(r->optimizer, t);
	}
	return 0;
}

/* Adds muon's products, of the slowest stage. */
static int add_orthogonal(const struct dt_step_model *m, bool all, struct dt_step_time *r, struct dt_err *err)
{
	const struct dt_layout *l = &m->s->layout;
	double most = 0;

	for (int p = 0; p < l->pp && m->s->optim.kind == DT_OPTIM_MUON; p = next_stage(l, p, all)) {
		double t;
		int rc = dt_ops_orthogonal(m, p, &t, err);

		if (rc < 0)
			return rc;
		most = fmax(most, t);
	}
	r->optimizer += most;
	return 0;
}

/* Sets times of gradients, gathered weights and the optimizer, for the stage with the most parameters. */
static int put_update(const struct dt_step_model *m, double backward, bool all, struct dt_step_time *r,
		      struct dt_err *err)
{
	const struct dt_run *s = m->s;
	const struct dt_layout *l = &s->layout;
	const int n = dt_layout_data(l);
	const double states = dt_optim_element_bytes(s->optim.kind), w = dt_dtype_size(s->compute);
	double experts = 0, share, updated;
	const double most = most_params(m, all, &experts);
	const double part = s->config->lora.rank || s->config->freeze[0] ? trained_share(s->config) : 1;
	int rc;

	if (n > 1)
		dt_step_dp(m, most, experts, part, backward, r);
	share = l->zero ? (most - experts) / n + experts / (n / l->ep) : most;
	/* Read and written: states and what is updated; read: gradients; written: weights beside masters. */
	updated = dt_run_masters(s) ? 8 + (w < 4 ? w : 0) : 2 * w;
	r->optimizer = part * share * (4 + 2 * states + updated) / (m->dev.mem_bw * m->dev.mem_eff);
	if (s->qat) /* rounding reads and writes whole weights */
		r->optimizer += part * most * 2 * w / (m->dev.mem_bw * m->dev.mem_eff);
	r->fixed = m->dev.step_s;
	rc = m->measured ? put_measured(m, all, r, err) : 0;
	if (rc == 0)
		rc = add_orthogonal(m, all, r, err);
	if (rc < 0)
		return rc;
	if (dt_run_copies_peer(s)) { /* the previous share's gradients arrive in f32, and are applied too */
		const double t = dt_message_time(m->c, part * share * 4, l->tp);

		r->dp += t;
		r->dp_exposed += t;
		r->optimizer *= 2;
	}
	dt_offload_time(m, part * share, backward, r);
	return 0;
}

static void put_rates(const struct dt_step_model *m, struct dt_step_time *r)
{
	const struct dt_run *s = m->s;
	const struct dt_layout *l = &s->layout;
	double acc = (double)(s->accumulation > 0 ? s->accumulation : 1);
	double ranks = (double)l->tp * l->cp, tokens = (double)(s->microbatch * s->seq * l->dp) * acc;
	double flops = m->work->model_flops * l->dp * acc;
	/* Recomputed flops: those of rank 0, times the ranks that share the microbatch. */
	double extra = m->stack->scores && s->recompute.mode == DT_RECOMPUTE_SELECTIVE
			       ? m->work->attention_flops * l->dp * acc
			       : m->work->sum.again * ranks * l->dp * acc;
	double peak = dt_layout_world(l) * (s->fp8 ? m->dev.peak_fp8 : m->dev.peak_flops);
	double compute, memory, network;

	r->step = r->makespan + r->dp_exposed + r->optimizer + r->offload_exposed + r->fixed;
	r->mfu = flops / r->step / peak;
	r->hfu = (flops + extra) / r->step / peak;
	r->tokens_per_s = tokens / r->step;
	compute = r->matmul + r->attention + r->head;
	memory = r->memory + r->optimizer + r->offload_exposed;
	network = r->tp + r->ep + r->cp + r->pp + r->dp_exposed;
	r->bound = compute >= memory && compute >= network ? DT_BOUND_COMPUTE
		   : memory >= network			   ? DT_BOUND_MEMORY
							   : DT_BOUND_NETWORK;
}

static double hop_time(const struct dt_step_model *m)
{
	const struct dt_run *s = m->s;

	if (s->layout.pp == 1)
		return 0;
	return dt_message_time(
		m->c, m->work->tokens * (double)s->config->hidden * dt_dtype_size(s->compute) / s->layout.tp,
		s->layout.tp * s->layout.cp * s->layout.dp);
}

/* The stage with the most computation; its costs go to r. Fills cost[] by virtual stage. */
static double slowest(const struct dt_step_model *m, bool all, struct dt_pipe_cost *cost,
		      double *ret_backward, struct dt_step_time *r)
{
	const struct dt_layout *l = &m->s->layout;
	double acc = (double)(m->s->accumulation > 0 ? m->s->accumulation : 1), worst = -1;

	for (int p = 0; p < l->pp; p = next_stage(l, p, all)) {
		struct dt_step_time sum = {0};
		double busy = 0, backward = 0;

		for (int k = 0; k < dt_layout_chunks(l); k++) {
			struct dt_pipe_cost *v = &cost[k * l->pp + p];

			*v = stage_cost(m, k * l->pp + p, acc, &sum);
			busy += v->f + v->b + v->w;
			backward += v->b + v->w;
		}
		if (busy <= worst)
			continue;
		worst = busy;
		*ret_backward = backward;
		*r = sum;
	}
	return worst;
}

static int time_stages(const struct dt_step_model *m, bool table, struct dt_step_time *ret,
		       struct dt_err *err)
{
	const struct dt_run *s = m->s;
	const struct dt_layout *l = &s->layout;
	int v = l->pp * dt_layout_chunks(l), rc = 0;
	double acc = (double)(s->accumulation > 0 ? s->accumulation : 1), backward = 0, busy, hop;
	struct dt_step_time r = {0};
	struct dt_pipe_cost *cost;
	struct dt_schedule t;

	cost = calloc((size_t)v, sizeof(*cost));
	if (!cost)
		return dt_err_sys(err, -ENOMEM, "cannot work out a step");
	busy = slowest(m, table, cost, &backward, &r);
	hop = hop_time(m);
	r.pp = l->pp > 1 ? 2 * (l->pp - 1 + (v > l->pp ? acc : 0)) * hop : 0;
	if (l->pp == 1) {
		r.makespan = acc * busy;
	} else if (table) {
		rc = dt_run_schedule(s, &t, err);
		if (rc == 0) {
			r.makespan = dt_schedule_simulate(&t, cost, hop, &r.bubble);
			dt_schedule_release(&t);
		}
	} else {
		/* Each stage's work, plus the first microbatch's way through the pipeline and back. */
		r.makespan = acc * busy + (l->pp - 1) * (busy / dt_layout_chunks(l) + 2 * hop);
		r.bubble = 1 - acc * busy / r.makespan;
	}
	free(cost);
	if (rc < 0)
		return rc;
	rc = put_update(m, backward, table, &r, err);
	if (rc < 0)
		return rc;
	put_rates(m, &r);
	*ret = r;
	return 0;
}

int dt_step_time_of(const struct dt_cluster *c, const struct dt_run *s, const struct dt_stack *stack,
		    const struct dt_work *work, bool table, struct dt_step_time *ret, struct dt_err *err)
{
	struct dt_layer_cost *layer;
	struct dt_step_model m;
	int rc;

	if (c->nkind)
		return dt_unlike_step_time(c, s, stack, work, table, ret, err);
	layer = malloc((size_t)work->layers * sizeof(*layer));
	if (!layer)
		return dt_err_sys(err, -ENOMEM, "cannot work out a step");
	dt_step_model_init(&m, c, s, stack, work);
	for (int64_t i = 0; i < work->layers; i++)
		layer[i] = dt_layer_time(&m, (int)i);
	m.layer = layer;
	rc = time_stages(&m, table, ret, err);
	free(layer);
	return rc;
}

/*
 * The run as its program must be built for a stack: Megatron-LM's selective recomputation covers attention
 * only.
 */
static struct dt_run as_nodes(const struct dt_run *s, const struct dt_stack *stack)
{
	struct dt_run r = *s;

	if (stack->scores && r.recompute.mode == DT_RECOMPUTE_SELECTIVE)
		r.recompute.mode = DT_RECOMPUTE_NONE;
	return r;
}

int dt_step_work(const struct dt_run *s, const struct dt_stack *stack, struct dt_work *ret,
		 struct dt_err *err)
{
	const struct dt_run r = as_nodes(s, stack);

	return dt_work_open(&r, ret, err);
}

const struct dt_work *dt_step_work_get(struct dt_work_cache *c, const struct dt_run *s,
				       const struct dt_stack *stack, struct dt_err *err)
{
	const struct dt_run r = as_nodes(s, stack);

	return dt_work_get(c, &r, err);
}

int dt_step_time(const struct dt_cluster *c, const struct dt_run *s, const struct dt_stack *stack,
		 struct dt_step_time *ret, struct dt_err *err)
{
	struct dt_work work;
	int rc = dt_layout_check(&s->layout, s->config, err);

	if (rc < 0)
		return rc;
	rc = dt_step_work(s, stack, &work, err);
	if (rc == 0)
		rc = dt_step_time_of(c, s, stack, &work, true, ret, err);
	dt_work_release(&work);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
