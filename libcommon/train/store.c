/* Where parameters are held under each ZeRO stage, see store.h. */
#include "train/init.h"
#include "train/trainer.h"

#include "base/progress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct dt_comm *unit_comm(const struct trainer *t, int u)
{
	return dt_mesh_comm(&t->mesh, t->local.unit[u].experts ? DT_ON_EDP : DT_ON_DATA);
}

int64_t share_n(const struct trainer *t, int u)
{
	const struct dt_layout *l = &t->run.layout;

	return l->servers && dt_layout_server(l, t->mesh.at.dp) == l->servers ? 0 : t->local.unit[u].share;
}

int64_t share_first(const struct trainer *t, int u)
{
	return dt_unit_share_first(&t->run.layout, &t->local.unit[u], t->mesh.at);
}

int64_t flat_index(const struct trainer *t, const struct flat *f, int u, int64_t i)
{
	const struct dt_local_unit *of = &t->local.unit[u];

	if (f->shared)
		return (f->trained ? of->share_trained : of->share_flat) + i - share_first(t, u);
	return (f->trained ? of->trained : of->flat) + i;
}

void *flat_at(const struct trainer *t, const struct flat *f, int u, int64_t i)
{
	int64_t at = flat_index(t, f, u, i);

	return f->away ? offload_at(t, f, at) : f->p + at * dt_dtype_size(f->dtype);
}

struct flat flat_bind(struct trainer *t, enum dt_buf_id id, enum dt_dtype dtype, int shared_from)
{
	return (struct flat){.p = buffer_at(t, id),
			     .dtype = dtype,
			     .shared = t->run.layout.zero >= shared_from,
			     .trained = id != DT_B_WEIGHTS && id != DT_B_REFERENCE};
}

struct dt_tensor flat_part(const struct trainer *t, const struct flat *f, int u, int64_t first, int64_t n)
{
	return f->p ? dt_t1(flat_at(t, f, u, first), f->dtype, n) : DT_NONE;
}

int store_bind(struct trainer *t, struct dt_err *err)
{
	struct store *s = &t->store;
	int n = t->local.nunit;

	const struct dt_tiles *tiles = &t->offload.tiles;

	s->weights = tiles->n && tiles->weights >= 0 ? offload_flat(t, tiles->weights)
						     : flat_bind(t, DT_B_WEIGHTS, t->run.compute, 3);
	s->master = flat_bind(t, DT_B_MASTER, DT_F32, 1);
	if (tiles->n && tiles->master >= 0)
		s->master = offload_flat(t, tiles->master);
	else if (!s->master.p)
		s->master = s->weights;
	s->unit_w = calloc((size_t)n, sizeof(*s->unit_w));
	if (!s->unit_w)
		return dt_err_sys(err, -ENOMEM, "cannot bind the weights");
	stream_bind(t);
	for (int u = 0; u < n; u++) {
		int slot = dt_unit_slot(&t->local, u, t->config.layers);

		s->unit_w[u] = s->weights.shared || t->local.unit[u].packed
				       ? dt_plan_address(&t->plan, t->arena.base, DT_B_UNIT_W, slot)
			       : s->weights.away ? stream_at(t, u)
						 : flat_at(t, &s->weights, u, 0);
	}
	for (int k = 0; k < DT_UNIT_SLOTS; k++)
		s->held[k] = -1;
	return 0;
}

void store_release(struct trainer *t)
{
	free(t->store.unit_w);
}

static int start_gather(struct trainer *t, int u, struct dt_err *err)
{
	int slot = dt_unit_slot(&t->local, u, t->config.layers), rc;
	const struct flat *w = &t->store.weights;
	double t0;

	rc = w->away ? stream_take(t, u, err) : 0;
	if (rc < 0)
		return rc;
	t->store.held[slot] = u;
	t->store.ready[slot] = -2;
	t0 = dt_now();
	rc = dt_iall_gather(unit_comm(t, u), t->store.unit_w[u],
			    w->away ? stream_at(t, u) : flat_at(t, w, u, share_first(t, u)),
			    (size_t)share_n(t, u), w->dtype, "weights of a unit", &t->store.gather[slot],
			    err);
	t->t.comm[TR_WEIGHTS] += dt_now() - t0;
	return rc;
}

