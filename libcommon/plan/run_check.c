/* Valid combinations of a run's options: all refusals of dt-train, dt-memest and dt-plan are made here. */
#include "plan/run_check.h"
#include "plan/rounds.h"

#include "kernels/unpack.h"
#include "plan/context.h"
#include "plan/objective.h"
#include "plan/stage.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

/* Checks that the layout can cut the model, and refuses axes that can be planned but not trained. */
static int check_cut(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_layout *l = &r->layout;
	int rc = dt_config_computable(r->config, err);

	if (rc < 0 || (rc = dt_layout_check(l, r->config, err)) < 0)
		return rc;
	if (r->no_master && r->config->router_bias)
		return dt_err_set(err, -ENOTSUP, "--no-master: the router biases of '%s' need master weights",
				  r->config->name);
	if (l->zero == 3 && l->pp > 1)
		return dt_err_set(err, -ENOTSUP, "z3 cannot be combined with a pipeline");
	return 0;
}

/*
 * The first row length of p's part on some rank that is not a whole number of blocks of the format; 0: none.
 */
static int64_t cut_rows(const struct dt_run *r, const struct dt_param *p)
{
	const struct dt_format_info *f = dt_format_info(dt_param_format(r->config, p, dt_run_qat(r)));
	int64_t off[2], shape[2];

	for (int k = 0; k < r->layout.tp && f->dtype < 0; k++) {
		dt_param_cut(p, r->layout.tp, k, off, shape);
		if (off[1] % f->block || shape[1] % f->block)
			return shape[1];
	}
	return 0;
}

/* Checks --qat, which rounds matrices to blocks before use. */
static int check_qat(const struct dt_run *r, struct dt_err *err)
{
	const char *what = dt_config_is_image(r->config) ? "classifiers of images"
			   : r->config->lora.rank	 ? "--lora, whose base is frozen (--lora-base)"
			   : r->fp8			 ? "--fp8"
			   : r->compute != DT_F32 && r->no_master ? "--no-master"
			   : r->offload.what			  ? "--offload"
			   : r->objective.kind			  ? "an --objective other than nll"
								  : NULL;
	struct dt_params t;
	int rc;

	if (!r->qat)
		return 0;
	if (what)
		return dt_err_set(err, -ENOTSUP, "--qat cannot be combined with %s", what);
	if ((rc = dt_model_params(r->config, &t, err)) < 0)
		return rc;
	for (int i = 0; i < t.n && rc == 0; i++) {
		const int64_t n = cut_rows(r, &t.p[i]);

		if (n)
			rc = dt_err_set(
				err, -EINVAL,
				"--qat: tp%d cuts rows of '%s' to %lld elements, not a multiple of the block "
				"size %d",
				r->layout.tp, t.p[i].name, (long long)n,
				dt_format_info(dt_param_format(r->config, &t.p[i], dt_run_qat(r)))->block);
	}
	dt_params_release(&t);
	return rc;
}

static int check_numbers(const struct dt_run *r, struct dt_err *err)
{
	int linears, rc = check_qat(r, err);

	if (rc < 0)
		return rc;

	if (r->no_master && r->compute == DT_F16)
		return dt_err_set(err, -EINVAL, "fp16 needs master weights: leave --no-master out");
	if (r->reproducible && (r->layout.zero || r->grad_comm != DT_F32))
		return dt_err_set(err, -EINVAL, "--reproducible cannot be combined with %s",
				  r->layout.zero ? "ZeRO" : "--grad-comm bf16");
	if (r->watch.replicas && r->layout.ep > 1)
		return dt_err_set(err, -ENOTSUP,
				  "--check-replicas cannot be combined with expert parallelism (ep)");
	if (!r->fp8)
		return 0;
	if ((rc = dt_stage_count_8_bits(r, &linears, err)) < 0)
		return rc;
	if (!linears) {
		char layout[64];

		dt_err_set(err, -EINVAL,
			   "--fp8: no linear of '%s' has sizes that are multiples of 16 on layout '%s'",
			   r->config->name, dt_layout_format(&r->layout, layout, sizeof(layout)));
		dt_err_hint(err, "microbatch x seq must also be a multiple of 16");
		return -EINVAL;
	}
	return 0;
}

