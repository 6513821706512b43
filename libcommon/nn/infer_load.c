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

/* Every expert's rows of one of the three tensors; up goes below gate. */
static int load_experts(struct loader *l, int i)
{
	const struct dt_param *p = &l->table->p[i];
	struct dt_packed **w = l->m->expert[l->m->owner[i]];
	int64_t rows = p->shape[0] / p->experts;
	int rc = 0;

	for (int64_t e = 0; e < p->experts && rc == 0; e++)
		rc = append(l, i, e * rows, rows, &w[e]);
	return rc;
}

static int load_plain(struct loader *l, int i)
{
	const struct dt_param *p = &l->table->p[i];
	enum dt_dtype type = plain_type(l, p);
	char *data = l->m->weights.base + place(l, i, &l->at), *read = data;
	size_t bytes = (size_t)dt_param_numel(p) * (size_t)dt_dtype_size(type);
	int rc;

	if (!dt_dev_is_host(l->m->dev) && !(read = malloc(bytes)))
		return dt_err_sys(l->err, -ENOMEM, "cannot load '%s'", p->name);
	rc = read_rows(l, i, 0, p->shape[0], type, read);
	if (read != data) {
		if (rc == 0)
			rc = dt_infer_put(l->m, data, read, bytes, l->err);
		free(read);
	}
	if (rc == 0)
		l->m->x.w[i] = p->ndim == 2 ? dt_t2(data, type, p->shape[0], p->shape[1])
					    : dt_t1(data, type, p->shape[0]);
	return rc;
}

static int load_one(struct loader *l, int i)
{
	const struct dt_param *p = &l->table->p[i];

	if (l->m->owner[i] < 0)
		return load_plain(l, i);
	return p->experts ? load_experts(l, i) : append(l, i, 0, p->shape[0], &l->m->packed[l->m->owner[i]]);
}

/* The experts of a node as they are multiplied with. */
static int join_experts(struct dt_infer *m, int owner, struct dt_err *err)
{
	const int n = (int)m->config.experts;
	int rc = dt_packed_set_open(&m->set[owner], m->dev, m->expert[owner], n);

	if (rc == -EINVAL)
		return dt_err_set(err, -ENOTSUP, "the experts of a layer are stored in different ways");
	if (rc < 0)
		return dt_err_sys(err, rc, "cannot load the model");
	m->set_bytes += dt_packed_set_bytes(m->set[owner]);
	for (int e = 0; e < n; e++)
		m->packed_bytes += dt_packed_bytes(m->expert[owner][e]);
	return 0;
}

/* Which parameters are packed, and with whom: those that one node multiplies with. */
static int find_owners(struct dt_infer *m)
{
	const struct dt_prog *p = &m->plan.stage.chunk[0];
	size_t n = (size_t)m->plan.stage.local.n + 1;

	m->owner = malloc(n * sizeof(*m->owner));
	m->packed = calloc(n, sizeof(*m->packed));
	m->expert = calloc(n, sizeof(*m->expert));
	m->set = calloc(n, sizeof(*m->set));
	m->x.w = calloc(n, sizeof(*m->x.w));
	if (!m->owner || !m->packed || !m->expert || !m->set || !m->x.w)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		m->owner[i] = -1;
	for (int s = 0; s < p->nstep; s++) {
		const struct dt_node *node = &p->step[s].n;
		int first = node->param[0] >= 0 ? node->param[0] : node->param[1];
		bool ends = node->op == DT_OP_EMBED || node->op == DT_OP_HEAD;

		if (!ends && node->op != DT_OP_LINEAR && node->op != DT_OP_LINEAR_GATED &&
		    node->op != DT_OP_EXPERTS)
			continue;
		for (int k = 0; k < (ends ? 1 : 3); k++)
			if (node->param[k] >= 0)
				m->owner[node->param[k]] = first;
		if (node->op != DT_OP_EXPERTS)
			continue;
		m->expert[first] = calloc((size_t)m->config.experts, sizeof(*m->expert[first]));
		if (!m->expert[first])
			return -ENOMEM;
	}
	return 0;
}

int dt_infer_load(struct dt_infer *m, struct dt_source *src, struct dt_err *err)
{
	struct loader l = {.m = m, .src = src, .table = dt_source_params(src), .err = err};
	uint64_t bytes = 0;
	int rc = find_owners(m);

	if (rc < 0)
		return dt_err_sys(err, rc, "cannot load the model");
	for (int i = 0; i < l.table->n; i++)
		place(&l, i, &bytes);
	rc = dt_infer_area(m, &m->weights, bytes, err);
	for (int i = 0; i < l.table->n && rc == 0; i++)
		rc = load_one(&l, i);
	for (int i = 0; i < l.table->n && rc == 0; i++)
		if (m->packed[i])
			m->packed_bytes += dt_packed_bytes(m->packed[i]);
		else if (m->expert[i])
			rc = join_experts(m, i, err);
	return rc;
}

void dt_infer_unload(struct dt_infer *m)
{
	for (int i = 0; m->set && i < m->plan.stage.local.n; i++) {
		dt_packed_close(m->packed[i]);
		dt_packed_set_close(m->set[i]);
		for (int64_t e = 0; m->expert[i] && e < m->config.experts; e++)
			dt_packed_close(m->expert[i][e]);
		free(m->expert[i]);
	}
	free(m->owner);
	free(m->packed);
	free(m->expert);
	free(m->set);
	dt_exec_close(&m->x);
	dt_infer_area_release(m, &m->weights);
}
/* SPDX-License-Identifier: Apache-2.0 */
