/* The scratch memory of a serving rank: what its engine reserves, and an estimate lists. */
#include "plan/entries.h"

#include "base/arena.h"
#include "kernels/sample.h"
#include "plan/formulas.h"
#include "plan/inferplan.h"

#include "model/flops.h"

#include <errno.h>
#include <stdlib.h>

/* With replicas, the engine samples from the logits itself. */
static bool samples(const struct dt_serving *s)
{
	return s->layout.dp == 1 && s->at.pp == 0 && s->at.tp == 0 && s->at.cp == 0;
}

void dt_infer_scratch(const struct dt_serving *s, const struct dt_stage *stage,
		      const struct dt_scratch_on *on, const struct dt_serving_limits *most,
		      struct dt_scratch *ret)
{
	const struct dt_cost_site site = {.p = &stage->chunk[0],
					  .tp = s->layout.tp,
					  .cp = s->layout.cp,
					  .ep = s->layout.ep,
					  .compute = s->compute,
					  .param = (const int64_t(*)[2])stage->shape};

	if (!on->threads)
		return;
	dt_serving_scratch(&site, on, most, ret);
	if (samples(s))
		dt_scratch_raise(ret, DT_SCRATCH_OP, dt_sample_scratch(on, most->seqs, s->config->vocab));
}

uint64_t dt_infer_scratch_bytes(const struct dt_scratch *s)
{
	uint64_t n = 0;

	for (int b = 0; b < DT_SCRATCH_N; b++)
		n += dt_align_up(s->bytes[b]);
	return n;
}

/* ---- estimates ---- */

int dt_kept_as_open(const struct dt_serve_shape *s, const struct dt_params *table,
		    const struct dt_local *local, struct dt_kept_as *ret, struct dt_err *err)
{
	const size_t n = (size_t)local->n + 1;

	*ret = (struct dt_kept_as){.n = local->n,
				   .part = calloc(n, sizeof(*ret->part)),
				   .format = calloc(n, sizeof(*ret->format)),
				   .others = s->loras ? calloc(n, sizeof(*ret->others)) : NULL};
	if (!ret->part || !ret->format || (s->loras && !ret->others))
		return dt_err_sys(err, -ENOMEM, "cannot estimate");
	for (int i = 0; i < local->n; i++) {
		const int whole = local->p[i].index;
		int asked;

		ret->part[i] = dt_infer_part(&table->p[whole], &local->p[i]);
		asked = s->stored ? -1 : dt_weight_kept_as(s->config, &ret->part[i], s->weights);
		if (asked < 0 && !s->stored)
			return dt_err_set(err, -ENOTSUP, "dt-serve cannot hold weights in this type");
		ret->format[i] = dt_infer_format(&ret->part[i], asked,
						 s->stored ? (enum dt_format)s->stored[whole] : DT_FMT_BF16,
						 s->compute);
		if (ret->others)
			ret->others[i] = dt_infer_format(&ret->part[i], asked, DT_FMT_F32, s->compute);
	}
	return 0;
}

void dt_kept_as_release(struct dt_kept_as *k)
{
	free(k->part);
	free(k->format);
	free(k->others);
}

static void put(struct dt_estimate *t, const struct dt_scratch *s, enum dt_exactness exactness)
{
	for (int b = 0; b < DT_SCRATCH_N; b++) {
		struct dt_entry *e = dt_entry_put(
			t, DT_MEM_SCRATCH, (double)dt_align_up(s->bytes[b]), DT_PH_FORWARD, DT_PH_FORWARD,
			dt_scratch_name((enum dt_scratch_buffer)b), "of the operation that takes most");

		if (e)
			e->exactness = exactness;
	}
}

void dt_scratch_of(const struct dt_serve_shape *s, const struct dt_serving *serving,
		   const struct dt_stage *stage, const struct dt_kept_as *kept, enum dt_dtype cache,
		   struct dt_scratch *ret)
{
	const int64_t pool = s->max_seqs * ((s->max_len + s->block - 1) / s->block) * s->block;
	const struct dt_serving_limits most = {.seqs = s->max_seqs,
					       .keys = s->max_len,
					       .all_keys = pool,
					       .cache = cache,
					       .format = kept->format,
					       .others = kept->others};
	struct dt_scratch_on on = s->scratch;

	on.batch_invariant = true; /* as every server on a processor */
	dt_infer_scratch(serving, stage, &on, &most, ret);
}

void dt_put_scratch(struct dt_estimate *t, const struct dt_serve_shape *s, const struct dt_serving *serving,
		    const struct dt_stage *stage, const struct dt_kept_as *kept, enum dt_dtype cache,
		    const struct dt_scratch *least)
{
	struct dt_scratch scratch = {0};

	dt_scratch_of(s, serving, stage, kept, cache, &scratch);
	for (int b = 0; least && b < DT_SCRATCH_N; b++)
		dt_scratch_raise(&scratch, (enum dt_scratch_buffer)b, least->bytes[b]);
	put(t, &scratch, s->account == DT_ACCOUNT_DT ? DT_EXACT : DT_MODELLED);
}

/*
 * As if a stage had layers of every kind, and embedding and head: scratch does not depend on their number.
 * Formats that dt-serve lacks are multiplied like others.
 */
int dt_put_scratch_of_any(struct dt_estimate *t, const struct dt_serve_shape *s, struct dt_err *err)
{
	struct dt_serve_shape one = *s;
	struct dt_config few;
	struct dt_serving serving = {.config = &few,
				     .compute = s->compute == DT_F32 ? DT_F32 : DT_BF16,
				     .rows = s->max_tokens,
				     .outputs = s->max_seqs,
				     .adapters = s->loras ? s->lora_rank : 0,
				     .layout = s->layout,
				     .at = {.tp = s->tp_rank}};
	struct dt_stage stage;
	struct dt_kept_as kept;
	int rc;

	if (!s->scratch.threads || dt_infer_serves(s->config, NULL) < 0)
		return 0;
	dt_config_short(s->config, &few);
	serving.layout.pp = 1;
	serving.layout.dp = s->layout.ep > 1 ? s->layout.ep : 1;
	one.config = &few;
	one.stored = NULL;
	if (dt_weight_kept_as(&few, &(struct dt_param){.role = DT_W_Q}, s->weights) < 0)
		one.weights = DT_WF_Q8_0;
	rc = dt_stage_build_serving(&serving, &stage, err);
	if (rc < 0)
		return rc;
	rc = dt_kept_as_open(&one, &stage.graph.params, &stage.local, &kept, err);
	if (rc == 0)
		dt_put_scratch(t, &one, &serving, &stage, &kept,
			       s->cache_bits < 8.0 * dt_dtype_size(serving.compute) ? DT_I8
			       : s->cache_bits > 16				    ? DT_F32
										    : serving.compute,
			       NULL);
	dt_kept_as_release(&kept);
	dt_stage_release(&stage);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
