#include "plan/fp8.h"
#include "plan/stepcost.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct dt_stack dt_stack_dt = {.dp_hidden = true, .grad_bytes = 4};
const struct dt_stack dt_stack_megatron = {.scores = true, .tp_hidden = true, .grad_bytes = 4};

static double flops_s(const struct dt_step_model *m, double flops, double eff)
{
	return flops / (m->dev.peak_flops * eff);
}

static double bytes_s(const struct dt_step_model *m, double bytes)
{
	return bytes / (m->dev.mem_bw * m->dev.mem_eff);
}

static void model_init(struct dt_step_model *m, const struct dt_cluster *c, const struct dt_run *s,
		       const struct dt_stack *stack)
{
	int world = dt_layout_world(&s->layout);

	*m = (struct dt_step_model){
		.c = c, .s = s, .stack = stack, .t = s->layout.tp, .e = dt_dtype_size(s->compute)};
	m->here = world < c->gpus_a_node ? world : c->gpus_a_node;
	m->dev = dt_cluster_rank_device(c, m->here);
	if (s->compute == DT_F32) /* half the width, a third of what 16-bit units reach */
		m->dev.peak_flops *= c->cores ? 0.5 : 0.0625;
	m->tokens = (double)(s->microbatch * s->seq) / s->layout.cp;
	m->norm_share = s->layout.seq_parallel ? 1 / m->t : 1;
}

/*
 * Linears in 8 bits: what of a layer's weights they have, and what their operands take to be written: looked
 * through for the largest, read again and written in one byte. Backward does so with gradients, weights and
 * inputs, about twice as much. Experts stay as they are.
 */
static double in_8_bits(const struct dt_step_model *m, int layer, double *seconds)
{
	const struct dt_config *c = m->s->config;
	int64_t in[DT_STASH_N], out[DT_STASH_N];
	struct dt_local_dims d;
	struct dt_fp8_plan f;
	double weights = 0, bytes = 0;

	*seconds = 0;
	if (!m->s->fp8)
		return 0;
	dt_fp8_plan(m->s, (struct dt_coords){0}, &f);
	dt_local_dims(c, m->s->layout.tp, 0, &d);
	dt_linear_widths(c, &d, in, out);
	for (int i = 0; i < DT_STASH_N; i++) {
		double w = (double)(in[i] * out[i]);

		if (!f.used[i] || ((i == DT_S_UP || i == DT_S_DOWN) && dt_layer_has_experts(c, layer)))
			continue;
		weights += w;
		bytes += (2 * m->e + 1) * (m->tokens * (double)in[i] + w);
	}
	*seconds = bytes_s(m, bytes) + 4 * f.nused * m->dev.op_s;
	return weights;
}

/* One layer forward by its roofline, traffic left out, and what writing operands in 8 bits takes. */
static struct dt_cost layer_forward(const struct dt_step_model *m, int layer, double *written)
{
	const struct dt_config *c = m->s->config;
	const struct dt_layout *l = &m->s->layout;
	double h = (double)c->hidden, T = m->tokens, e = m->e, w = dt_layer_weights(c, layer) / m->t;
	double f = (double)dt_layer_width(c, layer) / m->t;
	double heads = (double)c->heads / m->t, kv = (double)(c->kv_rank ? c->heads : c->kv_heads) / m->t;
	double qkv = heads * (double)c->head_dim + kv * (double)(c->head_dim + dt_value_dim(c));
	double pairs = dt_layer_attention_flops(c, layer, m->s->seq) / m->t * T, held = w;
	double stream = T * h * e, ops = dt_layer_has_experts(c, layer) ? 9 : 6, w8, flops;
	struct dt_cost r = {0};

