/* The head and the loss of a model, and the communication in its tensor-parallel group. */
#include "nn/call_loss.h"

#include "base/progress.h"
#include "kernels/sample.h"
#include "kernels/shape.h"

#include <math.h>
#include <string.h>

/* Sum of -log softmax at the targets of n rows. ce [3, n]: maximum, sum of exponentials, target logit. */
static double loss_of(const float *ce, const int32_t *targets, int64_t n)
{
	const float *rowmax = ce, *sumexp = ce + n, *target = ce + 2 * n;
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		if (targets[i] >= 0)
			sum += log((double)sumexp[i]) + (double)rowmax[i] - (double)target[i];
	return sum;
}

/*
 * Each rank has the logits of its part of the vocabulary: combines the row statistics over all of it. target
 * has room for `rows` more elements after its own.
 */
static int join_stats(struct dt_exec *x, float *rowmax, float *sumexp, float *target, int64_t rows,
		      struct dt_err *err)
{
	float *own = target + rows;
	size_t n = (size_t)rows;
	double t0;
	int rc;

	if (!x->tp)
		return 0;
	t0 = dt_now();
	memcpy(own, rowmax, n * sizeof(*own));
	rc = dt_all_reduce(x->tp, rowmax, NULL, n, DT_F32, DT_MAX, "loss maximum", err);
	for (int64_t i = 0; i < rows && rc == 0; i++)
		sumexp[i] *= expf(own[i] - rowmax[i]);
	if (rc == 0)
		rc = dt_all_reduce(x->tp, sumexp, NULL, n, DT_F32, DT_SUM, "loss sum", err);
	if (rc == 0)
		rc = dt_all_reduce(x->tp, target, NULL, n, DT_F32, DT_SUM, "loss target", err);
	x->comm_s += dt_now() - t0;
	return rc;
}

/* Host copy of results from row r on: statistics [3, n], room [n], with a teacher divergence terms [3, n]. */
static float *on_host(const struct dt_exec *x, int64_t r)
{
	return x->flight->host_ce + (x->teaching.k ? DT_LOSS_ROWS_TAUGHT : DT_LOSS_ROWS) * r;
}

/*
 * Copies the statistics of rows [r, r + n) to the host. With a sharded vocabulary they are combined over the
 * ranks there and copied back.
 */
static int stats_to_host(struct dt_exec *x, float *stats, int64_t r, int64_t n, struct dt_err *err)
{
	float *ce = on_host(x, r);
	size_t bytes = (size_t)(3 * n) * sizeof(*ce);
	int rc;

	TRY(dt_dev_copy(x->dev, ce, stats, bytes));
	if (!x->tp)
		return 0;
	TRY(dt_dev_sync(x->dev));
	rc = join_stats(x, ce, ce + n, ce + 2 * n, n, err);
	if (rc == 0)
		TRY(dt_dev_copy(x->dev, stats, ce, bytes));
	return rc;
}

static struct dt_distill teacher_of(const struct dt_exec *x, const struct dt_loss *l, int64_t r)
{
	const struct dt_teaching *t = &x->teaching;

	return (struct dt_distill){.k = t->k,
				   .temperature = t->temperature,
				   .weight = t->weight,
				   .columns = x->flight->columns + r * t->k,
				   .probs = x->flight->probs + r * (t->k + 1),
				   .vocab_first = l->first};
}

/* Computes the terms of the divergence of rows [r, r + n), whose maxima are known, after the statistics. */
static int teacher_rows(struct dt_exec *x, const struct dt_loss *l, struct dt_tensor logits, int64_t r,
			int64_t n, struct dt_err *err)
{
	const struct dt_distill p = teacher_of(x, l, r);
	const size_t bytes = (size_t)(3 * n) * sizeof(float);
	float *there = l->stats + DT_LOSS_ROWS * n, *sums = there;
	double t0;
	int rc;

	TRY(x->dev->ops->distill_stats(x->dev, there, there + n, there + 2 * n, logits, l->stats,
				       l->targets + r, &p));
	if (x->flight->host_ce) {
		sums = on_host(x, r) + DT_LOSS_ROWS * n;
		TRY(dt_dev_copy(x->dev, sums, there, bytes));
	}
	if (!x->tp)
		return 0;
	if (sums != there)
		TRY(dt_dev_sync(x->dev));
	t0 = dt_now();
	rc = dt_all_reduce(x->tp, sums, NULL, (size_t)(3 * n), DT_F32, DT_SUM, "loss divergence", err);
	x->comm_s += dt_now() - t0;
	if (rc == 0 && sums != there)
		TRY(dt_dev_copy(x->dev, there, sums, bytes));
	return rc;
}

