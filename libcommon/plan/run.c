#include "plan/run.h"

#include "base/json.h"
#include "base/units.h"
#include "kernels/unpack.h"
#include "model/lora.h"
#include "plan/context.h"
#include "plan/objective.h"
#include "plan/stage.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define USUAL_SEQ 256 /* tokens of a sample where nobody says */

/* The graph is built to find what expressions match. */
static int check_names(const struct dt_config *c, struct dt_err *err)
{
	struct dt_graph g;
	int rc = dt_graph_build(c, &g, err);

	if (rc == 0)
		dt_graph_release(&g);
	return rc;
}

static int freeze(const struct dt_run *r, struct dt_config *c, struct dt_err *err)
{
	if (r->lora.rank || c->lora.rank)
		return dt_err_set(err, -EINVAL, "--freeze does not go with adapters: all else is frozen");
	if (strlen(r->freeze) >= sizeof(c->freeze))
		return dt_err_set(err, -EINVAL, "--freeze is longer than %zu characters",
				  sizeof(c->freeze) - 1);
	strcpy(c->freeze, r->freeze);
	return check_names(c, err);
}

int dt_run_adapt(const struct dt_run *r, struct dt_config *c, struct dt_err *err)
{
	struct dt_lora l = {.rank = r->lora.rank,
			    .alpha = r->lora.alpha,
			    .dropout = r->lora.dropout,
			    .kind = r->lora.kind,
			    .base = r->lora.base,
			    .dora = r->lora.dora};
	const char *targets = r->lora.targets ? r->lora.targets : "all";
	int rc = dt_config_scale_rope(c, r->rope_scaling, err);

	if (dt_objective_rule(r->objective.kind)->values)
		c->value_head = true;
	if (rc == 0 && !l.rank && (l.base || l.dropout > 0 || l.dora))
		rc = dt_err_set(err, -EINVAL, "--%s goes with --lora",
				l.base	 ? "lora-base"
				: l.dora ? "dora"
					 : "lora-dropout");
	if (rc == 0 && r->freeze)
		return freeze(r, c, err);
	if (rc < 0 || !l.rank)
		return rc;
	if (c->lora.rank)
		return dt_err_set(err, -EINVAL, "'%s' has adapters already: --lora is for a base", c->name);
	if (strlen(targets) >= sizeof(l.targets))
		return dt_err_set(err, -EINVAL, "--lora-targets is longer than %zu characters",
				  sizeof(l.targets) - 1);
	strcpy(l.targets, targets);
	c->lora = l;
	return check_names(c, err);
}

/* What a batch of another size than the rate is for makes of it (Goyal et al. 2017; sqrt for Adam's kind). */
static int scale_rate(struct dt_run *r, struct dt_err *err)
{
	const char *s = r->scale_lr;
	bool root = s && !strncmp(s, "sqrt:", 5);
	int64_t of;

	r->lr.scale = 1;
	if (!s)
		return 0;
	if ((!root && strncmp(s, "linear:", 7)) ||
	    dt_parse_int(strchr(s, ':') + 1, 1, 1 << 30, &of, NULL) < 0)
		return dt_err_set(err, -EINVAL,
				  "--scale-lr '%.40s' is neither linear:SAMPLES nor sqrt:SAMPLES", s);
	r->lr.scale = (double)r->global_batch / (double)of;
	r->lr.scale = root ? sqrt(r->lr.scale) : r->lr.scale;
	return 0;
}

