/* From a source's parameters to what inference multiplies with. */
#include "ckpt/source.h"
#include "nn/infer_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct loader {
	struct dt_infer *m;
	struct dt_source *src;
	const struct dt_params *table;
	uint64_t at; /* bytes of the arena handed out */
	struct dt_err *err;
};

/* The matrix that a parameter is a part of; NULL: it is none. */
static struct dt_infer_linear *linear_of(struct dt_infer *m, const struct dt_param *p)
{
	struct dt_infer_layer *l = p->layer >= 0 && p->layer < m->config.layers ? &m->layer[p->layer] : NULL;

	switch (p->role) {
	case DT_W_EMBED:
		return &m->embed;
	case DT_W_HEAD:
		return &m->head;
	case DT_W_Q:
	case DT_W_K:
	case DT_W_V:
		return &l->qkv;
	case DT_W_O:
		return &l->o;
	case DT_W_GATE:
	case DT_W_UP:
		return &l->up;
	case DT_W_DOWN:
		return &l->down;
	case DT_W_ROUTER:
		return &l->router;
	default:
		return NULL;
	}
}

/* Where a vector (or the table of positions) goes; NULL for what this code does not know. */
static struct dt_tensor *vector_of(struct dt_infer *m, const struct dt_param *p)
{
	struct dt_infer_layer *l = p->layer >= 0 && p->layer < m->config.layers ? &m->layer[p->layer] : NULL;

	switch (p->role) {
	case DT_W_POS:
		return &m->pos;
	case DT_W_ATTN_NORM:
		return &l->norm1;
	case DT_W_ATTN_NORM_B:
		return &l->norm1_b;
	case DT_W_MLP_NORM:
		return &l->norm2;
	case DT_W_MLP_NORM_B:
		return &l->norm2_b;
	case DT_W_Q_NORM:
		return &l->q_norm;
	case DT_W_K_NORM:
		return &l->k_norm;
	case DT_W_Q_B:
	case DT_W_K_B:
	case DT_W_V_B:
		return &l->qkv.bias;
	case DT_W_O_B:
		return &l->o.bias;
	case DT_W_GATE_B:
	case DT_W_UP_B:
		return &l->up.bias;
	case DT_W_DOWN_B:
		return &l->down.bias;
	case DT_W_POST_ATTN_NORM:
		return &l->post_attn;
	case DT_W_POST_MLP_NORM:
		return &l->post_mlp;
	case DT_W_FINAL_NORM:
		return &m->norm;
	case DT_W_FINAL_NORM_B:
		return &m->norm_b;
	default:
		return NULL;
	}
}

static enum dt_format format_of(const struct loader *l, int i)
{
	const struct dt_infer_params *p = &l->m->p;

	return dt_infer_format(&l->table->p[i], p->weights, dt_source_format(l->src, i), p->dtype);
}

static enum dt_dtype plain_type(const struct loader *l, const struct dt_param *p)
{
	return dt_infer_plain_type(&l->m->config, p, l->m->p.dtype);
}

static uint64_t place(const struct loader *l, int i, uint64_t *at)
{
	return dt_infer_place(&l->m->config, &l->table->p[i], l->m->p.dtype, at);
}

static int read_rows(struct loader *l, int i, int64_t first, int64_t rows, enum dt_dtype as, void *dst)
{
	const struct dt_param *p = &l->table->p[i];
	const int64_t off[2] = {first, 0}, shape[2] = {rows, p->shape[1]};

	return dt_source_read(l->src, i, off, shape, as, dst, l->err);
}

