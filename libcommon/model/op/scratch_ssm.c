/* What the ops of Mamba-2's mixer take. */
#include "model/op/scratch_need.h"

#include "kernels/rmsnorm.h"
#include "kernels/ssm.h"

static struct dt_ssm ssm_of(const struct dt_need *w, const struct dt_node *n)
{
	const int64_t rows = w->s->p->rows[DT_ROWS_ALL], seq = w->s->seq ? w->s->seq : rows; /* serving */

	return (struct dt_ssm){.batch = rows / seq,
			       .seq = seq,
			       .heads = n->attr.heads,
			       .head_dim = n->attr.head_dim,
			       .groups = n->attr.kv_heads,
			       .state = n->attr.value_dim,
			       .kernel = n->attr.taps};
}

#define NEED(name) void dt_need_ssm_##name(const struct dt_need *w, const struct dt_node *n)
/* What the op takes that the mixer's sizes determine. */
#define NEED_OF(name, scratch)                                                                               \
	NEED(name)                                                                                           \
	{                                                                                                    \
		const struct dt_ssm p = ssm_of(w, n);                                                        \
                                                                                                             \
		dt_need_op(w, scratch(w->on, &p));                                                           \
	}

NEED_OF(conv, dt_ssm_conv_scratch)
NEED_OF(conv_b, dt_ssm_conv_backward_scratch)
NEED_OF(scan, dt_ssm_scan_scratch)
NEED_OF(scan_b, dt_ssm_scan_backward_scratch)
NEED_OF(conv_step, dt_ssm_conv_step_scratch)
NEED_OF(scan_step, dt_ssm_scan_step_scratch)

NEED(gate)
{
	dt_need_op(w, dt_ssm_gate_scratch(w->on, dt_need_cols(w, n->in[0])));
}

/* Columns of a group on this rank. */
static int64_t of_group(const struct dt_need *w, const struct dt_node *n)
{
	return dt_need_cols(w, n->in[0]) / n->attr.kv_heads;
}

NEED(norm)
{
	dt_need_op(w, dt_rmsnorm_forward_scratch(w->on, of_group(w, n)));
	if (n->out[2] >= 0)
		dt_need_op(w, dt_heads_sums_scratch(w->on, of_group(w, n)));
}

NEED(norm_b)
{
	dt_need_op(w, dt_rmsnorm_backward_scratch(w->on, dt_need_rows(w, n->in[0]), of_group(w, n)));
	if (n->out[1] >= 0)
		dt_need_op(w, dt_heads_sums_scratch(w->on, of_group(w, n)));
}
/* SPDX-License-Identifier: Apache-2.0 */
