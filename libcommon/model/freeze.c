#include "model/freeze.h"

#include "model/match.h"

#include <errno.h>
#include <stdlib.h>

/* Whether an op computes each tensor's gradient separately. */
static bool takes_each(enum dt_op op)
{
	return op == DT_OP_EMBED || op == DT_OP_NORM || op == DT_OP_HEADS_NORM || op == DT_OP_BATCH_NORM ||
	       op == DT_OP_ROUTE;
}

/* All weights of a joined product must be frozen, or none; the same for its biases. */
static int check_joined(const struct dt_graph *g, const struct dt_node *n, const char *option,
			struct dt_err *err)
{
	for (int first = 0; first < 6 && !takes_each(n->op); first += 3) {
		const struct dt_param *one = NULL;

		for (int i = first; i < first + 3; i++) {
			const struct dt_param *p = n->param[i] < 0 ? NULL : &g->params.p[n->param[i]];

			if (p && one && p->frozen != one->frozen) {
				dt_err_set(err, -EINVAL, "%s: '%s' and '%s' are parts of one product", option,
					   one->name, p->name);
				dt_err_hint(err, "name both or neither");
				return -EINVAL;
			}
			one = p ? p : one;
		}
	}
	return 0;
}

static int mark(struct dt_graph *g, const bool *matched, struct dt_err *err)
{
	for (int i = 0; i < g->params.n; i++) {
		struct dt_param *p = &g->params.p[i];

		if (matched[i] && p->role == DT_W_ROUTER_B)
			return dt_err_set(err, -ENOTSUP,
					  "--freeze: '%s' is moved by --router-bias-rate, not by gradients",
					  p->name);
		p->frozen |= matched[i];
	}
	return 0;
}

int dt_graph_check_joined(const struct dt_graph *g, const char *option, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < g->nnode && rc == 0; i++)
		rc = check_joined(g, &g->node[i], option, err);
	return rc;
}

int dt_graph_freeze(struct dt_graph *g, const struct dt_config *c, struct dt_err *err)
{
	static const char hint[] =
		"it is an expression of whole names, 'embed.*|layers\\.[0-3]\\..*' for one";
	bool *matched;
	int n = dt_match_params("--freeze", c->freeze, &g->params, c->name, hint, &matched, err), rc;

	if (n < 0)
		return n;
	rc = mark(g, matched, err);
	free(matched);
	if (rc == 0 && n == g->params.n) {
		dt_err_set(err, -EINVAL, "--freeze '%.60s' matches every parameter of '%s'", c->freeze,
			   c->name);
		dt_err_hint(err, "%s", hint);
		return -EINVAL;
	}
	return rc < 0 ? rc : dt_graph_check_joined(g, "--freeze", err);
}
/* SPDX-License-Identifier: Apache-2.0 */
