#include "model/graph.h"

#include "model/family.h"
#include "model/freeze.h"
#include "model/lora.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	unsigned flags;
} ops[] = {
#define DT_OP(NAME, text, flags) {text, flags},
#include "model/op/op.list"
#undef DT_OP
};

const char *dt_node_op_name(enum dt_op op)
{
	return ops[op].name;
}

unsigned dt_node_op_flags(enum dt_op op)
{
	return ops[op].flags;
}

int dt_graph_build(const struct dt_config *c, struct dt_graph *ret, struct dt_err *err)
{
	struct dt_graph g = {.layers = (int)c->layers};
	struct dt_builder b = {.c = c, .g = &g, .layer = -1};
	const struct dt_family *f = dt_family_find(c->family);
	int rc = dt_config_check(c, err);

	if (rc < 0)
		return rc;
	if (!f)
		return dt_err_set(err, -ENOTSUP, "'%s' is of family '%s', which is not known", c->name,
				  c->family);
	if (c->mtp_layers && !f->mtp)
		return dt_err_set(err, -ENOTSUP,
				  "'%s' is of family '%s', which has no modules for further tokens", c->name,
				  c->family);
	f->build(&b);
	if (b.failed) {
		dt_graph_release(&g);
		return dt_err_sys(err, -ENOMEM, "cannot build the graph of '%s'", c->name);
	}
	if (c->lora.rank)
		rc = dt_graph_lora(&g, c, err);
	if (rc == 0 && c->freeze[0])
		rc = dt_graph_freeze(&g, c, err);
	if (rc < 0) {
		dt_graph_release(&g);
		return rc;
	}
	*ret = g;
	return 0;
}

void dt_graph_release(struct dt_graph *g)
{
	dt_params_release(&g->params);
	dt_params_release(&g->buffers);
	free(g->node);
	free(g->value_name);
	memset(g, 0, sizeof(*g));
}

int dt_model_params(const struct dt_config *c, struct dt_params *ret, struct dt_err *err)
{
	struct dt_graph g;
	int rc = dt_graph_build(c, &g, err);

	if (rc < 0)
		return rc;
	*ret = g.params;
	g.params = (struct dt_params){0};
	dt_graph_release(&g);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
