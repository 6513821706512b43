/* Program listings as JSON, and what they share with the table (listing_text.c). */
#include "plan/listing.h"

#include <string.h>

const char *dt_list_name(enum dt_list l)
{
	static const char *const name[DT_LIST_N] = {"forward", "loss", "backward", "weights"};

	return name[l];
}

const char *dt_unit_name(int layer, int64_t layers, char *buf, size_t n)
{
	if (layer < 0 || layer >= layers)
		snprintf(buf, n, layer < 0 ? "embed" : "final");
	else
		snprintf(buf, n, "%d", layer);
	return buf;
}

struct dt_listed dt_list_node(const struct dt_cost_site *s, int step)
{
	const struct dt_prog *p = s->p;
	struct dt_listed r = {.step = &p->step[step], .cost = dt_step_cost(s, &p->step[step])};

	for (int i = 0; i < DT_NODE_OUT; i++) {
		int v = r.step->n.out[i];

		if (v >= 0 && p->value[v].life == DT_LIFE_KEPT && p->value[v].over < 0)
			r.kept += dt_cost_bytes(s, v);
	}
	return r;
}

void dt_listed_add(struct dt_listed *a, const struct dt_listed *b, double times)
{
	a->cost.flops += times * b->cost.flops;
	a->cost.model_flops += times * b->cost.model_flops;
	a->cost.read += times * b->cost.read;
	a->cost.written += times * b->cost.written;
	a->cost.message_bytes += times * b->cost.message_bytes;
	a->kept += times * b->kept;
}

const char *dt_listed_result(const struct dt_cost_site *s, const struct dt_node *n, char *buf, size_t size)
{
	const struct dt_prog *p = s->p;
	int first = n->op == DT_OP_COLSUM ? 3 : 0;
	int64_t rows = 0, cols = 1;

	if (n->op == DT_OP_EXCHANGE_WAIT || n->op == DT_OP_ENTER_WAIT) {
		snprintf(buf, size, "%s[%lld,%lld]", p->value[n->in[1]].name,
			 (long long)dt_value_rows(p, n->in[1]), (long long)p->value[n->in[1]].cols);
		return buf;
	}
	for (int i = 0; i < DT_NODE_OUT; i++) {
		int v = n->out[i];

		if (v < 0)
			continue;
		if (p->value[v].cols > 1)
			snprintf(buf, size, "%s[%lld,%lld]", p->value[v].name, (long long)dt_value_rows(p, v),
				 (long long)p->value[v].cols);
		else
			snprintf(buf, size, "%s[%lld]", p->value[v].name, (long long)dt_value_numel(p, v));
		return buf;
	}
	for (int i = first; i < first + 3; i++) /* tensors joined along their rows */
		if (n->param[i] >= 0 && (i == first || n->op != DT_OP_EMBED_B)) {
			rows += s->param[n->param[i]][0];
			cols = s->param[n->param[i]][1];
		}
	if (cols > 1)
		snprintf(buf, size, "dw[%lld,%lld]", (long long)rows, (long long)cols);
	else
		snprintf(buf, size, "db[%lld]", (long long)rows);
	return buf;
}

static json_t *results(const struct dt_cost_site *s, const struct dt_node *n)
{
	json_t *list = json_array();

	for (int i = 0; i < DT_NODE_OUT; i++) {
		int v = n->out[i];
		const struct dt_value *x = &s->p->value[v < 0 ? 0 : v];

		if (v < 0 || x->room)
			continue;
		json_array_append_new(list, json_pack("{s:s, s:[I,I], s:s, s:I, s:b}", "name", x->name,
						      "shape", (json_int_t)dt_value_rows(s->p, v),
						      (json_int_t)x->cols, "dtype", dt_dtype_name(x->dtype),
						      "bytes", (json_int_t)dt_cost_bytes(s, v), "kept",
						      x->life == DT_LIFE_KEPT));
	}
	return list;
}

static void add_costs(json_t *o, const struct dt_listed *l)
{
	json_object_set_new(o, "flops", json_real(l->cost.flops));
	json_object_set_new(o, "model_flops", json_real(l->cost.model_flops));
	json_object_set_new(o, "read_bytes", json_integer((json_int_t)l->cost.read));
	json_object_set_new(o, "written_bytes", json_integer((json_int_t)l->cost.written));
	json_object_set_new(o, "message_bytes", json_integer((json_int_t)l->cost.message_bytes));
	json_object_set_new(o, "kept_bytes", json_integer((json_int_t)l->kept));
}

static json_t *node(const struct dt_cost_site *s, const struct dt_run *r, int chunk, int step,
		    struct dt_listed *sum)
{
	struct dt_listed l = dt_list_node(s, step);
	const struct dt_node *n = &l.step->n;
	char unit[16];
	json_t *o = json_pack("{s:i, s:i, s:s, s:s, s:s, s:s, s:b, s:o}", "chunk", chunk, "node", step,
			      "list", dt_list_name(l.step->list), "unit",
			      dt_node_unit_name(n, r->config->layers, unit, sizeof(unit)), "op",
			      dt_node_op_name(n->op), "name", n->name, "again", l.step->again, "results",
			      results(s, n));

	if (!o)
		return NULL;
	if (l.cost.message)
		json_object_set_new(o, "message", json_string(dt_message_name(l.cost.message)));
	if (l.cost.message)
		json_object_set_new(o, "beside", json_boolean(l.cost.begins || l.cost.ends));
	add_costs(o, &l);
	dt_listed_add(sum, &l, 1);
	return o;
}

json_t *dt_listing_json(const struct dt_memory_plan *plan, const struct dt_run *r, struct dt_coords at)
{
	json_t *nodes = json_array(), *sums = json_object(), *ret;
	struct dt_listed sum = {0};
	char layout[64];

	for (int k = 0; k < plan->stage.nchunk; k++) {
		const struct dt_cost_site s = dt_stage_site(&plan->stage, r, k);

		for (int i = 0; i < s.p->nstep; i++)
			json_array_append_new(nodes, node(&s, r, k, i, &sum));
	}
	add_costs(sums, &sum);
	ret = json_pack("{s:i, s:s, s:s, s:i, s:i, s:o, s:o, s:I, s:I, s:s}", "schema", 1, "model",
			r->config->name, "layout", dt_layout_format(&r->layout, layout, sizeof(layout)),
			"rank", dt_layout_rank(&r->layout, at), "stage", at.pp, "nodes", nodes, "sums", sums,
			"peak_bytes", (json_int_t)plan->arena_bytes, "bound_bytes",
			(json_int_t)plan->bound_bytes, "peak_phase", dt_phase_name(plan->peak));
	if (ret && plan->peak_step >= 0) {
		int step = plan->peak_step, k = 0;

		for (; step >= plan->stage.chunk[k].nstep; k++)
			step -= plan->stage.chunk[k].nstep;
		json_object_set_new(ret, "peak_chunk", json_integer(k));
		json_object_set_new(ret, "peak_node", json_integer(step));
	}
	return ret;
}
/* SPDX-License-Identifier: Apache-2.0 */