static int append(struct loader *l, int i, int64_t first, int64_t rows, struct dt_packed **to)
{
	const struct dt_param *p = &l->table->p[i];
	enum dt_format as = format_of(l, i), have = dt_source_format(l->src, i);
	const char *raw = dt_source_raw(l->src, i);
	void *copy = NULL;
	int rc = 0;

	if (raw)
		raw += dt_format_bytes(have, first * p->shape[1]);

	if (!*to)
		rc = dt_packed_open(to, l->m->dev, p->shape[1]);
	if (rc == 0 && !raw) {
		have = as == DT_FMT_BF16 ? DT_FMT_BF16 : DT_FMT_F32;
		raw = copy = malloc((size_t)(rows * p->shape[1]) * (have == DT_FMT_BF16 ? 2 : 4));
		if (!copy)
			return dt_err_sys(l->err, -ENOMEM, "cannot load '%s'", p->name);
		rc = read_rows(l, i, first, rows, have == DT_FMT_BF16 ? DT_BF16 : DT_F32, copy);
		if (rc < 0) {
			free(copy);
			return rc;
		}
	}
	if (rc == 0)
		rc = dt_packed_append(*to, l->m->dev, as, have, raw, rows);
	free(copy);
	if (rc == -EINVAL || rc == -ENOTSUP)
		return dt_err_set(l->err, rc, "'%s' with rows of %lld cannot be kept as %s", p->name,
				  (long long)p->shape[1], dt_format_info(as)->name);
	return rc < 0 ? dt_err_sys(l->err, rc, "cannot load '%s'", p->name) : 0;
}

/* The first of several that are fused gets the address, the others lengthen it. */
static void extend(struct dt_tensor *t, void *data, enum dt_dtype dtype, const struct dt_param *p)
{
	if (t->data)
		t->dim[0] += p->shape[0];
	else
		*t = p->ndim == 2 ? dt_t2(data, dtype, p->shape[0], p->shape[1])
				  : dt_t1(data, dtype, p->shape[0]);
}

/* Every expert's rows of one of the three tensors; up goes below gate. */
static int load_experts(struct loader *l, int i)
{
	const struct dt_param *p = &l->table->p[i];
	struct dt_infer_layer *to = &l->m->layer[p->layer];
	struct dt_packed **w = p->role == DT_W_EXPERT_DOWN ? to->expert_down : to->expert_up;
	int64_t rows = p->shape[0] / p->experts;
	int rc = 0;

	for (int64_t e = 0; e < p->experts && rc == 0; e++)
		rc = append(l, i, e * rows, rows, &w[e]);
	return rc;
}

static int load_one(struct loader *l, int i)
{
	const struct dt_param *p = &l->table->p[i];
	struct dt_infer_linear *matrix = linear_of(l->m, p);
	struct dt_tensor *to = matrix ? &matrix->w : vector_of(l->m, p);
	char *data, *read;
	size_t bytes;
	int rc;

	if (p->experts)
		return load_experts(l, i);
	if (!to)
		return dt_err_set(l->err, -ENOTSUP, "model '%s': '%s' cannot be computed", l->m->config.name,
				  p->name);
	if (dt_infer_packs(p))
		return append(l, i, 0, p->shape[0], &matrix->packed);
	if (matrix && matrix->packed)
		return dt_err_set(l->err, -ENOTSUP, "'%s' is stored in another way than what it belongs to",
				  p->name);
	data = read = l->m->weights.base + place(l, i, &l->at);
	bytes = (size_t)dt_param_numel(p) * (size_t)dt_dtype_size(plain_type(l, p));
	if (!dt_dev_is_host(l->m->dev) && !(read = malloc(bytes)))
		return dt_err_sys(l->err, -ENOMEM, "cannot load '%s'", p->name);
	rc = read_rows(l, i, 0, p->shape[0], plain_type(l, p), read);
	if (rc == 0 && l->m->config.norm_plus_one && dt_param_is_scale(p))
		for (int64_t k = 0; k < p->shape[0]; k++)
			((float *)read)[k] += 1; /* an RMSNorm's: f32 */
	if (read != data) {
		if (rc == 0)
			rc = dt_infer_put(l->m, data, read, bytes, l->err);
		free(read);
	}
	if (rc < 0)
		return rc;
	extend(to, data, plain_type(l, p), p);
	return rc;
}

