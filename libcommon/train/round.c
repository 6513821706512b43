/*
 * Training without master weights: a piece of the bf16 weights is widened, updated in f32 and rounded
 * stochastically, so that updates smaller than half a bf16 step are not lost on average (Gupta et al. 2015).
 * The random numbers depend on seed, step, parameter, the rank's box of it and the element's position in that
 * box, never on the rank itself: replicas stay equal, along tp too (norms, key/value heads that ranks share).
 */
#include "train/trainer.h"

#include "base/rng.h"

static float *room(const struct trainer *t)
{
	return dt_plan_address(&t->plan, t->arena.base, DT_B_ROUND, -1);
}

int round_init(struct trainer *t, const struct dt_local_param *lp, int64_t first, int64_t n,
	       struct dt_err *err)
{
	int64_t start = lp->flat - t->local.unit[lp->unit].flat;
	int rc = 0;

	for (int64_t i = 0; i < n && rc == 0; i += DT_ROUND_NUMEL) {
		int64_t m = n - i < DT_ROUND_NUMEL ? n - i : DT_ROUND_NUMEL;

		rc = device_init_param(t, lp, first + i, m, room(t), err);
		if (rc < 0)
			return rc;
		rc = t->dev->ops->convert(t->dev,
					  flat_part(t, &t->store.master, lp->unit, start + first + i, m),
					  dt_t1(room(t), DT_F32, m));
	}
	return dt_kernel_check(rc, "->convert(", err);
}

int round_update(struct trainer *t, const struct dt_local_param *lp, const struct dt_optim *o, int64_t first,
		 int64_t n, struct dt_err *err)
{
	int64_t start = lp->flat - t->local.unit[lp->unit].flat;
	const struct dt_param *p = &t->table.p[lp->index];
	uint32_t box = (uint32_t)(lp->off[0] * p->shape[1] + lp->off[1]);
	struct dt_rng r = dt_rng_make(t->run.data.seed + (uint64_t)t->loop.step, DT_RNG_ROUND,
				      dt_hash_str(p->name) + 2654435761u * box);
	int u = lp->unit;

	for (int64_t i = first; i < first + n; i += DT_ROUND_NUMEL) {
		int64_t m = first + n - i < DT_ROUND_NUMEL ? first + n - i : DT_ROUND_NUMEL, at = start + i;
		struct dt_tensor w = flat_part(t, &t->store.master, u, at, m),
				 wide = dt_t1(room(t), DT_F32, m);
		int rc = t->dev->ops->convert(t->dev, wide, w);

		if (rc == 0)
			rc = t->dev->ops->optim_step(t->dev, o, DT_NONE, wide, grad_part(t, u, at, m),
						     flat_part(t, &t->optim.state[0], u, at, m),
						     flat_part(t, &t->optim.state[1], u, at, m));
		if (rc == 0)
			rc = t->dev->ops->round_random(t->dev, w, wide,
						       &(struct dt_round){r.stream, (uint64_t)i});
		if (rc < 0)
			return dt_kernel_check(rc, "->round_random(", err);
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
