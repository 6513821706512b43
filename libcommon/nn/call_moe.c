/*
 * Mixtures of experts in training (model/op/moe.c): the router in f32 through the top-k choice, rows sorted
 * by expert, products that only read the rows present. The host reads none of it, except loads over several
 * ranks or over the batch, and rows that go to other ranks' experts.
 * With expert parallelism on devices the host needs the number of rows to send and receive before it can post
 * the messages. So once per layer, in forward and recomputation, it waits for the device: for two copies of a
 * few hundred bytes (some 10 us each) and everything queued before them, after which the device idles until
 * the host has queued the layer's next work. Backward reuses forward's numbers.
 */
#include "nn/call.h"

#include "base/progress.h"

#include <errno.h>

/* The first row of each of this rank's experts, in rows sorted by expert. */
static const int32_t *first_of(const struct dt_exec *x, const struct dt_node *n, int choices)
{
	struct dt_choices c = dt_call_choices(x, n, choices);

	return n->attr.owned ? c.owned : c.first;
}

struct dt_tensor dt_call_live(const struct dt_exec *x, const struct dt_node *n, int v, int choices)
{
	struct dt_tensor t = dt_call_mat(x, v);

	if (v >= 0 && choices >= 0 && dt_dev_is_host(x->dev))
		t.dim[0] = first_of(x, n, choices)[n->attr.expert_n];
	return t;
}

/* The router's weights or rows in f32: as they are, or widened into scratch values. */
static int widen(struct dt_exec *x, struct dt_tensor *t, int room, struct dt_err *err)
{
	struct dt_tensor wide = dt_t2(dt_call_at(x, room), DT_F32, t->dim[0], t->dim[1]);

	if (t->dtype == DT_F32)
		return 0;
	TRY(x->dev->ops->convert(x->dev, wide, *t));
	*t = wide;
	return 0;
}

/* *ret: biases of the router, after the wide router if they are widened too. No router has both kinds. */
static int bias_of(struct dt_exec *x, const struct dt_node *n, int param, struct dt_tensor *ret,
		   struct dt_err *err)
{
	struct dt_tensor b = dt_call_param(x->w, param);

	*ret = b;
	if (!b.data || b.dtype == DT_F32)
		return 0;
	*ret = dt_t1((float *)dt_call_at(x, n->out[5]) + n->attr.experts * x->w[n->param[0]].dim[1], DT_F32,
		     n->attr.experts);
	TRY(x->dev->ops->convert(x->dev, *ret, b));
	return 0;
}

/* The number of parts of a microbatch whose expert counts are kept apart. */
static int64_t load_groups(const struct dt_exec *x)
{
	return x->mixture.over == DT_OVER_SEQUENCE ? x->batch : 1;
}

/* Turns counts into shares: of all tokens so far (over the batch), or of `total` of each part. */
static void share_out(struct dt_exec *x, const struct dt_node *n, float *load, int64_t size, double total)
{
	double *so_far = x->mixture.seen + n->unit * n->attr.experts;

	if (x->mixture.over == DT_OVER_BATCH) {
		total = 0;
		for (int64_t e = 0; e < size; e++) {
			so_far[e] += (double)load[e];
			total += so_far[e];
			load[e] = (float)so_far[e];
		}
	}
	for (int64_t i = 0; i < size; i++)
		load[i] = (float)((double)load[i] / total);
}

/*
 * The experts' shares of the choices: per sequence, per microbatch, or over the batch so far, summed over all
 * ranks with other tokens (Qiu et al. 2025).
 */
