/* Copies of the previous rank's states, see peer.h. A copy is like a shard: 1/dp of each unit in turn. */
#include "train/trainer.h"

#include "base/progress.h"

#include <errno.h>
#include <string.h>

const enum dt_buf_id peer_copies[PEER_STATES] = {DT_B_PEER_MASTER, DT_B_PEER_OPTIM1, DT_B_PEER_OPTIM2};

static struct dt_comm *ring(const struct trainer *t)
{
	return dt_mesh_comm(&t->mesh, DT_ON_DATA);
}

static int before(const struct trainer *t)
{
	return (t->mesh.at.dp + t->run.layout.dp - 1) % t->run.layout.dp;
}

void peer_bind(struct trainer *t)
{
	struct peer *p = &t->peer;

	p->place = (struct peer_place){(int64_t)dt_world_epoch(t->world).epoch, t->info.rank, t->info.size};
	p->ready = -1;
	p->grads = dt_plan_address(&t->plan, t->arena.base, DT_B_PEER_GRADS, -1);
	for (int k = 0; k < PEER_STATES; k++)
		p->state[k] = dt_plan_address(&t->plan, t->arena.base, peer_copies[k], -1);
}

struct dt_states peer_states(const struct trainer *t)
{
	struct dt_states s = t->optim.of;

	s.at.dp = before(t);
	return s;
}

/* Address of unit u's share in a copy. */
static float *copy_of(const struct trainer *t, float *flat, int u)
{
	return flat + t->local.unit[u].share_trained;
}

/* This rank's own shard of unit u: masters (k 0) or state k - 1; NULL: the run has no such state. */
static float *own(const struct trainer *t, int k, int u)
{
	const struct flat *f = k == 0 ? &t->store.master : &t->optim.state[k - 1];

	return f->p ? flat_at(t, f, u, share_first(t, u)) : NULL;
}

/* Sends this rank's shard of unit u to the next rank, and receives that of the previous rank. */
static int pass(struct trainer *t, int u, const float *mine, float *copy, const char *what,
		struct dt_err *err)
{
	const int next = (t->mesh.at.dp + 1) % t->run.layout.dp;
	const size_t n = (size_t)share_n(t, u);
	struct dt_err ignored = {0};
	struct dt_comm_req *send = NULL;
	int rc = dt_isend(ring(t), mine, n, DT_F32, next, 0, what, &send, err), sent;

	if (rc == 0)
		rc = dt_recv(ring(t), copy, n, DT_F32, before(t), 0, what, err);
	sent = dt_wait(&send, NULL, rc ? &ignored : err);
	return rc ? rc : sent;
}

int peer_grads(struct trainer *t, struct dt_err *err)
{
	double t0 = dt_now();
	int rc = 0;

	if (!dt_run_copies_peer(&t->run))
		return 0;
	for (int u = 0; u < t->local.nunit && rc == 0; u++)
		if (!t->local.unit[u].frozen)
			rc = pass(t, u, grad_share(t, u), copy_of(t, t->peer.grads, u),
				  "gradients for a copy", err);
	t->peer.ready = rc == 0 ? t->loop.step + 1 : -1;
	t->t.comm[TR_GRADS] += dt_now() - t0;
	return rc;
}

/* n elements of a copy, from element first of unit u on. */
static struct dt_tensor part(const struct trainer *t, float *flat, int u, int64_t first, int64_t n)
{
	return flat ? dt_t1(copy_of(t, flat, u) + first - before(t) * share_n(t, u), DT_F32, n) : DT_NONE;
}

int peer_update(struct trainer *t, int i, struct optim_list *l, int64_t first, int64_t n, void *arg,
		struct dt_err *err)
{
	const struct peer *p = &t->peer;
	const int u = t->local.p[i].unit;

	return optim_add(l, DT_NONE, part(t, p->state[0], u, first, n), part(t, p->grads, u, first, n),
			 part(t, p->state[1], u, first, n), part(t, p->state[2], u, first, n), err);
}