	if (dt_layer_has_experts(c, layer)) /* all local experts' weights are read */
		held += (double)((c->experts / l->ep - c->experts_used) * (c->gated ? 3 : 2) *
				 c->expert_ffn) *
			h / m->t;
	w8 = in_8_bits(m, layer, written);
	flops = flops_s(m, 2 * T * (w - w8), m->dev.matmul_eff);
	if (w8 > 0)
		flops += 2 * T * w8 / (m->dev.peak_fp8 * m->dev.matmul_eff);
	r.matmul = fmax(flops, bytes_s(m, (held > 0 ? held : w) * e)) + ops * m->dev.op_s;
	if (m->stack->scores) /* scores written, softmax over them, dropout, read again: 6.5 passes */
		r.attention = flops_s(m, pairs, m->dev.matmul_eff) +
			      bytes_s(m, 6.5 * heads * (double)m->s->seq * T * e) + 4 * m->dev.op_s;
	else /* half of the pairs are masked and skipped */
		r.attention = flops_s(m, pairs / 2, m->dev.attention_eff) + m->dev.op_s;
	r.memory = bytes_s(m, (2 * 2 + 2 * 3) * stream * m->norm_share +
				      T * e * ((c->gated ? 3 : 2) * f + 2 * qkv)) +
		   6 * m->dev.op_s;
	return r;
}

/* What forward and backward of a layer send. */
static void put_traffic(const struct dt_step_model *m, int layer, struct dt_layer_cost *r)
{
	const struct dt_config *c = m->s->config;
	const struct dt_layout *l = &m->s->layout;
	double stream = m->tokens * (double)c->hidden * m->e;
	double kv = (double)(c->kv_rank ? c->heads : c->kv_heads) / m->t;

	if (l->tp > 1) {
		r->f.tp = 2 * dt_collective_time(m->c, DT_COLL_ALL_REDUCE, stream, l->tp, 1);
		r->b.tp = m->stack->tp_hidden ? fmax(0, r->f.tp - r->f.matmul) : r->f.tp;
	}
	if (l->ep > 1 && dt_layer_has_experts(c, layer))
		r->f.ep = r->b.ep = 2 * dt_collective_time(m->c, DT_COLL_ALL_TO_ALL,
							   (double)c->experts_used * stream, l->ep, l->tp);
	if (l->cp > 1) { /* keys and values go around while they are used */
		double pass =
			(double)(l->cp - 1) *
			dt_message_time(m->c, m->tokens * kv * (double)(c->head_dim + dt_value_dim(c)) * m->e,
					l->tp);

		r->f.cp = fmax(0, pass - r->f.attention);
		r->b.cp = 2 * r->f.cp;
	}
}

/* Embedding or head of a microbatch, forward. */
static double ends_forward(const struct dt_step_model *m, bool head)
{
	const struct dt_config *c = m->s->config;
	double h = (double)c->hidden, v = (double)c->vocab / m->t;

	if (!head)
		return bytes_s(m, 3 * m->tokens * h * m->e) + m->dev.op_s;
	return fmax(flops_s(m, 2 * m->tokens * h * v, m->dev.matmul_eff), bytes_s(m, h * v * m->e)) +
	       bytes_s(m, m->tokens * v * 4 * 3) + 4 * m->dev.op_s;
}

/* What is computed again before a layer's backward. */
static double again(const struct dt_step_model *m, const struct dt_cost *f)
{
	switch (m->s->recompute.mode) {
	case DT_RECOMPUTE_NONE:
		return 0;
	case DT_RECOMPUTE_SELECTIVE:
		return m->stack->scores ? f->attention : f->memory / 2;
	case DT_RECOMPUTE_FULL:
		break;
	}
	return dt_cost_sum(f);
}

/* A layer's costs: measured operations, or the roofline and what backward multiplies it by. */
static struct dt_layer_cost layer_cost(const struct dt_step_model *m, int layer)
{
	struct dt_layer_cost r = {0};
	double written;

	if (dt_ops_known(m)) {
		dt_ops_layer(m, layer, &r);
		put_traffic(m, layer, &r);
		if (m->s->recompute.mode == DT_RECOMPUTE_FULL)
			r.again += r.f.tp / 2 + r.f.ep + r.f.cp;
		return r;
	}
	r.f = layer_forward(m, layer, &written);
	put_traffic(m, layer, &r);
	r.b.matmul = m->dev.backward_ratio * r.f.matmul;
	r.b.attention = (m->stack->scores ? 2 : 2.5) * r.f.attention;
	r.again = again(m, &r.f) + (m->s->recompute.mode == DT_RECOMPUTE_FULL ? written : 0);
	r.f.memory += written;
	r.b.memory = 2 * r.f.memory;
	return r;
}