static int count(struct dt_exec *x, const struct dt_node *n, const int32_t *expert, struct dt_err *err)
{
	struct dt_mixture *m = &x->mixture;
	const bool batch = m->over == DT_OVER_BATCH;
	const int64_t experts = n->attr.experts, groups = load_groups(x), size = groups * experts,
		      choices = x->p->rows[DT_ROWS_ALL] * n->attr.used;
	const double each = (double)(choices / groups);
	struct dt_comm *others = batch ? m->counts ? m->data : NULL : x->cp;
	const bool later = others || (batch && m->counts); /* counts become shares later */
	const struct dt_tensor load = dt_t1(dt_call_at(x, n->out[4]), DT_F32, size);
	float *seen;
	int rc = 0;

	TRY(x->dev->ops->moe_count(x->dev, load.data, groups, m->counts ? m->count + n->unit * experts : NULL,
				   expert, choices, experts, later ? 1 : each));
	if (others)
		rc = dt_all_reduce(others, load.data, NULL, (size_t)size, DT_F32, DT_SUM,
				   "choices of experts", err);
	if (rc < 0 || !later)
		return rc;
	seen = dt_call_seen(x, load);
	if (!seen)
		return dt_err_sys(err, -ENOMEM, "cannot distribute tokens to experts");
	if (seen != load.data)
		rc = dt_call_move(x, seen, load.data, (size_t)size * sizeof(*seen), err);
	if (rc == 0)
		share_out(x, n, seen, size, each * (others ? dt_comm_size(others) : 1));
	return dt_call_unseen(x, load, seen, rc, err);
}

/* The choices as the host sees them: with a device, the copy made by this flight's last route. */
static struct dt_choices host_choices(const struct dt_exec *x, const struct dt_node *n, int choices)
{
	const int flight = x->plan->flight0[x->flight->chunk] + x->flight->slot;
	const int64_t firsts = n->attr.experts + 1;
	struct dt_choices c = dt_call_choices(x, n, choices);

	if (x->mixture.told) {
		c.first = x->mixture.told + (flight * dt_config_blocks_all(x->c) + n->unit) * 2 * firsts;
		c.owned = c.first + firsts;
	}
	return c;
}

/* Exchanges counts over ep: sets where the rows that each rank sends for each expert begin. */
static int tell_counts(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_choices there = dt_call_choices(x, n, n->out[0]), c = host_choices(x, n, n->out[0]);
	int64_t experts = n->attr.expert_n;
	size_t each = (size_t)(experts / dt_comm_size(x->mixture.ep));
	double t0;
	int rc;

	if (c.first != there.first) {
		TRY(dt_dev_copy(x->dev, c.first, there.first, (size_t)(experts + 1) * sizeof(*c.first)));
		TRY(dt_dev_sync(x->dev));
	}
	t0 = dt_now();
	for (int64_t e = 0; e < experts; e++)
		x->mixture.sent[e] = c.first[e + 1] - c.first[e];
	rc = dt_all_to_all(x->mixture.ep, c.owned + 1, x->mixture.sent, each, DT_I32, "counts of choices",
			   err);
	c.owned[0] = 0;
	for (int64_t e = 0; e < experts; e++)
		c.owned[e + 1] += c.owned[e];
	x->comm_s += dt_now() - t0;
	if (rc == 0 && c.owned != there.owned)
		TRY(dt_dev_copy(x->dev, there.owned, c.owned, (size_t)(experts + 1) * sizeof(*c.owned)));
	return rc;
}

int dt_call_route(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_attr *a = &n->attr;
	const struct dt_moe moe = dt_call_moe(a);
	const struct dt_moe_place place = {.experts = a->experts,
					   .begin = a->expert_begin,
					   .n = a->expert_n,
					   .capacity = a->capacity,
					   .dropped = x->mixture.counts ? x->mixture.dropped : NULL};
	const struct dt_ops *o = x->dev->ops;
	struct dt_choices c = dt_call_choices(x, n, n->out[0]);
	struct dt_tensor in = dt_call_mat(x, n->in[0]), scores = dt_call_mat(x, n->out[2]),
			 w = x->w[n->param[0]], bias, add;
	float *weight = dt_call_at(x, n->out[1]);
	int rc;

	if ((rc = widen(x, &in, n->out[3], err)) < 0 || (rc = widen(x, &w, n->out[5], err)) < 0 ||
	    (rc = bias_of(x, n, n->param[3], &bias, err)) < 0 ||
	    (rc = bias_of(x, n, n->param[4], &add, err)) < 0)
		return rc;
	if (x->mixture.biased)
		bias = dt_t1(x->mixture.bias + n->unit * a->experts, DT_F32, a->experts);
	TRY(o->matmul(x->dev, scores, in, false, w, true, add, false));
	TRY(o->moe_route(x->dev, c.expert, weight, scores, bias, &moe));
	rc = count(x, n, c.expert, err);
	if (rc < 0)
		return rc;
	TRY(o->moe_place(x->dev, c.first, c.at, c.from, c.expert, weight, c.n, &place));
	return x->mixture.ep ? tell_counts(x, n, err) : 0;
}

