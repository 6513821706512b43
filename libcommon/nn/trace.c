/* The trace of a run: a span for each node, within a span for each unit. */
#include "nn/call.h"

#include "plan/listing.h"

int dt_call_traced(struct dt_exec *x, int step, struct dt_err *err)
{
	const struct dt_step *s = &x->p->step[step];
	const char *op = dt_node_op_name(s->n.op);
	double began = dt_trace_now(x->trace);
	int rc = x->calls[s->n.op](x, &s->n, err);
	char unit[16];

	if (rc < 0)
		return rc;
	TRY(dt_dev_sync(x->dev));
	dt_trace_span(x->trace, "compute", op, began,
		      json_pack("{s:i, s:i, s:i, s:s, s:s, s:s, s:s, s:b}", "chunk", x->flight->chunk, "slot",
				x->flight->slot, "node", step, "list", dt_list_name(s->list), "unit",
				dt_unit_name(s->n.unit, x->c->layers, unit, sizeof(unit)), "op", op, "name",
				s->n.name, "again", s->again));
	return 0;
}

void dt_call_trace_unit(struct dt_exec *x, const struct dt_segment *s, double began)
{
	char unit[16];

	dt_trace_span(x->trace, "unit", dt_unit_name(s->unit, x->c->layers, unit, sizeof(unit)), began,
		      json_pack("{s:b, s:b}", "backward", s->backward, "again", s->again));
}
/* SPDX-License-Identifier: Apache-2.0 */
