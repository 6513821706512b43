#include "nn/transformer.h"

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

static struct dt_tensor stat(const struct dt_pass *p, int l, enum dt_act id)
{
	return dt_t1(p->act[l][id], DT_F32, p->rows);
}

static struct dt_tensor mat(const struct dt_model *m, const struct dt_pass *p, const void *data, int64_t cols)
{
	return data ? dt_t2((void *)data, m->dtype, p->rows, cols) : DT_NONE;
}

static int tp_sum(struct dt_model *m, void *buf, int64_t n, const char *what, struct dt_err *err)
{
	if (!m->tp)
		return 0;
	return dt_all_reduce(m->tp, buf, NULL, (size_t)n, m->dtype, DT_SUM, what, err);
}

static int norm_forward(struct dt_model *m, struct dt_tensor y, struct dt_tensor mean, struct dt_tensor rstd,
			struct dt_tensor sum, struct dt_tensor x, struct dt_tensor delta, struct dt_tensor w,
			struct dt_tensor b)
{
	const struct dt_ops *o = m->dev->ops;
	float eps = (float)m->c->norm_eps;

	if (m->c->norm == DT_NORM_LAYER)
		return o->layernorm_forward(m->dev, y, mean, rstd, sum, x, delta, w, b, eps);
	return o->rmsnorm_forward(m->dev, y, rstd, sum, x, delta, w, eps);
}

/* dresid += gradient through the norm of p->dnorm. fresh: dresid is written, not added to. */
static int norm_backward(struct dt_model *m, const struct dt_pass *p, struct dt_unit *u, enum dt_role w,
			 enum dt_role b, const void *x, struct dt_tensor mean, struct dt_tensor rstd,
			 bool fresh)
{
	const struct dt_ops *o = m->dev->ops;
	int64_t c = m->c->hidden;
	struct dt_tensor dresid = mat(m, p, p->dresid, c), prev = fresh ? DT_NONE : dresid;

	if (m->c->norm == DT_NORM_LAYER)
		return o->layernorm_backward(m->dev, dresid, u->g[w], u->g[b], mat(m, p, p->dnorm, c), prev,
					     mat(m, p, x, c), mean, rstd, u->w[w]);
	return o->rmsnorm_backward(m->dev, dresid, u->g[w], mat(m, p, p->dnorm, c), prev, mat(m, p, x, c),
				   rstd, u->w[w]);
}

/* y = x w^T + bias */
static int linear(struct dt_model *m, struct dt_tensor y, struct dt_tensor x, struct dt_tensor w,
		  struct dt_tensor bias)
{
	return m->dev->ops->matmul(m->dev, y, x, false, w, true, bias, false);
}

/* dw (+)= dy^T x, dbias += columns of dy; dx = dy w */
static int linear_backward(struct dt_model *m, const struct dt_pass *p, struct dt_tensor dx,
			   struct dt_tensor dw, struct dt_tensor dbias, struct dt_tensor dy,
			   struct dt_tensor x, struct dt_tensor w)
{
	const struct dt_ops *o = m->dev->ops;
	int rc = o->matmul(m->dev, dw, dy, true, x, false, DT_NONE, p->accumulate);

	if (rc == 0 && dbias.data)
		rc = o->colsum(m->dev, dbias, dy);
	if (rc == 0)
		rc = o->matmul(m->dev, dx, dy, false, w, false, DT_NONE, false);
	return rc;
}

static struct dt_rope rope_args(const struct dt_model *m)
{
	return (struct dt_rope){.rot_heads = m->d.heads + m->d.kv_heads,
				.head_dim = m->c->head_dim,
				.rot_dim = m->c->head_dim,
				.pairing = (enum dt_rope_pairing)m->c->rope_pairing,
				.cos = m->rope_cos,
				.sin = m->rope_sin,
				.positions = m->rope_positions};
}