/* Embedding or head: forward and backward. */
static struct dt_pipe_cost ends_cost(const struct dt_step_model *m, bool head)
{
	double f;

	if (dt_ops_known(m))
		return dt_ops_ends(m, head);
	f = ends_forward(m, head);
	return (struct dt_pipe_cost){.f = f, .b = m->dev.backward_ratio * f};
}

/* Whether layer i costs what the one before it does. */
static bool like_before(const struct dt_config *c, int i)
{
	return dt_layer_has_experts(c, i) == dt_layer_has_experts(c, i - 1) &&
	       dt_layer_window(c, i) == dt_layer_window(c, i - 1) &&
	       dt_layer_width(c, i) == dt_layer_width(c, i - 1);
}

/* Forward and backward of virtual stage v, and what they are made of, times n, into sum. */
static struct dt_pipe_cost stage_cost(const struct dt_step_model *m, int v, double n,
				      struct dt_step_time *sum)
{
	const struct dt_run *s = m->s;
	int first, last, stages = s->layout.pp * dt_layout_chunks(&s->layout);
	bool split = dt_run_splits(s);
	struct dt_pipe_cost r = {0};
	struct dt_layer_cost c = {0};

	dt_layout_stage(&s->layout, s->config, v, &first, &last);
	for (int i = first; i < last; i++) {
		if (i == first || !like_before(s->config, i))
			c = layer_cost(m, i);
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
			end = ends_cost(m, head);
		r.f += end.f;
		r.b += end.b;
		sum->head += n * (end.f + end.b);
	}
	if (split && !dt_ops_known(m))
		r.b -= r.w = r.b / 2;
	return r;
}

static double params_of(const struct dt_config *c, int first, int last, bool embed, bool head, double tp,
			int ep)
{
	double n = 0;

	for (int i = first; i < last; i++) {
		n += dt_layer_weights(c, i);
		if (dt_layer_has_experts(c, i))
			n += (double)((c->experts / ep - c->experts_used) * (c->gated ? 3 : 2) *
				      c->expert_ffn * c->hidden);
	}
	n += ((embed ? 1 : 0) + (head && !(c->tied && embed) ? 1 : 0)) * (double)(c->vocab * c->hidden);
	return n / tp;
}

double dt_stage_params(const struct dt_config *c, const struct dt_layout *l, int p)
{
	int stages = l->pp * dt_layout_chunks(l), first, last;
	double n = 0;

	for (int v = p; v < stages; v += l->pp) {
		dt_layout_stage(l, c, v, &first, &last);
		n += params_of(c, first, last, v == 0, v == stages - 1, l->tp, l->ep);
	}
	return n;
}

/* The stage after p: every one, or for a guess the first two and the last two, which differ most. */
static int next_stage(const struct dt_layout *l, int p, bool all)
{
	return !all && p == 1 && l->pp > 4 ? l->pp - 2 : p + 1;
}

/* Gradients, gathered weights and the optimizer, of the stage with the most parameters. */
static int put_update(const struct dt_step_model *m, double backward, bool all, struct dt_step_time *r,
		      struct dt_err *err)
{
	const struct dt_run *s = m->s;
	const struct dt_layout *l = &s->layout;
	int n = dt_layout_data(l);
	double most = 0, acc = (double)(s->accumulation > 0 ? s->accumulation : 1), moved;
	double states = 4 * dt_optim_states(s->optim.kind), once, w = m->e;

