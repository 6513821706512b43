/*
 * The function of each op in serving, where it differs from training: products with packed weights, a paged
 * KV cache, mixtures of experts, logits of the wanted rows.
 * Mixtures (kernels/moe.h): the router scores every expert in f32; rows are sorted by expert, so that all
 * experts are one product. A row's outputs are added in order of score: results do not depend on other rows
 * of the batch, and on a device nothing waits for the host.
 */
#include "nn/infer_disk.h"

#include <errno.h>

static const struct dt_packed *packed(const struct dt_infer *m, int param)
{
	return dt_infer_packed_at(m, param);
}

/* Embeds rows: token embedding (scaled in Gemma), plus learned position embeddings if the model has them. */
static int embed(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_infer *m = x->owner;
	const struct dt_local_param *here = &x->stage->local.p[n->param[0]];
	struct dt_tensor y = dt_call_mat(x, n->out[0]), at = dt_call_mat(x, n->out[4]);

	TRY(x->dev->ops->packed_embed(x->dev, y, packed(m, n->param[0]),
				      dt_infer_there(m, m->batch->ids) + x->row, here->off[0],
				      x->stage->graph.params.p[here->index].shape[0], n->attr.scale));
	for (int i = 0; i < m->batch->nseen; i++) { /* rows of a tower in the place of these embeddings */
		const struct dt_infer_seen *s = &m->batch->seen[i];

		TRY(dt_dev_copy(x->dev, dt_call_rows_of(y, s->first, s->n).data, s->rows,
				(size_t)(s->n * y.dim[1] * dt_dtype_size(y.dtype))));
	}
	if (n->param[1] >= 0) {
		TRY(x->dev->ops->embedding_forward(x->dev, at, x->pos, NULL, dt_call_positions(x, x->w, n),
						   DT_NONE, 0));
		TRY(x->dev->ops->add(x->dev, y, y, at));
	}
	return n->param[2] < 0 ? 0 : dt_serve_types(x, n, y, at, err);
}

/* Rows that a module or a tower is given. check_batch (nn/infer.c) has refused a batch without them. */
static int given(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_infer *m = x->owner;
	const size_t row = (size_t)(x->p->value[n->out[0]].cols * dt_dtype_size(x->dtype));

	TRY(dt_dev_copy(x->dev, dt_call_at(x, n->out[0]), m->batch->given, (size_t)m->batch->ntokens * row));
	return 0;
}

static bool adapted(const struct dt_exec *x)
{
	return dt_infer_adapts(((const struct dt_infer *)x->owner)->batch);
}

static int linear(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_packed *w = packed(x->owner, n->param[0]);

	if (adapted(x))
		return dt_infer_adapt(x, n, dt_call_mat(x, n->out[0]), w, 0, err);
	TRY(x->dev->ops->packed_matmul(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->in[0]), w,
				       dt_call_joined(x->w, n->param + 3)));
	return 0;
}

/* Gate, up and activation in one call if the device can. */
static int linear_gated(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_packed *w = packed(x->owner, n->param[0]);
	struct dt_tensor y = dt_call_mat(x, n->out[1]), up = dt_call_mat(x, n->out[0]),
			 in = dt_call_mat(x, n->in[0]), bias = dt_call_joined(x->w, n->param + 3);
	enum dt_act_fn f = (enum dt_act_fn)n->attr.act;
	const struct dt_infer *m = x->owner;
	const bool adapts = adapted(x);
	int rc = -ENOTSUP;

	if (adapts)
		rc = dt_infer_adapt(x, n, y, w, 1 + (int)f, err);
	else if (!m->p.as_trained)
		rc = x->dev->ops->packed_gated(x->dev, y, in, w, bias, f);
	if (rc != -ENOTSUP)
		return adapts ? rc : dt_kernel_check(rc, "->packed_gated(", err);
	if (!adapts || m->p.as_trained) /* with adapters the scratch value has a wider type */
		up.dtype = x->dtype;
	if (adapts && (rc = dt_infer_adapt(x, n, up, w, 0, err)) < 0)
		return rc;
	if (!adapts)
		TRY(x->dev->ops->packed_matmul(x->dev, up, in, w, bias));
	TRY(x->dev->ops->gated_forward(x->dev, y, up, f));
	return 0;
}

/*
 * Latents are keys and values at once (kernels/attention.h). With norm or rope, the nodes before attention,
 * the device does these and the cache write in the same call: returns 1, or 0 if it cannot.
 */