/* Adds cross-entropy and divergence of rows [r, r + n) from their statistics. */
static double taught_loss(struct dt_exec *x, const float *stats, int64_t r, int64_t n)
{
	struct dt_teaching *t = &x->teaching;
	const float *kept = stats + DT_LOSS_ROWS * n, *rest = kept + n, *dot = rest + n;
	double ce = loss_of(stats, x->flight->host_targets + r, n), sum = 0, w = (double)t->weight;

	for (int64_t i = 0; i < n; i++) {
		const float *q = x->flight->host_probs + (r + i) * (t->k + 1);
		double kl, others = (double)q[t->k];

		if (x->flight->host_targets[r + i] < 0)
			continue;
		kl = log((double)kept[i] + (double)rest[i]) - (double)dot[i];
		for (int64_t c = 0; c < t->k; c++)
			kl += q[c] > 0 ? (double)q[c] * log((double)q[c]) : 0;
		if (others > 0) /* underflowing probabilities must not give an infinite loss */
			kl += others * (log(others) - log(fmax((double)rest[i], 0x1p-126)));
		sum += kl;
	}
	t->ce_sum += ce;
	t->kl_sum += sum;
	return (1 - w) * ce + w * (double)t->temperature * (double)t->temperature * sum;
}

/* Computes logits and row statistics of rows [r, r + n) of the head. */
static int stats_rows(struct dt_exec *x, const struct dt_loss *l, int64_t r, int64_t n, struct dt_err *err)
{
	const struct dt_ops *o = x->dev->ops;
	const struct dt_flight *f = x->flight;
	int64_t c = l->in.dim[1], skip = r * c * dt_dtype_size(x->dtype);
	struct dt_tensor in = dt_t2((char *)l->in.data + skip, x->dtype, n, c),
			 logits = dt_t2_ld(l->logits, DT_F32, n, l->vocab, l->ld);
	const struct dt_tensor whole = dt_t2(l->logits, DT_F32, n, l->ld);
	float *rowmax = l->stats, *sumexp = l->stats + n, *target = l->stats + 2 * n;
	int rc;

	TRY(o->matmul(x->dev, logits, in, false, l->head, true, l->bias, false));
	if (l->scale != 1)
		TRY(o->scale(x->dev, whole, l->scale));
	if (l->cap > 0)
		TRY(o->softcap(x->dev, whole, whole, l->cap));
	TRY(o->ce_stats(x->dev, rowmax, sumexp, target, logits, l->targets + r, l->first));
	rc = f->host_ce ? stats_to_host(x, l->stats, r, n, err)
			: join_stats(x, rowmax, sumexp, target, n, err);
	return rc == 0 && dt_loss_taught(x) ? teacher_rows(x, l, logits, r, n, err) : rc;
}

/*
 * The padding between rows is part of the matrices here: the gradient has zeros there, which stay zeros only
 * if the logits have no NaN there.
 */
static int uncap_rows(struct dt_exec *x, const struct dt_loss *l, int64_t n, struct dt_err *err)
{
	struct dt_tensor y = dt_t2(l->logits, DT_F32, n, l->ld), dl = dt_t2(l->dlogits, x->dtype, n, l->ld);

	if (l->ld > l->vocab)
		TRY(x->dev->ops->columns(x->dev, y, l->vocab, dl, l->vocab, l->ld - l->vocab, false));
	TRY(x->dev->ops->softcap_backward(x->dev, dl, dl, y, l->cap));
	return 0;
}