	for (int p = 0; p < l->pp; p = next_stage(l, p, all))
		most = fmax(most, dt_stage_params(s->config, l, p));
	if (n > 1) {
		double g = most * m->stack->grad_bytes;
		int stride = l->tp;

		once = dt_collective_time(m->c, DT_COLL_REDUCE_SCATTER, g, n, stride);
		if (l->zero == 0)
			r->dp = 2 * once;
		else if (l->zero == 1)
			r->dp = once + dt_collective_time(m->c, DT_COLL_ALL_GATHER, most * w, n, stride);
		else if (l->zero == 2)
			r->dp = acc * once +
				dt_collective_time(m->c, DT_COLL_ALL_GATHER, most * w, n, stride);
		else
			r->dp = acc * (once +
				       2 * dt_collective_time(m->c, DT_COLL_ALL_GATHER, most * w, n, stride));
		/* Each microbatch's own traffic hides behind its own computation. */
		moved = m->stack->dp_hidden && !m->c->cores
				? backward * (l->zero >= 2 ? acc * (l->zero == 3 ? 1.5 : 1) : 1)
				: 0;
		r->dp_exposed = fmax(r->dp - moved, r->dp * 0.05);
	}
	r->optimizer =
		bytes_s(m, most / (l->zero >= 1 ? n : 1) * (8 + 2 * states + (m->e < 4 ? 4 + m->e : 0)));
	r->fixed = m->dev.step_s;
	if (!dt_ops_known(m))
		return 0;
	r->optimizer = 0;
	for (int p = 0; p < (all ? l->pp : 1); p++) { /* a guess looks at the first stage */
		double t = 0;
		int rc = dt_ops_update(m, p, &t, err);

		if (rc < 0)
			return rc;
		r->optimizer = fmax(r->optimizer, t);
	}
	return 0;
}

static void put_rates(const struct dt_step_model *m, struct dt_step_time *r)
{
	const struct dt_run *s = m->s;
	const struct dt_layout *l = &s->layout;
	double acc = (double)(s->accumulation > 0 ? s->accumulation : 1);
	double tokens = (double)(s->microbatch * s->seq * l->dp) * acc;
	double flops = tokens * dt_model_flops_per_token(s->config, s->seq, true), extra = 0;
	double peak = dt_layout_world(l) * (s->fp8 ? m->dev.peak_fp8 : m->dev.peak_flops);
	double compute, memory, network;

	if (s->recompute.mode == DT_RECOMPUTE_FULL)
		extra = flops / 3 - 2 * tokens * (double)(s->config->hidden * s->config->vocab);
	else if (s->recompute.mode == DT_RECOMPUTE_SELECTIVE && m->stack->scores)
		for (int64_t i = 0; i < s->config->layers; i++)
			extra += tokens * dt_layer_attention_flops(s->config, i, s->seq);
	r->step = r->makespan + r->dp_exposed + r->optimizer + r->fixed;
	r->mfu = flops / r->step / peak;
	r->hfu = (flops + extra) / r->step / peak;
	r->tokens_per_s = tokens / r->step;
	compute = r->matmul + r->attention + r->head;
	memory = r->memory + r->optimizer;
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
	return dt_message_time(m->c, m->tokens * (double)s->config->hidden * m->e / m->t,
			       s->layout.tp * s->layout.cp * s->layout.dp);
}

/* The stage that computes longest: its costs into r. Fills cost[] by virtual stage. */
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
		/* Each stage's work, and the way of the first microbatch there and back. */
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

static int step_time(const struct dt_cluster *c, const struct dt_run *s, const struct dt_stack *stack,
		     bool table, struct dt_step_time *ret, struct dt_err *err)
{
	struct dt_step_model m;
	int rc = dt_layout_check(&s->layout, s->config, err);

	if (rc < 0)
		return rc;
	model_init(&m, c, s, stack);
	if (!dt_ops_known(&m))
		return time_stages(&m, table, ret, err);
	rc = dt_ops_open(&m, err);
	if (rc == 0)
		rc = time_stages(&m, table, ret, err);
	dt_ops_close(&m);
	return rc;
}

int dt_step_time(const struct dt_cluster *c, const struct dt_run *s, const struct dt_stack *stack,
		 struct dt_step_time *ret, struct dt_err *err)
{
	return step_time(c, s, stack, true, ret, err);
}

int dt_step_time_quick(const struct dt_cluster *c, const struct dt_run *s, const struct dt_stack *stack,
		       struct dt_step_time *ret, struct dt_err *err)
{
	return step_time(c, s, stack, false, ret, err);
}

/* ---- rooflines ---- */

