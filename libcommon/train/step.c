#include "train/buffers.h"
#include "train/trainer.h"

#include "base/progress.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* Values that ranks must agree on after a step, in one all-reduce. */
struct verdict {
	double loss, stop, save, bad;
	double own;	/* sum of squares of the ranks' own gradients */
	double join;	/* processes waiting to join */
	double targets; /* --sync backup: targets that count */
	double ahead;	/* loss of a module for a further token */
};

static int agree(struct trainer *t, struct verdict *v, struct dt_err *err)
{
	double t0 = dt_now(),
	       sum[8] = {v->loss, v->stop, v->save, v->bad, v->own, v->join, v->targets, v->ahead};
	int rc;

	/* All ranks of a tensor-parallel group have the same loss: count it once. */
	if (t->mesh.at.tp != 0)
		sum[0] = sum[7] = 0;
	rc = dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_ALL), sum, NULL, 8, DT_F64, DT_SUM,
			   "loss and signals", err);
	t->t.comm[TR_OTHER] += dt_now() - t0;
	*v = (struct verdict){sum[0], sum[1], sum[2], sum[3], sum[4], sum[5], sum[6], sum[7]};
	return rc;
}

static int not_finite(struct trainer *t, bool loss_finite, struct dt_err *err)
{
	t->agreed = true;
	if (!loss_finite)
		return dt_err_set(err, -EDOM, "step %lld: the loss is not finite on this rank",
				  (long long)t->loop.step + 1);
	if (t->grads.bad)
		return dt_err_set(err, -EDOM, "step %lld: the gradient of '%s' is not finite%s on this rank",
				  (long long)t->loop.step + 1, t->grads.bad,
				  t->grads.fixed ? " or beyond 2^12" : "");
	return dt_err_set(err, -EDOM, "step %lld: another rank's gradient is not finite",
			  (long long)t->loop.step + 1);
}

int trainer_gradients(struct trainer *t, double scale, double *ret_loss, struct dt_err *err)
{
	double tensor = t->exec.comm_s, waited = 0;
	int rc = reduce_begin(t, err);

	t->exec.stream.exposed_s = 0;
	if (rc == 0)
		rc = backup_begin(t, err);
	pace_begin(t);
	if (rc == 0)
		rc = behind_begin(t, err);
	t->watch.found = false;
	t->watch.find = t->run.watch.find_nan;
	t->exec.watch = t->watch.find || t->watch.most ? &t->watch : NULL;
	if (rc == 0)
		rc = pipeline_step(t, (float)scale, ret_loss, err);
	t->exec.watch = NULL;
	if (t->watch.found)
		dt_log_msg(t->log, "step %lld: %s", (long long)t->loop.step + 1, t->watch.text);
	if (rc == 0)
		rc = pace_end(t, err);
	inject_after(t);
	if (rc == 0)
		rc = backup_finish(t, ret_loss, err);
	t->t.comm[TR_TENSOR] = t->exec.comm_s - tensor;
	for (int k = 0; k < TR_N; k++)
		waited += t->t.comm[k];
	t->t.compute = dt_now() - t->t.start - t->t.data - waited - t->behind.seconds;
	if (rc == 0)
		rc = reduce_finish(t, err);
	if (rc == 0)
		rc = backup_end(t, err);
	stream_forget(t); /* the update's buffers overlap the slots of streamed weights */
	packed_forget(t);
	return rc == 0 ? peer_grads(t, err) : rc;
}

static void count_step(struct trainer *t)
{
	t->loop.held = ++t->loop.step;
	t->loop.cursor += t->run.global_batch;
	t->loop.tokens += t->source.given.g ? t->source.given.now.tokens
					    : (t->run.global_batch - backup_lost(t)) * t->run.seq;
}

int trainer_leave_out(struct trainer *t, struct step_result *ret, const char *why, struct dt_err *err)
{
	int64_t first = t->loop.cursor;

	ret->skipped = true;
	ret->why = why;
	compressed_drop(t);
	count_step(t);
	return skips_add(t, first, first + t->run.global_batch, 1, err);
}

/* Skips the update of a step with a non-finite loss or gradient, at most nan_skips times in a row. */
static int bad_step(struct trainer *t, bool loss_finite, struct step_result *ret, struct dt_err *err)
{
	const struct dt_run_watch *w = &t->run.watch;

	if (t->spike.bad >= w->nan_skips)
		return not_finite(t, loss_finite, err);
	t->spike.bad++;
	dt_log_msg(&t->root_log,
		   "step %lld: loss or gradient is not finite, update skipped (%lld of %lld in a row)",
		   (long long)t->loop.step + 1, (long long)t->spike.bad, (long long)w->nan_skips);
	return trainer_leave_out(t, ret, "nan", err);
}

