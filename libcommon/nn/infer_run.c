/* Results of a pass on the host: logits and draws; with stages, sent to the first with pooled states. */
#include "comm/comm.h"
#include "kernels/ops.h"
#include "nn/exec.h"
#include "nn/infer_priv.h"

#include <errno.h>
#include <stdlib.h>

enum { TAG_LOGITS = 2, TAG_POOL }; /* distinct from those of nn/infer_ranks.c */

int dt_infer_run(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	int rc;

	if (!dt_dev_is_host(m->dev))
		return dt_infer_side_forward(m, b, logits, err);
	rc = dt_infer_adapters_measured(m, b, err);
	return rc < 0 ? rc : dt_infer_pass(m, b, logits, err);
}

int dt_infer_draw(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	const struct dt_ops *o = m->dev->ops;

	if (!dt_dev_is_host(m->dev))
		return dt_infer_side_draw(m, b, logits, err);
	TRY(o->sample(m->dev, b->drawn, dt_t2(logits, DT_F32, b->nwant, m->config.vocab), b->draw, b->edit,
		      b->nedits));
	return 0;
}

/* Sends the sums of pooled sequences one by one; the first stage adds them to its own. */
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