/* The next unit to compute that has the same frozen and experts flags; -1: none. */
static int neighbour(const struct trainer *t, int u, bool backward)
{
	const struct dt_local_unit *unit = t->local.unit;
	int step = backward ? -1 : 1;

	for (int k = u + step; k >= 0 && k < t->local.nunit; k += step)
		if (unit[k].frozen == unit[u].frozen && unit[k].experts == unit[u].experts)
			return k;
	return -1;
}

/* Starts gathering a unit's weights, unless it has been started. */
static int start_fetch(struct trainer *t, int u, struct dt_err *err)
{
	if (!t->store.weights.shared)
		return stream_want(t, u, err);
	return t->store.held[dt_unit_slot(&t->local, u, t->config.layers)] == u ? 0 : start_gather(t, u, err);
}

/* Waits until a unit's weights are gathered. */
static int finish_fetch(struct trainer *t, int u, struct dt_err *err)
{
	const int slot = dt_unit_slot(&t->local, u, t->config.layers);
	int rc = start_fetch(t, u, err);

	if (rc < 0 || !t->store.weights.shared)
		return rc < 0 ? rc : stream_take(t, u, err);
	rc = dt_wait(&t->store.gather[slot], &t->t.comm[TR_WEIGHTS], err);
	if (rc < 0 || t->store.ready[slot] == u)
		return rc;
	t->store.ready[slot] = u;
	return qat_round(t, u, err);
}

/* While the next unit is gathered, starts reading the shard of the one after it from the file. */
static int read_ahead(struct trainer *t, int next, bool backward, struct dt_err *err)
{
	int after = neighbour(t, next, backward);

	if (!t->store.weights.away || !t->store.weights.shared || after < 0 ||
	    dt_unit_slot(&t->local, after, t->config.layers) ==
		    dt_unit_slot(&t->local, next, t->config.layers))
		return 0;
	return stream_want(t, after, err);
}

int store_drop(struct trainer *t, struct dt_err *err)
{
	int rc = 0;

	for (int k = 0; k < DT_UNIT_SLOTS && rc == 0; k++) {
		rc = dt_wait(&t->store.gather[k], &t->t.comm[TR_WEIGHTS], err);
		t->store.held[k] = -1;
	}
	return rc;
}

/* Before unit u computes: waits for its weights, and starts fetching the next unit's. */
int store_fetch(struct trainer *t, int u, bool backward, struct dt_err *err)
{
	int slot = dt_unit_slot(&t->local, u, t->config.layers), next = neighbour(t, u, backward), rc,
	    embed = slot == DT_UNIT_SLOT_FINAL && t->store.weights.away ? dt_exec_unit(&t->exec, -1) : -1;

	if (t->local.unit[u].packed)
		return packed_fetch(t, u, err);
	if (!t->store.weights.shared && !t->store.weights.away)
		return 0;
	rc = finish_fetch(t, u, err);
	/* The last pipeline stage may hold a tied embedding that belongs to none of its segments. */
	if (rc == 0 && embed >= 0)
		rc = finish_fetch(t, embed, err);
	if (rc < 0 || next < 0)
		return rc;
	/* Dense layers between two with experts may share one slot. */
	if (dt_unit_slot(&t->local, next, t->config.layers) == slot)
		return 0;
	rc = start_fetch(t, next, err);
	return rc < 0 ? rc : read_ahead(t, next, backward, err);
}

