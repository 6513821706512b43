/* The weights that inference multiplies with: tables by parameter, sets of experts and heads, release. */
#include "nn/infer_disk.h"

#include <errno.h>
#include <stdlib.h>

int dt_infer_weights_open(struct dt_infer *m)
{
	const struct dt_prog *p = &m->plan.stage.chunk[0];
	size_t n = (size_t)m->plan.stage.local.n + 1;

	m->owner = malloc(n * sizeof(*m->owner));
	m->packed = calloc(n, sizeof(*m->packed));
	m->expert = calloc(n, sizeof(*m->expert));
	m->set = calloc(n, sizeof(*m->set));
	m->heads = calloc(n, sizeof(*m->heads));
	m->w = calloc(n, sizeof(*m->w));
	m->x.w = m->w;
	if (!m->owner || !m->packed || !m->expert || !m->set || !m->heads || !m->w)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		m->owner[i] = -1;
	for (int s = 0; s < p->nstep; s++) {
		const struct dt_node *node = &p->step[s].n;
		int first = node->param[0] >= 0 ? node->param[0] : node->param[1];
		bool ends = node->op == DT_OP_EMBED || node->op == DT_OP_HEAD;

		if (!ends && node->op != DT_OP_LINEAR && node->op != DT_OP_LINEAR_GATED &&
		    node->op != DT_OP_ROUTE && node->op != DT_OP_EXPERTS)
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

static int join_heads(struct dt_infer *m, struct dt_infer_heads *h, struct dt_err *err)
{
	int rc = dt_packed_set_open(&h->keys, m->dev, h->w, h->n);

	if (rc == 0)
		rc = dt_packed_set_open(&h->values, m->dev, h->w + h->n, h->n);
	if (rc < 0)
		return dt_err_sys(err, rc, "cannot load the model");
	m->set_bytes += dt_packed_set_bytes(h->keys) + dt_packed_set_bytes(h->values);
	for (int i = 0; i < 2 * h->n; i++)
		m->packed_bytes += dt_packed_bytes(h->w[i]);
	return 0;
}

/* Makes a set of a node's experts. */
static int join_experts(struct dt_infer *m, int owner, struct dt_err *err)
{
	/* divided over tp and ep */
	const int n = (int)m->config.experts / m->ranks.layout.tp / m->ranks.layout.ep;
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

/* Tells each matrix which one is used after it, and the last one the first of the next pass. */
static void order(const struct dt_infer *m)
{
	const struct dt_prog *p = &m->plan.stage.chunk[0];
	struct dt_packed *last = NULL, *first = NULL;

	for (int s = 0; s < p->nstep; s++) {
		const struct dt_node *n = &p->step[s].n;
		const int owner = n->op != DT_OP_EMBED && n->param[0] >= 0 ? m->owner[n->param[0]] : -1;

		if (n->op == DT_OP_EXPERTS)
			last = NULL; /* which experts come is not known */
		if (owner < 0 || !m->packed[owner])
			continue;
		if (last)
			dt_packed_follow(last, m->packed[owner]);
		last = m->packed[owner];
		first = first ? first : last;
	}
	if (last)
		dt_packed_follow(last, first);
}

int dt_infer_weights_join(struct dt_infer *m, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < m->plan.stage.local.n && rc == 0; i++)
		if (m->packed[i])
			m->packed_bytes += dt_packed_bytes(m->packed[i]);
		else if (m->expert[i])
			rc = join_experts(m, i, err);
		else if (m->heads[i].n)
			rc = join_heads(m, &m->heads[i], err);
	order(m);
	return rc;
}

void dt_infer_weights_part(struct dt_infer *m)
{
	for (int i = 0; i < m->plan.stage.local.n; i++) {
		dt_packed_set_close(m->set[i]);
		dt_packed_set_close(m->heads[i].keys);
		dt_packed_set_close(m->heads[i].values);
		m->set[i] = m->heads[i].keys = m->heads[i].values = NULL;
	}
	m->set_bytes = m->packed_bytes = 0;
}

static void heads_release(struct dt_infer_heads *h)
{
	dt_packed_set_close(h->keys);
	dt_packed_set_close(h->values);
	for (int i = 0; h->w && i < 2 * h->n; i++)
		dt_packed_close(h->w[i]);
	free(h->w);
}

void dt_infer_weights_release(struct dt_infer *m)
{
	/* The tables are allocated together: where one is missing, the others are empty. */
	const int n = m->heads && m->packed && m->set && m->expert ? m->plan.stage.local.n : 0;

	dt_infer_disk_close(m);
	for (int i = 0; i < n; i++) {
		heads_release(&m->heads[i]);
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
	free(m->heads);
	free(m->format);
	free(m->others);
	dt_exec_close(&m->x);
	dt_infer_area_release(m, &m->weights);
}
/* SPDX-License-Identifier: Apache-2.0 */
