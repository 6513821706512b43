#include "nn/watch.h"

#include "nn/call.h"
#include "plan/listing.h"

#include <math.h>

static bool is_float(enum dt_dtype t)
{
	return t == DT_F32 || t == DT_BF16 || t == DT_F16;
}

static int is_finite(struct dt_exec *x, struct dt_tensor t, bool *ret, struct dt_err *err)
{
	double sum = 0;

	if (t.data && is_float(t.dtype))
		TRY(x->dev->ops->sumsq(x->dev, &sum, t));
	*ret = isfinite(sum);
	return 0;
}

/* Every element of a parameter's tensor, as a vector. */
static struct dt_tensor whole(struct dt_tensor t)
{
	return t.data ? dt_t1(t.data, t.dtype, dt_numel(t)) : t;
}

static void note(struct dt_exec *x, const struct dt_step *s, const char *what)
{
	struct dt_watch *w = x->watch;
	char unit[16];

	w->found = true;
	snprintf(w->text, sizeof(w->text), "%s%s, %s%s, %s '%s': %s is the first that is not finite",
		 dt_list_name(s->list), s->again ? " again" : "",
		 s->n.unit >= 0 && s->n.unit < x->c->layers ? "layer " : "",
		 dt_unit_name(s->n.unit, x->c->layers, unit, sizeof(unit)), dt_node_op_name(s->n.op),
		 s->n.name ? s->n.name : "", what);
}

/* A weight of the node that is the reason. */
static int blame_weight(struct dt_exec *x, const struct dt_step *s, struct dt_err *err)
{
	const struct dt_stage *st = x->stage;

	for (int i = 0; i < DT_NODE_PARAM; i++) {
		const int p = s->n.param[i];
		bool good = true;
		size_t n = strlen(x->watch->text);

		if (p < 0 || !x->w[p].data)
			continue;
		TRY(is_finite(x, whole(x->w[p]), &good, err));
		if (good)
			continue;
		snprintf(x->watch->text + n, sizeof(x->watch->text) - n, "; the weight '%s' is not either",
			 st->graph.params.p[st->local.p[p].index].name);
		return 0;
	}
	return 0;
}

static int look_at_values(struct dt_exec *x, const struct dt_step *s, struct dt_err *err)
{
	bool good = true;

	for (int i = 0; i < DT_NODE_OUT && good; i++) {
		const int v = s->n.out[i];
		const struct dt_value *value = v < 0 ? NULL : &x->p->value[v];
		char what[96];

		if (!value || value->room || value->mul != 1 || value->extra || !is_float(value->dtype))
			continue;
		TRY(is_finite(x, dt_call_vec(x, v), &good, err));
		snprintf(what, sizeof(what), "%s'%.64s'", value->gradient ? "the gradient of " : "",
			 value->name ? value->name : "");
		if (!good)
			note(x, s, what);
	}
	return good ? 0 : blame_weight(x, s, err);
}

static int look_at_gradients(struct dt_exec *x, const struct dt_step *s, struct dt_err *err)
{
	const struct dt_stage *st = x->stage;
	const int n = dt_exec_gradients(&s->n);

	for (int i = 0; i < n && !x->watch->found; i++) {
		const int p = s->n.param[i];
		char what[96];
		bool good = true;

		if (p < 0 || !x->g[p].data)
			continue;
		TRY(is_finite(x, whole(x->g[p]), &good, err));
		snprintf(what, sizeof(what), "the gradient of '%.64s'",
			 st->graph.params.p[st->local.p[p].index].name);
		if (!good)
			note(x, s, what);
	}
	return 0;
}

int dt_watch_look(struct dt_exec *x, int step, struct dt_err *err)
{
	const struct dt_step *s = &x->p->step[step];
	int rc;

	if (x->watch->found)
		return 0;
	rc = look_at_values(x, s, err);
	return rc < 0 ? rc : look_at_gradients(x, s, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