int64_t store_masters(struct trainer *t, int u, int64_t first, int64_t n, struct dt_tensor *ret,
		      struct dt_err *err)
{
	const struct flat *master = &t->store.master;
	int64_t m = master->away ? offload_hold(t, master->away - 1, u, first, n, OFFLOAD_READ, err) : n;

	if (m > 0)
		*ret = dt_t1(flat_at(t, master, u, first), master->dtype, m);
	return m;
}

/* As round_masters, but the masters are in host memory: converts there, then copies to the device. */
static int round_on_host(struct trainer *t, int u, int64_t first, int64_t n, struct dt_err *err)
{
	struct dt_dev *dev = t->servers.dev;
	struct dt_tensor w = flat_part(t, &t->servers.weights, u, first, n);
	int rc;

	if (!n)
		return 0;
	rc = dt_kernel_check(dev->ops->convert(dev, w, flat_part(t, &t->store.master, u, first, n)),
			     "->convert(", err);
	return rc < 0 ? rc
		      : device_put(t, flat_at(t, &t->store.weights, u, first), w.data,
				   (size_t)(n * dt_dtype_size(w.dtype)), err);
}

/* Converts elements [first, first + n) of unit u's masters to the compute type. */
static int round_masters(struct trainer *t, int u, int64_t first, int64_t n, struct dt_err *err)
{
	const struct flat *w = &t->store.weights, *master = &t->store.master;

	if (t->servers.dev)
		return round_on_host(t, u, first, n, err);
	for (int64_t m; n > 0; first += m, n -= m) {
		int rc;

		m = offload_hold_two(t, master->away - 1, w->away - 1, u, first, n, err);
		rc = m < 0 ? (int)m
			   : dt_kernel_check(t->dev->ops->convert(t->dev, flat_part(t, w, u, first, m),
								  flat_part(t, master, u, first, m)),
					     "->convert(", err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

bool store_rounds(const struct trainer *t)
{
	return t->store.master.p != t->store.weights.p && t->store.weights.dtype != DT_F32;
}

/* All-gathers a unit's weights; with parameter servers each server broadcasts its shard. */
static int gather(struct trainer *t, int u, struct dt_err *err)
{
	const struct dt_layout *l = &t->run.layout;
	const struct flat *w = &t->store.weights;
	const int64_t n = t->local.unit[u].share;
	int rc = 0;

	if (!l->servers)
		return dt_all_gather(unit_comm(t, u), flat_at(t, w, u, 0), NULL, (size_t)n, w->dtype,
				     "weights of a unit", err);
	for (int k = 0; k < l->servers && rc == 0; k++)
		rc = dt_broadcast(unit_comm(t, u), flat_at(t, w, u, k * n), (size_t)n, w->dtype,
				  dt_layout_server_rank(l, k), "weights of a unit", err);
	return rc;
}

int store_publish(struct trainer *t, bool rounded, struct dt_err *err)
{
	int rc = 0;

	for (int k = 0; k < DT_UNIT_SLOTS; k++)
		t->store.held[k] = -1;
	for (int u = 0; u < t->local.nunit && rc == 0; u++) {
		int64_t first = share_first(t, u), n = share_n(t, u);

		if (t->local.unit[u].frozen)
			continue;
		if (t->store.master.p != t->store.weights.p &&
		    !(rounded && (t->store.master.away || t->store.weights.away)))
			rc = round_masters(t, u, first, n, err);
		if (rc == 0 && t->run.layout.zero && !t->store.weights.shared)
			rc = gather(t, u, err);
		if (rc == 0 && !t->store.weights.shared)
			rc = qat_round(t, u, err);
	}
	return rc < 0 ? rc : offload_settle(t, err);
}

int store_put_initial(struct trainer *t, const struct flat *to, const struct dt_local_param *lp,
		      int64_t first, int64_t n, struct dt_err *err)
{
	const int64_t most = 1 << 16, start = lp->flat - t->local.unit[lp->unit].flat;
	float *wide = malloc((size_t)most * (sizeof(*wide) + sizeof(uint16_t)));
	uint16_t *narrow = (uint16_t *)(wide + most);
	int rc = wide ? 0 : dt_err_sys(err, -ENOMEM, "cannot read the weights of '%s'", t->run.model);

	for (int64_t i = 0; i < n && rc == 0; i += most) {
		int64_t m = n - i < most ? n - i : most;
		void *at = flat_at(t, to, lp->unit, start + first + i);
		const void *from = to->dtype == DT_F32 ? (void *)wide : (void *)narrow;
		const size_t bytes = (size_t)(m * dt_dtype_size(to->dtype));

		rc = init_values(t, lp, first + i, m, wide, err);
		for (int64_t k = 0; k < m && rc == 0 && to->dtype != DT_F32; k++)
			narrow[k] = to->dtype == DT_BF16 ? dt_f32_to_bf16(wide[k]) : dt_f32_to_f16(wide[k]);
		if (rc == 0 && dt_dev_is_host(t->dev))
			memcpy(at, from, bytes);
		else if (rc == 0)
			rc = device_put(t, at, from, bytes, err);
	}
	free(wide);
	return rc;
}

/* Initializes offloaded masters: elements [at, at + n) of a parameter's unit. */
static int away_init(struct trainer *t, const struct dt_local_param *lp, int64_t at, int64_t n,
		     struct dt_err *err)
{
	const int64_t start = lp->flat - t->local.unit[lp->unit].flat;
	const struct flat *to = &t->store.master;

	for (int64_t m; n > 0; at += m, n -= m) {
		int rc;

		m = offload_hold(t, to->away - 1, lp->unit, at, n, OFFLOAD_FILL, err);
		rc = m < 0 ? (int)m
		     : to->dtype != DT_F32
			     ? round_init(t, lp, at - start, m, err)
			     : device_init_param(t, lp, at - start, m, flat_at(t, to, lp->unit, at), err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Initializes elements [first, first + n) of a parameter in the buffer that holds them between steps. */
static int init_param(struct trainer *t, const struct dt_local_param *lp, int64_t first, int64_t n,
		      struct dt_err *err)
{
	const int64_t start = lp->flat - t->local.unit[lp->unit].flat;
	const bool frozen = t->local.unit[lp->unit].frozen;
	const struct flat *to = frozen ? &t->store.weights : &t->store.master;

	if (to->away)
		return away_init(t, lp, start + first, n, err);
	if (to->dtype == DT_F32)
		return device_init_param(t, lp, first, n, flat_at(t, to, lp->unit, start + first), err);
	return frozen ? store_put_initial(t, to, lp, first, n, err) : round_init(t, lp, first, n, err);
}

static int init_weights(struct trainer *t, bool frozen_only, struct dt_err *err)
{
	for (int i = 0; i < t->local.n; i++) {
		const struct dt_local_param *lp = &t->local.p[i];
		const struct dt_local_unit *u = &t->local.unit[lp->unit];
		/* Frozen weights are not gathered later: each rank fills all, unless weights are sharded. */
		bool whole = u->frozen && !t->store.weights.shared;
		int64_t start = lp->flat - u->flat, s = whole ? 0 : share_first(t, lp->unit),
			first = start > s ? start : s, last = s + (whole ? u->numel : share_n(t, lp->unit));
		int rc;

		if (u->packed) {
			if ((rc = packed_init(t, lp, err)) < 0)
				return rc;
			continue;
		}
		if (last > start + lp->numel)
			last = start + lp->numel;
		if (first >= last || (frozen_only && !u->frozen))
			continue;
		rc = init_param(t, lp, first - start, last - first, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int store_init_weights(struct trainer *t, struct dt_err *err)
{
	int rc = init_weights(t, false, err);

	return rc < 0 ? rc : store_publish(t, false, err);
}

int store_init_frozen(struct trainer *t, struct dt_err *err)
{
	return init_weights(t, true, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