/* Computes the gradients of the same rows. weight: per row, on the device; NULL: all 1. */
static int grad_rows(struct dt_exec *x, const struct dt_loss *l, int64_t r, int64_t n, const float *weight,
		     bool accumulate, struct dt_err *err)
{
	const struct dt_ops *o = x->dev->ops;
	int rc;
	int64_t c = l->in.dim[1], skip = r * c * dt_dtype_size(x->dtype);
	struct dt_tensor in = dt_t2((char *)l->in.data + skip, x->dtype, n, c),
			 logits = dt_t2_ld(l->logits, DT_F32, n, l->vocab, l->ld),
			 dl = dt_t2_ld(l->dlogits, x->dtype, n, l->vocab, l->ld);

	if (dt_loss_taught(x)) {
		const struct dt_distill p = teacher_of(x, l, r);
		const float *sums = l->stats + DT_LOSS_ROWS * n;

		TRY(o->distill_grad(x->dev, dl, logits, l->stats, l->stats + n, sums, sums + n,
				    l->targets + r, x->loss_scale * l->scale, &p));
	} else {
		TRY(o->ce_grad(x->dev, dl, logits, l->stats, l->stats + n, l->targets + r, weight,
			       x->loss_scale * l->scale * l->weight, l->first));
	}
	if (l->cap > 0) {
		rc = uncap_rows(x, l, n, err);
		if (rc < 0)
			return rc;
	}
	if (l->dbias.data)
		TRY(o->colsum(x->dev, l->dbias, dl));
	if (l->dhead.data)
		TRY(o->matmul(x->dev, l->dhead, dl, true, in, false, DT_NONE, accumulate));
	TRY(o->matmul(x->dev, dt_t2((char *)l->din.data + skip, x->dtype, n, c), dl, false, l->head, false,
		      DT_NONE, false));
	return 0;
}

static int64_t chunk_at(const struct dt_exec *x, const struct dt_loss *l, int64_t r)
{
	int64_t chunk = x->stage->loss_chunk, left = l->rows - r;

	return left < chunk ? left : chunk;
}

/* Log softmax at the target, bitwise equal to a server's for the same logits: both add integers. */
static float as_served(const float *logits, int64_t vocab, int32_t target)
{
	struct dt_drawn d = {.logit = logits[target], .max = dt_sample_max(logits, vocab)};

	d.sum = dt_sample_sum(logits, vocab, d.max);
	return dt_drawn_logprob(&d);
}

/* Adds the loss of rows [r, r + n), whose statistics are on the host; stores their log-probabilities. */
static void take_stats(struct dt_exec *x, const struct dt_loss *l, int64_t r, int64_t n)
{
	const struct dt_flight *f = x->flight;
	const float *ce = f->host_ce ? on_host(x, r) : l->stats;

	if (!x->objective.judge) {
		*l->sum += dt_loss_taught(x) ? taught_loss(x, ce, r, n) : loss_of(ce, l->host_targets + r, n);
		return;
	}
#pragma omp parallel for num_threads(x->dev->nthreads)
	for (int64_t i = 0; i < n; i++) {
		const int32_t target = l->host_targets[r + i];
		float *logprob = &x->objective.logprob[l->row ? l->row[r + i] : r + i];

		if (target < 0)
			*logprob = 0;
		else if (x->tp || f->host_ce)
			*logprob = (float)((double)ce[2 * n + i] - (double)ce[i] - log((double)ce[n + i]));
		else
			*logprob = as_served((const float *)(void *)l->logits + i * l->ld, l->vocab, target);
	}
}

/* *ret: the weights of rows [r, r + n) for the device; there is room after a chunk's statistics. */
static int put_weights(struct dt_exec *x, const struct dt_loss *l, const float *weights, int64_t r, int64_t n,
		       const float **ret, struct dt_err *err)
{
	float *pinned = x->flight->host_ce ? on_host(x, r) + 3 * n : NULL;

	*ret = weights + r;
	if (!pinned)
		return 0;
	memcpy(pinned, *ret, (size_t)n * sizeof(*pinned));
	*ret = l->stats + 3 * n;
	TRY(dt_dev_copy(x->dev, l->stats + 3 * n, pinned, (size_t)n * sizeof(*pinned)));
	return 0;
}