static struct dt_attn attn_args(const struct dt_model *m, const struct dt_pass *p)
{
	return (struct dt_attn){.batch = p->batch,
				.seq = p->seq,
				.heads = m->d.heads,
				.kv_heads = m->d.kv_heads,
				.head_dim = m->c->head_dim,
				.window = m->c->window,
				.scale = (float)(1.0 / sqrt((double)m->c->head_dim))};
}

int dt_embed_forward(struct dt_model *m, const struct dt_pass *p, void *resid, struct dt_err *err)
{
	struct dt_tensor pos = m->embed.w[DT_W_POS];
	int64_t n = p->rows * m->c->hidden;

	if (m->tp && m->tp_rank != 0)
		pos = DT_NONE; /* added once, before the sum over ranks */
	TRY(m->dev->ops->embedding_forward(m->dev, mat(m, p, resid, m->c->hidden), p->ids, p->pos,
					   m->embed.w[DT_W_EMBED], pos, m->d.vocab_first));
	return tp_sum(m, resid, n, "embedding", err);
}

int dt_embed_backward(struct dt_model *m, const struct dt_pass *p, struct dt_err *err)
{
	TRY(m->dev->ops->embedding_backward(m->dev, m->embed.g[DT_W_EMBED], m->embed.g[DT_W_POS],
					    mat(m, p, p->dresid, m->c->hidden), p->ids, p->pos,
					    m->d.vocab_first));
	return 0;
}

static int attention(struct dt_model *m, const struct dt_pass *p, int l, const struct dt_kv *kv,
		     struct dt_err *err)
{
	const struct dt_ops *o = m->dev->ops;
	struct dt_unit *u = &m->layer[l];
	int64_t width = m->d.heads * m->c->head_dim;
	struct dt_tensor qkv = act(m, p, l, DT_A_QKV, m->d.qkv), out = act(m, p, l, DT_A_ATTN, width);
	struct dt_rope rope = rope_args(m);
	struct dt_attn a = attn_args(m, p);

