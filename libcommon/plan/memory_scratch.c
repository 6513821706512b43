/* The device's scratch, as planned: the most that any node of the programs or the update takes. */
#include "plan/memory_priv.h"
#include "plan/states.h"

#include "kernels/elementwise.h"
#include "kernels/factor.h"
#include "kernels/gram.h"
#include "kernels/matmul.h"
#include "model/op/scratch.h"

static void of_op(struct dt_scratch *s, size_t bytes)
{
	dt_scratch_raise(s, DT_SCRATCH_OP, bytes);
}

/* muon: products of a whole matrix and of the square of its shorter side (train/whole_step.c). */
static void orthogonal(const struct dt_run *r, const struct dt_param *p, struct dt_scratch *s)
{
	const int64_t rows = p->shape[0], cols = p->shape[1], k = rows < cols ? rows : cols;
	const enum dt_dtype t = dt_whole_type(r->compute);
	const struct dt_product next = {.m = k, .n = rows + cols - k, .k = k, .in = t, .out = t};

	dt_gram_scratch(&r->scratch, k, next.n, t, s);
	dt_gram_scratch(&r->scratch, k, k, t, s);
	dt_matmul_scratch(&r->scratch, &next, s);
	of_op(s, dt_sumsq_scratch(&r->scratch, rows * cols));
}

/* What an update that looks at whole tensors takes for local parameter i. */
static void of_whole(const struct dt_run *r, const struct dt_states *of, int i, struct dt_scratch *s)
{
	const struct dt_local_param *lp = &of->local->p[i];
	const struct dt_param *p = &of->table->p[lp->index];
	int64_t first;
	const int64_t n = dt_states_share(of, i, &first);

	if (p->frozen)
		return;
	if (r->optim.kind == DT_OPTIM_MUON && dt_param_is_hidden(p))
		orthogonal(r, p, s);
	if (!n)
		return;
	if (r->optim.kind == DT_OPTIM_ADAFACTOR && p->ndim == 2)
		of_op(s, dt_factor_direction_scratch(&r->scratch, lp->shape[1]));
	if (dt_optim_rule(r->optim.kind)->flags & DT_OPTIM_NORMS)
		of_op(s, dt_sumsq_scratch(&r->scratch, n));
}

/* The check of a unit's gradients, unless their sums are fixed-point, and the optimizer. */
static void of_update(const struct dt_plan_builder *b, struct dt_coords at, struct dt_scratch *s)
{
	const struct dt_stage *stage = &b->plan->stage;
	const struct dt_states of = {&stage->graph.params, &stage->local, &b->r->layout, at};

	for (int u = 0; u < stage->local.nunit && !b->r->reproducible; u++)
		if (!stage->local.unit[u].frozen)
			of_op(s, dt_sumsq_scratch(&b->r->scratch, stage->local.unit[u].numel));
	for (int i = 0; i < stage->local.n; i++)
		if (dt_optim_rule(b->r->optim.kind)->flags & DT_OPTIM_WHOLE)
			of_whole(b->r, &of, i, s);
}

static void of_programs(const struct dt_plan_builder *b, struct dt_scratch *s)
{
	const struct dt_stage *stage = &b->plan->stage;

	for (int k = 0; k < stage->nchunk; k++) {
		const struct dt_cost_site site = dt_stage_site(stage, b->r, k);

		for (int i = 0; i < stage->chunk[k].nstep; i++)
			dt_node_scratch(&site, &b->r->scratch, &stage->chunk[k].step[i].n, s);
	}
}

void dt_plan_scratch(struct dt_plan_builder *b, struct dt_coords at)
{
	struct dt_scratch s = {0};

	if (!b->r->scratch.threads)
		return;
	of_programs(b, &s);
	of_update(b, at, &s);
	for (int i = 0; i < DT_SCRATCH_N; i++)
		dt_plan_flat(b, DT_B_SCRATCH, DT_MEM_SCRATCH, DT_U8, (int64_t)s.bytes[i], DT_PH_FORWARD,
			     DT_PH_STEP, i, dt_scratch_name((enum dt_scratch_buffer)i),
			     "of the operation that takes most");
}
/* SPDX-License-Identifier: Apache-2.0 */
