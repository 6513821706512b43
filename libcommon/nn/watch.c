#include "nn/watch.h"

#include "nn/call.h"
#include "plan/listing.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

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

/* All elements of a tensor, as a vector. */
static struct dt_tensor whole(struct dt_tensor t)
{
	return t.data ? dt_t1(t.data, t.dtype, dt_numel(t)) : t;
}

static void note(struct dt_exec *x, const struct dt_step *s, const char *what)
{
	struct dt_watch *w = x->watch;
	char unit[16];

	w->found = true;
	snprintf(w->text, sizeof(w->text), "%s%s, %s%s, %s '%s': %s is the first value that is not finite",
		 dt_list_name(s->list), s->again ? " again" : "",
		 s->n.unit >= 0 && s->n.unit < x->c->layers ? "layer " : "",
		 dt_unit_name(s->n.unit, x->c->layers, unit, sizeof(unit)), dt_node_op_name(s->n.op),
		 s->n.name ? s->n.name : "", what);
}

/* Names a weight of the node that is not finite. */
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

/* Whether all elements of a value are written. */
static bool is_whole(const struct dt_value *v)
{
	return !v->room && v->mul == 1 && !v->extra && is_float(v->dtype);
}

static double largest(const void *p, enum dt_dtype type, int64_t n)
{
	float most = 0;
	bool finite = true;

	for (int64_t i = 0; i < n; i++) {
		const float a = type == DT_F32	  ? fabsf(((const float *)p)[i])
				: type == DT_BF16 ? fabsf(dt_bf16_to_f32(((const uint16_t *)p)[i]))
						  : fabsf(dt_f16_to_f32(((const uint16_t *)p)[i]));

		finite &= a <= FLT_MAX;
		most = a > most ? a : most;
	}
	return finite ? most : INFINITY;
}

/* Raises *most by a tensor's largest magnitude; reads a device's memory in pieces. */
static int raise_by(struct dt_exec *x, struct dt_tensor t, double *most, struct dt_err *err)
{
	enum { PIECE = 1 << 20 };
	const int size = dt_dtype_size(t.dtype);
	const int64_t n = dt_numel(t), each = PIECE / size;
	char *buf;
	int rc = 0;

	if (dt_dev_is_host(x->dev)) {
		*most = fmax(*most, largest(t.data, t.dtype, n));
		return 0;
	}
	buf = malloc(PIECE);
	if (!buf)
		return dt_err_sys(err, -ENOMEM, "cannot look at activations");
	for (int64_t i = 0; i < n && rc == 0; i += each) {
		const int64_t m = n - i < each ? n - i : each;

		rc = dt_dev_copy(x->dev, buf, (const char *)t.data + i * size, (size_t)(m * size));
		if (rc == 0)
			rc = dt_dev_sync(x->dev);
		if (rc == 0)
			*most = fmax(*most, largest(buf, t.dtype, m));
	}
	free(buf);
	return rc < 0 ? dt_err_sys(err, rc, "cannot read activations") : 0;
}

/* A forward node's other results are statistics for its backward. */
static int raise_extremes(struct dt_exec *x, const struct dt_step *s, struct dt_err *err)
{
	const int64_t units = x->c->layers + 2, u = s->n.unit + 1;

	/* The sum for the next stage, which without stages is a further result of the next norm. */
	if (s->n.op == DT_OP_ADD && s->n.out[0] == x->p->output)
		return 0;
	for (int i = 0; i < DT_NODE_OUT && u >= 0 && u < units; i++) {
		const struct dt_value *v = s->n.out[i] < 0 ? NULL : &x->p->value[s->n.out[i]];
		struct dt_tensor t = v ? dt_call_vec(x, s->n.out[i]) : DT_NONE;

		if (!t.data || !is_whole(v) || (i && !v->gradient))
			continue;
		TRY(raise_by(x, t, &x->watch->most[(v->gradient ? units : 0) + u], err));
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

		if (!value || !is_whole(value))
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
	struct dt_step there = x->p->step[step];
	const struct dt_step *s = &there;
	int rc;

	if (s->n.attr.begins) /* its result is complete after the node that waits for it */
		there.n.out[0] =
			s->n.op == DT_OP_EXCHANGE_WAIT || s->n.op == DT_OP_ENTER_WAIT ? s->n.in[1] : -1;
	if (s->n.op == DT_OP_ATTENTION_B && s->n.out[1] >= 0) /* kv_scatter writes the columns of k and v */
		there.n.out[0] = -1;
	rc = x->watch->most ? raise_extremes(x, s, err) : 0;

	if (rc < 0 || !x->watch->find || x->watch->found)
		return rc;
	rc = look_at_values(x, s, err);
	return rc < 0 ? rc : look_at_gradients(x, s, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