	TRY(linear(m, qkv, act(m, p, l, DT_A_NORM1, m->c->hidden), joined(u->w[DT_W_Q], m->d.qkv),
		   joined(u->w[DT_W_Q_B], m->d.qkv)));
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

/* The bias of a row-parallel linear is added on one rank, before the sum. */
static struct dt_tensor once(const struct dt_model *m, struct dt_tensor bias)
{
	return m->tp && m->tp_rank != 0 ? DT_NONE : bias;
}

int dt_layer_forward(struct dt_model *m, const struct dt_pass *p, int l, const void *x, const void *delta,
		     const struct dt_kv *kv, bool redo, struct dt_err *err)
{
	struct dt_unit *u = &m->layer[l];
	int64_t c = m->c->hidden, f = m->d.ffn, up = (m->c->gated ? 2 : 1) * f, n = p->rows * c;
	struct dt_tensor resid = act(m, p, l, DT_A_RESID, c), resid2 = act(m, p, l, DT_A_RESID2, c);
	struct dt_tensor d = mat(m, p, p->delta, c);
	int rc;

	/* x = x + attention(norm(x)) */
	TRY(norm_forward(m, act(m, p, l, DT_A_NORM1, c), stat(p, l, DT_A_NORM1_MEAN),
			 stat(p, l, DT_A_NORM1_RSTD), resid, mat(m, p, x, c), mat(m, p, delta, c),
			 u->w[DT_W_ATTN_NORM], u->w[DT_W_ATTN_NORM_B]));
	rc = attention(m, p, l, kv, err);
	if (rc < 0)
		return rc;
	TRY(linear(m, d, act(m, p, l, DT_A_ATTN, m->d.heads * m->c->head_dim), u->w[DT_W_O],
		   once(m, u->w[DT_W_O_B])));
	rc = tp_sum(m, p->delta, n, "attention output", err);
	if (rc < 0)
		return rc;
	/* x = x + mlp(norm(x)) */
	TRY(norm_forward(m, act(m, p, l, DT_A_NORM2, c), stat(p, l, DT_A_NORM2_MEAN),
			 stat(p, l, DT_A_NORM2_RSTD), resid2, resid, d, u->w[DT_W_MLP_NORM],
			 u->w[DT_W_MLP_NORM_B]));
	TRY(linear(m, act(m, p, l, DT_A_UP, up), act(m, p, l, DT_A_NORM2, c), up_of(m, u->w, false),
		   up_of(m, u->w, true)));
	TRY(mlp_activation(m, p, l));
	if (redo)
		return 0;
	TRY(linear(m, d, act(m, p, l, DT_A_ACT, f), u->w[DT_W_DOWN], once(m, u->w[DT_W_DOWN_B])));
	return tp_sum(m, p->delta, n, "mlp output", err);
}

static int mlp_backward(struct dt_model *m, const struct dt_pass *p, int l, struct dt_err *err)
{
	const struct dt_ops *o = m->dev->ops;
	struct dt_unit *u = &m->layer[l];
	int64_t c = m->c->hidden, f = m->d.ffn, up = (m->c->gated ? 2 : 1) * f;
	struct dt_tensor dact = mat(m, p, p->dsmall, f), dup = mat(m, p, p->dlarge, up);
	struct dt_tensor x_up = act(m, p, l, DT_A_UP, up);
	struct dt_tensor mean = stat(p, l, DT_A_NORM2_MEAN), rstd = stat(p, l, DT_A_NORM2_RSTD);
	int rc;

	if (p->recompute == DT_RECOMPUTE_SELECTIVE) {
		TRY(mlp_activation(m, p, l));
		TRY(norm_forward(m, act(m, p, l, DT_A_NORM2, c), mean, rstd, DT_NONE,
				 act(m, p, l, DT_A_RESID2, c), DT_NONE, u->w[DT_W_MLP_NORM],
				 u->w[DT_W_MLP_NORM_B]));
	}
	TRY(linear_backward(m, p, dact, u->g[DT_W_DOWN], u->g[DT_W_DOWN_B], mat(m, p, p->dresid, c),
			    act(m, p, l, DT_A_ACT, f), u->w[DT_W_DOWN]));
	if (m->c->gated)
		TRY(o->gated_backward(m->dev, dup, dact, x_up, (enum dt_act_fn)m->c->act));
	else
		TRY(o->act_backward(m->dev, dup, dact, x_up, (enum dt_act_fn)m->c->act));
	TRY(linear_backward(m, p, mat(m, p, p->dnorm, c), up_of(m, u->g, false), up_of(m, u->g, true), dup,
			    act(m, p, l, DT_A_NORM2, c), up_of(m, u->w, false)));
	rc = tp_sum(m, p->dnorm, p->rows * c, "mlp input gradient", err);
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
	struct dt_tensor dattn = mat(m, p, p->dsmall, width), dqkv = mat(m, p, p->dlarge, m->d.qkv);
	struct dt_tensor out = act(m, p, l, DT_A_ATTN, width);
	struct dt_tensor mean = stat(p, l, DT_A_NORM1_MEAN), rstd = stat(p, l, DT_A_NORM1_RSTD);
	struct dt_rope rope = rope_args(m);
	struct dt_attn a = attn_args(m, p);
	int rc;

	if (p->recompute == DT_RECOMPUTE_SELECTIVE)
		TRY(norm_forward(m, act(m, p, l, DT_A_NORM1, c), mean, rstd, DT_NONE,
				 act(m, p, l, DT_A_RESID, c), DT_NONE, u->w[DT_W_ATTN_NORM],
				 u->w[DT_W_ATTN_NORM_B]));
	TRY(linear_backward(m, p, dattn, u->g[DT_W_O], u->g[DT_W_O_B], mat(m, p, p->dresid, c), out,
			    u->w[DT_W_O]));
	TRY(o->attention_backward(m->dev, dqkv, dattn, out,
				  dt_t1(p->act[l][DT_A_LSE], DT_F32, p->rows * m->d.heads),
				  act(m, p, l, DT_A_QKV, m->d.qkv), &a));
	if (m->c->pos == DT_POS_ROPE)
		TRY(o->rope(m->dev, dqkv, &rope, p->pos, true));
	TRY(linear_backward(m, p, mat(m, p, p->dnorm, c), joined(u->g[DT_W_Q], m->d.qkv),
			    joined(u->g[DT_W_Q_B], m->d.qkv), dqkv, act(m, p, l, DT_A_NORM1, c),
			    joined(u->w[DT_W_Q], m->d.qkv)));
	rc = tp_sum(m, p->dnorm, p->rows * c, "attention input gradient", err);
	if (rc < 0)
		return rc;
	TRY(norm_backward(m, p, u, DT_W_ATTN_NORM, DT_W_ATTN_NORM_B, p->act[l][DT_A_RESID], mean, rstd,
			  false));
	return 0;
}

int dt_layer_backward(struct dt_model *m, const struct dt_pass *p, int l, struct dt_err *err)
{
	int rc = 0;

	if (p->recompute == DT_RECOMPUTE_FULL)
		rc = dt_layer_forward(m, p, l, p->act[l][DT_A_RESID], NULL, NULL, true, err);
	if (rc == 0)
		rc = mlp_backward(m, p, l, err);
	if (rc == 0)
		rc = attention_backward(m, p, l, err);
	return rc;
}

int dt_final_norm(struct dt_model *m, const struct dt_pass *p, const void *x, const void *delta,
		  struct dt_err *err)
{
	int64_t c = m->c->hidden;

