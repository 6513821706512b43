/* Valid combinations of a run's options: how data-parallel ranks stay together, and lose one. */
#include "plan/run_check.h"

#include "plan/objective.h"
#include "plan/shares.h"

#include <errno.h>

/*
 * What cannot be used when ranks do not wait for each other in a step, so that their order is random. NULL:
 * nothing.
 */
static const char *needs_others(const struct dt_run *r)
{
	const struct dt_layout *l = &r->layout;

	return l->tp > 1		       ? "tensor parallelism (tp)"
	       : l->pp > 1		       ? "a pipeline (pp)"
	       : l->cp > 1		       ? "context parallelism (cp)"
	       : l->ep > 1		       ? "expert parallelism (ep)"
	       : r->config->experts	       ? "a model with experts"
	       : dt_config_is_image(r->config) ? "image classifiers"
	       : r->objective.kind	       ? "--objective"
	       : r->teacher.file	       ? "--teacher"
	       : r->reproducible	       ? "--reproducible: the order of the ranks is not"
	       : r->offload.what	       ? "--offload"
	       : r->sync.from		       ? "--sync-from"
					       : NULL;
}

/* Checks backup ranks: the slowest ranks abandon a step, so nobody may wait for them inside it. */
static int check_backup(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_layout *l = &r->layout;
	const char *what = l->zero ? "ZeRO" : needs_others(r);

	if (what)
		return dt_err_set(err, -ENOTSUP, "--sync %s cannot be combined with %s", r->sync.text, what);
	return l->dp && r->sync.backup >= l->dp && r->sync.backup
		       ? dt_err_set(err, -EINVAL, "--sync %s leaves no rank: dp is %d", r->sync.text, l->dp)
		       : 0;
}

/*
 * Checks asynchronous ranks, which give servers gradients when ready: no rank may wait for another in a step.
 */
static int check_served(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_layout *l = &r->layout;
	const bool ages = r->sync.kind == DT_SYNC_ASYNC || r->sync.kind == DT_SYNC_HOGWILD;
	const char *what = needs_others(r)			      ? needs_others(r)
			   : r->no_master			      ? "--no-master"
			   : r->qat				      ? "--qat"
			   : r->loss_scale != 1			      ? "a loss scale (fp16)"
			   : r->ema > 0				      ? "--ema"
			   : r->ramp.tokens			      ? "a growing --global-batch"
			   : r->watch.replicas			      ? "--check-replicas"
			   : r->watch.on_spike || r->watch.nan_skips  ? "--on-spike and --nan-skips"
			   : r->watch.elastic || r->watch.peer_copy   ? "--elastic and --peer-copy"
			   : r->save.grads			      ? "--save-grads"
			   : r->momentum_correction		      ? "--momentum-correction"
			   : r->compress.on || r->grad_comm != DT_F32 ? "--grad-comm other than fp32"
								      : NULL;

	if (!dt_run_served(r) && (r->sync.servers || r->sync.over))
		return dt_err_set(err, -EINVAL, "--server%s --sync ssp:STEPS, async and hogwild",
				  r->sync.servers ? "s is for" : "-comm is for");
	if (!dt_run_served(r))
		return r->sync.slower || r->sync.compensation > 0
			       ? dt_err_set(
					 err, -EINVAL,
					 "--staleness-rate and --delay-compensation are for --sync async and "
					 "hogwild")
			       : 0;
	for (int i = 0; i < dt_optim_states(r->optim.kind); i++)
		if (dt_optim_rule(r->optim.kind)->state[i].shape != DT_STATE_EACH)
			what = "an optimizer whose states are not one value per parameter";
	if (dt_optim_rule(r->optim.kind)->flags & DT_OPTIM_WHOLE)
		what = "an optimizer that updates whole tensors at once";
	if (what)
		return dt_err_set(err, -ENOTSUP, "--sync %s cannot be combined with %s", r->sync.text, what);
	if (l->dp && l->zero != 1)
		return dt_err_set(err, -EINVAL,
				  "--sync %s needs ZeRO-1: every rank is the server of its share (--layout "
				  "dp%d.z1)",
				  r->sync.text, l->dp);
	if (l->dp && r->sync.servers > l->dp)
		return dt_err_set(err, -EINVAL, "--servers %lld exceeds the %d data-parallel ranks",
				  (long long)r->sync.servers, l->dp);
	if (r->sync.kind == DT_SYNC_HOGWILD && dt_run_served_by_messages(r))
		return dt_err_set(
			err, -ENOTSUP,
			"--sync hogwild needs shared memory on one machine: with messages, a server applies "
			"updates one at a time, as async does");
	if (!ages && (r->sync.slower || r->sync.compensation > 0))
		return dt_err_set(
			err, -EINVAL,
			"--staleness-rate and --delay-compensation are for --sync async and hogwild");
	if (r->sync.compensation > 0 && r->compute != DT_F32)
		return dt_err_set(err, -ENOTSUP,
				  "--delay-compensation needs --precision fp32: it takes differences of "
				  "weights, which bf16 rounds");
	return 0;
}

