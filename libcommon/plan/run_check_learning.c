/* Valid combinations of a run's options: learning. */
#include "plan/run_check.h"

#include "plan/objective.h"
#include "plan/run_rows.h"

#include <errno.h>
#include <string.h>

/* Checks that --no-decay and --lr-scale match a parameter. */
static int check_names(const struct dt_run *r, struct dt_err *err)
{
	struct dt_params t;
	int rc;

	if ((!r->no_decay || !strcmp(r->no_decay, "norm,bias")) && !r->lr_scale)
		return 0;
	if ((rc = dt_model_params(r->config, &t, err)) < 0)
		return rc;
	if ((rc = dt_run_decay(r, &t, err)) == 0)
		rc = dt_run_rates(r, &t, err);
	dt_params_release(&t);
	return rc;
}

/* Checks that no matrix of stacked experts is trained by an optimizer that looks at whole matrices. */
static int check_experts(const struct dt_run *r, struct dt_err *err)
{
	struct dt_params t;
	int rc;

	if (!r->config->experts || (r->optim.kind != DT_OPTIM_MUON && r->optim.kind != DT_OPTIM_ADAFACTOR))
		return 0;
	rc = dt_model_params(r->config, &t, err);
	if (rc < 0)
		return rc;
	for (int i = 0; i < t.n && rc == 0; i++)
		if (t.p[i].experts && !t.p[i].frozen)
			rc = dt_err_set(err, -ENOTSUP,
					"--optimizer %s does not train experts such as '%s': use adamw, or "
					"leave experts as they are by --lora or --freeze",
					dt_optim_rule(r->optim.kind)->name, t.p[i].name);
	dt_params_release(&t);
	return rc;
}

/* Checks optimizers that need whole tensors, or whose states are not one value an element. */
static int check_optimizer(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_optim_rule *o = dt_optim_rule(r->optim.kind);
	const bool blocks = o->state[0].shape == DT_STATE_BLOCKS;
	int rc;

	if (r->no_master && (blocks || (o->flags & DT_OPTIM_WHOLE)))
		return dt_err_set(err, -EINVAL, "--optimizer %s needs master weights: leave --no-master out",
				  o->name);
	if (((r->layer_decay > 0 && r->layer_decay < 1) || r->lr_scale) && (o->flags & DT_OPTIM_WHOLE))
		return dt_err_set(err, -ENOTSUP,
				  "--%s cannot be combined with %s, which has one learning rate for all "
				  "tensors: use adamw",
				  r->lr_scale ? "lr-scale" : "layer-lr-decay", o->name);
	if (r->momentum_correction && r->optim.kind != DT_OPTIM_LARS)
		return dt_err_set(err, -EINVAL,
				  "--momentum-correction is for lars: the states of %s do not contain the "
				  "learning rate",
				  o->name);
	if ((rc = check_names(r, err)) < 0)
		return rc;
	if (r->offload.what && (o->flags & DT_OPTIM_WHOLE))
		return dt_err_set(err, -ENOTSUP,
				  "--offload cannot be combined with %s, which updates whole tensors at once",
				  o->name);
	return check_experts(r, err);
}

/* Checks --noise-scale, which compares each rank's complete gradients with their mean. */
static int check_noise(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_layout *l = &r->layout;

	if (!r->noise_scale || !l->dp)
		return 0;
	if (l->dp == 1)
		return dt_err_set(err, -EINVAL, "--noise-scale needs at least two data-parallel ranks");
	if (l->tp > 1 || l->pp > 1 || l->cp > 1 || l->ep > 1 || l->zero > 1 || r->reproducible ||
	    r->sync.kind)
		return dt_err_set(err, -ENOTSUP,
				  "--noise-scale needs data parallelism alone (z0 or z1), without --sync and "
				  "--reproducible");
	return 0;
}

/* Checks compressed gradients: whole tensors that all data-parallel ranks have. */
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
			   : r->watch.replicas ? "--check-replicas"
					       : NULL;

	if (!r->compress.on)
		return 0;
	return what ? dt_err_set(err, -ENOTSUP, "--grad-comm %s cannot be combined with %s", r->compress.text,
				 what)
		    : 0;
}

/* Checks --ema: it averages fp32 weights, which must be in memory and the same on all ranks. */
static int check_ema(const struct dt_run *r, struct dt_err *err)
{
	const char *what = r->no_master	     ? "--no-master: it averages fp32 weights"
			   : r->offload.what ? "--offload"
			   : r->freeze	     ? "--freeze: frozen parameters have no average"
			   : dt_run_alone(r) ? "--sync: each rank has its own weights"
					     : NULL;

	if (!(r->ema > 0))
		return 0;
	return what ? dt_err_set(err, -ENOTSUP, "--ema cannot be combined with %s", what) : 0;
}

