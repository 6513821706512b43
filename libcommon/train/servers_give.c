#include "train/servers_give.h"

#include "base/progress.h"
#include "train/clocks.h"
#include "train/trainer.h"

static int ranks(const struct trainer *t)
{
	return t->run.layout.dp;
}

/* The elements of unit u in the share of server k: *ret_first in the unit, *ret_at in what the server has. */
static int64_t share(const struct trainer *t, int k, int u, int64_t *ret_first, int64_t *ret_at)
{
	const struct dt_local_unit *of = &t->local.unit[u];
	const int64_t first = k * of->share, left = of->numel - first;

	*ret_first = first;
	*ret_at = of->share_trained;
	return of->frozen || left <= 0 ? 0 : left < of->share ? left : of->share;
}

static float *of_server(const struct trainer *t, int what, int k)
{
	return t->servers.at[what] ? (float *)(void *)t->servers.at[what][k] : NULL;
}

static float *grads(const struct trainer *t, int u)
{
	return t->grads.unit_g[u];
}

/* The weights of server k, as products read them. */
static int pull(struct trainer *t, int k, struct dt_err *err)
{
	for (int u = 0; u < t->local.nunit; u++) {
		int64_t first, at, n = share(t, k, u, &first, &at);
		int rc = n ? t->dev->ops->convert(t->dev, flat_part(t, &t->store.weights, u, first, n),
						  dt_t1(of_server(t, SERVED_MASTER, k) + at, DT_F32, n))
			   : 0;

		if (rc < 0)
			return dt_kernel_check(rc, "->convert(", err);
	}
	return 0;
}

/* One update under way. */
struct push {
	int k;		  /* the server */
	const float *sum; /* ssp: gradients as the masters lie; NULL: this rank's */
};

/* Elements of local parameter i's unit: optim_update_fn. */
static int update(struct trainer *t, int i, const struct dt_optim *o, int64_t first, int64_t n, void *arg,
		  struct dt_err *err)
{
	const struct push *p = arg;
	const int u = t->local.p[i].unit;
	const int64_t at = t->local.unit[u].share_trained + first - p->k * t->local.unit[u].share;
	struct dt_tensor g = dt_t1(p->sum ? (void *)(uintptr_t)(p->sum + at) : grads(t, u) + first, DT_F32,
				   n),
			 state[2] = {DT_NONE, DT_NONE};

	for (int k = 0; k < 2; k++)
		if (of_server(t, SERVED_STATE + k, p->k))
			state[k] = dt_t1(of_server(t, SERVED_STATE + k, p->k) + at, DT_F32, n);
	return dt_kernel_check(
		t->dev->ops->optim_step(t->dev, o, DT_NONE,
					dt_t1(of_server(t, SERVED_MASTER, p->k) + at, DT_F32, n), g, state[0],
					state[1]),
		"->optim_step(", err);
}

/* The rule at update number `number` of the share, from 1. */
static int step(struct trainer *t, struct push *p, double lr, float scale, int64_t number, struct dt_err *err)
{
	struct dt_states of = t->optim.of;
	struct dt_optim o = t->run.optim;

	of.at.dp = p->k;
	o.t = number;
	o.grad_scale = scale;
	return optim_each(t, &o, lr, &of, update, p, err);
}

/* g + X g g (w_now - w_then) of the share of server k. */
static void compensate(struct trainer *t, int k)
{
	const float x = (float)t->run.sync.compensation;

	for (int u = 0; u < t->local.nunit && x > 0; u++) {
		int64_t first, at, n = share(t, k, u, &first, &at);
		const float *now = of_server(t, SERVED_MASTER, k) + at;
		const float *then = n ? flat_at(t, &t->store.weights, u, first) : NULL;
		float *g = n ? grads(t, u) + first : NULL;

		for (int64_t i = 0; i < n; i++)
			g[i] += x * g[i] * g[i] * (now[i] - then[i]);
	}
}

static int push_now(struct trainer *t, int k, double lr, float scale, int64_t before, int64_t *ret_age,
		    struct dt_err *err)
{
	struct clocks_rank *r = &t->servers.clocks->rank[k];
	const bool locks = t->run.sync.kind == DT_SYNC_ASYNC;
	struct push p = {.k = k};
	int64_t version;
	int rc;

	if (locks)
		clocks_lock(&r->lock);
	version = atomic_fetch_add(&r->version, 1);
	*ret_age = version - t->servers.seen[k];
	t->servers.seen[k] = version + 1;
	compensate(t, k);
	if (t->run.sync.slower && *ret_age > 1)
		lr /= (double)*ret_age;
	rc = step(t, &p, lr, scale, before + version + 1, err);
	if (rc == 0)
		rc = pull(t, k, err);
	if (locks)
		clocks_unlock(&r->lock);
	return rc;
}

/* The gradient of step `own` of the stretch is added; the last one makes the update. */
static int push_sum(struct trainer *t, int k, double lr, float scale, int64_t before, int64_t own,
		    struct dt_err *err)
{
	struct clocks_rank *r = &t->servers.clocks->rank[k];
	const int64_t slot = own % (t->run.sync.ahead + 1);
	float *sum = of_server(t, SERVED_SUMS, k) + slot * t->local.share_trained;
	const struct dt_ops *o = t->dev->ops;
	struct push p = {.k = k, .sum = sum};
	int rc = 0;

	clocks_lock(&r->lock);
	for (int u = 0; u < t->local.nunit && rc == 0; u++) {
		int64_t first, at, n = share(t, k, u, &first, &at);

		if (n && !r->arrived[slot])
			rc = o->fill(t->dev, dt_t1(sum + at, DT_F32, n), 0);
		if (n && rc == 0)
			rc = o->axpy(t->dev, dt_t1(sum + at, DT_F32, n), scale,
				     dt_t1(grads(t, u) + first, DT_F32, n));
	}
	rc = dt_kernel_check(rc, "->axpy(", err);
	if (rc == 0 && ++r->arrived[slot] == ranks(t)) {
		rc = step(t, &p, lr, 1, before + own + 1, err);
		r->arrived[slot] = 0;
		atomic_store(&r->version, own + 1);
	}
	clocks_unlock(&r->lock);
	return rc;
}

int servers_give(struct trainer *t, struct served_part *p, int64_t before, int64_t own, struct dt_err *err)
{
	const int n = ranks(t);
	double t0 = dt_now(), ages = 0;
	int rc = 0;

	inject_update(t);
	for (int j = 0; j < n && rc == 0; j++) { /* beginning with its own: not all with the same */
		int k = (t->mesh.at.dp + j) % n;
		int64_t age = 0;

		rc = t->run.sync.kind == DT_SYNC_SSP ? push_sum(t, k, p->lr, p->scale, before, own, err)
						     : push_now(t, k, p->lr, p->scale, before * n, &age, err);
		ages += (double)age;
		p->oldest = age > p->oldest ? age : p->oldest;
	}
	if (t->run.sync.kind != DT_SYNC_SSP)
		p->age = ages / n;
	t->t.optimizer += dt_now() - t0;
	return rc;
}

int servers_refresh(struct trainer *t, struct dt_err *err)
{
	struct servers *s = &t->servers;
	int rc = 0;

	for (int k = 0; k < ranks(t) && rc == 0; k++) {
		struct clocks_rank *r = &s->clocks->rank[k];

		if (atomic_load(&r->version) == s->seen[k])
			continue;
		clocks_lock(&r->lock);
		s->seen[k] = atomic_load(&r->version);
		rc = pull(t, k, err);
		clocks_unlock(&r->lock);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