/* Checks how diloco's outer gradients are sent. */
static int check_outer(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_run_sync *s = &r->sync;
	const char *option = s->fragments > 1 ? "fragments"
			     : s->delay	      ? "delay"
			     : s->mix > 0     ? "mix"
			     : s->comm	      ? "comm"
					      : NULL;

	if (s->kind != DT_SYNC_DILOCO)
		return option ? dt_err_set(err, -EINVAL, "--outer-%s requires --sync diloco:STEPS", option)
			      : 0;
	if (s->fragments > s->every)
		return dt_err_set(err, -EINVAL, "--outer-fragments %lld exceeds the %lld steps of --sync %s",
				  (long long)s->fragments, (long long)s->every, s->text);
	if (s->delay && s->delay >= s->every / (s->fragments > 1 ? s->fragments : 1))
		return dt_err_set(
			err, -EINVAL,
			"--outer-delay %lld must be less than the %lld steps from one fragment to the next",
			(long long)s->delay, (long long)(s->every / (s->fragments > 1 ? s->fragments : 1)));
	return 0;
}

/* Checks ranks that train separately between merges: each needs whole weights of its own. */
static int check_alone(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_optim_rule *o = dt_optim_rule(r->optim.kind);
	const char *what = r->layout.zero		   ? "ZeRO: each rank updates all of its weights"
			   : r->layout.cp > 1		   ? "context parallelism (cp)"
			   : r->config->experts		   ? "a model with experts"
			   : r->reproducible		   ? "--reproducible"
			   : r->no_master		   ? "--no-master"
			   : r->offload.what		   ? "--offload"
			   : r->watch.replicas		   ? "--check-replicas"
			   : r->watch.on_spike		   ? "--on-spike: each rank has its own gradient norm"
			   : r->save.grads		   ? "--save-grads"
			   : dt_config_is_image(r->config) ? "image classifiers"
							   : NULL;

	for (int i = 0; i < dt_optim_states(r->optim.kind); i++)
		if (o->state[i].shape != DT_STATE_EACH)
			what = "an optimizer whose states are not one value per parameter";
	return what ? dt_err_set(err, -ENOTSUP, "--sync %s cannot be combined with %s", r->sync.text, what)
		    : 0;
}

/*
 * Checks ranks with unequal numbers of microbatches, which must not wait for each other between them; or of
 * images, whose ranks meet in every round (plan/rounds.h).
 */
int dt_run_check_shares(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_layout *l = &r->layout;
	const bool images = dt_config_is_image(r->config);
	const char *what = l->zero > 1 && !images ? "z2 and z3: ranks synchronize after every microbatch"
			   : l->tp > 1		  ? "tensor parallelism (tp)"
			   : l->pp > 1		  ? "a pipeline (pp)"
			   : l->cp > 1		  ? "context parallelism (cp)"
			   : l->ep > 1		  ? "expert parallelism (ep)"
			   : r->config->experts	  ? "a model with experts"
			   : r->objective.kind	  ? "--objective"
			   : r->teacher.file	  ? "--teacher"
			   : r->sync.kind	  ? "--sync"
			   : r->noise_scale	  ? "--noise-scale: it needs equal batches on all ranks"
			   : r->watch.elastic	  ? "--elastic"
						  : NULL;

	if (!r->shares || !strcmp(r->shares, "equal"))
		return 0;
	if (images && r->bn_span != DT_BN_DP)
		what = "--bn-span other than dp";
	if (what)
		return dt_err_set(err, -ENOTSUP, "--shares %s cannot be combined with %s", r->shares, what);
	return !strcmp(r->shares, "auto") || !l->dp ? 0 : dt_shares_parse(r->shares, l->dp, NULL, err);
}

int run_check_sync(const struct dt_run *r, struct dt_err *err)
{
	int rc = check_outer(r, err);

	if (rc == 0)
		rc = dt_run_alone(r)		      ? check_alone(r, err)
		     : r->sync.kind == DT_SYNC_BACKUP ? check_backup(r, err)
						      : check_served(r, err);
	return rc == 0 ? dt_run_check_shares(r, err) : rc;
}

/* Refuses what ranks of an elastic run cannot hand over. */
static int check_elastic(const struct dt_run *r, struct dt_err *err)
{
	const struct dt_layout *l = &r->layout;
	const char *what = l->tp > 1 || l->pp > 1 || l->cp > 1 || l->ep > 1
				   ? "a layout with other axes than dp"
			   : l->zero && !r->watch.peer_copy		   ? "ZeRO without --peer-copy 1"
			   : r->sync.kind				   ? "--sync"
			   : r->offload.what				   ? "--offload"
			   : r->trace					   ? "--trace"
			   : r->noise_scale				   ? "--noise-scale"
			   : r->momentum_correction			   ? "--momentum-correction"
			   : r->compress.on				   ? "a compressed --grad-comm"
			   : r->ema > 0					   ? "--ema"
			   : r->freeze					   ? "--freeze"
			   : dt_config_is_image(r->config)		   ? "image classifiers"
			   : r->config->experts				   ? "mixtures of experts"
			   : dt_objective_rule(r->objective.kind)->rewards ? "RL objectives"
									   : NULL;

	return r->watch.elastic && what
		       ? dt_err_set(err, -ENOTSUP, "--elastic dp cannot be combined with %s", what)
		       : 0;
}

/* Checks --peer-copy: the next rank repeats a share's update from the share's gradients alone. */
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
			"--peer-copy needs an optimizer that updates each element independently, not %s",
			rule->name);
	return r->compute != DT_F32 && r->no_master
		       ? dt_err_set(err, -ENOTSUP, "--peer-copy cannot be combined with --no-master")
		       : 0;
}

int run_check_elastic(const struct dt_run *r, struct dt_err *err)
{
	int rc = check_elastic(r, err);

	return rc < 0 ? rc : check_peer_copy(r, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