static int attend(struct dt_exec *x, const struct dt_node *n, const struct dt_node *norm,
		  const struct dt_node *rope, struct dt_err *err)
{
	struct dt_infer *m = x->owner;
	const struct dt_infer_batch *b = m->batch;
	int64_t slots = (int64_t)m->p.blocks * m->p.block_size;
	size_t row = (size_t)dt_infer_cache_piece(x->c, m->ranks.layout.tp, m->p.cache, 1);
	const struct dt_attn a = {.heads = n->attr.heads,
				  .kv_heads = n->attr.kv_heads,
				  .head_dim = n->attr.head_dim,
				  .value_dim = n->attr.latent_dim,
				  .window = n->attr.window,
				  .scale = n->attr.scale,
				  .softcap = n->attr.cap};
	const int64_t layer = dt_kv_parts(&a) * slots * (int64_t)row, cols = dt_kv_row(&a, m->p.cache);
	char *at = m->cache.base + layer * dt_infer_before(m, n->unit, false);
	const bool last = at + 2 * layer > m->cache.base + m->cache.bytes;
	struct dt_paged paged = {.nseq = b->nseq,
				 .kv_len = b->kv_len,
				 .block_table = b->block_table,
				 .max_blocks = b->max_blocks,
				 .block_size = m->p.block_size,
				 .further = last ? 0 : layer,
				 .sink = dt_call_param(x->w, n->param[0]),
				 .longest = m->side.keys};
	struct dt_tensor k = dt_t3(at, m->p.cache, m->p.blocks, m->p.block_size, cols), v = DT_NONE;
	struct dt_tensor qkv = dt_call_mat(x, n->in[0]);
	int rc;

	if (dt_kv_parts(&a) == 2)
		v = dt_t3(at + (size_t)slots * row, m->p.cache, m->p.blocks, m->p.block_size, cols);
	if (n->in[1] >= 0) { /* keys and values of all ranks of cp, without queries */
		struct dt_attn kv = a;

		kv.heads = 0;
		TRY(x->dev->ops->kv_write(x->dev, k, v, dt_call_mat(x, n->in[1]), &kv, b->all_slots));
	} else if (norm || rope) {
		const struct dt_rope r = rope ? dt_call_rope_of(x, rope) : (struct dt_rope){0};

		rc = x->dev->ops->step_heads(x->dev, k, v, qkv, &a, b->slot, rope ? &r : NULL, dt_call_pos(x),
					     norm ? x->w[norm->param[0]] : DT_NONE,
					     norm ? x->w[norm->param[1]] : DT_NONE,
					     norm && norm->attr.plus_one, norm ? norm->attr.eps : 0);

		if (rc == -ENOTSUP)
			return 0;
		TRY(rc);
	} else {
		TRY(x->dev->ops->kv_write(x->dev, k, v, qkv, &a, b->slot));
	}
	if ((rc = dt_infer_narrow(x, n, err)) < 0)
		return rc;
	paged.q_start = m->batch->q_start;
	if (m->batch->ntokens > 0)
		TRY(x->dev->ops->attention_paged(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->in[0]),
						 k, v, &a, &paged));
	return 1;
}

static int attention(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const int rc = n->attr.all ? dt_serve_attention_all(x, n, err) : attend(x, n, NULL, NULL, err);

	return rc < 0 ? rc : 0;
}

static int route(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_moe moe = dt_call_moe(&n->attr);
	const struct dt_ops *o = x->dev->ops;
	struct dt_choices c = dt_call_choices(x, n, n->out[0]);
	struct dt_infer *m = x->owner;
	struct dt_tensor in = dt_call_mat(x, n->in[0]), scores = dt_call_mat(x, n->out[2]);

	/* The router's input in f32, which packed products on the CPU make of it themselves. */
	if (n->out[3] >= 0 && !dt_dev_is_host(x->dev)) {
		struct dt_tensor wide = dt_call_mat(x, n->out[3]);

		TRY(o->convert(x->dev, wide, in));
		in = wide;
	}
	TRY(o->packed_matmul(x->dev, scores, in, packed(m, n->param[0]), dt_call_param(x->w, n->param[4])));
	TRY(o->moe_route(x->dev, c.expert, dt_call_at(x, n->out[1]), scores, dt_call_param(x->w, n->param[3]),
			 &moe));
	if (n->attr.expert_n < n->attr.experts) { /* only this rank's experts; the other ranks add theirs */
		const struct dt_moe_place here = {
			.experts = n->attr.experts, .begin = n->attr.expert_begin, .n = n->attr.expert_n};

		TRY(o->moe_place(x->dev, c.first, c.at, c.from, c.expert, dt_call_at(x, n->out[1]), c.n,
				 &here));
	} else {
		TRY(o->moe_sort(x->dev, c.first, c.at, c.from, c.expert, c.n, n->attr.experts));
	}
	return m->disk ? dt_infer_disk_want(m, n->unit, c.first, err) : 0;
}