/* Checks that no cut divides blocks of the base. */
static int check_base(const struct dt_run *r, struct dt_err *err)
{
	int64_t block = dt_blocks_size((enum dt_block_kind)r->config->lora.base), off[2], shape[2];
	struct dt_params t;
	int rc = 0, packed = 0;

	if (r->config->lora.rank && r->config->experts && r->config->router_bias &&
	    r->mixture.bias_rate > 0) {
		dt_err_set(err, -ENOTSUP,
			   "--lora: --router-bias-rate changes the router biases of '%s', which adapters do "
			   "not store",
			   r->config->name);
		dt_err_hint(err, "with --router-bias-rate 0 they stay those of the base");
		return -ENOTSUP;
	}
	if (!r->config->lora.base)
		return 0;
	if (r->layout.zero == 3)
		return dt_err_set(err, -EINVAL,
				  "--lora-base cannot be combined with z3: every rank keeps the whole base");
	if ((rc = dt_model_params(r->config, &t, err)) < 0)
		return rc;
	for (int i = 0; i < t.n && rc == 0; i++) {
		packed += t.p[i].blocks != 0;
		for (int k = 0; t.p[i].blocks && k < r->layout.tp && rc == 0; k++) {
			dt_param_cut(&t.p[i], r->layout.tp, k, off, shape);
			if (off[1] % block || shape[1] % block)
				rc = dt_err_set(err, -EINVAL,
						"--lora-base: tp%d cuts rows of '%s' to %lld elements, not a "
						"multiple of the block size %lld",
						r->layout.tp, t.p[i].name, (long long)shape[1],
						(long long)block);
		}
	}
	if (rc == 0 && !packed)
		rc = dt_err_set(err, -EINVAL,
				"--lora-base: no linear of '%s' has rows of whole blocks of %lld elements",
				r->config->name, (long long)block);
	dt_params_release(&t);
	return rc;
}

int dt_run_check_seq(const struct dt_run *r, struct dt_err *err)
{
	if (dt_config_is_image(r->config) && r->seq > 1)
		return dt_err_set(err, -EINVAL, "--seq is for text models, which '%s' is not",
				  r->config->name);
	if (r->config->pos == DT_POS_LEARNED && r->seq > r->config->max_seq)
		return dt_err_set(err, -EINVAL, "sequence length %lld exceeds the model's %lld positions",
				  (long long)r->seq, (long long)r->config->max_seq);
	if (r->seq <= dt_config_positions(r->config))
		return 0;
	dt_err_set(err, -EINVAL, "sequence length %lld exceeds the %lld positions of '%s'", (long long)r->seq,
		   (long long)dt_config_positions(r->config), r->config->name);
	dt_err_hint(
		err, "--rope-scaling yarn:%lld extends them",
		(long long)((r->seq + dt_config_positions(r->config) - 1) / dt_config_positions(r->config)));
	return -EINVAL;
}

static int check_sizes(const struct dt_run *r, struct dt_err *err)
{
	int rc;

	if (r->microbatch < 1 || r->seq < 1)
		return dt_err_set(err, -EINVAL, "microbatch %lld and sequence length %lld must be at least 1",
				  (long long)r->microbatch, (long long)r->seq);
	if (r->microbatch > INT32_MAX / r->seq)
		return dt_err_set(err, -ERANGE, "a microbatch of %lld x %lld tokens is too large",
				  (long long)r->microbatch, (long long)r->seq);
	if ((rc = dt_run_check_seq(r, err)) < 0)
		return rc;
	if ((rc = dt_context_check(r, err)) < 0)
		return rc;
	if (r->layout.seq_parallel && r->microbatch * dt_run_local_seq(r) % r->layout.tp)
		return dt_err_set(err, -EINVAL, "s1: tp%d does not divide the %lld tokens of a microbatch",
				  r->layout.tp, (long long)(r->microbatch * dt_run_local_seq(r)));
	return 0;
}

/* Checks offloaded weights, which units fetch when they compute. */
static int check_streams(const struct dt_run *r, struct dt_err *err)
{
	const char *what = r->config->lora.rank			? "--lora: frozen weights stay in memory"
			   : r->freeze				? "--freeze: frozen weights stay in memory"
			   : dt_config_is_image(r->config)	? "classifiers of images"
			   : r->layout.zero && r->layout.pp > 1 ? "a pipeline (pp) with ZeRO"
			   : dt_run_splits(r)			? "a split backward (zb-h1)"
								: NULL;

	return what ? dt_err_set(err, -ENOTSUP, "--offload weights cannot be combined with %s", what) : 0;
}