bool dt_run_asks_reference(const struct dt_run *r)
{
	return dt_objective_rule(r->objective.kind)->rewards && r->objective.beta > 0;
}

/* Checks a reference model that is the model without its adapters. */
static int check_saved(const struct dt_run *r, struct dt_err *err)
{
	return r->config->lora.modules_to_save[0]
		       ? dt_err_set(err, -ENOTSUP,
				    "--lora-modules-to-save: the reference is the model without its "
				    "adapters, and would contain the trained modules")
		       : 0;
}

bool dt_run_reference_weights(const struct dt_run *r)
{
	return dt_run_asks_reference(r) && !r->lora.rank;
}

/* Checks --task: answers are sampled from a copy of all weights on each rank. */
static int check_task(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_objective_rule *o = dt_objective_rule(r->objective.kind);
	const char *what =
		r->compute == DT_F16   ? "fp16: answers are sampled in fp32 or bf16"
		: r->config->lora.base ? "--lora-base: adapters cannot be added to a quantized base"
		: dt_run_streams(r)    ? "--offload weights: sampling needs all weights"
		: r->qat && dt_run_cuts_weights(r) ? "--qat under z3: weight shards are not rounded"
						   : NULL;

	if (r->rl.task && what)
		return dt_err_set(err, -ENOTSUP, "--task cannot be combined with %s", what);
	if (r->rl.task && r->rl.group > 0 && r->rl.group < o->group)
		return dt_err_set(err, -EINVAL,
				  "--group %lld: --objective %s compares the answers of a group, which needs "
				  "at least %d",
				  (long long)r->rl.group, o->name, o->group);
	if (r->rl.actors && !r->rl.task)
		return dt_err_set(err, -EINVAL,
				  "--actors requires --task: the answers in --rollouts are sampled already");
	if (r->rl.stale && !r->rl.actors)
		return dt_err_set(err, -EINVAL, "--max-staleness requires --actors");
	if (r->rl.piece && !r->rl.stale)
		return dt_err_set(err, -EINVAL,
				  "--partial-rollouts requires --max-staleness: otherwise weights do not "
				  "change while answers are sampled");
	if (r->rl.stale && (r->rl.overlap || r->rl.refill || r->reproducible))
		return dt_err_set(err, -EINVAL, "--max-staleness cannot be combined with --%s",
				  r->rl.overlap ? "overlap, which is always one step ahead"
				  : r->rl.refill
					  ? "refill: the groups to replace are known too late"
					  : "reproducible: which weights sample an answer depends on timing");
	return 0;
}

/* Checks objectives on scored answers: the source of answers, and what is supported. */
static int check_rewards(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_layout *l = &r->layout;
	char layout[64];
	int rc;

	if (!dt_objective_rule(r->objective.kind)->rewards)
		return r->rl.rollouts || r->rl.task || r->rl.reward
			       ? dt_err_set(err, -EINVAL,
					    "--%s requires an RL objective, such as --objective grpo",
					    r->rl.rollouts ? "rollouts"
					    : r->rl.task   ? "task"
							   : "reward")
			       : 0;
	if (!r->rl.rollouts == !r->rl.task)
		return dt_err_set(err, -EINVAL, "--objective %s learns from --rollouts or from --task%s",
				  dt_objective_rule(r->objective.kind)->name,
				  r->rl.task ? ", not from both" : ": give one of them");
	if (r->rl.reward && !r->rl.task)
		return dt_err_set(err, -EINVAL, "--reward requires --task: rollouts are scored already");
	if (dt_config_is_image(r->config))
		return dt_err_set(err, -EINVAL, "'%s' is an image classifier, which cannot answer prompts",
				  r->config->name);
	if (r->lora.dropout > 0)
		return dt_err_set(err, -ENOTSUP, "--lora-dropout cannot be combined with RL objectives");
	if (r->sync.kind)
		return dt_err_set(err, -ENOTSUP, "--sync cannot be combined with RL objectives");
	if (r->data.eval)
		return dt_err_set(err, -ENOTSUP, "--eval-data cannot be combined with RL objectives");
	if (dt_objective_rule(r->objective.kind)->values && (r->lora.rank || l->tp > 1))
		return dt_err_set(err, -ENOTSUP,
				  "--objective %s trains a value head, which cannot be combined with %s",
				  dt_objective_rule(r->objective.kind)->name, r->lora.rank ? "--lora" : "tp");
	if (dt_run_asks_reference(r) && (rc = check_saved(r, err)) < 0)
		return rc;
	if (r->rl.refill && !r->rl.task)
		return dt_err_set(err, -EINVAL, "--refill requires --task: a file has no further prompts");
	if (r->rl.overlap && (!r->rl.task || r->rl.refill))
		return dt_err_set(
			err, -EINVAL, "--overlap %s",
			r->rl.refill
				? "cannot be combined with --refill: the groups to replace are known too late"
				: "requires --task: the answers in --rollouts are sampled already");
	if (dt_run_reference_weights(r) && (r->fp8 || r->offload.what))
		return dt_err_set(
			err, -ENOTSUP,
			"--beta: a reference model alongside the trained one cannot be combined with %s",
			r->fp8 ? "--fp8" : "--offload");
	if (l->pp > 1 || l->cp > 1 || l->ep > 1)
		return dt_err_set(err, -ENOTSUP, "--objective %s needs a layout of dp and tp alone, not '%s'",
				  dt_objective_rule(r->objective.kind)->name,
				  dt_layout_format(l, layout, sizeof(layout)));
	return check_task(r, err);
}

