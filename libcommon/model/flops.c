#include "model/flops.h"

#include "model/op/cost.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Whether layers of one kind may still differ: blocks of images, and layers that expressions select. */
static bool each_apart(const struct dt_config *c)
{
	const struct dt_lora *l = &c->lora;
	bool words =
		!strcmp(l->targets, "all") || !strcmp(l->targets, "attention") || !strcmp(l->targets, "qv");

	return dt_config_is_image(c) || c->freeze[0] || (l->rank && (!words || l->modules_to_save[0]));
}

static bool alike(const struct dt_config *c, int64_t a, int64_t b)
{
	return dt_layer_has_experts(c, a) == dt_layer_has_experts(c, b) &&
	       dt_layer_window(c, a) == dt_layer_window(c, b) &&
	       dt_layer_is_ssm(c, a) == dt_layer_is_ssm(c, b);
}

/* The number of first layers that have, behind layer 0, each kind of those behind it. */
static int64_t with_each_kind(const struct dt_config *c)
{
	int64_t n = 1;

	for (int64_t l = 1; l < c->layers; l++) {
		int64_t i = 1;

		while (i < n && !alike(c, i, l))
			i++;
		if (i == n)
			n = l + 1;
	}
	return n;
}

int64_t dt_config_short(const struct dt_config *c, struct dt_config *ret)
{
	int64_t n = c->ssm_heads ? with_each_kind(c)
				 : c->dense_layers + (c->global_every > 1 ? c->global_every : 1) + 1;

	*ret = *c;
	if (each_apart(c))
		return c->layers;
	if (ret->layers > n)
		ret->layers = n;
	for (int64_t l = ret->layers; l < c->layers && l < DT_LISTED_LAYERS; l++)
		ret->attn_layers[l / 64] &= ~(UINT64_C(1) << l % 64);
	return ret->layers;
}

int64_t dt_layer_alike(const struct dt_config *c, int64_t layers, int64_t layer)
{
	int64_t i = layers - 1;

	if (each_apart(c))
		return layer;
	while (i > 0 && !alike(c, i, layer))
		i--;
	return i;
}

static int whole(const void *arg, int param, int64_t shape[2], int64_t off[2])
{
	const struct dt_params *t = arg;

	off[0] = off[1] = 0;
	memcpy(shape, t->p[param].shape, 2 * sizeof(*shape));
	return param;
}

/* Of how many products a loss node consists: it also runs backward, which a frozen head does with one. */
static int products_of(const struct dt_step *s)
{
	return s->list != DT_LIST_LOSS ? 1 : s->n.attr.frozen ? 2 : 3;
}

/* Sums forward flops per token by unit; units start at -1, in ret[0]. */
static int sum_units(const struct dt_graph *g, const struct dt_prog *p, int64_t seq, double *ret,
		     struct dt_err *err)
{
	int64_t(*shape)[2] = malloc(((size_t)g->params.n + 1) * sizeof(*shape));
	const struct dt_cost_site site = {
		.p = p, .seq = seq, .tp = 1, .ep = 1, .loss_chunk = seq, .param = (const int64_t(*)[2])shape};

	if (!shape)
		return dt_err_sys(err, -ENOMEM, "cannot count the flops of a model");
	for (int i = 0; i < g->params.n; i++)
		memcpy(shape[i], g->params.p[i].shape, sizeof(*shape));
	for (int i = 0; i < p->nstep; i++) {
		const struct dt_step *s = &p->step[i];

		ret[s->n.unit + 1] += dt_step_cost(&site, s).model_flops / (double)seq / products_of(s);
	}
	free(shape);
	return 0;
}

/* Flops per unit of `few`, a model like c with fewer layers. */
static int of_units(const struct dt_config *few, int64_t seq, double *units, struct dt_err *err)
{
	struct dt_graph g;
	struct dt_prog p;
	int rc = dt_graph_build(few, &g, err);
	const struct dt_prog_spec spec = {.c = few,
					  .graph = &g,
					  .first_unit = -1,
					  .last_unit = (int)few->layers,
					  .microbatch = 1,
					  .seq = seq,
					  .compute = DT_F32,
					  .tp = 1,
					  .ep = 1,
					  .loss_chunk = seq,
					  .local = whole,
					  .local_arg = &g.params};

	if (rc < 0)
		return rc;
	rc = dt_prog_build(&spec, &p, err);
	if (rc == 0) {
		rc = sum_units(&g, &p, seq, units, err);
		dt_prog_release(&p);
	}
	dt_graph_release(&g);
	return rc;
}

int dt_forward_flops(const struct dt_config *c, int64_t seq, double *ret_layers, double *ret_ends,
		     struct dt_err *err)
{
	struct dt_config few;
	int64_t layers = dt_config_short(c, &few);
	double *units = calloc((size_t)layers + 2, sizeof(*units)), sum = 0;
	int rc = units ? of_units(&few, seq, units, err)
		       : dt_err_sys(err, -ENOMEM, "cannot count the flops of a model");

	if (rc == 0) {
		for (int64_t i = 0; i < c->layers; i++)
			sum += units[1 + dt_layer_alike(c, layers, i)];
		*ret_layers = sum;
		*ret_ends = units[0] + units[layers + 1];
	}
	free(units);
	return rc;
}

double dt_model_flops_per_token(const struct dt_config *c, int64_t seq, bool training)
{
	double layers, ends;

	if (dt_forward_flops(c, seq, &layers, &ends, NULL) < 0)
		return NAN;
	return (training ? 3 : 1) * (layers + ends);
}
/* SPDX-License-Identifier: Apache-2.0 */