static int experts(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_infer *m = x->owner;
	struct dt_choices c = dt_call_choices(x, n, n->in[1]);
	const struct dt_meet into = {c.first, c.at, c.from, n->attr.used}, within = {.first = c.first};
	struct dt_packed_set *set = m->set[m->owner[n->param[0] >= 0 ? n->param[0] : n->param[1]]];
	int rc = m->disk ? dt_infer_disk_take(m, n->unit, c.first, set, err) : 0;

	if (rc < 0)
		return rc;
	TRY(x->dev->ops->packed_set_matmul(x->dev, dt_call_live(x, n, n->out[0], n->in[1]),
					   n->attr.gated ? dt_call_mat(x, n->in[0])
							 : dt_call_live(x, n, n->in[0], n->in[1]),
					   set, n->attr.gated ? &into : &within));
	if (n->param[3] >= 0) {
		const struct dt_grouped g = {c.first, n->attr.expert_n, n->attr.expert_n};

		TRY(x->dev->ops->grouped_bias(x->dev, dt_call_live(x, n, n->out[0], n->in[1]),
					      x->w[n->param[3]], dt_call_param(x->w, n->param[4]), &g));
	}
	return 0;
}

static int combine(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	TRY(x->dev->ops->moe_sum(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->in[0]),
				 dt_call_choices(x, n, n->in[1]).at, dt_call_at(x, n->in[2]),
				 dt_call_mat(x, n->in[3]), n->attr.used));
	return 0;
}

/* The head's product for rows of one window; in [n, hidden]. */
static int head_rows(struct dt_exec *x, const struct dt_node *n, struct dt_tensor y, struct dt_tensor in,
		     struct dt_err *err)
{
	TRY(x->dev->ops->packed_matmul(x->dev, y, in, packed(x->owner, n->param[0]), DT_NONE));
	return 0;
}

/* The head's product of the wanted rows, window by window, in their order. */
static int head_windows(struct dt_exec *x, const struct dt_node *n, struct dt_tensor y, struct dt_tensor in,
			struct dt_err *err)
{
	struct dt_infer *m = x->owner;
	const struct dt_infer_batch *b = m->batch;
	const struct dt_infer_window all = m->window;
	struct dt_infer_window w = {0};
	int rc = 0;

	for (int first = 0, end = 0; rc == 0 && dt_infer_window_next(m, n, &w); first = end) {
		while (end < b->nwant && b->want[end] < b->q_start[w.end])
			end++;
		m->window = w;
		if (end > first)
			rc = head_rows(x, n, dt_call_rows_of(y, first, end - first),
				       dt_call_rows_of(in, first, end - first), err);
	}
	m->window = all;
	return rc;
}

/* The logits of the wanted rows, and the tokens drawn from them. */
static int head(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_infer *m = x->owner;
	const struct dt_infer_batch *b = m->batch;
	const struct dt_packed *w = packed(m, n->param[0]);
	int64_t hidden = x->c->hidden;
	size_t row = (size_t)(hidden * dt_dtype_size(x->dtype));
	char *rows = dt_call_at(x, n->in[0]), *picked = dt_call_at(x, n->out[0]), *from = rows;
	float *whole = n->out[3] >= 0 ? dt_call_at(x, n->out[3]) : m->logits;
	struct dt_tensor logits = dt_t2(whole, DT_F32, b->nwant, x->c->vocab), here = logits;
	int all = 0, rc = 0;

	while (all < b->nwant && b->want[all] == all)
		all++;
	if (all < b->nwant) {
		from = picked;
		TRY(dt_call_pick(x->dev, picked, rows, row, b->want, b->nwant));
	}
	if (n->out[1] >= 0)
		here = dt_t2(dt_call_at(x, n->out[1]), DT_F32, b->nwant, dt_packed_rows(w));
	rc = (m->wholes ? head_windows : head_rows)(x, n, here, dt_t2(from, x->dtype, b->nwant, hidden), err);
	if (rc == 0 && n->out[1] >= 0)
		rc = dt_infer_gather(m, n, whole, err);
	if (rc < 0 || m->ranks.at.tp > 0)
		return rc;
	if (n->attr.scale != 1)
		TRY(x->dev->ops->scale(x->dev, logits, n->attr.scale));
	if (n->attr.cap > 0)
		TRY(x->dev->ops->softcap(x->dev, logits, logits, n->attr.cap));
	if (b->draw)
		TRY(x->dev->ops->sample(x->dev, b->drawn, logits, b->draw, b->edit, b->nedits));
	return 0;
}

/* The node after step k in its list; NULL: none. */
static const struct dt_node *behind(const struct dt_exec *x, int k)
{
	const struct dt_prog *p = x->p;

	return k + 1 < p->nstep && p->step[k + 1].list == p->step[k].list ? &p->step[k + 1].n : NULL;
}

/* Whether the result has its operand's memory. */
static bool in_place(const struct dt_exec *x, const struct dt_node *n)
{
	return dt_call_at(x, n->out[0]) == dt_call_at(x, n->in[0]);
}