/* Computes all rows once for the log-probabilities to judge, and again for the gradients. */
static int judged(struct dt_exec *x, const struct dt_loss *l, struct dt_err *err)
{
	const struct dt_objective *j = &x->objective;
	const float *weights, *weight = NULL;
	const int64_t rows = l->rows;
	int64_t n;
	int rc;

	TRY(dt_dev_sync(x->dev));
	for (int64_t r = 0; r < rows && x->flight->host_ce; r += n)
		take_stats(x, l, r, n = chunk_at(x, l, r));
	rc = j->value && l->value.data ? dt_call_values(x, l->in, l->value, err) : 0;
	if (rc == 0)
		rc = j->judge(j->arg, x->flight, j->logprob, j->weight, &x->loss_sum, err);
	weights = dt_loss_weights(x, l, j->weight);
	for (int64_t r = 0; r < rows && rc == 0 && x->loss_backward; r += n) {
		n = chunk_at(x, l, r);
		if (n < rows) /* with a single chunk it is still there */
			rc = stats_rows(x, l, r, n, err);
		if (rc == 0)
			rc = put_weights(x, l, weights, r, n, &weight, err);
		if (rc == 0)
			rc = grad_rows(x, l, r, n, weight, r > 0 || l->adds, err);
	}
	if (rc == 0 && x->loss_backward && j->value && l->value.data)
		rc = dt_call_values_back(x, l->in, l->value, l->din, l->dvalue, l->adds, err);
	return rc;
}

/* The loss of all rows, chunk by chunk, so that not all logits are in memory at once. */
static int all_rows(struct dt_exec *x, const struct dt_loss *l, struct dt_err *err)
{
	const struct dt_flight *f = x->flight;
	int64_t n;
	int rc = 0;

	for (int64_t r = 0; r < l->rows && rc == 0; r += n) {
		n = chunk_at(x, l, r);
		rc = stats_rows(x, l, r, n, err);
		if (rc == 0 && !f->host_ce)
			take_stats(x, l, r, n);
		if (rc == 0 && x->loss_backward && !x->objective.judge)
			rc = grad_rows(x, l, r, n, NULL, r > 0 || l->adds, err);
	}
	if (rc == 0 && x->objective.judge)
		return judged(x, l, err);
	if (rc < 0 || !f->host_ce)
		return rc;
	TRY(dt_dev_sync(x->dev));
	for (int64_t r = 0; r < l->rows; r += n)
		take_stats(x, l, r, n = chunk_at(x, l, r));
	return 0;
}

int dt_call_loss(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_loss l = {.in = dt_call_mat(x, n->in[0]),
			    .din = dt_call_mat(x, n->out[0]),
			    .head = x->w[n->param[0]],
			    .dhead = x->g[n->param[0]],
			    .logits = dt_call_at(x, n->out[1]),
			    .dlogits = dt_call_at(x, n->out[n->out[2] < 0 ? 1 : 2]),
			    .stats = dt_call_at(x, n->out[3]),
			    .scale = n->attr.scale,
			    .cap = n->attr.cap,
			    .first = x->stage->local.p[n->param[0]].off[0],
			    .targets = n->ahead ? x->flight->targets_ahead : x->flight->targets,
			    .host_targets =
				    n->ahead ? x->flight->host_targets_ahead : x->flight->host_targets,
			    .weight = n->ahead ? x->ahead_weight : 1,
			    .adds = x->accumulate_head || n->ahead,
			    .sum = n->ahead ? &x->ahead_sum : &x->loss_sum};
	int rc;

	if (n->param[1] >= 0) {
		l.value = x->w[n->param[1]];
		l.dvalue = x->g[n->param[1]];
	}
	if (n->param[2] >= 0) {
		l.bias = x->w[n->param[2]];
		l.dbias = x->g[n->param[2]];
	}
	if (l.dbias.data && x->loss_backward && !l.adds)
		TRY(x->dev->ops->fill(x->dev, l.dbias, 0.0f));
	/* Values are not trained: the gradient is 0. */
	if (l.dvalue.data && x->loss_backward && !l.adds && !x->objective.value)
		TRY(x->dev->ops->fill(x->dev, l.dvalue, 0.0f));
	l.rows = l.in.dim[0];
	l.vocab = l.head.dim[0];
	l.ld = dt_ceil_div(l.vocab, dt_dev_row_pad(x->dev)) * dt_dev_row_pad(x->dev);
	rc = dt_loss_pick(x, n, &l);
	if (rc < 0)
		return dt_err_sys(err, rc, "cannot compute the loss");
	if (l.rows == 0 && l.dhead.data && x->loss_backward && !l.adds)
		TRY(x->dev->ops->fill(x->dev, l.dhead, 0.0f));
	rc = all_rows(x, &l, err);
	if (rc == 0)
		dt_loss_unpick(x, &l);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
