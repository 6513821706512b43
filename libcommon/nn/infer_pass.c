/* One pass over the rows of a batch on this rank's stage. */
#include "comm/comm.h"
#include "kernels/ops.h"
#include "nn/exec.h"
#include "nn/infer_disk.h"

#include <errno.h>
#include <stdlib.h>

/* Sums in f32 row by row, so that the result does not depend on how a prompt was split. */
static int pool_rows(const struct dt_infer *m, const void *rows, int seq, float *sum)
{
	const struct dt_infer_batch *b = m->batch;
	int64_t n = m->config.hidden, first = b->q_start[seq],
		count = m->p.pools_first ? 1 : b->q_start[seq + 1] - first;
	size_t e = (size_t)dt_dtype_size(m->p.dtype), bytes = (size_t)(count * n) * e;
	char *copy = NULL;
	const void *x = (const char *)rows + (size_t)(first * n) * e;
	int rc = 0;

	if (!dt_dev_is_host(m->dev)) {
		copy = malloc(bytes);
		rc = copy ? dt_dev_copy(m->dev, copy, x, bytes) : -ENOMEM;
		if (rc == 0)
			rc = dt_dev_sync(m->dev);
		x = copy;
	}
	for (int64_t t = 0; t < count && rc == 0; t++)
		for (int64_t i = 0; i < n; i++)
			sum[i] += m->p.dtype == DT_F32 ? ((const float *)x)[t * n + i]
						       : dt_bf16_to_f32(((const uint16_t *)x)[t * n + i]);
	free(copy);
	return rc;
}

/* On the last stage's first rank: adds up the final hidden states of the sequences to be pooled. */
static int pool_all(const struct dt_infer *m, const struct dt_infer_batch *b, struct dt_err *err)
{
	const struct dt_prog *p = &m->plan.stage.chunk[0];
	const struct dt_node *head = &p->step[p->start[DT_LIST_LOSS]].n;

	for (int i = 0; b->pool && i < b->nseq; i++)
		if (b->pool[i])
			TRY(pool_rows(m, dt_exec_value(&m->x, &m->flight, head->in[0]), i, b->pool[i]));
	return 0;
}

/* Copies all rows' final hidden states, or a tower's rows, to where they are wanted: on the last stage. */
static int keep_hidden(const struct dt_infer *m, const struct dt_infer_batch *b, struct dt_err *err)
{
	const struct dt_prog *p = &m->plan.stage.chunk[0];
	const struct dt_node *head = &p->step[p->start[DT_LIST_LOSS]].n;

	if (b->hidden)
		TRY(dt_dev_copy(m->dev, b->hidden, dt_exec_value(&m->x, &m->flight, head->in[0]),
				(size_t)(dt_value_numel(p, head->in[0]) * dt_dtype_size(m->p.dtype))));
	return 0;
}

static int before_unit(void *arg, int unit, bool backward, struct dt_err *err)
{
	struct dt_infer *m = arg;

	if (m->ranks.world) /* sends to other stages progress meanwhile */
		dt_comm_poll(m->ranks.world, NULL);
	if (!m->disk)
		return 0;
	return dt_infer_disk_layer(m, m->plan.stage.local.unit[unit].layer, err);
}

int dt_infer_pass(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	struct dt_prog *p = &m->plan.stage.chunk[0];
	const struct dt_hooks hooks = {.arg = m, .before = before_unit};
	int rc = 0;

	m->batch = b;
	m->wholes = dt_infer_wholes(b);
	dt_infer_narrow_begin(m, b);
	m->window = (struct dt_infer_window){.end = b->nseq};
	m->logits = logits;
	m->x.pos = (int32_t *)dt_infer_there(m, b->pos);
	p->rows[DT_ROWS_ALL] = p->rows[DT_ROWS_STREAM] = p->rows[DT_ROWS_SEQ] = b->ntokens;
	if (b->rows_of_cp)
		p->rows[DT_ROWS_SEQ] = dt_infer_rows_before(b->rows_of_cp, m->ranks.layout.cp);
	if (m->config.sees)
		p->rows[DT_ROWS_JOINED] = b->ntokens / dt_tower_joined(&m->config.tower);
	p->rows[DT_ROWS_EXPERTS] =
		b->rows_of_ep ? dt_infer_rows_before(b->rows_of_ep, m->ranks.layout.ep) : b->ntokens;
	if (p->input >= 0 && b->ntokens > 0)
		rc = dt_infer_receive(m, err);
	if (rc == 0)
		rc = dt_exec_run(&m->x, &m->flight, DT_LIST_FORWARD, m->disk || m->ranks.pp ? &hooks : NULL,
				 err);
	if (rc == 0 && p->output >= 0 && b->ntokens > 0)
		rc = dt_infer_send(m, err);
	if (rc == 0 && dt_infer_last_stage(m))
		rc = pool_all(m, b, err);
	if (rc == 0)
		rc = keep_hidden(m, b, err);
	if (rc == 0 && b->nwant > 0)
		rc = dt_exec_run(&m->x, &m->flight, DT_LIST_LOSS, NULL, err);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