	TRY(norm_forward(m, mat(m, p, p->final_norm, c), dt_t1(p->final_mean, DT_F32, p->rows),
			 dt_t1(p->final_rstd, DT_F32, p->rows), mat(m, p, p->final_resid, c), mat(m, p, x, c),
			 mat(m, p, delta, c), m->final.w[DT_W_FINAL_NORM], m->final.w[DT_W_FINAL_NORM_B]));
	return 0;
}

/* Over a tensor-parallel group each rank has the logits of its share of the vocabulary: combine the row
 * statistics. */
static int combine_stats(struct dt_model *m, float *rowmax, float *sumexp, float *target, int64_t rows,
			 struct dt_err *err)
{
	float *local = m->tp ? target + rows : NULL; /* caller leaves room for a copy of rowmax */
	int rc;

	if (!m->tp)
		return 0;
	memcpy(local, rowmax, (size_t)rows * sizeof(*local));
	rc = dt_all_reduce(m->tp, rowmax, NULL, (size_t)rows, DT_F32, DT_MAX, "loss maximum", err);
	if (rc < 0)
		return rc;
	for (int64_t i = 0; i < rows; i++)
		sumexp[i] *= expf(local[i] - rowmax[i]);
	rc = dt_all_reduce(m->tp, sumexp, NULL, (size_t)rows, DT_F32, DT_SUM, "loss sum", err);
	if (rc < 0)
		return rc;
	return dt_all_reduce(m->tp, target, NULL, (size_t)rows, DT_F32, DT_SUM, "loss target", err);
}

int dt_loss(struct dt_model *m, const struct dt_pass *p, bool backward, float scale, double *loss_sum,
	    struct dt_err *err)
{
	const struct dt_ops *o = m->dev->ops;
	int64_t c = m->c->hidden, v = m->d.vocab, esize = dt_dtype_size(m->dtype);
	struct dt_tensor head = m->final.w[DT_W_HEAD], dhead = m->final.g[DT_W_HEAD];
	bool accumulate = p->accumulate;
	int rc;

