#include "nn/norms.h"

struct part { /* of q, or of k */
	struct dt_heads heads;
	enum dt_role w;
	struct dt_tensor raw, rstd; /* [rows, heads head_dim], [rows, heads] */
};

static struct part part_of(const struct dt_model *m, const struct dt_pass *p, int l, bool keys)
{
	int64_t before = keys ? m->d.heads : 0, n = keys ? m->d.kv_heads : m->d.heads, d = m->c->head_dim;
	char *raw = (char *)p->act[l][DT_A_QKV_RAW] + p->rows * before * d * dt_dtype_size(m->dtype);
	float *rstd = (float *)p->act[l][DT_A_QK_RSTD] + p->rows * before;

	return (struct part){.heads = {before, n, d},
			     .w = keys ? DT_W_K_NORM : DT_W_Q_NORM,
			     .raw = dt_t2(raw, m->dtype, p->rows, n * d),
			     .rstd = dt_t2(rstd, DT_F32, p->rows, n)};
}

int dt_heads_forward(struct dt_model *m, const struct dt_pass *p, int l, struct dt_tensor qkv)
{
	int rc = 0;

	for (int k = 0; k < 2 && rc == 0; k++) {
		const struct part a = part_of(m, p, l, k);

		rc = m->dev->ops->heads_norm_forward(m->dev, qkv, a.rstd, a.raw, qkv, m->layer[l].w[a.w],
						     m->c->norm_plus_one, (float)m->c->norm_eps, &a.heads);
	}
	return rc;
}

int dt_heads_backward(struct dt_model *m, const struct dt_pass *p, int l, struct dt_tensor dqkv)
{
	int rc = 0;

	for (int k = 0; k < 2 && rc == 0; k++) {
		const struct part a = part_of(m, p, l, k);

		rc = m->dev->ops->heads_norm_backward(m->dev, dqkv, m->layer[l].g[a.w], dqkv, a.raw, a.rstd,
						      m->layer[l].w[a.w], m->c->norm_plus_one, &a.heads);
	}
	return rc;
}