int dt_run_settle(struct dt_run *r, struct dt_err *err)
{
	int64_t each = r->microbatch * r->layout.dp;

	if (r->config && dt_config_is_image(r->config)) /* a sample is an image */
		r->seq = 1;
	else if (r->config && !r->seq)
		r->seq = r->config->max_seq < USUAL_SEQ ? r->config->max_seq : USUAL_SEQ;
	if (each < 1)
		return dt_err_set(err, -EINVAL, "a microbatch is at least one sample");
	if (!r->global_batch && __builtin_mul_overflow(each, dt_run_accumulation(r), &r->global_batch))
		return dt_err_set(err, -ERANGE, "%lld microbatches of %lld samples are too many",
				  (long long)r->accumulation, (long long)each);
	if (r->global_batch % each && !r->watch.elastic) {
		dt_err_set(err, -EINVAL, "global batch %lld is not a multiple of microbatch x dp = %lld x %d",
			   (long long)r->global_batch, (long long)r->microbatch, r->layout.dp);
		dt_err_hint(err, "global_batch = microbatch x accumulation x dp, in samples");
		return -EINVAL;
	}
	if (r->reproducible) /* gradients are summed a sample at a time */
		r->microbatch = 1;
	each = r->microbatch * r->layout.dp;
	r->accumulation = (r->global_batch + each - 1) / each;
	return scale_rate(r, err);
}

/* The model cut by the layout, and axes that can be planned but not trained. */
static int check_cut(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_layout *l = &r->layout;
	int rc = dt_config_computable(r->config, err);

	if (rc < 0 || (rc = dt_layout_check(l, r->config, err)) < 0)
		return rc;
	if (r->config->experts && r->on_card)
		return dt_err_set(err, -ENOTSUP,
				  "'%s' has experts, which this version trains on the processor only",
				  r->config->name);
	if (r->no_master && r->config->router_bias)
		return dt_err_set(err, -ENOTSUP, "'%s' has biases of its router, which need master weights",
				  r->config->name);
	if (l->tp > 1 && r->config->qk_norm_whole)
		return dt_err_set(err, -ENOTSUP,
				  "'%s' has norms over all heads of q and k, which tp%d cannot cut",
				  r->config->name, l->tp);
	if (l->zero == 3 && l->pp > 1)
		return dt_err_set(err, -ENOTSUP, "z3 cannot be combined with a pipeline");
	return 0;
}

/* --no-decay names some parameter. */
static int check_decay(const struct dt_run *r, struct dt_err *err)
{
	struct dt_params t;
	int rc;

	if (!r->no_decay || !strcmp(r->no_decay, "norm,bias"))
		return 0;
	if ((rc = dt_model_params(r->config, &t, err)) < 0)
		return rc;
	rc = dt_run_decay(r, &t, err);
	dt_params_release(&t);
	return rc;
}

/* What an optimizer that looks at whole tensors, or keeps other states than a value an element, goes with. */
static int check_optimizer(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_optim_rule *o = dt_optim_rule(r->optim.kind);
	const bool blocks = o->state[0].shape == DT_STATE_BLOCKS;
	int rc;

	if (r->on_card && (o->flags & DT_OPTIM_HOST))
		return dt_err_set(err, -ENOTSUP, "%s is computed on the processor only by this version",
				  o->name);
	if (r->no_master && (blocks || (o->flags & DT_OPTIM_WHOLE)))
		return dt_err_set(err, -EINVAL, "--optimizer %s needs master weights: leave --no-master out",
				  o->name);
	if (r->layer_decay > 0 && r->layer_decay < 1 && (o->flags & DT_OPTIM_WHOLE))
		return dt_err_set(err, -ENOTSUP,
				  "--layer-lr-decay: %s of this version has one rate for all tensors",
				  o->name);
	if ((rc = check_decay(r, err)) < 0)
		return rc;
	if (r->offload.what && (o->flags & DT_OPTIM_WHOLE))
		return dt_err_set(err, -ENOTSUP,
				  "--offload: %s looks at whole tensors, which are not there at once",
				  o->name);
	if (r->config->experts && (r->optim.kind == DT_OPTIM_MUON || r->optim.kind == DT_OPTIM_ADAFACTOR))
		return dt_err_set(err, -ENOTSUP,
				  "'%s' has experts in one tensor a layer, which %s of this version does not "
				  "see apart",
				  r->config->name, o->name);
	return 0;
}