/*
 * dw += ds^T x, db += column sums of ds, dx = ds w in f32. ds is the gradient of the scores from the choices
 * and, on the first tensor-parallel rank only, from both auxiliary losses.
 */
int dt_call_route_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_moe moe = dt_call_moe(&n->attr);
	const struct dt_ops *o = x->dev->ops;
	bool alone = !x->tp || dt_comm_rank(x->tp) == 0;
	int64_t all = x->p->rows[DT_ROWS_ALL], groups = load_groups(x);
	struct dt_moe_loss l = {
		.balance =
			alone ? (float)(x->mixture.balance * (double)n->attr.experts * x->mixture.scale) : 0,
		.z = alone ? (float)(x->mixture.z * x->mixture.scale) : 0,
		.load = dt_call_at(x, n->in[4]),
		.load_rows = all / groups,
		.ret = alone ? x->mixture.losses : NULL};
	struct dt_tensor ds = dt_call_mat(x, n->out[1]), in = dt_call_mat(x, n->in[3]),
			 dx = dt_call_mat(x, n->out[0]), w = x->w[n->param[0]], wide = dx;
	int rc;

	TRY(o->moe_route_backward(x->dev, ds, dt_call_at(x, n->in[0]), dt_call_choices(x, n, n->in[2]).expert,
				  dt_call_mat(x, n->in[1]), &moe, &l));
	if ((rc = widen(x, &in, n->out[2], err)) < 0 || (rc = widen(x, &w, n->out[3], err)) < 0)
		return rc;
	if (dt_call_param(x->g, n->param[1]).data)
		TRY(o->colsum(x->dev, x->g[n->param[1]], ds));
	if (!n->attr.frozen)
		TRY(o->matmul(x->dev, x->g[n->param[0]], ds, true, in, false, DT_NONE, true));
	if (dx.dtype != DT_F32) /* the rows are no longer needed */
		wide = dt_call_mat(x, n->out[2]);
	TRY(o->matmul(x->dev, wide, ds, false, w, false, DT_NONE, false));
	if (dx.dtype != DT_F32)
		TRY(o->convert(x->dev, dx, wide));
	return 0;
}

int dt_call_dispatch(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	TRY(x->dev->ops->moe_gather(x->dev, dt_call_live(x, n, n->out[0], n->in[1]), dt_call_mat(x, n->in[0]),
				    dt_call_choices(x, n, n->in[1]).from, n->attr.used));
	return 0;
}

int dt_call_dispatch_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	TRY(x->dev->ops->moe_sum(x->dev, dt_call_mat(x, n->out[0]), dt_call_live(x, n, n->in[0], n->in[1]),
				 dt_call_choices(x, n, n->in[1]).at, NULL, DT_NONE, n->attr.used));
	return 0;
}

int dt_call_combine(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	TRY(x->dev->ops->moe_sum(x->dev, dt_call_mat(x, n->out[0]), dt_call_live(x, n, n->in[0], n->in[1]),
				 dt_call_choices(x, n, n->in[1]).at, dt_call_at(x, n->in[2]),
				 dt_call_mat(x, n->in[3]), n->attr.used));
	return 0;
}

int dt_call_combine_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	TRY(x->dev->ops->moe_sum_backward(
		x->dev, dt_call_live(x, n, n->out[0], n->in[2]), dt_call_at(x, n->out[1]),
		dt_call_mat(x, n->in[0]), dt_call_live(x, n, n->in[1], n->in[2]),
		dt_call_choices(x, n, n->in[2]).at, dt_call_at(x, n->in[3]), n->attr.used));
	return 0;
}

