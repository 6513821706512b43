/* Argument checks of attention.h. */
#include "kernels/check.h"

/* Whether qkv has the training shape of p. */
static bool trains(const struct dt_attn *p, struct dt_tensor qkv)
{
	return dt_is_compute(qkv.dtype) && p->batch >= 0 && p->seq >= 0 && p->kv_heads > 0 && p->heads > 0 &&
	       p->heads % p->kv_heads == 0 && p->head_dim > 0 && p->scale > 0 && p->softcap >= 0 &&
	       p->value_dim >= 0 &&
	       dt_cols(qkv) == (p->heads + p->kv_heads) * p->head_dim + p->kv_heads * dt_attn_value_dim(p) &&
	       dt_rows(qkv) == p->batch * p->seq;
}

int dt_check_attention_forward(const struct dt_dev *dev, struct dt_tensor o, struct dt_tensor lse,
			       struct dt_tensor qkv, const struct dt_attn *p)
{
	const int64_t rows = p->batch * p->seq;

	if (!trains(p, qkv) || !dt_is(o, qkv.dtype, rows * p->heads * dt_attn_value_dim(p)) ||
	    !dt_is(lse, DT_F32, rows * p->heads))
		return -EINVAL;
	return rows ? 0 : DT_EMPTY;
}

int dt_check_attention_backward(const struct dt_dev *dev, struct dt_tensor dqkv, struct dt_tensor dout,
				struct dt_tensor o, struct dt_tensor lse, struct dt_tensor qkv,
				const struct dt_attn *p)
{
	const int64_t rows = p->batch * p->seq, out = rows * p->heads * dt_attn_value_dim(p);

	if (!trains(p, qkv) || !dt_is(o, qkv.dtype, out) || !dt_is(dout, qkv.dtype, out) ||
	    !dt_is(lse, DT_F32, rows * p->heads) || !dt_is(dqkv, qkv.dtype, dt_numel(qkv)))
		return -EINVAL;
	return rows ? 0 : DT_EMPTY;
}

static bool spans(const struct dt_attn *p, const struct dt_attn_span *s, struct dt_tensor q,
		  struct dt_tensor kv)
{
	const int64_t d = p->head_dim;
	const int64_t v_end = s->v_col + p->kv_heads * dt_attn_value_dim(p),
		      k_end = s->k_col + p->kv_heads * d;

	if (!dt_is_compute(q.dtype) || kv.dtype != q.dtype || p->batch < 0 || s->rows < 0 ||
	    p->kv_heads < 1 || p->heads < 1 || p->heads % p->kv_heads || d < 1 || !(p->scale > 0) ||
	    !(p->softcap >= 0) || dt_rows(q) != p->batch * s->rows || dt_cols(q) < p->heads * d ||
	    s->nrun < 1 || s->nrun > DT_ATTN_RUNS || s->run_keys < 1 || s->k_col < 0 || s->v_col < 0 ||
	    dt_cols(kv) < k_end || dt_cols(kv) < v_end || p->value_dim < 0 || s->stride < 0 ||
	    (s->all && p->window))
		return false;
	for (int i = 0; i < s->nrun; i++)
		if (s->run[i].row < 0 ||
		    s->run[i].row + (p->batch - 1) * s->stride + s->run_keys > dt_rows(kv) ||
		    (i && s->run[i].pos < s->run[i - 1].pos + s->run_keys))
			return false;
	return true;
}

int dt_check_attention_span_forward(const struct dt_dev *dev, struct dt_tensor o, struct dt_tensor lse,
				    struct dt_tensor q, struct dt_tensor kv, const struct dt_attn *p,
				    const struct dt_attn_span *s)
{
	const int64_t rows = p->batch * s->rows;

	if (!spans(p, s, q, kv) || (o.dtype != DT_F32 && o.dtype != q.dtype) ||
	    dt_numel(o) != rows * p->heads * dt_attn_value_dim(p) || !dt_is(lse, DT_F32, rows * p->heads))
		return -EINVAL;
	return rows ? 0 : DT_EMPTY;
}

static bool gradient_of(struct dt_tensor g, struct dt_tensor x, const struct dt_attn_span *s)
{
	return dt_rows(g) == dt_rows(x) && dt_cols(g) == dt_cols(x) &&
	       (g.dtype == DT_F32 || (g.dtype == x.dtype && !s->add));
}

int dt_check_attention_span_backward(const struct dt_dev *dev, struct dt_tensor dq, struct dt_tensor dkv,
				     struct dt_tensor dout, struct dt_tensor o, struct dt_tensor lse,
				     struct dt_tensor q, struct dt_tensor kv, const struct dt_attn *p,
				     const struct dt_attn_span *s)
{
	const int64_t rows = p->batch * s->rows, out = rows * p->heads * dt_attn_value_dim(p);

	if (!spans(p, s, q, kv) || !dt_is(o, q.dtype, out) || !dt_is(dout, q.dtype, out) ||
	    !dt_is(lse, DT_F32, rows * p->heads) || dt_rows(dq) != dt_rows(q) ||
	    dt_cols(dq) < p->heads * p->head_dim || (dq.dtype != DT_F32 && (dq.dtype != q.dtype || s->add)) ||
	    !gradient_of(dkv, kv, s))
		return -EINVAL;
	return rows ? 0 : DT_EMPTY;
}

/* The shape of lse [batch, heads, rows] gives that of o and lse. */
int dt_check_attention_merge(const struct dt_dev *dev, struct dt_tensor o, struct dt_tensor lse,
			     struct dt_tensor part, struct dt_tensor part_lse)
{
	if (lse.ndim != 3 || lse.dtype != DT_F32 || o.dtype != DT_F32 ||
	    dt_rows(o) != lse.dim[0] * lse.dim[2] || lse.dim[1] < 1 || dt_cols(o) % lse.dim[1] ||
	    !dt_is(part, DT_F32, dt_numel(o)) || !dt_is(part_lse, DT_F32, dt_numel(lse)))
		return -EINVAL;
	return dt_numel(lse) ? 0 : DT_EMPTY;
}

