#include "train/trainer.h"

#include "base/progress.h"

/* The order in which offloaded states are laid out. */
static struct flat order(const struct trainer *t)
{
	return (struct flat){.shared = t->run.layout.zero >= 1, .trained = true};
}

/* Whether the gradients of unit u are final: no rank will add to them any more. */
static bool is_final(const struct trainer *t, int u)
{
	const struct unit_state *s = &t->grads.unit[u];
	const struct bucket *b = &t->grads.bucket[s->bucket];

	if (t->local.unit[u].frozen)
		return true;
	if (s->left > 0 || tied_apart(t, u))
		return false;
	if (t->run.layout.zero)
		return !s->req || dt_comm_done(s->req);
	return dt_comm_size(unit_comm(t, u)) == 1 || (b->pending <= 0 && (!b->req || dt_comm_done(b->req)));
}

/* Lowers b->unit and b->floor over the units whose gradients have become final, from the last unit down. */
static void look_down(struct trainer *t)
{
	const struct flat f = order(t);
	struct behind *b = &t->behind;

	while (b->unit > 0 && is_final(t, b->unit - 1)) {
		b->unit--;
		if (!t->local.unit[b->unit].frozen)
			b->floor = flat_index(t, &f, b->unit, share_first(t, b->unit));
	}
	if (b->unit == 0)
		b->floor = 0;
}

/* Updates elements [from, to), in tile order, of the tile that is held in memory. */
static int update(struct trainer *t, int64_t from, int64_t to, struct dt_err *err)
{
	const struct flat f = order(t);
	struct optim_list l = {.dev = t->dev, .o = t->behind.rule};
	int rc = 0;

	for (int i = 0; i < t->local.n && rc == 0; i++) {
		const struct dt_local_param *lp = &t->local.p[i];
		int64_t first, n = dt_states_share(&t->optim.of, i, &first), at, low, high;

		if (n <= 0 || t->table.p[lp->index].frozen)
			continue;
		first += lp->flat - t->local.unit[lp->unit].flat;
		at = flat_index(t, &f, lp->unit, first);
		low = at > from ? at : from;
		high = at + n < to ? at + n : to;
		if (low < high)
			rc = optim_part(t, &l, t->behind.rate, i, first + low - at, high - low, err);
	}
	return rc == 0 ? optim_flush(&l, err) : rc;
}

/* Updates the tiles whose gradients are final, from the last tile down. wait: also waits for the disk. */
static int go_down(struct trainer *t, bool wait, struct dt_err *err)
{
	const int64_t each = t->offload.tiles.each;
	struct behind *b = &t->behind;
	int rc = 0;

	for (; b->next >= 0 && b->next * each >= b->floor && rc == 0; b->next--) {
		if (!wait && !offload_ready(t, b->next))
			break;
		rc = offload_take(t, b->next, err);
		if (rc == 0)
			rc = update(t, b->next * each, (b->next + 1) * each, err);
		if (rc == 0)
			offload_give(t);
	}
	return rc;
}

/* Called before each node runs (exec.ahead): updates the tiles that are ready. */
static int look(void *arg, struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct trainer *t = arg;
	double t0;
	int rc;

	(void)x;
	(void)n;
	if (!t->behind.on)
		return 0;
	t0 = dt_now();
	look_down(t);
	rc = go_down(t, false, err);
	t->behind.seconds += dt_now() - t0;
	return rc;
}

void behind_bind(struct trainer *t)
{
	if (!t->offload.tiles.n || !dt_run_updates_behind(&t->run))
		return;
	t->exec.ahead = look;
	t->exec.ahead_arg = t;
}

int behind_begin(struct trainer *t, struct dt_err *err)
{
	const double rate = dt_lr_at(&t->run.lr, t->loop.step);

	t->behind = (struct behind){.on = t->exec.ahead == look,
				    .next = t->offload.tiles.n - 1,
				    .unit = t->local.nunit,
				    .floor = INT64_MAX,
				    .rule = optim_rule(t, rate, 0),
				    .rate = rate};
	return t->behind.on ? offload_begin(t, err) : 0;
}

int behind_finish(struct trainer *t, struct dt_err *err)
{
	t->behind.floor = 0;
	return go_down(t, true, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