static struct dt_grouped grouped_of(const struct dt_exec *x, const struct dt_node *n, int choices)
{
	int ranks = n->attr.owned ? dt_comm_size(x->mixture.ep) : 1;

	return (struct dt_grouped){first_of(x, n, choices), n->attr.expert_n, n->attr.expert_n / ranks};
}

int dt_call_experts(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_grouped g = grouped_of(x, n, n->in[1]);

	TRY(x->dev->ops->grouped_matmul(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->in[0]),
					x->w[n->param[0]], dt_call_param(x->w, n->param[1]), &g));
	if (n->param[3] >= 0)
		TRY(x->dev->ops->grouped_bias(x->dev, dt_call_mat(x, n->out[0]), x->w[n->param[3]],
					      dt_call_param(x->w, n->param[4]), &g));
	return 0;
}

int dt_call_experts_db(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_grouped g = grouped_of(x, n, n->in[1]);

	TRY(x->dev->ops->grouped_bias_backward(x->dev, x->g[n->param[0]], dt_call_param(x->g, n->param[1]),
					       dt_call_mat(x, n->in[0]), &g));
	return 0;
}

int dt_call_experts_dx(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_grouped g = grouped_of(x, n, n->in[1]);

	TRY(x->dev->ops->grouped_matmul_dx(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->in[0]),
					   x->w[n->param[0]], dt_call_param(x->w, n->param[1]), &g));
	return 0;
}

int dt_call_experts_dw(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_grouped g = grouped_of(x, n, n->in[1]);

	TRY(x->dev->ops->grouped_matmul_dw(x->dev, x->g[n->param[0]], dt_call_param(x->g, n->param[1]),
					   dt_call_mat(x, n->in[0]), dt_call_mat(x, n->in[2]), &g,
					   x->accumulate));
	return 0;
}

/*
 * Sends rows to the ranks that have their experts, or back; the counts say how many. Only starts the exchange
 * if a later node waits for it.
 */
int dt_call_exchange(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_choices c = host_choices(x, n, n->in[1]);
	struct dt_mixture *m = &x->mixture;
	int ranks = dt_comm_size(m->ep);
	int64_t each = n->attr.expert_n / ranks, cols = x->p->value[n->in[0]].cols;
	const int32_t *from = n->attr.back ? c.owned : c.first, *to = n->attr.back ? c.first : c.owned;
	double t0 = dt_now();
	int rc;

	for (int r = 0; r < ranks; r++) {
		m->rows[r] = (size_t)((from[(r + 1) * each] - from[r * each]) * cols);
		m->rows[ranks + r] = (size_t)((to[(r + 1) * each] - to[r * each]) * cols);
	}
	rc = dt_iall_to_allv(m->ep, dt_call_at(x, n->out[0]), m->rows + ranks, dt_call_at(x, n->in[0]),
			     m->rows, x->dtype, n->attr.back ? "rows of experts, back" : "rows of experts",
			     m->under_way, err);
	m->some_way = rc == 0;
	m->exposed_s += dt_now() - t0;
	x->comm_s += dt_now() - t0;
	return rc == 0 && !n->attr.begins ? dt_call_exchange_wait(x, n, err) : rc;
}

int dt_call_exchange_wait(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_mixture *m = &x->mixture;
	double t0 = dt_now();
	int rc = dt_wait_all(m->under_way, 2 * dt_comm_size(m->ep), NULL, err);

	m->some_way = false;
	m->exposed_s += dt_now() - t0;
	x->comm_s += dt_now() - t0;
	return rc;
}

void dt_call_exchange_on(struct dt_exec *x)
{
	double t0 = dt_now();

	dt_comm_poll(dt_comm_world(x->mixture.ep), NULL);
	x->mixture.exposed_s += dt_now() - t0;
	x->comm_s += dt_now() - t0;
}
/* SPDX-License-Identifier: Apache-2.0 */