/* The shape of lse [batch, heads, rows] gives that of o. */
static bool sinks(struct dt_tensor o, struct dt_tensor lse, struct dt_tensor sink)
{
	return lse.ndim == 3 && lse.dtype == DT_F32 && dt_is_compute(o.dtype) && lse.dim[1] > 0 &&
	       (dt_numel(lse) ? dt_numel(o) % dt_numel(lse) == 0 : dt_numel(o) == 0) &&
	       dt_is_compute(sink.dtype) && dt_numel(sink) == lse.dim[1];
}

int dt_check_attention_sink(const struct dt_dev *dev, struct dt_tensor o, struct dt_tensor lse,
			    struct dt_tensor sink)
{
	if (!sinks(o, lse, sink))
		return -EINVAL;
	return dt_numel(lse) ? 0 : DT_EMPTY;
}

int dt_check_attention_sink_backward(const struct dt_dev *dev, struct dt_tensor dsink, struct dt_tensor dout,
				     struct dt_tensor o, struct dt_tensor lse, struct dt_tensor sink)
{
	if (!sinks(o, lse, sink) || !dt_is(dout, o.dtype, dt_numel(o)) || !dt_is(dsink, DT_F32, lse.dim[1]))
		return -EINVAL;
	return dt_numel(lse) ? 0 : DT_EMPTY;
}

/* Whether the rows of sequence i, and the blocks that any of them sees, are in range. */
static bool sequence_fits(struct dt_tensor k, const struct dt_attn *p, const struct dt_paged *g, int i)
{
	const int64_t rows = g->q_start[i + 1] - g->q_start[i];
	const int64_t seen = p->window > 0 ? g->kv_len[i] - rows + 1 - p->window : 0;
	const int64_t first = seen > 0 ? seen : 0; /* first key that any row sees */

	if (rows < 0 || g->kv_len[i] < rows || g->kv_len[i] > (int64_t)g->max_blocks * g->block_size)
		return false;
	for (int64_t j = first / g->block_size * g->block_size; rows && j < g->kv_len[i]; j += g->block_size)
		if (dt_paged_row(g, i, j) < 0 || dt_paged_row(g, i, j) + g->block_size > dt_rows(k))
			return false;
	return true;
}

/* Whether k and v are caches for p; v is absent where values are part of the keys. */
static bool cache_fits(struct dt_tensor k, struct dt_tensor v, const struct dt_attn *p)
{
	if (dt_cols(k) != dt_kv_row(p, k.dtype))
		return false;
	if (p->value_dim)
		return !v.data && p->value_dim > 0 && p->value_dim <= p->head_dim;
	return v.dtype == k.dtype && v.ndim == k.ndim && dt_cols(v) == dt_cols(k) && dt_rows(v) == dt_rows(k);
}

int dt_check_attention_paged(const struct dt_dev *dev, struct dt_tensor o, struct dt_tensor qkv,
			     struct dt_tensor k, struct dt_tensor v, const struct dt_attn *p,
			     const struct dt_paged *g)
{
	const int64_t d = p->head_dim, group = p->kv_heads > 0 ? p->heads / p->kv_heads : 0;

	if (g->nseq < 1)
		return DT_EMPTY;
	if (!dt_is_compute(qkv.dtype) || o.dtype != qkv.dtype || !cache_fits(k, v, p) ||
	    (k.dtype != qkv.dtype && k.dtype != DT_F32 && k.dtype != DT_I8) || group < 1 ||
	    (group > DT_PAGED_GROUP && !p->value_dim) || p->heads % p->kv_heads || d < 1 || !(p->scale > 0) ||
	    !(p->softcap >= 0) || g->q_start[0] < 0 || dt_rows(qkv) < g->q_start[g->nseq] ||
	    dt_rows(o) < g->q_start[g->nseq] ||
	    (g->sink.data &&
	     (!dt_is_compute(g->sink.dtype) || p->value_dim || dt_numel(g->sink) != p->heads)) ||
	    dt_cols(qkv) != (p->heads + dt_kv_parts(p) * p->kv_heads) * d ||
	    dt_cols(o) != p->heads * dt_attn_value_dim(p) || g->block_size < 1 ||
	    (k.ndim == 3 && (k.dim[1] != g->block_size || (v.data && v.dim[1] != g->block_size))))
		return -EINVAL;
	for (int i = 0; i < g->nseq; i++)
		if (!sequence_fits(k, p, g, i))
			return -EINVAL;
	return g->q_start[g->nseq] > g->q_start[0] ? 0 : DT_EMPTY;
}

int dt_check_kv_write(const struct dt_dev *dev, struct dt_tensor kcache, struct dt_tensor vcache,
		      struct dt_tensor qkv, const struct dt_attn *p, const int64_t *slot)
{
	const int64_t rows = dt_rows(qkv), n = p->kv_heads * p->head_dim;

	if (!dt_is_compute(qkv.dtype) || !cache_fits(kcache, vcache, p) ||
	    (kcache.dtype != qkv.dtype && kcache.dtype != DT_F32 && kcache.dtype != DT_I8) ||
	    dt_cols(qkv) != p->heads * p->head_dim + dt_kv_parts(p) * n)
		return -EINVAL;
	for (int64_t i = 0; i < rows; i++)
		if (slot[i] < -1 || slot[i] >= dt_rows(kcache))
			return -EINVAL;
	return rows && n ? 0 : DT_EMPTY;
}
/* SPDX-License-Identifier: Apache-2.0 */