int dt_run_check_host(const struct dt_run *r, struct dt_err *err)
{
	if (!r->offload.what || r->on_card || r->offload.to != DT_PLACE_HOST)
		return 0;
	dt_err_set(err, -EINVAL,
		   "--offload-to host is for GPUs: on a CPU everything is in host memory already");
	dt_err_hint(err, "--offload-to disk:DIR works on both");
	return -EINVAL;
}

/* Checks --offload. */
static int check_offload(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_run_offload *o = &r->offload;
	const struct dt_optim_rule *rule = dt_optim_rule(r->optim.kind);
	bool master = dt_run_masters(r);
	int rc;

	if (!o->what)
		return 0;
	if ((rc = dt_run_check_host(r, err)) < 0)
		return rc;
	if (o->what & DT_OFFLOAD_ACTIVATIONS) {
		if (r->layout.pp > 1 || dt_config_is_image(r->config))
			return dt_err_set(err, -ENOTSUP, "--offload activations cannot be combined with %s",
					  r->layout.pp > 1 ? "a pipeline (pp)" : "classifiers of images");
		if (r->config->layers < 4)
			return dt_err_set(err, -EINVAL,
					  "--offload activations needs at least 4 layers, but '%s' has %lld",
					  r->config->name, (long long)r->config->layers);
	}
	if (!(o->what & (DT_OFFLOAD_OPTIMIZER | DT_OFFLOAD_WEIGHTS)))
		return 0;
	if ((o->what & DT_OFFLOAD_WEIGHTS) && (rc = check_streams(r, err)) < 0)
		return rc;
	if (!dt_optim_states(r->optim.kind) && !master && (o->what & DT_OFFLOAD_OPTIMIZER))
		return dt_err_set(err, -EINVAL, "--offload optimizer: %s has no states", rule->name);
	for (int i = 0; i < dt_optim_states(r->optim.kind); i++)
		if (rule->state[i].shape != DT_STATE_EACH)
			return dt_err_set(
				err, -ENOTSUP,
				"--offload %s: %s has optimizer states that are not one value per parameter",
				o->what_text, rule->name);
	if ((master || (o->what & DT_OFFLOAD_WEIGHTS)) && r->config->router_bias)
		return dt_err_set(err, -ENOTSUP,
				  "--offload: the router biases of '%s' need master weights in memory",
				  r->config->name);
	if (r->save.async)
		return dt_err_set(
			err, -EINVAL,
			"--save-async cannot be combined with --offload: it keeps a copy in memory");
	if (r->watch.replicas)
		return dt_err_set(err, -ENOTSUP, "--check-replicas cannot be combined with --offload");
	return 0;
}

static int no_images(const struct dt_run *r, const char *what, struct dt_err *err)
{
	return dt_err_set(err, -ENOTSUP, "'%s' is an image classifier, which cannot be trained with %s",
			  r->config->name, what);
}

/* Checks image classifiers: only data-parallel and ZeRO layouts, and batch norm groups that ranks divide. */
static int check_images(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_layout *l = &r->layout;
	const int64_t n = r->bn_span, mb = r->microbatch;
	const char *what = l->tp > 1 && !r->config->patch	    ? "tensor parallelism (tp)"
			   : l->seq_parallel			    ? "sequence parallelism (s1)"
			   : l->pp > 1				    ? "a pipeline (pp)"
			   : l->cp > 1				    ? "context parallelism (cp)"
			   : l->ep > 1				    ? "expert parallelism (ep)"
			   : r->fp8				    ? "--fp8"
			   : r->compute == DT_F16		    ? "--precision fp16"
			   : r->reproducible			    ? "--reproducible"
			   : r->documents == DT_RUN_DOCUMENTS_APART ? "--documents apart"
			   : (r->recompute.fit || r->recompute.mode) && !r->config->patch
				   ? "--recompute: batch norms are computed only once"
			   : r->noise_scale && dt_rounds_uneven(r)
				   ? "--noise-scale and ranks with unequal batches"
				   : NULL;

	if (what)
		return no_images(r, what, err);
	if (n > 0 && (n < mb ? mb % n : n % mb || n / mb > l->dp || l->dp % (n / mb)))
		return dt_err_set(err, -EINVAL,
				  "--bn-span %lld must divide the microbatch (%lld) or be a multiple of it "
				  "that divides microbatch x dp (%lld)",
				  (long long)n, (long long)mb, (long long)mb * l->dp);
	return 0;
}