	for (int64_t r = 0; r < p->rows; r += p->loss_chunk) {
		int64_t n = p->rows - r < p->loss_chunk ? p->rows - r : p->loss_chunk;
		struct dt_tensor x = dt_t2((char *)p->final_norm + r * c * esize, m->dtype, n, c);
		struct dt_tensor logits = dt_t2(p->logits, DT_F32, n, v),
				 dl = dt_t2(p->dlogits, m->dtype, n, v);
		float *rowmax = p->ce, *sumexp = p->ce + n, *target = p->ce + 2 * n;

		TRY(linear(m, logits, x, head, DT_NONE));
		TRY(o->ce_stats(m->dev, rowmax, sumexp, target, logits, p->targets + r, m->d.vocab_first));
		rc = combine_stats(m, rowmax, sumexp, target, n, err);
		if (rc < 0)
			return rc;
		for (int64_t i = 0; i < n; i++)
			if (p->targets[r + i] >= 0)
				*loss_sum += log((double)sumexp[i]) + (double)rowmax[i] - (double)target[i];
		if (!backward)
			continue;
		TRY(o->ce_grad(m->dev, dl, logits, rowmax, sumexp, p->targets + r, scale, m->d.vocab_first));
		TRY(o->matmul(m->dev, dhead, dl, true, x, false, DT_NONE, accumulate));
		TRY(o->matmul(m->dev, dt_t2((char *)p->dnorm + r * c * esize, m->dtype, n, c), dl, false,
			      head, false, DT_NONE, false));
		accumulate = true;
	}
	if (!backward)
		return 0;
	rc = tp_sum(m, p->dnorm, p->rows * c, "head input gradient", err);
	if (rc < 0)
		return rc;
	TRY(norm_backward(m, p, &m->final, DT_W_FINAL_NORM, DT_W_FINAL_NORM_B, p->final_resid,
			  dt_t1(p->final_mean, DT_F32, p->rows), dt_t1(p->final_rstd, DT_F32, p->rows),
			  true));
	return 0;
}

int dt_stage_forward(struct dt_model *m, const struct dt_pass *p, struct dt_err *err)
{
	const void *x = p->act[0][DT_A_RESID], *delta = NULL;
	int rc = dt_embed_forward(m, p, p->act[0][DT_A_RESID], err);

	for (int l = 0; l < m->last - m->first && rc == 0; l++) {
		rc = dt_layer_forward(m, p, l, x, delta, NULL, false, err);
		x = p->act[l][DT_A_RESID2];
		delta = p->delta;
	}
	return rc == 0 ? dt_final_norm(m, p, x, delta, err) : rc;
}

int dt_stage_backward(struct dt_model *m, const struct dt_pass *p,
		      int (*unit_done)(void *arg, int unit, struct dt_err *err), void *arg,
		      struct dt_err *err)
{
	int n = m->last - m->first, rc = unit_done ? unit_done(arg, n + 1, err) : 0;

	for (int l = n - 1; l >= 0 && rc == 0; l--) {
		rc = dt_layer_backward(m, p, l, err);
		if (rc == 0 && unit_done)
			rc = unit_done(arg, l + 1, err);
	}
	if (rc == 0)
		rc = dt_embed_backward(m, p, err);
	return rc == 0 && unit_done ? unit_done(arg, 0, err) : rc;
}

static bool overwritten(const struct dt_model *m, const struct dt_unit *u, int role)
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

static int begin_unit(struct dt_model *m, struct dt_unit *u, struct dt_err *err)
{
	for (int r = 0; r < DT_ROLE_N; r++)
		if (u->g[r].data && !overwritten(m, u, r))
			TRY(m->dev->ops->fill(m->dev, u->g[r], 0.0f));
	return 0;
}

int dt_grads_begin(struct dt_model *m, struct dt_err *err)
{
	int rc = begin_unit(m, &m->embed, err);

	for (int l = 0; l < m->last - m->first && rc == 0; l++)
		rc = begin_unit(m, &m->layer[l], err);
	return rc == 0 ? begin_unit(m, &m->final, err) : rc;
}
