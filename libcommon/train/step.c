#include "train/trainer.h"

#include "base/progress.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static int unit_done(void *arg, int unit, struct dt_err *err)
{
	return reduce_unit(arg, unit, err);
}

/* What every rank must agree on after a step, in one sum. */
struct verdict {
	double loss, stop, bad;
};

static int agree(struct trainer *t, struct verdict *v, struct dt_err *err)
{
	double t0 = dt_now(), sum[3] = {v->loss, v->stop, v->bad};
	int rc;

	/* Every rank of a tensor-parallel group has the same loss: count it once. */
	if (t->mesh.at.tp != 0)
		sum[0] = 0;
	rc = dt_all_reduce(t->mesh.world, sum, NULL, 3, DT_F64, DT_SUM, "loss and signals", err);
	t->t.comm_exposed += dt_now() - t0;
	*v = (struct verdict){sum[0], sum[1], sum[2]};
	return rc;
}

static int not_finite(struct trainer *t, bool loss_finite, struct dt_err *err)
{
	t->agreed = true;
	if (t->bad)
		return dt_err_set(err, -EDOM, "step %lld: the gradient of '%s' is not finite on this rank",
				  (long long)t->step + 1, t->bad);
	return dt_err_set(err, -EDOM, "step %lld: another rank's gradient is not finite",
			  (long long)t->step + 1);
}

int trainer_step(struct trainer *t, bool stop_asked, struct step_result *ret, struct dt_err *err)
{
	double tokens = (double)t->global_batch * (double)t->o->seq, loss_sum = 0, t0, exposed;
	struct verdict v;
	int rc;

	memset(&t->t, 0, sizeof(t->t));
	t->t.start = dt_now();
	reduce_begin(t);
	rc = dt_grads_begin(&t->model, err);
	for (int64_t a = 0; a < t->accumulation && rc == 0; a++) {
		int64_t first = t->cursor + (a * t->layout.dp + t->mesh.at.dp) * t->o->microbatch;

		t0 = dt_now();
		rc = trainer_load(t, &t->sampler, first, INT64_MAX, err);
		t->t.data += dt_now() - t0;
		t0 = dt_now();
		exposed = t->t.comm_exposed;
		t->pass.accumulate = a > 0;
		if (rc == 0)
			rc = dt_stage_forward(&t->model, &t->pass, err);
		if (rc == 0)
			rc = dt_loss(&t->model, &t->pass, true, (float)(1 / tokens), &loss_sum, err);
		if (rc == 0)
			rc = dt_stage_backward(&t->model, &t->pass,
					       a == t->accumulation - 1 ? unit_done : NULL, t, err);
		t->t.compute += dt_now() - t0 - (t->t.comm_exposed - exposed);
	}
	if (rc == 0)
		rc = reduce_finish(t, err);
	if (rc < 0)
		return rc;
	v = (struct verdict){loss_sum, stop_asked, t->bad != NULL || !isfinite(loss_sum)};
	rc = agree(t, &v, err);
	if (rc < 0)
		return rc;
	if (v.bad != 0)
		return not_finite(t, isfinite(loss_sum), err);
	t0 = dt_now();
	ret->loss = v.loss / tokens;
	ret->stop = v.stop != 0;
	ret->lr = dt_lr_at(&t->o->lr, t->step);
	rc = grad_norm(t, &ret->grad_norm, err);
	if (rc == 0)
		rc = update(t, ret->lr, ret->grad_norm, err);
	t->t.optimizer = dt_now() - t0;
	t->step++;
	t->cursor += t->global_batch;
	t->tokens += t->global_batch * t->o->seq;
	return rc;
}

int trainer_eval(struct trainer *t, double *ret_loss, int64_t *ret_tokens, struct dt_err *err)
{
	int64_t samples = t->eval_sampler.samples, mb = t->o->microbatch, each = mb * t->layout.dp;
	double sum[1] = {0};
	int rc = 0;

	if (t->o->eval_tokens && samples > t->o->eval_tokens / t->o->seq)
		samples = t->o->eval_tokens / t->o->seq > 0 ? t->o->eval_tokens / t->o->seq : 1;
	for (int64_t n = 0; n < samples && rc == 0; n += each) {
		rc = trainer_load(t, &t->eval_sampler, n + t->mesh.at.dp * mb, samples, err);
		if (rc == 0)
			rc = dt_stage_forward(&t->model, &t->pass, err);
		if (rc == 0)
			rc = dt_loss(&t->model, &t->pass, false, 0, &sum[0], err);
	}
	if (rc < 0)
		return rc;
	rc = dt_all_reduce(t->mesh.dp, sum, NULL, 1, DT_F64, DT_SUM, "evaluation loss", err);
	*ret_tokens = samples * t->o->seq;
	*ret_loss = sum[0] / (double)*ret_tokens;
	return rc;
}