int run_check_pipeline(const struct dt_run *r, struct dt_err *err)
{
	int chunks = dt_layout_chunks(&r->layout), pp = r->layout.pp;
	int64_t mbs = dt_run_accumulation(r);
	const char *against = r->reproducible			       ? "--reproducible"
			      : r->layout.zero >= 2		       ? "z2 and z3"
			      : r->recompute.mode == DT_RECOMPUTE_FULL ? "full recomputation"
								       : NULL;

	if (pp == 1)
		return r->schedule ? dt_err_set(err, -EINVAL,
						"--schedule-file is for pipelines, but the layout has none")
				   : 0;
	if (chunks > DT_MAX_CHUNKS)
		return dt_err_set(err, -EINVAL, "v%d: at most %d chunks per stage", chunks, DT_MAX_CHUNKS);
	if (mbs > 65536 || mbs * pp * chunks > INT_MAX / 8)
		return dt_err_set(err, -ERANGE, "%lld microbatches per step are too many for a pipeline",
				  (long long)mbs);
	if (dt_run_splits(r) && against)
		return dt_err_set(err, -EINVAL, "a split backward (zb-h1) cannot be combined with %s",
				  against);
	if (r->schedule)
		return 0;
	if (chunks > 1 && (r->pipeline == DT_PIPE_GPIPE || r->pipeline == DT_PIPE_ZB_H1))
		return dt_err_set(err, -EINVAL, "only interleaved pipelines have several chunks per stage");
	if (chunks > 1 && mbs % pp)
		return dt_err_set(err, -EINVAL,
				  "interleaved: the microbatches (%lld) must be a multiple of pp (%d)",
				  (long long)mbs, pp);
	return 0;
}

/* Checks a growing batch: whole microbatches on every rank. */
static int check_ramp(const struct dt_run *r, struct dt_err *err)
{
	const int64_t each = r->microbatch * r->layout.dp;
	struct dt_run first = *r;

	if (!r->ramp.tokens)
		return 0;
	if (dt_objective_rule(r->objective.kind)->rewards)
		return dt_err_set(err, -EINVAL,
				  "--global-batch FROM..TO cannot be combined with RL objectives");
	if (r->schedule)
		return dt_err_set(
			err, -ENOTSUP,
			"--schedule-file has a fixed number of microbatches and cannot be combined with a "
			"growing --global-batch");
	if (each > 0 && r->ramp.from % each && !r->watch.elastic)
		return dt_err_set(
			err, -EINVAL,
			"initial global batch %lld is not a multiple of microbatch x dp = %lld x %d",
			(long long)r->ramp.from, (long long)r->microbatch, r->layout.dp);
	dt_run_batch_at(&first, 0);
	return run_check_pipeline(&first, err);
}

int dt_run_check(const struct dt_run *r, struct dt_err *err)
{
	int rc = dt_config_is_image(r->config) ? check_images(r, err) : 0;

	if (rc < 0 || (rc = check_cut(r, err)) < 0 || (rc = check_sizes(r, err)) < 0 ||
	    (rc = check_base(r, err)) < 0 || (rc = run_check_learning(r, err)) < 0 ||
	    (rc = check_numbers(r, err)) < 0 || (rc = check_offload(r, err)) < 0 ||
	    (rc = check_ramp(r, err)) < 0 || (rc = run_check_elastic(r, err)) < 0)
		return rc;
	if (r->stream_overlap == DT_RUN_OVERLAP_ON && r->on_card)
		return dt_err_set(err, -ENOTSUP, "--stream-overlap on is not available on GPUs");
	if (r->extremes && !r->details)
		return dt_err_set(err, -EINVAL, "--extremes needs --details");
	return run_check_pipeline(r, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