/* Computes head norm, rotation and attention in one call; the first two may be absent. */
static int join_heads(struct dt_exec *x, int k, struct dt_err *err)
{
	const struct dt_node *n = &x->p->step[k].n, *norm = NULL, *rope = NULL;
	int steps = 1, rc;

	if (((const struct dt_infer *)x->owner)->wholes)
		return 0;
	if (n->op == DT_OP_HEADS_NORM) {
		norm = n;
		n = behind(x, k);
		steps++;
	}
	if (n && n->op == DT_OP_ROPE) {
		rope = n;
		n = behind(x, k + steps - 1);
		steps++;
	}
	if (!n || n->op != DT_OP_ATTENTION || n->attr.latent_dim ||
	    (norm && (norm->attr.whole || !in_place(x, norm))) || (rope && !in_place(x, rope)) ||
	    n->in[0] != (rope ? rope : norm)->out[0] || (norm && rope && rope->in[0] != norm->out[0]))
		return 0;
	rc = attend(x, n, norm, rope, err);
	return rc > 0 ? steps : rc;
}

/* Computes a linear and the norm of the residual stream that its result is added to. */
static int join_norm(struct dt_exec *x, int k, struct dt_err *err)
{
	const struct dt_node *n = &x->p->step[k].n, *norm = behind(x, k);
	int rc;

	if (!norm || norm->op != DT_OP_NORM || norm->attr.layernorm || norm->in[1] != n->out[0] ||
	    norm->out[1] < 0 || adapted(x))
		return 0;
	rc = x->dev->ops->step_norm(x->dev, dt_call_mat(x, norm->out[0]), dt_call_mat(x, norm->out[1]),
				    dt_call_mat(x, n->out[0]), dt_call_mat(x, norm->in[0]),
				    dt_call_mat(x, n->in[0]), packed(x->owner, n->param[0]),
				    dt_call_joined(x->w, n->param + 3), x->w[norm->param[0]],
				    norm->attr.plus_one, norm->attr.eps);
	if (rc == -ENOTSUP)
		return 0;
	TRY(rc);
	return 2;
}

int (*const dt_serve_joins[DT_OP_N])(struct dt_exec *x, int k, struct dt_err *err) = {
	[DT_OP_LINEAR] = join_norm,
	[DT_OP_HEADS_NORM] = join_heads,
	[DT_OP_ROPE] = join_heads,
};

/* The calls that read tensors which an adapter may replace. */
static dt_call *const of_rows[DT_OP_N] = {
	[DT_OP_EMBED] = embed,
	[DT_OP_NORM] = dt_call_norm,
	[DT_OP_LINEAR] = linear,
	[DT_OP_LINEAR_GATED] = linear_gated,
	[DT_OP_HEADS_NORM] = dt_call_heads_norm,
};

static int in_windows(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	return dt_infer_in_windows(x, n, of_rows[n->op], err);
}

dt_call *const dt_serve_calls[DT_OP_N] = {
	[DT_OP_EMBED] = in_windows,
	[DT_OP_NORM] = in_windows,
	[DT_OP_LINEAR] = in_windows,
	[DT_OP_LINEAR_GATED] = in_windows,
	[DT_OP_HEADS_NORM] = in_windows,
	[DT_OP_ROPE] = dt_call_rope,
	[DT_OP_ATTENTION] = attention,
	[DT_OP_LATENT_SPLIT] = dt_call_latent_split,
	[DT_OP_LATENT_ABSORB] = dt_serve_latent_absorb,
	[DT_OP_LATENT_VALUES] = dt_serve_latent_values,
	[DT_OP_JOIN] = dt_call_join,
	[DT_OP_SSM_CONV] = dt_serve_ssm_conv,
	[DT_OP_SSM_SCAN] = dt_serve_ssm_scan,
	[DT_OP_SSM_GATE] = dt_call_ssm_gate,
	[DT_OP_SSM_NORM] = dt_call_ssm_norm,
	[DT_OP_GIVEN] = given,
	[DT_OP_FLATTEN] = dt_call_flatten,
	[DT_OP_ADD] = dt_call_add,
	[DT_OP_ACT] = dt_call_act,
	[DT_OP_GATED] = dt_call_gated,
	[DT_OP_ROUTE] = route,
	[DT_OP_EXPERTS] = experts,
	[DT_OP_COMBINE] = combine,
	[DT_OP_EXCHANGE] = dt_serve_exchange,
	[DT_OP_KV_GATHER] = dt_serve_kv_gather,
	[DT_OP_HEAD] = head,
	[DT_OP_STATES] = dt_serve_states,
	[DT_OP_LEAVE] = dt_call_leave,
};
/* SPDX-License-Identifier: Apache-2.0 */
