#include "nn/norms.h"

#include <string.h>

struct dt_tensor dt_norm_weight(struct dt_model *m, struct dt_tensor w)
{
	struct dt_tensor one = dt_t1(m->norm_scale, DT_F32, w.dim[0]);

	if (!m->c->norm_plus_one)
		return w;
	m->dev->ops->convert(m->dev, one, w); /* of vectors on the processor: it has no way to fail */
	for (int64_t i = 0; i < w.dim[0]; i++)
		m->norm_scale[i] += 1;
	return one;
}

struct part {		  /* of q, or of k */
	int64_t first, n; /* heads */
	enum dt_role w;
	struct dt_tensor raw, rstd, tmp; /* [rows n, head_dim], [rows n] */
};

static struct part part_of(const struct dt_model *m, const struct dt_pass *p, int l, bool keys, void *tmp)
{
	int64_t before = keys ? m->d.heads : 0, n = keys ? m->d.kv_heads : m->d.heads, d = m->c->head_dim;
	char *raw = (char *)p->act[l][DT_A_QKV_RAW] + p->rows * before * d * dt_dtype_size(m->dtype);
	float *rstd = (float *)p->act[l][DT_A_QK_RSTD] + p->rows * before;

	return (struct part){.first = before,
			     .n = n,
			     .w = keys ? DT_W_K_NORM : DT_W_Q_NORM,
			     .raw = dt_t2(raw, m->dtype, p->rows * n, d),
			     .rstd = dt_t1(rstd, DT_F32, p->rows * n),
			     .tmp = dt_t2(tmp, m->dtype, p->rows * n, d)};
}

/* Copies the part's heads of every row out to x, or back in. */
static void move(const struct part *a, struct dt_tensor qkv, struct dt_tensor x, bool back)
{
	const size_t e = (size_t)dt_dtype_size(qkv.dtype), head = (size_t)x.dim[1] * e;
	const size_t width = (size_t)qkv.dim[1] * e, n = (size_t)a->n * head;

#pragma omp parallel for schedule(static)
	for (int64_t r = 0; r < qkv.dim[0]; r++) {
		char *in = (char *)qkv.data + (size_t)r * width + (size_t)a->first * head;
		char *out = (char *)x.data + (size_t)r * n;

		memcpy(back ? in : out, back ? out : in, n);
	}
}

int dt_heads_forward(struct dt_model *m, const struct dt_pass *p, int l, struct dt_tensor qkv)
{
	int rc = 0;

	for (int k = 0; k < 2 && rc == 0; k++) {
		struct part a = part_of(m, p, l, k, p->act[l][DT_A_ATTN]);

		move(&a, qkv, a.raw, false);
		rc = m->dev->ops->rmsnorm_forward(m->dev, a.tmp, a.rstd, DT_NONE, a.raw, DT_NONE,
						  dt_norm_weight(m, m->layer[l].w[a.w]),
						  (float)m->c->norm_eps);
		move(&a, qkv, a.tmp, true);
	}
	return rc;
}

int dt_heads_backward(struct dt_model *m, const struct dt_pass *p, int l, struct dt_tensor dqkv)
{
	int rc = 0;

	for (int k = 0; k < 2 && rc == 0; k++) {
		struct part a = part_of(m, p, l, k, p->dsmall);

		move(&a, dqkv, a.tmp, false);
		rc = m->dev->ops->rmsnorm_backward(m->dev, a.tmp, m->layer[l].g[a.w], a.tmp, DT_NONE, a.raw,
						   a.rstd, dt_norm_weight(m, m->layer[l].w[a.w]));
		move(&a, dqkv, a.tmp, true);
	}
	return rc;
}
