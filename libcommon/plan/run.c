#include "plan/rounds.h"
#include "plan/run_check.h"

#include "base/units.h"
#include "plan/objective.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define USUAL_SEQ 256 /* default tokens a sample */

/* Builds the graph, which fails if an expression matches nothing. */
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
		return dt_err_set(
			err, -EINVAL,
			"--freeze cannot be combined with --lora, which freezes all other parameters");
	if (strlen(r->freeze) >= sizeof(c->freeze))
		return dt_err_set(err, -EINVAL, "--freeze is longer than %zu characters",
				  sizeof(c->freeze) - 1);
	strcpy(c->freeze, r->freeze);
	return check_names(c, err);
}

/* Gives an encoder a head for classes of texts, unless it has one for as many, and the loss asked for. */
static int set_labels(const struct dt_run *r, struct dt_config *c, struct dt_err *err)
{
	if (c->encoder && r->labels) {
		if (!dt_config_has_labels(c) || c->labels != r->labels)
			c->label_loss = r->labels == 1 ? DT_CLASS_LOSS_MSE : DT_CLASS_LOSS_CE;
		c->head = DT_ENCODER_CLASSES;
		c->labels = r->labels;
		c->tied = c->pooler = false;
	}
	if (!dt_config_has_labels(c) || !r->label_loss)
		return 0;
	c->label_loss = r->label_loss - 1;
	if (c->label_loss == DT_CLASS_LOSS_CE && c->labels == 1)
		return dt_err_set(err, -EINVAL, "--label-loss ce needs at least 2 classes");
	return c->label_loss != DT_CLASS_LOSS_CE && c->labels != 1
		       ? dt_err_set(err, -EINVAL,
				    "--label-loss mse and bce learn one score, not %lld classes",
				    (long long)c->labels)
		       : 0;
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
	const char *saved = r->lora.modules_to_save ? r->lora.modules_to_save : "";
	int rc = dt_config_scale_rope(c, r->rope_scaling, err);

	if (dt_objective_rule(r->objective.kind)->values)
		c->value_head = true;
	if (c->encoder && r->mask_token)
		c->mask_token = r->mask_token;
	if (rc == 0)
		rc = set_labels(r, c, err);
	c->mtp_layers = r->mtp_layers;
	if (rc == 0 && c->mtp_layers && (l.rank || c->lora.rank))
		rc = dt_err_set(err, -ENOTSUP,
				"--mtp-layers cannot be combined with --lora: the module has no adapters");
	if (rc == 0 && c->mtp_layers)
		rc = check_names(c, err);
	if (rc == 0 && r->image.size && dt_config_is_image(c)) {
		c->image_size = r->image.size;
		rc = dt_config_check(c, err);
	}
	if (rc == 0 && !l.rank) {
		const char *lonely = l.base		      ? "lora-base"
				     : l.dora		      ? "dora"
				     : *saved		      ? "lora-modules-to-save"
				     : l.dropout > 0	      ? "lora-dropout"
				     : l.alpha > 0	      ? "lora-alpha"
				     : l.kind		      ? "lora-kind"
				     : strcmp(targets, "all") ? "lora-targets"
							      : NULL;

		rc = lonely ? dt_err_set(err, -EINVAL, "--%s requires --lora", lonely) : 0;
	}
	if (rc == 0 && r->freeze)
		return freeze(r, c, err);
	if (rc < 0 || !l.rank)
		return rc;
	if (c->lora.rank)
		return dt_err_set(err, -EINVAL, "'%s' already has adapters; --lora needs a base model",
				  c->name);
	if (strlen(targets) >= sizeof(l.targets))
		return dt_err_set(err, -EINVAL, "--lora-targets is longer than %zu characters",
				  sizeof(l.targets) - 1);
	if (strlen(saved) >= sizeof(l.modules_to_save))
		return dt_err_set(err, -EINVAL, "--lora-modules-to-save is longer than %zu characters",
				  sizeof(l.modules_to_save) - 1);
	strcpy(l.targets, targets);
	strcpy(l.modules_to_save, saved);
	c->lora = l;
	return check_names(c, err);
}

/* Scales the learning rate for the batch size (Goyal et al. 2017; square root for Adam-like optimizers). */
static int scale_rate(struct dt_run *r, struct dt_err *err)
{
	const char *s = r->scale_lr;
	bool root = s && !strncmp(s, "sqrt:", 5);
	int64_t of;

	r->lr.scale = 1;
	if (!s)
		return 0;
	if (dt_objective_rule(r->objective.kind)->rewards)
		return dt_err_set(err, -EINVAL,
				  "--scale-lr needs a fixed batch size, which objective %s does not have",
				  dt_objective_rule(r->objective.kind)->name);
	if ((!root && strncmp(s, "linear:", 7)) ||
	    dt_parse_int(strchr(s, ':') + 1, 1, 1 << 30, &of, NULL) < 0)
		return dt_err_set(err, -EINVAL,
				  "--scale-lr '%.40s' is neither linear:SAMPLES nor sqrt:SAMPLES", s);
	r->lr.scale = (double)r->global_batch / (double)of;
	r->lr.scale = root ? sqrt(r->lr.scale) : r->lr.scale;
	return 0;
}

