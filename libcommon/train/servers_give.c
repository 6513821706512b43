#include "train/servers_give.h"

#include "base/progress.h"
#include "train/clocks.h"
#include "train/servers_mail.h"
#include "train/trainer.h"

static int servers(const struct trainer *t)
{
	return dt_layout_servers(&t->run.layout);
}

static float *of_server(const struct trainer *t, int what, int k)
{
	char **at = t->servers.at[what];

	return at ? (float *)(void *)at[dt_layout_server_rank(&t->run.layout, k)] : NULL;
}

/* Whether this process can read server k's memory. */
static bool is_near(const struct trainer *t, int k)
{
	return !t->servers.mail || dt_layout_server_rank(&t->run.layout, k) == t->mesh.at.dp;
}

/* The gradients of unit u in a gift; `first` and `at` are as servers_share returns them. */
static float *grads_of(const struct trainer *t, const struct served_gift *g, int u, int64_t first, int64_t at)
{
	return g->grads ? g->grads + at : servers_grads_at(t, u, first);
}

int servers_weights(struct trainer *t, int k, void *to, struct dt_err *err)
{
	for (int u = 0; u < t->local.nunit; u++) {
		int64_t first, at, n = servers_share(t, k, u, &first, &at);
		char *p = (char *)to + at * dt_dtype_size(t->run.compute);
		struct dt_tensor w = !n	  ? DT_NONE
				     : to ? dt_t1(p, t->run.compute, n)
					  : dt_t1(servers_weights_at(t, u, first), t->run.compute, n);
		struct dt_dev *dev = servers_dev(t);
		int rc = n ? dev->ops->convert(dev, w, dt_t1(of_server(t, SERVED_MASTER, k) + at, DT_F32, n))
			   : 0;

		if (rc < 0)
			return dt_kernel_check(rc, "->convert(", err);
	}
	return 0;
}

/* optim_update_fn: updates elements [first, first + n) of local parameter i's unit. */
static int update(struct trainer *t, int i, struct optim_list *l, int64_t first, int64_t n, void *arg,
		  struct dt_err *err)
{
	const struct served_gift *p = arg;
	const int u = t->local.p[i].unit;
	const int64_t at = t->local.unit[u].share_trained + first - p->k * t->local.unit[u].share;
	struct dt_tensor g = dt_t1(grads_of(t, p, u, first, at), DT_F32, n), state[2] = {DT_NONE, DT_NONE};

	for (int k = 0; k < 2; k++)
		if (of_server(t, SERVED_STATE + k, p->k))
			state[k] = dt_t1(of_server(t, SERVED_STATE + k, p->k) + at, DT_F32, n);
	return optim_add(l, DT_NONE, dt_t1(of_server(t, SERVED_MASTER, p->k) + at, DT_F32, n), g, state[0],
			 state[1], err);
}

/* The optimizer step on a server's shard; number: the update's number, from 1. */
static int step(struct trainer *t, struct served_gift g, double lr, float scale, int64_t number,
		struct dt_err *err)
{
	struct dt_states of = t->optim.of;
	struct optim_list l = {.dev = servers_dev(t), .o = t->run.optim};

	of.at.dp = dt_layout_server_rank(&t->run.layout, g.k);
	l.o.t = number;
	l.o.grad_scale = scale;
	return optim_each(t, &l, lr, &of, update, &g, err);
}

/* Delay compensation: g += X g g (w_now - w_then) on the share of server k. */
static void compensate(struct trainer *t, const struct served_gift *p)
{
	const float x = (float)t->run.sync.compensation;

	for (int u = 0; u < t->local.nunit && x > 0; u++) {
		int64_t first, at, n = servers_share(t, p->k, u, &first, &at);
		const float *now = of_server(t, SERVED_MASTER, p->k) + at;
		const float *then = !n ? NULL : p->grads ? p->then + at : servers_weights_at(t, u, first);
		float *g = n ? grads_of(t, p, u, first, at) : NULL;

		for (int64_t i = 0; i < n; i++)
			g[i] += x * g[i] * g[i] * (now[i] - then[i]);
	}
}

/* async and hogwild: updates the shard at once. For its own gradient the rank also reads the new weights. */
static int take_now(struct trainer *t, const struct served_gift *g, int64_t *ret_version, int64_t *ret_age,
		    struct dt_err *err)
{
	struct clocks_rank *r = &t->servers.clocks->rank[g->k];
	const bool locks = t->run.sync.kind == DT_SYNC_ASYNC;
	double lr = g->lr;
	int64_t version;
	int rc;

