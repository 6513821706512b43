#include "nn/transformer.h"
#include "nn/cut.h"
#include "nn/linear.h"
#include "nn/norms.h"

#include <math.h>
#include <string.h>

#define TRY(call)                                                                                            \
	do {                                                                                                 \
		int rc_ = (call);                                                                            \
		if (rc_ < 0)                                                                                 \
			return dt_kernel_check(rc_, #call, err);                                             \
	} while (0)

int dt_kernel_check(int rc, const char *op, struct dt_err *err)
{
	const char *end = strchr(op, '(');
	const char *start = end;

	if (rc >= 0)
		return rc;
	while (start && start > op && start[-1] != '>')
		start--;
	return dt_err_sys(err, rc, "kernel %.*s failed", end ? (int)(end - start) : 40, end ? start : op);
}

/* Tensors that lie next to each other, seen as one matrix or vector of rows rows. */
static struct dt_tensor joined(struct dt_tensor first, int64_t rows)
{
	if (first.data)
		first.dim[0] = rows;
	return first;
}

static struct dt_tensor act(const struct dt_model *m, const struct dt_pass *p, int l, enum dt_act id,
			    int64_t cols)
{
	return dt_t2(p->act[l][id], m->dtype, p->rows, cols);
}

/* The residual stream and what lies along it: all rows, or this rank's part of them. */
static struct dt_tensor stream(const struct dt_model *m, const struct dt_pass *p, const void *data)
{
	return data ? dt_t2((void *)data, m->dtype, dt_stream_rows(m, p), m->c->hidden) : DT_NONE;
}

static struct dt_tensor stat(const struct dt_model *m, const struct dt_pass *p, const void *data)
{
	return dt_t1((void *)data, DT_F32, dt_stream_rows(m, p));
}

static struct dt_tensor mat(const struct dt_model *m, const struct dt_pass *p, const void *data, int64_t cols)
{
	return data ? dt_t2((void *)data, m->dtype, p->rows, cols) : DT_NONE;
}

static int norm_forward(struct dt_model *m, struct dt_tensor y, struct dt_tensor mean, struct dt_tensor rstd,
			struct dt_tensor sum, struct dt_tensor x, struct dt_tensor delta, struct dt_tensor w,
			struct dt_tensor b)
{
	const struct dt_ops *o = m->dev->ops;
	float eps = (float)m->c->norm_eps;

	if (m->c->norm == DT_NORM_LAYER)
		return o->layernorm_forward(m->dev, y, mean, rstd, sum, x, delta, w, b, eps);
	return o->rmsnorm_forward(m->dev, y, rstd, sum, x, delta, w, m->c->norm_plus_one, eps);
}

/* dresid += gradient through the norm of p->dnorm. fresh: dresid is written, not added to. */
static int norm_backward(struct dt_model *m, const struct dt_pass *p, struct dt_unit *u, enum dt_role w,
			 enum dt_role b, const void *x, struct dt_tensor mean, struct dt_tensor rstd,
			 bool fresh)
{
	const struct dt_ops *o = m->dev->ops;
	struct dt_tensor dresid = stream(m, p, p->dresid), prev = fresh ? DT_NONE : dresid;

	if (m->c->norm == DT_NORM_LAYER)
		return o->layernorm_backward(m->dev, dresid, u->g[w], u->g[b], stream(m, p, p->dnorm), prev,
					     stream(m, p, x), mean, rstd, u->w[w]);
	return o->rmsnorm_backward(m->dev, dresid, u->g[w], stream(m, p, p->dnorm), prev, stream(m, p, x),
				   rstd, u->w[w], m->c->norm_plus_one);
}

/* The window of a layer of this stage. */
static int64_t window_of(const struct dt_model *m, int l)
{
	int k = 0;

	while (k + 1 < m->nchunk && l >= m->chunk[k + 1].local)
		k++;
	return dt_layer_window(m->c, m->chunk[k].first + l - m->chunk[k].local);
}

static struct dt_rope rope_args(const struct dt_model *m, int l)
{
	bool local = m->local_cos && window_of(m, l) > 0;

	return (struct dt_rope){.rot_heads = m->d.heads + m->d.kv_heads,
				.head_dim = m->c->head_dim,
				.rot_dim = m->c->head_dim,
				.pairing = (enum dt_rope_pairing)m->c->rope_pairing,
				.cos = local ? m->local_cos : m->rope_cos,
				.sin = local ? m->local_sin : m->rope_sin,
				.positions = m->rope_positions};
}

static struct dt_attn attn_args(const struct dt_model *m, const struct dt_pass *p, int l)
{
	return (struct dt_attn){.batch = p->batch,
				.seq = p->seq,
				.heads = m->d.heads,
				.kv_heads = m->d.kv_heads,
				.head_dim = m->c->head_dim,
				.window = window_of(m, l),
				.scale = (float)dt_score_scale(m->c)};
}

static float embed_scale(const struct dt_model *m)
{
	return (float)sqrt((double)m->c->hidden);
}

int dt_embed_forward(struct dt_model *m, const struct dt_pass *p, void *resid, struct dt_err *err)
{
	struct dt_tensor pos = m->embed.w[DT_W_POS];
	void *sum = dt_cut_room(m, p, resid);

	if (m->tp && m->tp_rank != 0)
		pos = DT_NONE; /* added once, before the sum over ranks */
	TRY(m->dev->ops->embedding_forward(m->dev, mat(m, p, sum, m->c->hidden), p->ids, p->pos,
					   m->embed.w[DT_W_EMBED], pos, m->d.vocab_first));
	if (m->c->embed_scaled)
		TRY(m->dev->ops->scale(m->dev, mat(m, p, sum, m->c->hidden), embed_scale(m)));
	return dt_cut_leave(m, p, resid, sum, "embedding", err);
}

int dt_embed_backward(struct dt_model *m, const struct dt_pass *p, struct dt_err *err)
{
	const void *dy;
	int rc = dt_cut_enter(m, p, p->dresid, &dy, "embedding gradient", err);

	if (rc < 0)
		return rc;
	if (m->c->embed_scaled)
		TRY(m->dev->ops->scale(m->dev, mat(m, p, dy, m->c->hidden), embed_scale(m)));
	TRY(m->dev->ops->embedding_backward(m->dev, m->embed.g[DT_W_EMBED], m->embed.g[DT_W_POS],
					    mat(m, p, dy, m->c->hidden), p->ids, p->pos, m->d.vocab_first));
	return 0;
}

static int attention(struct dt_model *m, const struct dt_pass *p, int l, const struct dt_kv *kv,
		     struct dt_err *err)
{
	const struct dt_ops *o = m->dev->ops;
	struct dt_unit *u = &m->layer[l];
	int64_t width = m->d.heads * m->c->head_dim;
	struct dt_tensor qkv = act(m, p, l, DT_A_QKV, m->d.qkv), out = act(m, p, l, DT_A_ATTN, width);
	struct dt_rope rope = rope_args(m, l);
	struct dt_attn a = attn_args(m, p, l);
	const void *x;
	int rc = dt_cut_enter(m, p, p->act[l][DT_A_NORM1], &x, "attention input", err);

	if (rc < 0)
		return rc;
	TRY(dt_linear(m, p, DT_S_QKV, qkv, mat(m, p, x, m->c->hidden), joined(u->w[DT_W_Q], m->d.qkv),
		      joined(u->w[DT_W_Q_B], m->d.qkv)));
	if (m->c->qk_norm)
		TRY(dt_heads_forward(m, p, l, qkv));
	if (m->c->pos == DT_POS_ROPE)
		TRY(o->rope(m->dev, qkv, &rope, p->pos, false));
	if (kv) {
		TRY(o->kv_write(m->dev, kv->k, kv->v, qkv, &a, kv->slot));
		TRY(o->attention_paged(m->dev, out, qkv, kv->k, kv->v, &a, kv->paged));
	} else {
		TRY(o->attention_forward(m->dev, out,
					 dt_t1(p->act[l][DT_A_LSE], DT_F32, p->rows * m->d.heads), qkv, &a));
	}
	return 0;
}

static int mlp_activation(struct dt_model *m, const struct dt_pass *p, int l)
{
	const struct dt_ops *o = m->dev->ops;
	int64_t f = m->d.ffn;
	struct dt_tensor y = act(m, p, l, DT_A_ACT, f);

	if (m->c->gated)
		return o->gated_forward(m->dev, y, act(m, p, l, DT_A_UP, 2 * f), (enum dt_act_fn)m->c->act);
	return o->act_forward(m->dev, y, act(m, p, l, DT_A_UP, f), (enum dt_act_fn)m->c->act);
}

/* The weight and bias of the MLP's first matmul: gate and up as one where the model is gated. */
static struct dt_tensor up_of(const struct dt_model *m, const struct dt_tensor *t, bool bias)
{
	if (!m->c->gated)
		return t[bias ? DT_W_UP_B : DT_W_UP];
	return joined(t[bias ? DT_W_GATE_B : DT_W_GATE], 2 * m->d.ffn);
}

/* The MLP's first matmul and its activation. */
static int mlp_up(struct dt_model *m, const struct dt_pass *p, int l, struct dt_tensor x)
{
	struct dt_unit *u = &m->layer[l];
	struct dt_tensor up = act(m, p, l, DT_A_UP, (m->c->gated ? 2 : 1) * m->d.ffn);
	struct dt_tensor w = up_of(m, u->w, false), bias = up_of(m, u->w, true);
	int rc;

	if (!m->c->gated)
		return dt_linear_act(m, p, DT_S_UP, act(m, p, l, DT_A_ACT, m->d.ffn), up, x, w, bias);
	rc = dt_linear(m, p, DT_S_UP, up, x, w, bias);
	return rc < 0 ? rc : mlp_activation(m, p, l);
}

/* The bias of a row-parallel linear is added on one rank, before the sum. */
static struct dt_tensor once(const struct dt_model *m, struct dt_tensor bias)
{
	return m->tp && m->tp_rank != 0 ? DT_NONE : bias;
}

/* Where half a layer's output goes before it joins the stream: a norm may stand behind it. */
static void *half_out(const struct dt_model *m, const struct dt_pass *p, int l, enum dt_act post)
{
	return m->c->post_norms ? p->act[l][post] : p->delta;
}

/* The partial sums of half a layer become p->delta. */
static int half_done(struct dt_model *m, const struct dt_pass *p, int l, enum dt_act post, void *sum,
		     const char *what, struct dt_err *err)
{
	void *dst = half_out(m, p, l, post);
	enum dt_role w = post == DT_A_POST1 ? DT_W_POST_ATTN_NORM : DT_W_POST_MLP_NORM;
	int rc = dt_cut_leave(m, p, dst, sum, what, err);

	if (rc < 0 || !m->c->post_norms)
		return rc;
	TRY(norm_forward(m, stream(m, p, p->delta), DT_NONE, stat(m, p, p->act[l][post + 1]), DT_NONE,
			 stream(m, p, dst), DT_NONE, m->layer[l].w[w], DT_NONE));
	return 0;
}

int dt_layer_forward(struct dt_model *m, const struct dt_pass *p, int l, const void *x, const void *delta,
		     const struct dt_kv *kv, bool redo, struct dt_err *err)
{
	struct dt_unit *u = &m->layer[l];
	void **a = p->act[l], *sum = dt_cut_room(m, p, half_out(m, p, l, DT_A_POST1));
	int64_t c = m->c->hidden, f = m->d.ffn;
	struct dt_tensor resid = stream(m, p, a[DT_A_RESID]);
	const void *y;
	int rc;

	/* x = x + attention(norm(x)) */
	TRY(norm_forward(m, stream(m, p, a[DT_A_NORM1]), stat(m, p, a[DT_A_NORM1_MEAN]),
			 stat(m, p, a[DT_A_NORM1_RSTD]), resid, stream(m, p, x), stream(m, p, delta),
			 u->w[DT_W_ATTN_NORM], u->w[DT_W_ATTN_NORM_B]));
	rc = attention(m, p, l, kv, err);
	if (rc < 0)
		return rc;
	TRY(dt_linear(m, p, DT_S_O, mat(m, p, sum, c), act(m, p, l, DT_A_ATTN, m->d.heads * m->c->head_dim),
		      u->w[DT_W_O], once(m, u->w[DT_W_O_B])));
	rc = half_done(m, p, l, DT_A_POST1, sum, "attention output", err);
	if (rc < 0)
		return rc;
	/* x = x + mlp(norm(x)) */
	TRY(norm_forward(m, stream(m, p, a[DT_A_NORM2]), stat(m, p, a[DT_A_NORM2_MEAN]),
			 stat(m, p, a[DT_A_NORM2_RSTD]), stream(m, p, a[DT_A_RESID2]), resid,
			 stream(m, p, p->delta), u->w[DT_W_MLP_NORM], u->w[DT_W_MLP_NORM_B]));
	rc = dt_cut_enter(m, p, a[DT_A_NORM2], &y, "mlp input", err);
	if (rc < 0)
		return rc;
	TRY(mlp_up(m, p, l, mat(m, p, y, c)));
	if (redo && !m->c->post_norms)
		return 0;
	sum = dt_cut_room(m, p, half_out(m, p, l, DT_A_POST2));
	TRY(dt_linear(m, p, DT_S_DOWN, mat(m, p, sum, c), act(m, p, l, DT_A_ACT, f), u->w[DT_W_DOWN],
		      once(m, u->w[DT_W_DOWN_B])));
	return half_done(m, p, l, DT_A_POST2, sum, "mlp output", err);
}

/* Where a split backward keeps the gradient of a matmul's output; else the shared workspace. */
static void *stash_or(const struct dt_pass *p, int l, enum dt_stash what, void *workspace)
{
	return p->split ? p->stash[l][what] : workspace;
}

/*
 * The gradient of a sublayer's output, over all rows. A split backward keeps a copy: backward goes on to
 * change the residual gradient.
 */
static int output_gradient(struct dt_model *m, const struct dt_pass *p, int l, enum dt_stash what,
			   struct dt_tensor *ret, struct dt_err *err)
{
	enum dt_act post = what == DT_S_O ? DT_A_POST1 : DT_A_POST2;
	enum dt_role w = what == DT_S_O ? DT_W_POST_ATTN_NORM : DT_W_POST_MLP_NORM;
	struct dt_unit *u = &m->layer[l];
	const void *dy = p->dresid;
	int rc;

	if (m->c->post_norms) {
		TRY(m->dev->ops->rmsnorm_backward(m->dev, stream(m, p, p->dnorm), u->g[w], stream(m, p, dy),
						  DT_NONE, stream(m, p, p->act[l][post]),
						  stat(m, p, p->act[l][post + 1]), u->w[w],
						  m->c->norm_plus_one));
		dy = p->dnorm;
	}
	rc = dt_cut_enter(m, p, dy, &dy, "output gradient", err);
	if (rc < 0)
		return rc;
	*ret = mat(m, p, dy, m->c->hidden);
	if (p->split)
		TRY(m->dev->ops->convert(m->dev, mat(m, p, p->stash[l][what], m->c->hidden), *ret));
	return 0;
}

/* A norm's output over all rows, for the weight gradient of the matmul behind it; a split backward has no use
 * for it yet. */
static int norm_output(struct dt_model *m, const struct dt_pass *p, int l, enum dt_act id,
		       struct dt_tensor *ret, struct dt_err *err)
{
	const void *x = p->act[l][id];
	int rc = p->split ? 0 : dt_cut_enter(m, p, p->act[l][id], &x, "norm output", err);

	*ret = mat(m, p, x, m->c->hidden);
	return rc;
}

/* Selective recomputation of the two norms' outputs. */
static int norm1_again(struct dt_model *m, const struct dt_pass *p, int l)
{
	void **a = p->act[l];

	return norm_forward(m, stream(m, p, a[DT_A_NORM1]), stat(m, p, a[DT_A_NORM1_MEAN]),
			    stat(m, p, a[DT_A_NORM1_RSTD]), DT_NONE, stream(m, p, a[DT_A_RESID]), DT_NONE,
			    m->layer[l].w[DT_W_ATTN_NORM], m->layer[l].w[DT_W_ATTN_NORM_B]);
}

static int norm2_again(struct dt_model *m, const struct dt_pass *p, int l)
{
	void **a = p->act[l];

	return norm_forward(m, stream(m, p, a[DT_A_NORM2]), stat(m, p, a[DT_A_NORM2_MEAN]),
			    stat(m, p, a[DT_A_NORM2_RSTD]), DT_NONE, stream(m, p, a[DT_A_RESID2]), DT_NONE,
			    m->layer[l].w[DT_W_MLP_NORM], m->layer[l].w[DT_W_MLP_NORM_B]);
}

static int mlp_backward(struct dt_model *m, const struct dt_pass *p, int l, struct dt_err *err)
{
	const struct dt_ops *o = m->dev->ops;
	struct dt_unit *u = &m->layer[l];
	int64_t c = m->c->hidden, f = m->d.ffn, up = (m->c->gated ? 2 : 1) * f;
	struct dt_tensor dact = mat(m, p, p->dsmall, f),
			 dup = mat(m, p, stash_or(p, l, DT_S_UP, p->dlarge), up);
	struct dt_tensor x_up = act(m, p, l, DT_A_UP, up);
	struct dt_tensor mean = stat(m, p, p->act[l][DT_A_NORM2_MEAN]),
			 rstd = stat(m, p, p->act[l][DT_A_NORM2_RSTD]), dy, x;
	int rc;

	if (p->recompute.mode == DT_RECOMPUTE_SELECTIVE) {
		TRY(mlp_activation(m, p, l));
		TRY(norm2_again(m, p, l));
	}
	rc = output_gradient(m, p, l, DT_S_DOWN, &dy, err);
	if (rc < 0)
		return rc;
	if (m->c->gated) {
		TRY(dt_linear_backward(m, p, DT_S_DOWN, dact, u->g[DT_W_DOWN], u->g[DT_W_DOWN_B], dy,
				       act(m, p, l, DT_A_ACT, f), u->w[DT_W_DOWN]));
		TRY(o->gated_backward(m->dev, dup, dact, x_up, (enum dt_act_fn)m->c->act));
	} else {
		TRY(dt_linear_act_backward(m, p, DT_S_DOWN, dup, u->g[DT_W_DOWN], u->g[DT_W_DOWN_B], dy,
					   act(m, p, l, DT_A_ACT, f), u->w[DT_W_DOWN], x_up));
	}
	rc = norm_output(m, p, l, DT_A_NORM2, &x, err);
	if (rc < 0)
		return rc;
	TRY(dt_linear_backward(m, p, DT_S_UP, mat(m, p, p->dnorm, c), up_of(m, u->g, false),
			       up_of(m, u->g, true), dup, x, up_of(m, u->w, false)));
	rc = dt_cut_leave(m, p, p->dnorm, p->dnorm, "mlp input gradient", err);
	if (rc < 0)
		return rc;
	TRY(norm_backward(m, p, u, DT_W_MLP_NORM, DT_W_MLP_NORM_B, p->act[l][DT_A_RESID2], mean, rstd,
			  false));
	return 0;
}

static int attention_backward(struct dt_model *m, const struct dt_pass *p, int l, struct dt_err *err)
{
	const struct dt_ops *o = m->dev->ops;
	struct dt_unit *u = &m->layer[l];
	int64_t c = m->c->hidden, width = m->d.heads * m->c->head_dim;
	struct dt_tensor dattn = mat(m, p, p->dsmall, width),
			 dqkv = mat(m, p, stash_or(p, l, DT_S_QKV, p->dlarge), m->d.qkv);
	struct dt_tensor out = act(m, p, l, DT_A_ATTN, width);
	struct dt_tensor mean = stat(m, p, p->act[l][DT_A_NORM1_MEAN]),
			 rstd = stat(m, p, p->act[l][DT_A_NORM1_RSTD]), dy, x;
	struct dt_rope rope = rope_args(m, l);
	struct dt_attn a = attn_args(m, p, l);
	int rc;

	if (p->recompute.mode == DT_RECOMPUTE_SELECTIVE)
		TRY(norm1_again(m, p, l));
	rc = output_gradient(m, p, l, DT_S_O, &dy, err);
	if (rc < 0)
		return rc;
	TRY(dt_linear_backward(m, p, DT_S_O, dattn, u->g[DT_W_O], u->g[DT_W_O_B], dy, out, u->w[DT_W_O]));
	TRY(o->attention_backward(m->dev, dqkv, dattn, out,
				  dt_t1(p->act[l][DT_A_LSE], DT_F32, p->rows * m->d.heads),
				  act(m, p, l, DT_A_QKV, m->d.qkv), &a));
	if (m->c->pos == DT_POS_ROPE)
		TRY(o->rope(m->dev, dqkv, &rope, p->pos, true));
	if (m->c->qk_norm)
		TRY(dt_heads_backward(m, p, l, dqkv));
	rc = norm_output(m, p, l, DT_A_NORM1, &x, err);
	if (rc < 0)
		return rc;
	TRY(dt_linear_backward(m, p, DT_S_QKV, mat(m, p, p->dnorm, c), joined(u->g[DT_W_Q], m->d.qkv),
			       joined(u->g[DT_W_Q_B], m->d.qkv), dqkv, x, joined(u->w[DT_W_Q], m->d.qkv)));
	rc = dt_cut_leave(m, p, p->dnorm, p->dnorm, "attention input gradient", err);
	if (rc < 0)
		return rc;
	TRY(norm_backward(m, p, u, DT_W_ATTN_NORM, DT_W_ATTN_NORM_B, p->act[l][DT_A_RESID], mean, rstd,
			  false));
	return 0;
}

int dt_layer_backward(struct dt_model *m, const struct dt_pass *p, int l, struct dt_err *err)
{
	int rc = mlp_backward(m, p, l, err);

	return rc == 0 ? attention_backward(m, p, l, err) : rc;
}

int dt_final_norm(struct dt_model *m, const struct dt_pass *p, const void *x, const void *delta,
		  struct dt_err *err)
{
	TRY(norm_forward(m, stream(m, p, p->final_norm), stat(m, p, p->final_mean), stat(m, p, p->final_rstd),
			 stream(m, p, p->final_resid), stream(m, p, x), stream(m, p, delta),
			 m->final.w[DT_W_FINAL_NORM], m->final.w[DT_W_FINAL_NORM_B]));
	return 0;
}

/* Sum of -log softmax at the targets of n rows; ce [3, n]. */
static double loss_of(const float *ce, const int32_t *targets, int64_t n)
{
	const float *rowmax = ce, *sumexp = ce + n, *target = ce + 2 * n;
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		if (targets[i] >= 0)
			sum += log((double)sumexp[i]) + (double)rowmax[i] - (double)target[i];
	return sum;
}

/*
 * The statistics of rows [r, r + n) on their way to the host. What other ranks' parts of the vocabulary make
 * of them is computed there, and goes back.
 */
static int stats_brought(struct dt_model *m, const struct dt_pass *p, int64_t r, int64_t n,
			 struct dt_err *err)
{
	float *ce = p->host_ce + 4 * r;
	size_t bytes = (size_t)(3 * n) * sizeof(*ce);
	int rc;

	TRY(dt_dev_copy(m->dev, ce, p->ce, bytes));
	if (!m->tp)
		return 0;
	TRY(dt_dev_sync(m->dev));
	rc = dt_cut_stats(m, ce, ce + n, ce + 2 * n, n, err);
	if (rc == 0)
		TRY(dt_dev_copy(m->dev, p->ce, ce, bytes));
	return rc;
}

/* The same over all chunks, where the statistics had to be brought to the host. */
static int loss_brought(struct dt_model *m, const struct dt_pass *p, double *loss_sum, struct dt_err *err)
{
	TRY(dt_dev_sync(m->dev));
	for (int64_t r = 0; r < p->rows; r += p->loss_chunk)
		*loss_sum += loss_of(p->host_ce + 4 * r, p->host_targets + r,
				     p->rows - r < p->loss_chunk ? p->rows - r : p->loss_chunk);
	return 0;
}

int dt_loss(struct dt_model *m, const struct dt_pass *p, bool backward, float scale, double *loss_sum,
	    struct dt_err *err)
{
	const struct dt_ops *o = m->dev->ops;
	int64_t c = m->c->hidden, v = m->d.vocab, esize = dt_dtype_size(m->dtype);
	struct dt_tensor head = m->final.w[DT_W_HEAD], dhead = m->final.g[DT_W_HEAD];
	bool accumulate = p->accumulate_head;
	const void *in;
	int rc = dt_cut_enter(m, p, p->final_norm, &in, "head input", err);

	for (int64_t r = 0; r < p->rows && rc == 0; r += p->loss_chunk) {
		int64_t n = p->rows - r < p->loss_chunk ? p->rows - r : p->loss_chunk;
		struct dt_tensor x = dt_t2((char *)in + r * c * esize, m->dtype, n, c);
		struct dt_tensor logits = dt_t2(p->logits, DT_F32, n, v),
				 dl = dt_t2(p->dlogits, m->dtype, n, v);
		float *rowmax = p->ce, *sumexp = p->ce + n, *target = p->ce + 2 * n;

		TRY(o->matmul(m->dev, logits, x, false, head, true, DT_NONE, false));
		TRY(o->ce_stats(m->dev, rowmax, sumexp, target, logits, p->targets + r, m->d.vocab_first));
		rc = p->host_ce ? stats_brought(m, p, r, n, err)
				: dt_cut_stats(m, rowmax, sumexp, target, n, err);
		if (rc < 0)
			return rc;
		if (!p->host_ce)
			*loss_sum += loss_of(rowmax, p->host_targets + r, n);
		if (!backward)
			continue;
		TRY(o->ce_grad(m->dev, dl, logits, rowmax, sumexp, p->targets + r, scale, m->d.vocab_first));
		TRY(o->matmul(m->dev, dhead, dl, true, x, false, DT_NONE, accumulate));
		TRY(o->matmul(m->dev, dt_t2((char *)p->dnorm + r * c * esize, m->dtype, n, c), dl, false,
			      head, false, DT_NONE, false));
		accumulate = true;
	}
	if (rc == 0 && p->host_ce)
		rc = loss_brought(m, p, loss_sum, err);
	if (rc < 0 || !backward)
		return rc;
	rc = dt_cut_leave(m, p, p->dnorm, p->dnorm, "head input gradient", err);
	if (rc < 0)
		return rc;
	TRY(norm_backward(m, p, &m->final, DT_W_FINAL_NORM, DT_W_FINAL_NORM_B, p->final_resid,
			  stat(m, p, p->final_mean), stat(m, p, p->final_rstd), true));
	return 0;
}

int dt_before(const struct dt_hooks *h, int unit, bool backward, struct dt_err *err)
{
	return h && h->before ? h->before(h->arg, unit, backward, err) : 0;
}

int dt_after(const struct dt_hooks *h, int unit, bool backward, struct dt_err *err)
{
	return h && h->after ? h->after(h->arg, unit, backward, err) : 0;
}

int dt_chunk_forward(struct dt_model *m, const struct dt_pass *p, int chunk, const struct dt_hooks *h,
		     struct dt_err *err)
{
	const struct dt_chunk *ch = &m->chunk[chunk];
	int first = ch->local, last = first + ch->last - ch->first, rc = 0;
	const void *x = p->act[first][DT_A_RESID], *delta = NULL;

	if (dt_chunk_first(m, chunk) && (rc = dt_before(h, dt_embed_unit(m), false, err)) == 0)
		rc = dt_embed_forward(m, p, p->act[first][DT_A_RESID], err);
	for (int l = first; l < last && rc == 0; l++) {
		rc = dt_before(h, m->unit_layer0 + l, false, err);
		if (rc == 0)
			rc = dt_layer_forward(m, p, l, x, delta, NULL, false, err);
		if (rc == 0)
			rc = dt_after(h, m->unit_layer0 + l, false, err);
		x = p->act[l][DT_A_RESID2];
		delta = p->delta;
	}
	if (rc < 0)
		return rc;
	if (!dt_chunk_last(m, chunk)) {
		TRY(m->dev->ops->add(m->dev, stream(m, p, p->out), stream(m, p, x), stream(m, p, delta)));
		return 0;
	}
	rc = dt_before(h, dt_final_unit(m), false, err);
	return rc == 0 ? dt_final_norm(m, p, x, delta, err) : rc;
}

/* Runs the layers of the block that begins at `first` and ends before `last` again. */
static int block_again(struct dt_model *m, const struct dt_pass *p, int first, int last,
		       const struct dt_hooks *h, struct dt_err *err)
{
	const void *x = p->act[first][DT_A_RESID], *delta = NULL;
	int rc = 0;

	for (int l = first; l < last && rc == 0; l++) {
		rc = dt_before(h, m->unit_layer0 + l, false, err);
		if (rc == 0)
			rc = dt_layer_forward(m, p, l, x, delta, NULL, l == last - 1, err);
		x = p->act[l][DT_A_RESID2];
		delta = p->delta;
	}
	return rc;
}

int dt_chunk_backward(struct dt_model *m, const struct dt_pass *p, int chunk, const struct dt_hooks *h,
		      struct dt_err *err)
{
	const struct dt_chunk *ch = &m->chunk[chunk];
	int last = ch->local + ch->last - ch->first, rc = 0;

	for (int l = last - 1; l >= ch->local && rc == 0; l--) {
		int set = dt_keep_set(p->recompute, l - ch->local);
		bool again = p->recompute.mode == DT_RECOMPUTE_FULL &&
			     (l == last - 1 || set == dt_keep_sets(p->recompute) - 1);

		if (again)
			rc = block_again(m, p, l - set, l + 1, h, err);
		if (rc == 0)
			rc = dt_before(h, m->unit_layer0 + l, true, err);
		if (rc == 0)
			rc = dt_layer_backward(m, p, l, err);
		if (rc == 0 && !p->split)
			rc = dt_after(h, m->unit_layer0 + l, true, err);
	}
	if (rc < 0 || !dt_chunk_first(m, chunk))
		return rc;
	rc = dt_before(h, dt_embed_unit(m), true, err);
	if (rc == 0)
		rc = dt_embed_backward(m, p, err);
	return rc == 0 ? dt_after(h, dt_embed_unit(m), true, err) : rc;
}

/* The four weight gradients of a layer, from what backward stashed and forward kept. */
static int layer_weights(struct dt_model *m, const struct dt_pass *p, int l, struct dt_err *err)
{
	struct dt_unit *u = &m->layer[l];
	int64_t c = m->c->hidden, f = m->d.ffn, up = (m->c->gated ? 2 : 1) * f,
		width = m->d.heads * m->c->head_dim;
	struct {
		struct dt_tensor dw;
		enum dt_stash dy;
		int64_t dy_cols;
		enum dt_act x;
		int64_t x_cols;
	} part[] = {
		{u->g[DT_W_DOWN], DT_S_DOWN, c, DT_A_ACT, f},
		{up_of(m, u->g, false), DT_S_UP, up, DT_A_NORM2, c},
		{u->g[DT_W_O], DT_S_O, c, DT_A_ATTN, width},
		{joined(u->g[DT_W_Q], m->d.qkv), DT_S_QKV, m->d.qkv, DT_A_NORM1, c},
	};

	if (p->recompute.mode == DT_RECOMPUTE_SELECTIVE) {
		TRY(mlp_activation(m, p, l));
		TRY(norm2_again(m, p, l));
		TRY(norm1_again(m, p, l));
	}
	for (int i = 0; i < 4; i++) {
		const void *x = p->act[l][part[i].x];
		int rc = dt_activation_on_stream(part[i].x)
				 ? dt_cut_enter(m, p, p->act[l][part[i].x], &x, "norm output", err)
				 : 0;

		if (rc < 0)
			return rc;
		TRY(dt_linear_weights(m, p, part[i].dy, part[i].dw,
				      mat(m, p, p->stash[l][part[i].dy], part[i].dy_cols),
				      mat(m, p, x, part[i].x_cols)));
	}
	return 0;
}

int dt_chunk_weights(struct dt_model *m, const struct dt_pass *p, int chunk, const struct dt_hooks *h,
		     struct dt_err *err)
{
	const struct dt_chunk *ch = &m->chunk[chunk];
	int rc = 0;

	for (int l = ch->local + ch->last - ch->first - 1; l >= ch->local && rc == 0; l--) {
		rc = layer_weights(m, p, l, err);
		if (rc == 0)
			rc = dt_after(h, m->unit_layer0 + l, true, err);
	}
	return rc;
}

static bool overwritten(const struct dt_model *m, int role)
{
	switch (role) {
	case DT_W_Q:
	case DT_W_K:
	case DT_W_V:
	case DT_W_O:
	case DT_W_GATE:
	case DT_W_UP:
	case DT_W_DOWN:
	case DT_W_HEAD:
		return true;
	case DT_W_EMBED: /* the head's matmul comes first where it is tied */
		return m->c->tied && m->has_head;
	default:
		return false;
	}
}

int dt_grads_begin(struct dt_model *m, int unit, struct dt_err *err)
{
	int l = unit - m->unit_layer0;
	struct dt_unit *u = l < 0 ? &m->embed : l < m->nlayer ? &m->layer[l] : &m->final;

	for (int r = 0; r < DT_ROLE_N; r++)
		if (u->g[r].data && !overwritten(m, r))
			TRY(m->dev->ops->fill(m->dev, u->g[r], 0.0f));
	return 0;
}