int peer_fill(struct trainer *t, struct dt_err *err)
{
	int rc = 0;

	for (int u = 0; u < t->local.nunit && dt_run_copies_peer(&t->run); u++)
		for (int k = 0; k < PEER_STATES && rc == 0; k++)
			if (!t->local.unit[u].frozen && t->peer.state[k])
				rc = pass(t, u, own(t, k, u), copy_of(t, t->peer.state[k], u),
					  "states for a copy", err);
	if (rc == 0 && t->run.watch.peer_copy) {
		t->peer.whole = true; /* on this rank; after the barrier on all ranks */
		rc = dt_barrier(dt_mesh_comm(&t->mesh, DT_ON_ALL), "copies of states", err);
	}
	return rc;
}

int peer_holder(const struct peer_place *v, int size, const struct peer_place *of, int64_t r, bool *ret_copy)
{
	for (int copy = 0; copy < 2; copy++)
		for (int i = 0; i < size; i++)
			if (v[i].epoch == of->epoch && v[i].rank == (r + copy) % of->size) {
				*ret_copy = copy;
				return i;
			}
	return -1;
}

/*
 * Copies the overlap of old shard r (`was` elements) of unit u with new shard d from rank `from` to rank d.
 */
static int move(struct trainer *t, const struct trainer *old, int64_t was, int k, int u, int64_t r, int d,
		int from, bool copy, struct dt_err *err)
{
	const int64_t is = share_n(t, u);
	const int64_t lo = r * was > d * is ? r * was : d * is,
		      hi = (r + 1) * was < (d + 1) * is ? (r + 1) * was : (d + 1) * is;
	struct dt_comm *c = dt_mesh_comm(&t->mesh, DT_ON_ALL);
	const size_t n = hi > lo ? (size_t)(hi - lo) : 0;
	const float *src;
	float *dst = own(t, k, u);

	if (!n || (t->info.rank != from && t->info.rank != d))
		return 0;
	dst += lo - d * is;
	if (t->info.rank != from)
		return dt_recv(c, dst, n, DT_F32, from, 0, "state of the run", err);
	src = (copy ? copy_of(old, old->peer.state[k], u) : own(old, k, u)) + (lo - r * was);
	if (from != d)
		return dt_send(c, src, n, DT_F32, d, 0, "state of the run", err);
	return state_put(t, dst, src, n * sizeof(*dst), err);
}

int peer_hand_over(struct trainer *t, const struct trainer *old, const struct peer_place *v, int size,
		   struct dt_err *err)
{
	struct dt_layout layout = t->run.layout; /* of the old trainer, which a joining rank does not have */
	struct dt_local was = {0};
	struct peer_place of = {0};
	bool copy = false;
	int rc;

	for (int i = 0; i < size; i++)
		of = v[i].epoch > of.epoch ? v[i] : of;
	layout.dp = (int)of.size;
	rc = dt_local_build(&t->table, &t->config, &layout, (struct dt_coords){0}, &was, err);
	for (int64_t r = 0; r < of.size && rc == 0; r++) {
		int from = peer_holder(v, size, &of, r, &copy);

		if (from < 0)
			rc = dt_err_set(
				err, -EIO,
				"rank %lld is lost, and so is rank %lld, which had the copy of its states",
				(long long)r, (long long)((r + 1) % of.size));
		for (int u = 0; u < t->local.nunit && rc == 0; u++)
			for (int k = 0; k < PEER_STATES && rc == 0 && !t->local.unit[u].frozen; k++)
				for (int d = 0; d < size && rc == 0 && own(t, k, u); d++)
					rc = move(t, old, was.unit[u].share, k, u, r, d, from, copy, err);
	}
	dt_local_release(&was);
	return rc == 0 ? store_publish(t, false, err) : rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
