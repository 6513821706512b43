/* Communication between a served model's ranks in a pass: rows between stages, logits of tp ranks. */
#include "comm/comm.h"
#include "nn/exec.h"
#include "nn/infer_priv.h"

#include <string.h>

enum { TAG_ROWS = 1 };

int dt_infer_gather(struct dt_infer *m, const struct dt_node *n, float *logits, struct dt_err *err)
{
	const struct dt_exec *x = &m->x;
	const struct dt_param *head = &x->stage->graph.params.p[x->stage->local.p[n->param[0]].index];
	size_t rows = (size_t)m->batch->nwant, each = rows * (size_t)x->p->value[n->out[1]].cols;
	size_t vocab = (size_t)head->shape[0];
	float *all = dt_call_at(x, n->out[2]);
	int rc = dt_gather(x->tp, all, dt_call_at(x, n->out[1]), each, DT_F32, 0, "logits", err);

	for (int r = 0; all && r < m->ranks.layout.tp && rc == 0; r++) {
		int64_t off[2], shape[2];

		dt_param_cut(head, m->ranks.layout.tp, r, off, shape);
		TRY(dt_dev_copy_rows(x->dev, logits + off[0], vocab * sizeof(*logits), all + (size_t)r * each,
				     (size_t)shape[0] * sizeof(*logits), (size_t)shape[0] * sizeof(*logits),
				     (int64_t)rows));
	}
	return rc;
}

int dt_infer_receive(struct dt_infer *m, struct dt_err *err)
{
	const struct dt_prog *p = &m->plan.stage.chunk[0];

	return dt_recv(m->ranks.pp, dt_exec_value(&m->x, &m->flight, p->input),
		       (size_t)dt_value_numel(p, p->input), m->x.dtype, m->ranks.at.pp - 1, TAG_ROWS, "rows",
		       err);
}

int dt_infer_send(struct dt_infer *m, struct dt_err *err)
{
	const struct dt_prog *p = &m->plan.stage.chunk[0];

	return dt_send(m->ranks.pp, dt_exec_value(&m->x, &m->flight, p->output),
		       (size_t)dt_value_numel(p, p->output), m->x.dtype, m->ranks.at.pp + 1, TAG_ROWS, "rows",
		       err);
}

const float *dt_infer_made(const struct dt_infer *m)
{
	const struct dt_prog *p = &m->plan.stage.chunk[0];

	return dt_dev_is_host(m->dev)
		       ? dt_exec_value(&m->x, &m->flight, p->step[p->start[DT_LIST_LOSS]].n.out[3])
		       : m->side.logits;
}
/* SPDX-License-Identifier: Apache-2.0 */