/* The slowest ranks of a step stop inside it: nobody may wait for them there. */
static int check_backup(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_layout *l = &r->layout;
	const char *what = l->zero			   ? "ZeRO"
			   : l->tp > 1			   ? "tensor parallelism (tp)"
			   : l->pp > 1			   ? "a pipeline (pp)"
			   : l->cp > 1			   ? "context parallelism (cp)"
			   : l->ep > 1			   ? "expert parallelism (ep)"
			   : r->config->experts		   ? "a model with experts"
			   : dt_config_is_image(r->config) ? "images"
			   : r->objective.kind		   ? "--objective"
			   : r->teacher.file		   ? "--teacher"
			   : r->reproducible		   ? "--reproducible: who is slow is never the same"
			   : r->offload.what		   ? "--offload"
			   : r->on_card			   ? "a card: its work is queued ahead"
			   : r->sync.from		   ? "--sync-from"
							   : NULL;

	if (r->sync.kind != DT_SYNC_BACKUP)
		return 0;
	if (what)
		return dt_err_set(err, -ENOTSUP, "--sync %s does not go with %s", r->sync.text, what);
	return l->dp && r->sync.backup >= l->dp && r->sync.backup
		       ? dt_err_set(err, -EINVAL, "--sync %s leaves no rank: dp is %d", r->sync.text, l->dp)
		       : 0;
}

/* Ranks that train alone between merges: whole weights, of which each has its own. */
static int check_sync(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_optim_rule *o = dt_optim_rule(r->optim.kind);
	const char *what = r->layout.zero		   ? "ZeRO: each rank updates all of its weights"
			   : r->layout.cp > 1		   ? "context parallelism (cp)"
			   : r->config->experts		   ? "a model with experts"
			   : r->reproducible		   ? "--reproducible"
			   : r->no_master		   ? "--no-master"
			   : r->offload.what		   ? "--offload"
			   : r->watch.replicas		   ? "--check-replicas"
			   : r->watch.on_spike		   ? "--on-spike: ranks have norms of their own"
			   : r->save.grads		   ? "gradients in checkpoints"
			   : dt_config_is_image(r->config) ? "images"
							   : NULL;

	if (!dt_run_alone(r))
		return check_backup(r, err);
	for (int i = 0; i < dt_optim_states(r->optim.kind); i++)
		if (o->state[i].shape != DT_STATE_EACH)
			what = "an optimizer whose states are not a value an element";
	return what ? dt_err_set(err, -ENOTSUP, "--sync %s does not go with %s", r->sync.text, what) : 0;
}

/* The noise scale compares the gradients of ranks with their mean, whole ones. */
static int check_noise(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_layout *l = &r->layout;

	if (!r->noise_scale || !l->dp)
		return 0;
	if (l->dp == 1)
		return dt_err_set(
			err, -EINVAL,
			"--noise-scale compares gradients of data-parallel ranks, but there is one");
	if (l->tp > 1 || l->pp > 1 || l->cp > 1 || l->ep > 1 || l->zero > 1 || r->reproducible ||
	    r->sync.kind)
		return dt_err_set(
			err, -ENOTSUP,
			"--noise-scale is for data parallelism alone (z0 or z1), summed every step, and "
			"not for --reproducible");
	return 0;
}

/* Compressed gradients are whole tensors of all data-parallel ranks. */
static int check_compress(const struct dt_run *r, struct dt_err *err)
{
	const char *what = r->layout.zero      ? "ZeRO"
			   : r->layout.tp > 1  ? "tensor parallelism (tp)"
			   : r->layout.pp > 1  ? "a pipeline (pp)"
			   : r->layout.cp > 1  ? "context parallelism (cp)"
			   : r->layout.ep > 1  ? "expert parallelism (ep)"
			   : r->sync.kind      ? "--sync"
			   : r->noise_scale    ? "--noise-scale"
			   : r->reproducible   ? "--reproducible"
			   : r->on_card	       ? "a card: it is computed on the processor"
			   : r->watch.replicas ? "--check-replicas"
					       : NULL;

	if (!r->compress.on)
		return 0;
	return what ? dt_err_set(err, -ENOTSUP, "--grad-comm %s does not go with %s", r->compress.text, what)
		    : 0;
}

