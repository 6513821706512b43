/*
 * Mixtures of experts (Shazeer et al. 2017, eq. 1 to 3, without noise; Jiang et al., Mixtral of Experts,
 * 2024, section 2.1). The router scores every expert in f32; a token goes to the best few (of equal ones the
 * first), whose softmax weights its sum. Rows are gathered by expert, so that each expert is one product over
 * all tokens that it has. A token's outputs are added up in the order of its scores: nothing depends on who
 * else is in the batch.
 */
#include "nn/infer_priv.h"
#include "nn/transformer.h"

#include <math.h>
#include <string.h>

#define TRY(call)                                                                                            \
	do {                                                                                                 \
		int rc_ = (call);                                                                            \
		if (rc_ < 0)                                                                                 \
			return dt_kernel_check(rc_, #call, err);                                             \
	} while (0)

/* score = x router^T, in f32 */
static int score(struct dt_infer *m, const struct dt_infer_layer *l, int64_t rows, struct dt_err *err)
{
	const struct dt_ops *o = m->dev->ops;
	int64_t hidden = m->config.hidden;
	struct dt_tensor x = dt_t2(m->b.norm, m->p.dtype, rows, hidden);

	if (m->p.dtype != DT_F32) {
		struct dt_tensor wide = dt_t2(m->b.wide, DT_F32, rows, hidden);

		TRY(o->convert(m->dev, wide, x));
		x = wide;
	}
	TRY(o->matmul(m->dev, dt_t2(m->b.score, DT_F32, rows, m->config.experts), x, false, l->router.w, true,
		      DT_NONE, false));
	return 0;
}

/* The experts of one token, the best first, and their weights. */
static void choose(const struct dt_config *c, const float *s, int32_t *expert, float *weight)
{
	double sum = 0;

	for (int64_t j = 0; j < c->experts_used; j++) {
		int32_t best = -1;

		for (int32_t e = 0; e < c->experts; e++) {
			bool taken = false;

			for (int64_t i = 0; i < j; i++)
				taken |= expert[i] == e;
			if (!taken && (best < 0 || s[e] > s[best]))
				best = e;
		}
		expert[j] = best;
		weight[j] = expf(s[best] - s[expert[0]]);
		sum += (double)weight[j];
	}
	if (c->router_unscaled) {
		sum = 0;
		for (int64_t e = 0; e < c->experts; e++)
			sum += (double)expf(s[e] - s[expert[0]]);
	}
	for (int64_t j = 0; j < c->experts_used; j++)
		weight[j] = (float)((double)weight[j] / sum);
}

/* Sorts the rows by expert, in each as they come: first [experts + 1], and where each choice went. */
static void sort_rows(const struct dt_infer *m, int64_t n)
{
	int32_t *first = m->b.first;
	int64_t experts = m->config.experts;

	memset(first, 0, (size_t)(experts + 1) * sizeof(*first));
	for (int64_t i = 0; i < n; i++)
		first[m->b.expert[i] + 1]++;
	for (int64_t e = 0; e < experts; e++)
		first[e + 1] += first[e];
	for (int64_t i = 0; i < n; i++)
		m->b.at[i] = first[m->b.expert[i]]++;
	memmove(first + 1, first, (size_t)experts * sizeof(*first));
	first[0] = 0;
}

static void gather(const struct dt_infer *m, int64_t rows)
{
	int64_t k = m->config.experts_used;
	size_t row = (size_t)(m->config.hidden * dt_dtype_size(m->p.dtype));

	for (int64_t i = 0; i < rows * k; i++)
		memcpy((char *)m->b.routed + (size_t)m->b.at[i] * row,
		       (char *)m->b.norm + (size_t)(i / k) * row, row);
}

static int linear(const struct dt_infer *m, struct dt_tensor y, struct dt_tensor x,
		  const struct dt_infer_linear *w)
{
	if (w->packed)
		return dt_packed_matmul(m->dev, y, x, w->packed, w->bias);
	return m->dev->ops->matmul(m->dev, y, x, false, w->w, true, w->bias, false);
}

/* Rows [at, at + n) of what was gathered, through expert e. */
static int expert(struct dt_infer *m, const struct dt_infer_layer *l, int64_t e, int64_t at, int64_t n,
		  struct dt_err *err)
{
	const struct dt_config *c = &m->config;
	int64_t size = dt_dtype_size(m->p.dtype), f = c->expert_ffn;
	struct dt_tensor x = dt_t2((char *)m->b.routed + at * c->hidden * size, m->p.dtype, n, c->hidden);
	struct dt_tensor up = dt_t2(m->b.up, m->p.dtype, n, 2 * f), act = dt_t2(m->b.act, m->p.dtype, n, f);

	TRY(dt_infer_gated(m, act, up, x, &l->expert_up[e]));
	TRY(linear(m, dt_t2(m->b.expert_out + at * c->hidden, DT_F32, n, c->hidden), act,
		   &l->expert_down[e]));
	return 0;
}

/* y = sum over a token's experts of weight times output. */
static void add_up(const struct dt_infer *m, int64_t row, float *sum)
{
	int64_t n = m->config.hidden, k = m->config.experts_used;

	memset(sum, 0, (size_t)n * sizeof(*sum));
	for (int64_t j = row * k; j < (row + 1) * k; j++) {
		const float *x = m->b.expert_out + m->b.at[j] * n;
		float w = m->b.weight[j];

		for (int64_t i = 0; i < n; i++)
			sum[i] += w * x[i];
	}
}

int dt_infer_experts(struct dt_infer *m, const struct dt_infer_layer *l, int64_t rows, struct dt_err *err)
{
	const struct dt_config *c = &m->config;
	int64_t k = c->experts_used;
	int rc = score(m, l, rows, err);

	if (rc < 0)
		return rc;
	for (int64_t i = 0; i < rows; i++)
		choose(c, m->b.score + i * c->experts, m->b.expert + i * k, m->b.weight + i * k);
	sort_rows(m, rows * k);
	gather(m, rows);
	for (int64_t e = 0; e < c->experts && rc == 0; e++)
		if (m->b.first[e + 1] > m->b.first[e])
			rc = expert(m, l, e, m->b.first[e], m->b.first[e + 1] - m->b.first[e], err);
	for (int64_t i = 0; i < rows && rc == 0; i++) {
		add_up(m, i, m->b.row);
		TRY(m->dev->ops->convert(m->dev,
					 dt_t1((char *)m->b.delta + i * c->hidden * dt_dtype_size(m->p.dtype),
					       m->p.dtype, c->hidden),
					 dt_t1(m->b.row, DT_F32, c->hidden)));
	}
	return rc;
}
