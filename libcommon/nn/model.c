#include "nn/model.h"

#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int check(const struct dt_config *c, const struct dt_dev *dev, struct dt_err *err)
{
	const char *what = c->qk_norm	      ? "norms of queries and keys"
			   : c->post_norms    ? "norms behind attention and MLP"
			   : c->norm_plus_one ? "norms of 1 + w"
					      : NULL;

	if (what && !dt_dev_is_host(dev))
		return dt_err_set(err, -ENOTSUP, "model '%s' has %s, which are trained on the processor only",
				  c->name, what);
	return 0;
}

static struct dt_tensor view(const struct dt_local_param *lp, const struct dt_param *p, int64_t unit_flat,
			     char *base, enum dt_dtype dtype)
{
	void *data = base + (lp->flat - unit_flat) * dt_dtype_size(dtype);

	return p->ndim == 1 ? dt_t1(data, dtype, lp->shape[0])
			    : dt_t2(data, dtype, lp->shape[0], lp->shape[1]);
}

static struct dt_unit *unit_of(struct dt_model *m, const struct dt_local *l, int u)
{
	if (l->unit[u].layer < 0)
		return &m->embed;
	return l->unit[u].layer < m->c->layers ? &m->layer[u - m->unit_layer0] : &m->final;
}

void **dt_flat_units(const struct dt_local *l, void *flat, enum dt_dtype dtype)
{
	void **ret = calloc((size_t)l->nunit, sizeof(*ret));

	for (int u = 0; ret && u < l->nunit; u++)
		ret[u] = (char *)flat + l->unit[u].flat * dt_dtype_size(dtype);
	return ret;
}

static void bind_chunks(struct dt_model *m, const struct dt_layout *l, int stage)
{
	m->nchunk = dt_layout_chunks(l);
	for (int k = 0; k < m->nchunk; k++) {
		struct dt_chunk *ch = &m->chunk[k];

		dt_layout_stage(l, m->c, k * l->pp + stage, &ch->first, &ch->last);
		ch->local = m->nlayer;
		m->nlayer += ch->last - ch->first;
	}
}

int dt_model_bind(struct dt_model *m, const struct dt_config *c, const struct dt_params *table,
		  const struct dt_local *l, const struct dt_layout *layout, struct dt_coords at,
		  struct dt_comm *tp, struct dt_dev *dev, enum dt_dtype dtype, void *const *weights,
		  float *const *grads, struct dt_err *err)
{
	int rc = dt_config_computable(c, err);

	if (rc == 0)
		rc = check(c, dev, err);
	if (rc < 0)
		return rc;
	memset(m, 0, sizeof(*m));
	m->c = c;
	m->dev = dev;
	m->tp = layout->tp > 1 ? tp : NULL;
	m->tp_rank = at.tp;
	m->seq_parallel = m->tp && layout->seq_parallel;
	m->dtype = dtype;
	dt_local_dims(c, layout->tp, at.tp, &m->d);
	bind_chunks(m, layout, at.pp);
	m->has_embed = at.pp == 0;
	m->has_head = at.pp == layout->pp - 1;
	m->unit_layer0 = m->has_embed;
	m->layer = calloc((size_t)m->nlayer + 1, sizeof(*m->layer));
	if (!m->layer)
		return dt_err_sys(err, -ENOMEM, "cannot bind the model");
	for (int i = 0; i < l->n; i++) {
		const struct dt_local_param *lp = &l->p[i];
		const struct dt_param *p = &table->p[lp->index];
		/* A tied embedding on a last stage that is not the first lies in its final unit. */
		struct dt_unit *u = unit_of(m, l, lp->unit);
		int64_t flat = l->unit[lp->unit].flat;

		u->w[p->role] = view(lp, p, flat, weights[lp->unit], dtype);
		if (grads)
			u->g[p->role] = view(lp, p, flat, (char *)grads[lp->unit], DT_F32);
	}
	if (m->has_head && c->tied) {
		const struct dt_unit *src = m->has_embed ? &m->embed : &m->final;

		m->final.w[DT_W_HEAD] = src->w[DT_W_EMBED];
		m->final.g[DT_W_HEAD] = src->g[DT_W_EMBED];
	}
	return 0;
}

void dt_model_release(struct dt_model *m)
{
	free(m->layer);
	memset(m, 0, sizeof(*m));
}

static void rope_table(const struct dt_config *c, double (*frequency)(const struct dt_config *, int64_t),
		       int64_t positions, float *cos_out, float *sin_out)
{
	int64_t half = c->head_dim / 2;

	for (int64_t i = 0; i < half; i++) {
		double freq = frequency(c, i);

		for (int64_t t = 0; t < positions; t++) {
			cos_out[t * half + i] = (float)cos((double)t * freq);
			sin_out[t * half + i] = (float)sin((double)t * freq);
		}
	}
}

void dt_rope_table(const struct dt_config *c, int64_t positions, float *cos_out, float *sin_out)
{
	rope_table(c, dt_rope_frequency, positions, cos_out, sin_out);
}

void dt_rope_local_table(const struct dt_config *c, int64_t positions, float *cos_out, float *sin_out)
{
	rope_table(c, dt_rope_local_frequency, positions, cos_out, sin_out);
}

void dt_param_init(const struct dt_param *p, const struct dt_local_param *lp, uint64_t seed, int64_t first,
		   int64_t n, float *out)
{
	struct dt_rng rng = dt_rng_make(seed, DT_RNG_INIT, dt_hash_str(p->name));
	int64_t cols = p->ndim == 2 ? lp->shape[1] : lp->shape[0], stride = p->ndim == 2 ? p->shape[1] : 0;
	int64_t row0 = p->ndim == 2 ? lp->off[0] : 0, col0 = p->ndim == 2 ? lp->off[1] : lp->off[0];
	int64_t last = first + n;

	if (p->init != DT_INIT_NORMAL) {
		for (int64_t i = 0; i < n; i++)
			out[i] = p->init == DT_INIT_ONES ? 1.0f : 0.0f;
		return;
	}
#pragma omp parallel for schedule(static)
	for (int64_t r = first / cols; r <= (last - 1) / cols; r++) {
		int64_t lo = r * cols > first ? r * cols : first,
			hi = (r + 1) * cols < last ? (r + 1) * cols : last;

		dt_rng_fill_normal(&rng, (uint64_t)((row0 + r) * stride + col0 + lo - r * cols),
				   out + (lo - first), (uint64_t)(hi - lo), 0.0f, (float)p->init_std);
	}
}