/* The average is of fp32 weights that are at hand and alike on all ranks. */
static int check_ema(const struct dt_run *r, struct dt_err *err)
{
	const char *what = r->no_master	     ? "--no-master: it is of fp32 weights"
			   : r->offload.what ? "--offload"
			   : r->freeze	     ? "--freeze: frozen parameters have none"
			   : dt_run_alone(r) ? "--sync: ranks have weights of their own"
					     : NULL;

	if (!(r->ema > 0))
		return 0;
	return what ? dt_err_set(err, -ENOTSUP, "--ema does not go with %s", what) : 0;
}

static int check_numbers(const struct dt_run *r, struct dt_err *err)
{
	int linears, rc;

	if (r->no_master && r->compute == DT_F16)
		return dt_err_set(err, -EINVAL, "fp16 needs master weights: it has no exponents to round to");
	if (r->reproducible && (r->layout.zero || r->grad_comm != DT_F32))
		return dt_err_set(err, -EINVAL, "--reproducible does not go with %s",
				  r->layout.zero ? "ZeRO" : "bf16 gradients on the wire");
	if (r->watch.replicas && r->layout.ep > 1)
		return dt_err_set(err, -ENOTSUP,
				  "--check-replicas does not know which ranks hold the same experts");
	if (!r->fp8)
		return 0;
	if ((rc = dt_stage_count_8_bits(r, &linears, err)) < 0)
		return rc;
	if (!linears) {
		char layout[64];

		dt_err_set(err, -EINVAL,
			   "--fp8: no linear of '%s' has sizes that divide by 16 on layout '%s'",
			   r->config->name, dt_layout_format(&r->layout, layout, sizeof(layout)));
		dt_err_hint(err, "microbatch x seq, too, must be a multiple of 16");
		return -EINVAL;
	}
	return 0;
}

/* Blocks of the base, which no cut may divide. */
static int check_base(const struct dt_run *r, struct dt_err *err)
{
	int64_t block = dt_blocks_size((enum dt_block_kind)r->config->lora.base), off[2], shape[2];
	struct dt_params t;
	int rc = 0, packed = 0;

	if (r->config->lora.rank && r->config->experts && r->config->router_bias)
		return dt_err_set(err, -ENOTSUP,
				  "'%s' moves biases of its router, which --lora cannot leave frozen",
				  r->config->name);
	if (r->config->lora.dora && r->on_card)
		return dt_err_set(err, -ENOTSUP, "--dora is computed on the processor");
	if (!r->config->lora.base)
		return 0;
	if (r->layout.zero == 3)
		return dt_err_set(err, -EINVAL,
				  "--lora-base: every rank keeps the blocks, which z3 would share");
	if ((rc = dt_model_params(r->config, &t, err)) < 0)
		return rc;
	for (int i = 0; i < t.n && rc == 0; i++) {
		packed += t.p[i].blocks != 0;
		for (int k = 0; t.p[i].blocks && k < r->layout.tp && rc == 0; k++) {
			dt_param_cut(&t.p[i], r->layout.tp, k, off, shape);
			if (off[1] % block || shape[1] % block)
				rc = dt_err_set(
					err, -EINVAL,
					"--lora-base: tp%d cuts rows of '%s' to %lld, no multiple of %lld",
					r->layout.tp, t.p[i].name, (long long)shape[1], (long long)block);
		}
	}
	if (rc == 0 && !packed)
		rc = dt_err_set(err, -EINVAL,
				"--lora-base: no linear of '%s' has rows of whole blocks of %lld",
				r->config->name, (long long)block);
	dt_params_release(&t);
	return rc;
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
	if (r->config->pos == DT_POS_LEARNED && r->seq > r->config->max_seq)
		return dt_err_set(err, -EINVAL, "sequence length %lld exceeds the model's %lld positions",
				  (long long)r->seq, (long long)r->config->max_seq);
	if (r->seq > dt_config_positions(r->config)) {
		dt_err_set(err, -EINVAL, "sequence length %lld exceeds the %lld positions of '%s'",
			   (long long)r->seq, (long long)dt_config_positions(r->config), r->config->name);
		dt_err_hint(err, "--rope-scaling yarn:%lld stretches them",
			    (long long)((r->seq + dt_config_positions(r->config) - 1) /
					dt_config_positions(r->config)));
		return -EINVAL;
	}
	if ((rc = dt_context_check(r, err)) < 0)
		return rc;
	if (r->layout.seq_parallel && r->microbatch * dt_run_local_seq(r) % r->layout.tp)
		return dt_err_set(err, -EINVAL, "s1: tp%d does not divide the %lld tokens of a microbatch",
				  r->layout.tp, (long long)(r->microbatch * dt_run_local_seq(r)));
	return 0;
}

