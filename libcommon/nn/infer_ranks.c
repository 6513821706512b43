/* What ranks of a served model tell each other: rows between stages, logits and pooled states at the end. */
#include "comm/comm.h"
#include "nn/exec.h"
#include "nn/infer_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_ROWS = 1, TAG_LOGITS, TAG_POOL };

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
		for (size_t i = 0; i < rows; i++)
			memcpy(logits + i * vocab + off[0], all + (size_t)r * each + i * (size_t)shape[0],
			       (size_t)shape[0] * sizeof(*logits));
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

/* The sums of sequences that are pooled, one after the other; the first stage adds them to its own. */
static int finish_pool(struct dt_infer *m, const struct dt_infer_batch *b, bool first, struct dt_err *err)
{
	const size_t hidden = (size_t)m->config.hidden;
	const int last = m->ranks.layout.pp - 1;
	float *sum = first ? malloc(hidden * sizeof(*sum)) : NULL;
	int rc = first && !sum ? dt_err_sys(err, -ENOMEM, "cannot pool") : 0;

	for (int i = 0; b->pool && i < b->nseq && rc == 0; i++) {
		if (!b->pool[i])
			continue;
		if (!first) {
			rc = dt_send(m->ranks.pp, b->pool[i], hidden, DT_F32, 0, TAG_POOL, "pooled states",
				     err);
			continue;
		}
		rc = dt_recv(m->ranks.pp, sum, hidden, DT_F32, last, TAG_POOL, "pooled states", err);
		for (size_t k = 0; k < hidden && rc == 0; k++)
			b->pool[i][k] += sum[k];
	}
	free(sum);
	return rc;
}

const float *dt_infer_made(const struct dt_infer *m)
{
	const struct dt_prog *p = &m->plan.stage.chunk[0];

	return dt_exec_value(&m->x, &m->flight, p->step[p->start[DT_LIST_LOSS]].n.out[3]);
}

int dt_infer_draw(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	const struct dt_ops *o = m->dev->ops;

	TRY(o->sample(m->dev, b->drawn, dt_t2(logits, DT_F32, b->nwant, m->config.vocab), b->draw, b->edit,
		      b->nedits));
	return 0;
}

int dt_infer_finish(struct dt_infer *m, const struct dt_infer_batch *b, const float *made, float *logits,
		    struct dt_err *err)
{
	const size_t n = (size_t)b->nwant * (size_t)m->config.vocab;
	const bool first = m->ranks.at.pp == 0, last = dt_infer_last_stage(m);
	int rc = 0;

	if (m->ranks.at.tp > 0 || m->ranks.at.cp > 0 || (!first && !last))
		return 0;
	rc = finish_pool(m, b, first, err);
	if (rc < 0 || !n)
		return rc;
	if (last)
		return dt_send(m->ranks.pp, made, n, DT_F32, 0, TAG_LOGITS, "logits", err);
	rc = dt_recv(m->ranks.pp, logits, n, DT_F32, m->ranks.layout.pp - 1, TAG_LOGITS, "logits", err);
	return rc < 0 || !b->draw ? rc : dt_infer_draw(m, b, logits, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