/* Maximum number of samples in one round of microbatches on all ranks, or an error. */
static int64_t samples_at_once(const struct dt_run *r, struct dt_err *err)
{
	return r->config && dt_config_is_image(r->config) ? dt_rounds_most(r, err)
							  : r->microbatch * r->layout.dp;
}

void dt_run_batch_at(struct dt_run *r, int64_t sample)
{
	struct dt_err err;
	int64_t each;

	if (!r->ramp.tokens)
		return;
	each = samples_at_once(r, &err); /* the options have been checked before, here and below */
	r->global_batch = dt_ramp_at(&r->ramp, sample * r->seq);
	r->accumulation = (r->global_batch + each - 1) / each;
	scale_rate(r, &err);
}

int dt_run_settle(struct dt_run *r, struct dt_err *err)
{
	int64_t each = r->microbatch * r->layout.dp;
	/* Any batch size is allowed; with scored answers the batch only counts steps. */
	bool any = r->watch.elastic || dt_objective_rule(r->objective.kind)->rewards;

	r->global_batch = r->ramp.tokens ? r->ramp.to : r->global_batch;
	if (r->config && dt_config_is_image(r->config) && (r->seq > 1 || r->vocab))
		return dt_err_set(err, -EINVAL, "--%s is for text models, which '%s' is not",
				  r->vocab ? "vocab" : "seq", r->config->name);
	if (r->config && dt_config_is_image(r->config)) /* a sample is an image */
		r->seq = 1;
	else if (r->config && !r->seq)
		r->seq = r->config->max_seq < USUAL_SEQ ? r->config->max_seq : USUAL_SEQ;
	if (each < 1)
		return dt_err_set(err, -EINVAL, "a microbatch is at least one sample");
	if (r->config && dt_config_is_image(r->config)) {
		if ((each = dt_rounds_most(r, err)) < 0)
			return (int)each;
		any |= r->bn_span == DT_BN_DP;
	}
	if (!r->global_batch && __builtin_mul_overflow(each, dt_run_accumulation(r), &r->global_batch))
		return dt_err_set(err, -ERANGE, "%lld microbatches of %lld samples are too many",
				  (long long)r->accumulation, (long long)each);
	if (r->global_batch % each && !any) {
		dt_err_set(err, -EINVAL, "global batch %lld is not a multiple of microbatch x dp = %lld x %d",
			   (long long)r->global_batch, (long long)r->microbatch, r->layout.dp);
		dt_err_hint(err, "global_batch = microbatch x accumulation x dp, in samples");
		return -EINVAL;
	}
	if (r->reproducible) /* gradients are summed sample by sample */
		r->microbatch = 1;
	each = samples_at_once(r, err);
	r->accumulation = (r->global_batch + each - 1) / each;
	return scale_rate(r, err);
}

bool dt_run_updates_behind(const struct dt_run *r)
{
	const struct dt_run_watch *w = &r->watch;
	const bool tiles = r->offload.what & DT_OFFLOAD_OPTIMIZER,
		   early = r->clip == 0 && r->loss_scale != 0 && !w->on_spike && !w->nan_skips,
		   whole = r->compute == DT_F32 || !r->no_master, /* else values pass through a buffer */
		summed = r->layout.zero < 2 && !r->sync.kind && r->grad_comm == DT_F32 && !r->compress.on &&
			 !r->reproducible && !w->peer_copy;

	return tiles && early && whole && summed && !dt_run_streams(r) && !r->config->router_bias;
}

int dt_run_stage_schedule(const struct dt_run *r, int stage, struct dt_schedule *ret, struct dt_err *err)
{
	int chunks = dt_layout_chunks(&r->layout), rc;
	enum dt_pipeline kind = chunks > 1 ? DT_PIPE_INTERLEAVED : r->pipeline;

	if (r->layout.pp == 1)
		return dt_schedule_make(DT_PIPE_1F1B, 1, 1, 1, ret, err);
	if ((rc = run_check_pipeline(r, err)) < 0)
		return rc;
	if (r->schedule)
		return dt_schedule_copy(r->schedule, ret, err);
	if (stage >= 0)
		return dt_schedule_make_stage(kind, r->layout.pp, chunks, (int)dt_run_accumulation(r), stage,
					      ret, err);
	return dt_schedule_make(kind, r->layout.pp, chunks, (int)dt_run_accumulation(r), ret, err);
}

int dt_run_schedule(const struct dt_run *r, struct dt_schedule *ret, struct dt_err *err)
{
	return dt_run_stage_schedule(r, -1, ret, err);
}

int dt_run_read_schedule(struct dt_run *r, struct dt_schedule *ret, struct dt_err *err)
{
	char *text;
	size_t n;
	int rc;

	if (!r->schedule_file)
		return 0;
	if (r->layout.pp == 1)
		return dt_err_set(err, -EINVAL, "--schedule-file needs a pipeline, but the layout has none");
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

enum dt_format dt_run_qat(const struct dt_run *r)
{
	char name[16];

	return (enum dt_format)dt_format_parse(
		dt_opt_choice_name(DT_QAT_CHOICES, r->qat, name, sizeof(name)));
}
/* SPDX-License-Identifier: Apache-2.0 */