/* Weights of all layers that tokens tokens make a device read, and those they multiply. */
static void weights_met(const struct dt_config *c, double tokens, double *ret_read, double *ret_used)
{
	double head = (double)(c->vocab * c->hidden);

	*ret_read = *ret_used = head;
	for (int64_t i = 0; i < c->layers; i++) {
		double used = dt_layer_weights(c, i), expert = 0, met = 1;

		if (dt_layer_has_experts(c, i)) {
			expert = (double)((c->gated ? 3 : 2) * c->expert_ffn * c->hidden);
			/* Experts that at least one of the tokens is sent to, were they sent at random. */
			met = (double)c->experts *
			      (1 - pow(1 - (double)c->experts_used / (double)c->experts, tokens));
		}
		*ret_used += used;
		*ret_read += used + expert * (met - (expert > 0 ? (double)c->experts_used : 1));
	}
}

struct dt_intensity dt_train_intensity(const struct dt_config *m, int64_t microbatch, int64_t seq)
{
	double tokens = (double)(microbatch * seq), read, used, act = 0;

	weights_met(m, tokens, &read, &used);
	for (int64_t i = 0; i < m->layers; i++) /* written forward, read backward, and their gradients */
		act += (double)(8 * m->hidden + 2 * (m->heads + m->kv_heads) * m->head_dim) +
		       (double)((m->gated ? 3 : 2) * dt_layer_width(m, i));
	return (struct dt_intensity){tokens * dt_model_flops_per_token(m, seq, true),
				     2 * 3 * read + 4 * read + 2 * 4 * tokens * act};
}

struct dt_intensity dt_prefill_intensity(const struct dt_config *m, int64_t tokens, double weight_bits)
{
	double read, used, act = (double)(8 * m->hidden * m->layers * tokens);

	weights_met(m, (double)tokens, &read, &used);
	return (struct dt_intensity){(double)tokens * dt_model_flops_per_token(m, tokens / 2, false),
				     read * weight_bits / 8 + 2 * act};
}

static double cache_bytes(const struct dt_config *m, int64_t layer, int64_t context, double bits)
{
	int64_t w = dt_layer_window(m, layer), n = w > 0 && w < context ? w : context;

	return (double)n * (double)(m->kv_rank ? m->kv_rank + m->rope_dim : 2 * m->kv_heads * m->head_dim) *
	       bits / 8;
}

struct dt_intensity dt_decode_intensity(const struct dt_config *m, int64_t batch, int64_t context,
					double weight_bits, double cache_bits)
{
	double read, used, cache = 0;

	weights_met(m, (double)batch, &read, &used);
	for (int64_t i = 0; i < m->layers; i++)
		cache += cache_bytes(m, i, context, cache_bits);
	return (struct dt_intensity){(double)batch * dt_model_flops_per_token(m, context, false),
				     read * weight_bits / 8 + (double)batch * cache};
}

static double serve_time(const struct dt_cluster *c, const struct dt_config *m, int tp, double tokens,
			 struct dt_intensity i)
{
	struct dt_device d = dt_cluster_rank_device(c, tp);
	double ops = 12 * (double)m->layers * d.op_s, net = 0;

	if (tp > 1)
		net = 2 * (double)m->layers *
		      dt_collective_time(c, DT_COLL_ALL_REDUCE, tokens * (double)m->hidden * 2, tp, 1);
	return fmax(i.flops / tp / (d.peak_flops * d.matmul_eff), i.bytes / tp / (d.mem_bw * d.mem_eff)) +
	       ops + net;
}

double dt_prefill_time(const struct dt_cluster *c, const struct dt_config *m, int tp, int64_t tokens,
		       double weight_bits)
{
	return serve_time(c, m, tp, (double)tokens, dt_prefill_intensity(m, tokens, weight_bits));
}

double dt_decode_time(const struct dt_cluster *c, const struct dt_config *m, int tp, int64_t batch,
		      int64_t context, double weight_bits, double cache_bits)
{
	return serve_time(c, m, tp, (double)batch,
			  dt_decode_intensity(m, batch, context, weight_bits, cache_bits));
}
/* SPDX-License-Identifier: Apache-2.0 */