/* Weights in a file, from where units come to compute. */
static int check_streams(const struct dt_run *r, struct dt_err *err)
{
	const char *what = r->config->lora.rank			? "--lora: frozen weights stay in memory"
			   : r->freeze				? "--freeze: frozen weights stay in memory"
			   : dt_config_is_image(r->config)	? "classifiers of images"
			   : r->layout.zero && r->layout.pp > 1 ? "a pipeline (pp) with ZeRO"
			   : dt_run_splits(r)			? "a split backward (zb-h1)"
								: NULL;

	return what ? dt_err_set(err, -ENOTSUP, "--offload weights does not go with %s", what) : 0;
}

/* What lies elsewhere. */
static int check_offload(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_run_offload *o = &r->offload;
	const struct dt_optim_rule *rule = dt_optim_rule(r->optim.kind);
	bool master = r->compute != DT_F32 && !r->no_master;
	int rc;

	if (!o->what)
		return 0;
	if (r->on_card || o->to != DT_PLACE_DISK) {
		dt_err_set(err, -ENOTSUP, "--offload on a card, or to its host, is not done by this version");
		dt_err_hint(err, "--offload-to disk:DIR on the processor is");
		return -ENOTSUP;
	}
	if (o->what & DT_OFFLOAD_ACTIVATIONS) {
		if (r->layout.pp > 1 || dt_config_is_image(r->config))
			return dt_err_set(err, -ENOTSUP, "--offload activations does not go with %s",
					  r->layout.pp > 1 ? "a pipeline (pp)" : "classifiers of images");
		if (r->config->layers < 4)
			return dt_err_set(err, -EINVAL,
					  "--offload activations: '%s' has %lld layers, the last 2 of which "
					  "keep theirs",
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
			return dt_err_set(err, -ENOTSUP,
					  "--offload %s: %s has states that are not a value an element",
					  o->what_text, rule->name);
	if ((master || (o->what & DT_OFFLOAD_WEIGHTS)) && r->config->router_bias)
		return dt_err_set(err, -ENOTSUP,
				  "'%s' has biases of its router, which need master weights in memory",
				  r->config->name);
	if (r->save.async)
		return dt_err_set(err, -EINVAL,
				  "--save-async copies in memory what --offload keeps out of it");
	if (r->watch.replicas)
		return dt_err_set(err, -ENOTSUP, "--check-replicas does not compare what is offloaded");
	return 0;
}

static int no_images(const struct dt_run *r, const char *what, struct dt_err *err)
{
	return dt_err_set(err, -ENOTSUP, "'%s' classifies images, which cannot be trained with %s",
			  r->config->name, what);
}

/* Classifiers of images: data-parallel and ZeRO layouts, and batch norms that their ranks divide. */
static int check_images(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_layout *l = &r->layout;
	const int64_t n = r->bn_span, mb = r->microbatch;
	const char *what = l->tp > 1		  ? "tensor parallelism (tp)"
			   : l->pp > 1		  ? "a pipeline (pp)"
			   : l->cp > 1		  ? "context parallelism (cp)"
			   : l->ep > 1		  ? "expert parallelism (ep)"
			   : r->fp8		  ? "--fp8"
			   : r->compute == DT_F16 ? "--precision fp16"
			   : r->reproducible	  ? "--reproducible"
			   : r->recompute.fit || r->recompute.mode
				   ? "--recompute: a batch norm is computed once"
			   : r->on_card ? "a card: it has no convolutions yet"
					: NULL;

	if (what)
		return no_images(r, what, err);
	if (n > 0 && (n < mb ? mb % n : n % mb || n / mb > l->dp || l->dp % (n / mb)))
		return dt_err_set(
			err, -EINVAL,
			"--bn-span %lld does not divide into microbatches of %lld images on %d ranks",
			(long long)n, (long long)mb, l->dp);
	return 0;
}

static int check_pipeline(const struct dt_run *r, struct dt_err *err)
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
		return dt_err_set(err, -EINVAL, "v%d: at most %d chunks a stage", chunks, DT_MAX_CHUNKS);
	if (mbs > 65536 || mbs * pp * chunks > INT_MAX / 8)
		return dt_err_set(err, -ERANGE, "%lld microbatches a step are too many for a pipeline",
				  (long long)mbs);
	if (dt_run_splits(r) && against)
		return dt_err_set(err, -EINVAL, "a split backward (zb-h1) does not go with %s", against);
	if (r->schedule)
		return 0;
	if (chunks > 1 && (r->pipeline == DT_PIPE_GPIPE || r->pipeline == DT_PIPE_ZB_H1))
		return dt_err_set(err, -EINVAL, "only interleaved pipelines have several chunks a stage");
	if (chunks > 1 && mbs % pp)
		return dt_err_set(err, -EINVAL,
				  "interleaved needs microbatches (%lld) in multiples of pp (%d)",
				  (long long)mbs, pp);
	return 0;
}

bool dt_run_asks_reference(const struct dt_run *r)
{
	return dt_objective_rule(r->objective.kind)->rewards && r->objective.beta > 0;
}

bool dt_run_reference_weights(const struct dt_run *r)
{
	return dt_run_asks_reference(r) && !r->lora.rank;
}

/* Answers that are learnt from: where they come from, and what of them this version computes. */
static int check_rewards(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_layout *l = &r->layout;
	char layout[64];

	if (!dt_objective_rule(r->objective.kind)->rewards)
		return r->rl.rollouts || r->rl.task || r->rl.reward
			       ? dt_err_set(err, -EINVAL, "--%s goes with an --objective of scored answers",
					    r->rl.rollouts ? "rollouts"
					    : r->rl.task   ? "task"
							   : "reward")
			       : 0;
	if (!r->rl.rollouts == !r->rl.task)
		return dt_err_set(err, -EINVAL, "an --objective learns from --rollouts or from --task%s",
				  r->rl.task ? ", not from both" : "");
	if (r->rl.reward && !r->rl.task)
		return dt_err_set(err, -EINVAL, "--reward goes with --task: rollouts are scored already");
	if (dt_config_is_image(r->config))
		return dt_err_set(err, -EINVAL, "'%s' answers no prompts", r->config->name);
	if (r->lora.dropout > 0)
		return dt_err_set(err, -ENOTSUP, "--lora-dropout: scored answers are learnt from without");
	if (r->sync.kind)
		return dt_err_set(err, -ENOTSUP, "--sync: scored answers are learnt from in step");
	if (r->data.eval)
		return dt_err_set(err, -ENOTSUP,
				  "--eval-data does not go with an --objective of scored answers");
	if (dt_objective_rule(r->objective.kind)->values && (r->lora.rank || l->tp > 1))
		return dt_err_set(err, -ENOTSUP, "--objective %s: a value head is trained without %s",
				  dt_objective_rule(r->objective.kind)->name, r->lora.rank ? "--lora" : "tp");
	if (r->rl.refill && !r->rl.task)
		return dt_err_set(err, -EINVAL, "--refill goes with --task: a file has no further prompts");
	if (r->rl.overlap && (!r->rl.task || r->rl.refill))
		return dt_err_set(err, -EINVAL, "--overlap %s",
				  r->rl.refill
					  ? "does not go with --refill: whom to ask further is known too late"
					  : "goes with --task: a file is drawn already");
	if (dt_run_reference_weights(r) && (r->fp8 || r->offload.what))
		return dt_err_set(err, -ENOTSUP, "--beta: a reference beside the weights does not go with %s",
				  r->fp8 ? "--fp8" : "--offload");
	if (l->pp > 1 || l->cp > 1 || l->ep > 1)
		return dt_err_set(err, -ENOTSUP, "an --objective is trained for on dp and tp, not on '%s'",
				  dt_layout_format(l, layout, sizeof(layout)));
	return 0;
}

/* A divergence from a teacher is of every target's whole row of logits, on the processor. */
static int check_teacher(const struct dt_run *r, struct dt_err *err)
{
	const char *what = dt_config_is_image(r->config)	   ? "classifiers of images"
			   : r->objective.kind != DT_OBJECTIVE_NLL ? "another --objective than nll"
			   : r->on_card				   ? "a card: it has no divergences yet"
								   : NULL;

	if (!r->teacher.file && !r->teacher.top_k)
		return 0;
	if (what)
		return dt_err_set(err, -ENOTSUP, "--teacher does not go with %s", what);
	return r->teacher.top_k > r->config->vocab
		       ? dt_err_set(err, -EINVAL, "--teacher-top-k %lld: '%s' has %lld tokens",
				    (long long)r->teacher.top_k, r->config->name, (long long)r->config->vocab)
		       : 0;
}

/* What a loss of answers and noise need. */
static int check_objective(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_objective_rule *o = dt_objective_rule(r->objective.kind);
	bool kept = r->objective.reference != NULL;

	if (r->neftune > 0 && (r->on_card || o->rewards || dt_config_is_image(r->config)))
		return dt_err_set(err, -ENOTSUP,
				  "--neftune is of data sets of text, and drawn on the processor");
	if (!dt_objective_compares(o))
		return kept ? dt_err_set(err, -EINVAL,
					 "--reference goes with --objective dpo, ipo, hinge or kto")
			    : 0;
	if (dt_config_is_image(r->config))
		return dt_err_set(err, -EINVAL, "--objective %s is for models of text", o->name);
	if (r->layout.pp > 1 || r->layout.cp > 1)
		return dt_err_set(err, -ENOTSUP,
				  "--objective %s: answers are whole on a rank, without pp and cp", o->name);
	if (r->documents == DT_RUN_DOCUMENTS_JOINED)
		return dt_err_set(
			err, -EINVAL,
			"--objective %s: documents are kept apart, as 'dt-dataset chat --preferences' "
			"makes them",
			o->name);
	if (r->objective.beta <= 0)
		return dt_err_set(err, -EINVAL, "--beta is above 0");
	if (r->config->lora.rank || !o->reference)
		return kept ? dt_err_set(err, -EINVAL, "--reference: %s",
					 o->reference ? "the reference is the model without its adapters"
						      : "this objective has none")
			    : 0;
	if (!kept) {
		dt_err_set(err, -EINVAL, "--objective %s needs a reference", o->name);
		dt_err_hint(err, "--lora trains adapters beside it, --reference FILE keeps what it computes");
		return -EINVAL;
	}
	if (r->data.eval)
		return dt_err_set(err, -ENOTSUP,
				  "--eval-data: --reference keeps what the training set needs alone");
	return 0;
}

/* What ranks that come and go do not know how to hand over. */
static int check_elastic(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_layout *l = &r->layout;
	const char *what = l->tp > 1 || l->pp > 1 || l->cp > 1 || l->ep > 1 ? "a layout of more than dp"
			   : l->zero && !r->watch.peer_copy		    ? "ZeRO without --peer-copy 1"
			   : r->sync.kind				    ? "--sync"
			   : r->offload.what				    ? "--offload"
			   : r->on_card					    ? "a card"
			   : r->trace					    ? "--trace"
			   : r->noise_scale				    ? "--noise-scale"
			   : r->compress.on				    ? "a compressed --grad-comm"
			   : r->ema > 0					    ? "--ema"
			   : r->freeze					    ? "--freeze"
			   : dt_config_is_image(r->config)		    ? "images"
			   : r->config->experts				    ? "experts"
			   : dt_objective_rule(r->objective.kind)->rewards  ? "rewards"
									    : NULL;

	return r->watch.elastic && what ? dt_err_set(err, -ENOTSUP, "--elastic dp does not go with %s", what)
					: 0;
}

/* The next rank makes the update of a share again, from the share's gradients alone. */
static int check_peer_copy(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_optim_rule *rule = dt_optim_rule(r->optim.kind);
	bool each = !(rule->flags & DT_OPTIM_WHOLE);

	for (int i = 0; i < dt_optim_states(r->optim.kind); i++)
		each &= rule->state[i].shape == DT_STATE_EACH;
	if (!r->watch.peer_copy)
		return 0;
	if (!r->watch.elastic || !r->layout.zero)
		return dt_err_set(err, -EINVAL, "--peer-copy is for %s",
				  r->watch.elastic ? "ZeRO (z1, z2, z3): without it every rank has all states"
						   : "--elastic dp: nothing else reads the copy");
	if (!each)
		return dt_err_set(
			err, -ENOTSUP,
			"--peer-copy wants an optimizer that updates each element by itself: not %s",
			rule->name);
	return r->compute != DT_F32 && r->no_master
		       ? dt_err_set(err, -ENOTSUP, "--peer-copy does not go with --master none")
		       : 0;
}

int dt_run_check(const struct dt_run *r, struct dt_err *err)
{
	int rc = dt_config_is_image(r->config) ? check_images(r, err) : 0;

	if (rc < 0 || (rc = check_cut(r, err)) < 0 || (rc = check_sizes(r, err)) < 0 ||
	    (rc = check_base(r, err)) < 0 || (rc = check_optimizer(r, err)) < 0 ||
	    (rc = check_sync(r, err)) < 0 || (rc = check_noise(r, err)) < 0 || (rc = check_ema(r, err)) < 0 ||
	    (rc = check_compress(r, err)) < 0 || (rc = check_objective(r, err)) < 0 ||
	    (rc = check_teacher(r, err)) < 0 || (rc = check_rewards(r, err)) < 0 ||
	    (rc = check_numbers(r, err)) < 0 || (rc = check_offload(r, err)) < 0 ||
	    (rc = check_elastic(r, err)) < 0 || (rc = check_peer_copy(r, err)) < 0)
		return rc;
	if (r->extremes && !r->details)
		return dt_err_set(err, -EINVAL, "--extremes is for the lines of --details");
	return check_pipeline(r, err);
}

int dt_run_schedule(const struct dt_run *r, struct dt_schedule *ret, struct dt_err *err)
{
	int chunks = dt_layout_chunks(&r->layout), rc;

	if (r->layout.pp == 1)
		return dt_schedule_make(DT_PIPE_1F1B, 1, 1, 1, ret, err);
	if ((rc = check_pipeline(r, err)) < 0)
		return rc;
	if (r->schedule)
		return dt_schedule_copy(r->schedule, ret, err);
	return dt_schedule_make(chunks > 1 ? DT_PIPE_INTERLEAVED : r->pipeline, r->layout.pp, chunks,
				(int)dt_run_accumulation(r), ret, err);
}

int dt_run_read_schedule(struct dt_run *r, struct dt_schedule *ret, struct dt_err *err)
{
	char *text;
	size_t n;
	int rc;

	if (!r->schedule_file)
		return 0;
	if (r->layout.pp == 1)
		return dt_err_set(err, -EINVAL, "--schedule-file is for pipelines, but the layout has none");
	if (dt_run_accumulation(r) > 65536)
		return dt_err_set(err, -ERANGE, "%lld microbatches a step are too many for a pipeline",
				  (long long)r->accumulation);
	rc = dt_read_file(r->schedule_file, 16u << 20, &text, &n, err);
	if (rc < 0)
		return rc;
	rc = dt_schedule_read(text, r->schedule_file, r->layout.pp, dt_layout_chunks(&r->layout),
			      (int)dt_run_accumulation(r), ret, err);
	free(text);
	if (rc == 0)
		r->schedule = ret;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