/* Applies --on-spike to a step whose loss and norm are known. */
static int spiked(struct trainer *t, struct step_result *ret, struct dt_err *err)
{
	const struct dt_run_watch *w = &t->run.watch;
	char why[128];

	if (w->on_spike == DT_RUN_SPIKE_IGNORE ||
	    !spike_look(&t->spike, (int)w->window, w->factor, ret->loss, ret->grad_norm, why, sizeof(why)))
		return 0;
	if (w->on_spike == DT_RUN_SPIKE_STOP) {
		t->agreed = true;
		t->status = DT_EXIT_NO;
		return dt_err_set(t->info.rank ? NULL : err, -EDOM,
				  "step %lld: %s: stopped by --on-spike stop", (long long)t->loop.step + 1,
				  why);
	}
	dt_log_msg(&t->root_log, "step %lld: spike: %s", (long long)t->loop.step + 1, why);
	ret->back = w->on_spike == DT_RUN_SPIKE_ROLLBACK;
	return ret->back ? 0 : trainer_leave_out(t, ret, "spike", err);
}

/* Begins the rows of the step; the time counts as waiting for data. */
static int given_begin_step(struct trainer *t, struct dt_err *err)
{
	double t0 = dt_now();
	int rc = trainer_agree(t, given_begin(t, err), err);

	if (rc == 0)
		rc = trainer_agree(t, beside_ask(t, err), err);
	t->t.data += dt_now() - t0;
	return rc;
}

/* From forward to the agreement of all ranks. Loss and norm are then known, or the step is skipped. */
static int compute(struct trainer *t, struct asked asked, struct step_result *ret, struct dt_err *err)
{
	double targets =
		       (double)source_targets(t, false, t->loop.cursor, t->loop.cursor + t->run.global_batch),
	       loss = 0, fault = inject_factor(t), share;
	struct verdict v;
	int rc;

	targets = targets > 0 ? targets : 1;
	memset(t->objective.sum, 0, sizeof(t->objective.sum));
	t->exec.teaching.ce_sum = t->exec.teaching.kl_sum = 0;
	/* A rank that trains alone (local SGD) divides by its part of the targets. */
	share = outer_alone(t) ? targets / t->run.layout.dp : targets;
	rc = t->source.given.g ? given_begin_step(t, err) : 0;
	if (rc == 0)
		rc = experts_begin(t, err);
	if (rc == 0)
		rc = trainer_gradients(t, fault * t->optim.loss_scale / share, &loss, err);
	if (rc == 0 && t->source.given.g)
		rc = t->source.given.g->end(t->source.given.g->arg, err);
	if (rc < 0)
		return rc;
	if (t->backup.a && t->backup.dropped) /* a fault in a dropped part affects no loss */
		fault = 1;
	v = (struct verdict){loss * fault,	   asked.stop,	     asked.save,
			     t->grads.bad != NULL, t->grads.own,     dt_world_waiting(t->world),
			     t->backup.targets,	   t->flow.ahead_sum};
	rc = agree(t, &v, err);
	if (rc == 0)
		rc = shares_end(t, err);
	if (rc == 0)
		rc = objective_agree(t, err);
	if (rc == 0)
		rc = taught_agree(t, targets, err);
	if (rc < 0)
		return rc;
	ret->stop = v.stop != 0;
	ret->save = v.save != 0;
	ret->join = v.join != 0;
	if (t->backup.a)
		targets = backup_counted(t, v.targets);
	ret->loss = v.loss / targets;
	ret->mtp_loss = v.ahead / targets;
	t->peer.result = *ret;
	if (!isfinite(v.loss))
		return bad_step(t, isfinite(loss * fault), ret, err);
	ret->skipped = v.bad != 0 && optim_overflowed(t);
	if (v.bad != 0 && !ret->skipped)
		return bad_step(t, true, ret, err);
	if (ret->skipped)
		return 0;
	t->spike.bad = 0;
	rc = backup_scale(t, err);
	if (rc == 0)
		rc = optim_norm(t, &ret->grad_norm, err);
	if (rc == 0 && t->run.noise_scale)
		noise_add(&t->noise, (double)source_samples_of_step(t), t->run.layout.dp,
			  v.own / (t->optim.loss_scale * t->optim.loss_scale),
			  ret->grad_norm * ret->grad_norm);
	return rc < 0 ? rc : spiked(t, ret, err);
}

static int step_update(struct trainer *t, const struct step_result *r, struct dt_err *err)
{
	int rc;

	t->peer.norm = r->grad_norm;
	inject_update(t);
	rc = inject_late(t, err);
	if (rc == 0)
		rc = details_gradients(t, r, err);
	if (rc == 0)
		t->loop.held = -1;
	if (rc == 0)
		rc = optim_step(t, r->lr, r->grad_norm, err);
	return rc == 0 ? optim_publish(t, err) : rc;
}