static void count_packed(struct dt_infer *m, const struct dt_packed *x)
{
	if (x)
		m->packed_bytes += dt_packed_bytes(x);
}

/* The experts of a layer as they are multiplied with. */
static int join_experts(struct dt_infer *m, struct dt_infer_layer *w, struct dt_err *err)
{
	const int n = (int)m->config.experts;
	int rc;

	if (!w->expert_up[0])
		return 0; /* a dense layer of such a model */
	rc = dt_packed_set_open(&w->experts_up, m->dev, w->expert_up, n);
	if (rc == 0)
		rc = dt_packed_set_open(&w->experts_down, m->dev, w->expert_down, n);
	if (rc == -EINVAL)
		return dt_err_set(err, -ENOTSUP, "the experts of a layer are stored in different ways");
	if (rc < 0)
		return dt_err_sys(err, rc, "cannot load the model");
	m->set_bytes += dt_packed_set_bytes(w->experts_up) + dt_packed_set_bytes(w->experts_down);
	for (int e = 0; e < n; e++) {
		count_packed(m, w->expert_up[e]);
		count_packed(m, w->expert_down[e]);
	}
	return 0;
}

int dt_infer_load(struct dt_infer *m, struct dt_source *src, struct dt_err *err)
{
	struct loader l = {.m = m, .src = src, .table = dt_source_params(src), .err = err};
	uint64_t bytes = 0;
	int rc = 0;

	m->layer = calloc((size_t)m->config.layers, sizeof(*m->layer));
	if (!m->layer)
		return dt_err_sys(err, -ENOMEM, "cannot load the model");
	for (int64_t i = 0; m->config.experts && i < m->config.layers; i++) {
		struct dt_infer_layer *w = &m->layer[i];

		w->expert_up = calloc((size_t)m->config.experts, sizeof(*w->expert_up));
		w->expert_down = calloc((size_t)m->config.experts, sizeof(*w->expert_down));
		if (!w->expert_up || !w->expert_down)
			return dt_err_sys(err, -ENOMEM, "cannot load the model");
	}
	for (int i = 0; i < l.table->n; i++)
		place(&l, i, &bytes);
	rc = dt_infer_area(m, &m->weights, bytes, err);
	for (int i = 0; i < l.table->n && rc == 0; i++)
		rc = load_one(&l, i);
	if (rc < 0)
		return rc;
	if (m->config.tied)
		m->head = m->embed;
	count_packed(m, m->embed.packed);
	if (!m->config.tied)
		count_packed(m, m->head.packed);
	for (int64_t i = 0; i < m->config.layers; i++) {
		count_packed(m, m->layer[i].qkv.packed);
		count_packed(m, m->layer[i].o.packed);
		count_packed(m, m->layer[i].up.packed);
		count_packed(m, m->layer[i].down.packed);
		if (m->config.experts && (rc = join_experts(m, &m->layer[i], err)) < 0)
			return rc;
	}
	return 0;
}

void dt_infer_unload(struct dt_infer *m)
{
	for (int64_t i = 0; m->layer && i < m->config.layers; i++) {
		dt_packed_close(m->layer[i].qkv.packed);
		dt_packed_close(m->layer[i].o.packed);
		dt_packed_close(m->layer[i].up.packed);
		dt_packed_close(m->layer[i].down.packed);
		dt_packed_set_close(m->layer[i].experts_up);
		dt_packed_set_close(m->layer[i].experts_down);
		for (int64_t e = 0; e < m->config.experts; e++) {
			if (m->layer[i].expert_up)
				dt_packed_close(m->layer[i].expert_up[e]);
			if (m->layer[i].expert_down)
				dt_packed_close(m->layer[i].expert_down[e]);
		}
		free(m->layer[i].expert_up);
		free(m->layer[i].expert_down);
	}
	if (m->head.packed != m->embed.packed)
		dt_packed_close(m->head.packed);
	dt_packed_close(m->embed.packed);
	free(m->layer);
	dt_infer_area_release(m, &m->weights);
}