	if (locks)
		clocks_lock(&r->lock);
	version = atomic_fetch_add(&r->version, 1);
	*ret_age = version - g->seen;
	*ret_version = version + 1;
	compensate(t, g);
	if (t->run.sync.slower && *ret_age > 1)
		lr /= (double)*ret_age;
	rc = step(t, *g, lr, g->scale, g->before + version + 1, err);
	if (rc == 0 && !g->grads)
		rc = servers_weights(t, g->k, NULL, err);
	if (locks)
		clocks_unlock(&r->lock);
	return rc;
}

/* ssp: adds the gradient to the sum of step `own` of the stretch; the last rank's triggers the update. */
static int take_sum(struct trainer *t, const struct served_gift *g, struct dt_err *err)
{
	struct clocks_rank *r = &t->servers.clocks->rank[g->k];
	const int64_t slot = g->own % (t->run.sync.ahead + 1);
	float *sum = of_server(t, SERVED_SUMS, g->k) + slot * t->servers.share;
	struct dt_dev *dev = servers_dev(t);
	int rc = 0;

	clocks_lock(&r->lock);
	for (int u = 0; u < t->local.nunit && rc == 0; u++) {
		int64_t first, at, n = servers_share(t, g->k, u, &first, &at);

		if (n && !r->arrived[slot])
			rc = dev->ops->fill(dev, dt_t1(sum + at, DT_F32, n), 0);
		if (n && rc == 0)
			rc = dev->ops->axpy(dev, dt_t1(sum + at, DT_F32, n), g->scale,
					    dt_t1(grads_of(t, g, u, first, at), DT_F32, n));
	}
	rc = dt_kernel_check(rc, "->axpy(", err);
	if (rc == 0 && ++r->arrived[slot] == t->run.layout.dp) {
		rc = step(t, (struct served_gift){.k = g->k, .grads = sum}, g->lr, 1, g->before + g->own + 1,
			  err);
		r->arrived[slot] = 0;
		atomic_store(&r->version, g->own + 1);
	}
	clocks_unlock(&r->lock);
	return rc;
}

int servers_take(struct trainer *t, const struct served_gift *g, int64_t *ret_version, int64_t *ret_age,
		 struct dt_err *err)
{
	*ret_version = *ret_age = 0;
	return t->run.sync.kind == DT_SYNC_SSP ? take_sum(t, g, err)
					       : take_now(t, g, ret_version, ret_age, err);
}

int servers_give(struct trainer *t, struct served_part *p, int64_t before, int64_t own, struct dt_err *err)
{
	const bool sums = t->run.sync.kind == DT_SYNC_SSP;
	const int n = servers(t), begin = (int)((int64_t)t->mesh.at.dp * n / t->run.layout.dp);
	double t0 = dt_now(), ages = 0;
	int rc = 0;

	inject_update(t);
	for (int j = 0; j < n && rc == 0; j++) { /* starts with its own: not all ranks at one server */
		const int k = (begin + j) % n;
		const struct served_gift g = {.k = k,
					      .seen = t->servers.seen[k],
					      .lr = p->lr,
					      .scale = p->scale,
					      .before = sums ? before : before * t->run.layout.dp,
					      .own = own};
		int64_t age = 0, version = 0;

		rc = is_near(t, k) ? servers_take(t, &g, &version, &age, err)
				   : mail_give(t, &g, &version, &age, err);
		if (!sums && rc == 0)
			rc = servers_show(t, k, err);
		if (!sums && rc == 0)
			t->servers.seen[k] = version;
		ages += (double)age;
		p->oldest = age > p->oldest ? age : p->oldest;
	}
	if (!sums)
		p->age = ages / n;
	t->t.optimizer += dt_now() - t0;
	return rc;
}

int servers_refresh(struct trainer *t, struct dt_err *err)
{
	struct servers *s = &t->servers;
	int rc = 0;

	for (int k = 0; k < servers(t) && rc == 0; k++) {
		struct clocks_rank *r = &s->clocks->rank[k];
		const int64_t seen = s->seen[k];

		if (!is_near(t, k)) {
			rc = mail_fetch(t, k, seen, &s->seen[k], err);
		} else if (atomic_load(&r->version) != seen) {
			clocks_lock(&r->lock);
			s->seen[k] = atomic_load(&r->version);
			rc = servers_weights(t, k, NULL, err);
			clocks_unlock(&r->lock);
		}
		if (rc == 0 && s->seen[k] != seen)
			rc = servers_show(t, k, err);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