int trainer_catch_up(struct trainer *t, bool updated, double norm, struct dt_err *err)
{
	int rc = updated ? optim_step(t, dt_lr_at(&t->run.lr, t->loop.step), norm, err) : 0;

	if (rc == 0)
		count_step(t);
	return rc;
}

/* Sets the size and the learning rate of the step that begins. */
static void begin_batch(struct trainer *t, struct step_result *ret)
{
	dt_run_batch_at(&t->run, t->loop.cursor);
	ret->lr = dt_lr_at(&t->run.lr, t->loop.step);
}

int trainer_step(struct trainer *t, struct asked asked, struct step_result *ret, struct dt_err *err)
{
	double t0, waited = t->offload.use.wait_s;
	int rc;

	memset(&t->t, 0, sizeof(t->t));
	t->t.start = dt_now();
	t->backup.ranks = 0;
	*ret = (struct step_result){.loss = NAN, .grad_norm = NAN, .loss_scale = t->optim.loss_scale};
	t->grads.scale = t->optim.loss_scale;
	begin_batch(t, ret);
	if (skips_pass(t)) { /* skipped in an earlier start of the run */
		ret->skipped = ret->passed = true;
		ret->why = "passed over";
		compressed_drop(t); /* as the start that left the step out */
		return 0;
	}
	begin_batch(t, ret); /* again: the cursor may have moved */
	shares_begin(t);
	buffers_begin(t);
	inject_before(t);
	rc = compute(t, asked, ret, err);
	if (rc < 0)
		return rc;
	if (ret->back || ret->why)
		return experts_end(t, false, err);
	t0 = dt_now();
	rc = experts_end(t, !ret->skipped, err);
	if (rc == 0 && !ret->skipped)
		rc = step_update(t, ret, err);
	if (rc == 0 && !ret->skipped)
		rc = ema_step(t, err);
	if (rc == 0 && buffers_count(t))
		trainer_before_update(t); /* they change also in a step that the loss scale skips */
	if (rc == 0)
		rc = buffers_update(t, err);
	t->t.optimizer = dt_now() - t0 + t->behind.seconds;
	dt_trace_span(t->report.trace, "optimizer", "optimizer", t0, NULL);
	t->offload.update_wait_s += t->offload.use.wait_s - waited;
	t->offload.steps_s += dt_now() - t->t.start;
	/* With peer copies the update needs no other rank: losing one after it changes nothing. */
	if (rc == 0 || (dt_run_copies_peer(&t->run) && t->optim.updated == t->loop.step + 1))
		count_step(t);
	return rc;
}

int trainer_eval(struct trainer *t, struct eval_result *ret, struct dt_err *err)
{
	int64_t samples = source_eval_samples(t), mb = t->run.microbatch, each = mb * t->run.layout.dp;
	/* sums of losses; images right by top-1, by top-5; losses of a module for a further token */
	double targets, sum[4] = {0};
	int rc = 0;

	t->exec.hits[0] = t->exec.hits[1] = 0;
	t->flow.ahead_sum = 0;
	if (t->run.data.eval_tokens && samples > t->run.data.eval_tokens / t->run.seq)
		samples = t->run.data.eval_tokens / t->run.seq > 0 ? t->run.data.eval_tokens / t->run.seq : 1;
	for (int64_t n = 0; n < samples && rc == 0; n += each)
		rc = pipeline_forward(t, true, n + t->mesh.at.dp * mb, samples, &sum[0], err);
	if (rc < 0)
		return rc;
	sum[1] = t->exec.hits[0];
	sum[2] = t->exec.hits[1];
	sum[3] = t->flow.ahead_sum;
	if (t->mesh.at.tp != 0)
		memset(sum, 0, sizeof(sum));
	rc = dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_ALL), sum, NULL, 4, DT_F64, DT_SUM, "evaluation loss",
			   err);
	ret->targets = source_targets(t, true, 0, samples);
	targets = (double)(ret->targets > 0 ? ret->targets : 1);
	ret->loss = sum[0] / targets;
	ret->top1 = sum[1] / targets;
	ret->top5 = sum[2] / targets;
	ret->mtp_loss = sum[3] / targets;
	return rc;
}

int loop_from_json(struct trainer *t, const json_t *meta, struct dt_err *err)
{
	struct loop *l = &t->loop;
	int rc = dt_json_int(meta, "step", true, 0, INT64_MAX, &l->step, err);

	if (rc >= 0)
		rc = dt_json_int(json_object_get(meta, "data"), "cursor", true, 0, INT64_MAX, &l->cursor,
				 err);
	if (rc >= 0)
		rc = dt_json_int(json_object_get(meta, "train"), "tokens", false, 0, INT64_MAX, &l->tokens,
				 err);
	return rc < 0 ? rc : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