/* Checks a teacher: the divergence needs whole rows of logits for every target. */
static int check_teacher(const struct dt_run *r, struct dt_err *err)
{
	const char *what = dt_config_is_image(r->config)	   ? "classifiers of images"
			   : r->objective.kind != DT_OBJECTIVE_NLL ? "another --objective than nll"
								   : NULL;

	if (!r->teacher.file && !r->teacher.top_k)
		return 0;
	if (what)
		return dt_err_set(err, -ENOTSUP, "--teacher cannot be combined with %s", what);
	return r->teacher.top_k > r->config->vocab
		       ? dt_err_set(err, -EINVAL,
				    "--teacher-top-k %lld exceeds the vocabulary size of '%s', %lld",
				    (long long)r->teacher.top_k, r->config->name, (long long)r->config->vocab)
		       : 0;
}

/* Checks what objectives and noise need. */
static int check_objective(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_objective_rule *o = dt_objective_rule(r->objective.kind);
	bool kept = r->objective.reference != NULL;
	int rc;

	if (r->neftune > 0 && (o->rewards || dt_config_is_image(r->config)))
		return dt_err_set(err, -ENOTSUP, "--neftune is for language models trained on a data set");
	if (!dt_objective_compares(o))
		return kept ? dt_err_set(err, -EINVAL,
					 "--reference requires --objective dpo, ipo, hinge or kto")
			    : 0;
	if (dt_config_is_image(r->config))
		return dt_err_set(err, -EINVAL, "--objective %s is for models of text", o->name);
	if (r->layout.pp > 1 || r->layout.cp > 1)
		return dt_err_set(
			err, -ENOTSUP,
			"--objective %s cannot be combined with pp and cp: a rank needs whole answers",
			o->name);
	if (r->documents == DT_RUN_DOCUMENTS_JOINED)
		return dt_err_set(err, -EINVAL,
				  "--objective %s needs documents kept apart, in a data set of 'dt-dataset "
				  "chat --preferences'",
				  o->name);
	if (r->objective.beta <= 0)
		return dt_err_set(err, -EINVAL, "--beta must be above 0");
	if (o->reference && (rc = check_saved(r, err)) < 0)
		return rc;
	if (r->config->lora.rank || !o->reference)
		return kept ? dt_err_set(err, -EINVAL, "--reference cannot be combined with %s%s",
					 o->reference
						 ? "--lora: the reference is the model without its adapters"
						 : "--objective ",
					 o->reference ? "" : o->name)
			    : 0;
	if (!kept) {
		dt_err_set(err, -EINVAL, "--objective %s needs a reference", o->name);
		dt_err_hint(err, "--reference FILE stores its log-probabilities; with --lora it is the model "
				 "without adapters");
		return -EINVAL;
	}
	if (r->data.eval)
		return dt_err_set(err, -ENOTSUP,
				  "--eval-data cannot be combined with --reference, which covers the "
				  "training set alone");
	return 0;
}

/* Checks modules for further tokens: their loss is a cross-entropy beside the model's. */
static int check_mtp(const struct dt_run *r, struct dt_err *err)
{
	const char *what = r->objective.kind != DT_OBJECTIVE_NLL ? "another --objective than nll"
			   : r->teacher.file || r->teacher.top_k ? "--teacher"
			   : r->sync.kind == DT_SYNC_BACKUP	 ? "--sync backup"
			   : dt_run_served(r)			 ? "--sync ssp, async and hogwild"
								 : NULL;

	return r->config->mtp_layers && what
		       ? dt_err_set(err, -ENOTSUP, "--mtp-layers cannot be combined with %s", what)
		       : 0;
}

