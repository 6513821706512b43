/* The trace of a run: one JSON line a node, as it ends. */
#include "nn/call.h"

#include "base/json.h"
#include "base/progress.h"
#include "plan/listing.h"

#include <errno.h>

int dt_call_traced(struct dt_exec *x, int step, struct dt_err *err)
{
	const struct dt_step *s = &x->p->step[step];
	double start = dt_now();
	int rc = x->calls[s->n.op](x, &s->n, err);
	char unit[16];
	json_t *line;

	if (rc < 0)
		return rc;
	TRY(dt_dev_sync(x->dev));
	errno = 0;
	line = json_pack("{s:i, s:i, s:i, s:s, s:s, s:s, s:s, s:b, s:f, s:f}", "chunk", x->flight->chunk,
			 "slot", x->flight->slot, "node", step, "list", dt_list_name(s->list), "unit",
			 dt_unit_name(s->n.unit, x->c->layers, unit, sizeof(unit)), "op",
			 dt_node_op_name(s->n.op), "name", s->n.name, "again", s->again, "start_s", start,
			 "seconds", dt_now() - start);
	rc = line && json_dumpf(line, x->trace, JSON_COMPACT) == 0 && putc('\n', x->trace) != EOF ? 0 : -EIO;
	json_decref(line);
	return rc < 0 ? dt_err_sys(err, errno ? -errno : rc, "cannot write the trace") : 0;
}
