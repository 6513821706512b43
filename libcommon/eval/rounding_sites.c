/* A layer's products and statistics of their inputs: sums over all rows of the text. */
#include "eval/rounding_sites.h"

#include "kernels/ops.h"
#include "model/program.h"
#include "plan/formulas.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void dt_sites_release(struct dt_rounding_work *w)
{
	for (int i = 0; i < w->nsite; i++) {
		free(w->site[i].h);
		free(w->site[i].mean);
		free(w->site[i].most);
		free(w->site[i].scale);
	}
	w->nsite = 0;
}

bool dt_sites_products(const struct dt_rounding_work *w)
{
	return w->r->method == DT_ROUND_GPTQ || w->r->method == DT_ROUND_AWQ;
}

void dt_site_find_divided(const struct dt_rounding_work *w, struct dt_site *s, const struct dt_prog *p,
			  int first, int end)
{
	const int v = s->node.in[0];
	int readers = 0;

	s->norm[0] = s->norm[1] = s->up = -1;
	for (int k = 0; k < p->nstep; k++)
		for (int i = 0; i < DT_NODE_IN; i++)
			readers += p->step[k].n.in[i] == v;
	for (int k = first; k < end && readers == 1; k++) {
		const struct dt_node *n = &p->step[k].n;

		if (n->op == DT_OP_NORM && n->out[0] == v && n->param[0] >= 0) {
			s->norm[0] = dt_walk_param(w->walk, n->param[0]);
			s->norm[1] = dt_walk_param(w->walk, n->param[1]);
			s->plus_one = n->attr.plus_one;
		}
		if (n->op == DT_OP_LINEAR_GATED && n->out[1] == v && n->param[4] < 0)
			s->up = dt_walk_param(w->walk, n->param[1]);
	}
}

static int add_site(struct dt_rounding_work *w, const struct dt_walk_seen *seen, struct dt_site **ret)
{
	const size_t k = (size_t)seen->x.dim[1];
	struct dt_site *s = &w->site[w->nsite];

	if (w->nsite == DT_SITES_MOST)
		return dt_err_set(w->err, -ENOTSUP, "a layer has more than %d matrix products",
				  DT_SITES_MOST);
	*s = (struct dt_site){.node = *seen->node, .k = (int64_t)k};
	memcpy(s->param, seen->param, sizeof(s->param));
	s->format = dt_export_format(dt_source_config(w->s), &dt_source_params(w->s)->p[s->param[0]],
				     w->r->format, w->r->packing);
	s->h = calloc(dt_sites_products(w) ? k * k : k, sizeof(*s->h));
	s->mean = calloc(k, sizeof(*s->mean));
	s->most = calloc(k, sizeof(*s->most));
	w->nsite++;
	if (!s->h || !s->mean || !s->most)
		return dt_err_sys(w->err, -ENOMEM, "cannot accumulate the inputs of '%s'", seen->node->name);
	*ret = s;
	return 0;
}

int dt_sites_sum_up(void *arg, const struct dt_walk_seen *seen, struct dt_err *err)
{
	struct dt_rounding_work *w = arg;
	const struct dt_tensor x = seen->x;
	struct dt_site *s = NULL;
	int rc = 0;

	for (int i = 0; i < w->nsite && !s; i++)
		if (!memcmp(w->site[i].param, seen->param, sizeof(seen->param)))
			s = &w->site[i];
	if (!s && (rc = add_site(w, seen, &s)) < 0)
		return rc;
#pragma omp parallel for schedule(static)
	for (int64_t j = 0; j < s->k; j++)
		for (int64_t i = 0; i < x.dim[0]; i++) {
			float v = ((const float *)x.data)[i * s->k + j];

			s->mean[j] += fabsf(v);
			s->most[j] = fmaxf(s->most[j], fabsf(v));
			if (!dt_sites_products(w))
				s->h[j] += v * v;
		}
	s->rows += x.dim[0];
	if (dt_sites_products(w))
		rc = w->dev->ops->matmul(w->dev, dt_t2(s->h, DT_F32, s->k, s->k), x, true, x, false, DT_NONE,
					 true);
	return rc < 0 ? dt_err_sys(err, rc, "cannot accumulate the inputs of '%s'", seen->node->name) : 0;
}

int dt_sites_finish(struct dt_rounding_work *w, int layer)
{
	for (int i = 0; i < w->nsite; i++) {
		struct dt_site *s = &w->site[i];
		const int64_t n = dt_sites_products(w) ? s->k * s->k : s->k;
		double sum = 0;

		for (int64_t j = 0; j < n; j++)
			sum += (double)(s->h[j] /= (float)s->rows);
		for (int64_t j = 0; j < s->k; j++)
			s->mean[j] /= (float)s->rows;
		if (!isfinite(sum))
			return dt_err_set(w->err, -EDOM, "layer %d: inputs of '%s' are not finite", layer,
					  s->node.name);
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