/* Checks encoders that learn the classes of a text. */
static int check_labels(const struct dt_run *r, struct dt_err *err)
{
	const bool scores = r->config->label_loss != DT_CLASS_LOSS_CE;
	const char *what = r->layout.seq_parallel && r->layout.tp > 1 ? "sequence parallelism (s1)"
			   : r->neftune > 0			      ? "--neftune"
			   : r->qat				      ? "--qat"
			   : scores && r->label_smoothing > 0	      ? "--label-smoothing"
								      : NULL;

	return what ? dt_err_set(err, -ENOTSUP, "'%s' learns %s of texts, which cannot be combined with %s",
				 r->config->name, scores ? "scores" : "classes", what)
		    : 0;
}

/* Checks encoders: a loss of masked tokens or of labels, from whole sequences. */
static int check_encoder(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_layout *l = &r->layout;
	const char *what = l->pp > 1	       ? "a pipeline (pp)"
			   : l->cp > 1	       ? "context parallelism (cp)"
			   : r->objective.kind ? "an --objective other than nll"
			   : r->teacher.file   ? "--teacher"
			   : r->teacher.top_k  ? "--teacher-top-k"
			   : dt_run_apart(r)   ? "--documents apart"
					       : NULL;

	int rc;

	if (!r->config->encoder)
		return 0;
	if (what)
		return dt_err_set(err, -ENOTSUP, "'%s' is an encoder, which cannot be trained with %s",
				  r->config->name, what);
	if (dt_config_has_labels(r->config) && (rc = check_labels(r, err)) < 0)
		return rc;
	return r->config->mask_token < r->config->vocab
		       ? 0
		       : dt_err_set(err, -EINVAL, "--mask-token %lld is not below the vocabulary size %lld",
				    (long long)r->config->mask_token, (long long)r->config->vocab);
}

/* Checks models with layers of Mamba-2. */
static int check_ssm(const struct dt_run *r, struct dt_err *err)
{
	const char *what = r->layout.cp > 1	  ? "with context parallelism (cp)"
			   : r->config->lora.rank ? "with --lora"
			   : r->rl.task		  ? "with --task"
						  : NULL;

	return r->config->ssm_heads && what
		       ? dt_err_set(err, -ENOTSUP, "'%s' has layers of Mamba-2, which are not trained %s",
				    r->config->name, what)
		       : 0;
}

static bool is_encoder(const struct dt_config *c)
{
	return c->encoder;
}
static bool is_masked(const struct dt_config *c)
{
	return !dt_config_has_labels(c);
}
static bool has_classes(const struct dt_config *c)
{
	return dt_config_is_image(c) || dt_config_has_labels(c);
}
static bool has_experts(const struct dt_config *c)
{
	return c->experts;
}
static bool has_router_bias(const struct dt_config *c)
{
	return c->experts && c->router_bias;
}

/* Options that only one kind of model reads: others would silently ignore them. */
static const struct {
	bool (*is)(const struct dt_config *c);
	const char *of, *options[12];
} kinds[] = {
	{dt_config_is_image,
	 "classifiers of images",
	 {"image-size", "crop", "flip", "cutout", "mixup", "cutmix", "normalize", "bn-span", "bn-momentum"}},
	{has_classes, "classifiers", {"label-smoothing", "new-head"}},
	{is_encoder, "encoders", {"mask-share", "mask-token", "labels", "label-loss"}},
	{is_masked, "encoders that predict masked tokens", {"mask-share", "mask-token"}},
	{has_experts,
	 "mixtures of experts",
	 {"balance-loss", "balance-over", "router-z-loss", "capacity-factor", "no-expert-overlap"}},
	{has_router_bias, "mixtures whose routers have biases", {"router-bias-rate"}},
};

static int check_kind(const struct dt_run *r, struct dt_err *err)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		for (const char *const *name = kinds[i].options; *name && !kinds[i].is(r->config); name++)
			if (dt_run_row_says(r, *name))
				return dt_err_set(err, -EINVAL, "--%s is for %s, which '%s' is not", *name,
						  kinds[i].of, r->config->name);
	return 0;
}

int run_check_learning(const struct dt_run *r, struct dt_err *err)
{
	int rc;

	if ((rc = check_kind(r, err)) < 0 || (rc = check_optimizer(r, err)) < 0 ||
	    (rc = run_check_sync(r, err)) < 0 || (rc = check_noise(r, err)) < 0 ||
	    (rc = check_ema(r, err)) < 0 || (rc = check_compress(r, err)) < 0 ||
	    (rc = check_objective(r, err)) < 0 || (rc = check_teacher(r, err)) < 0 ||
	    (rc = check_mtp(r, err)) < 0 || (rc = check_encoder(r, err)) < 0 || (rc = check_ssm(r, err)) < 0)
		return rc;
	return check_rewards(r, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
