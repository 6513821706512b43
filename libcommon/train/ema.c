#include "train/ema.h"

#include "train/trainer.h"

void ema_bind(struct trainer *t)
{
	t->ema.flat = flat_bind(t, DT_B_EMA, DT_F32, 1);
}

/* This rank's shard of unit u in a flat buffer. */
static struct dt_tensor part(const struct trainer *t, const struct flat *f, int u)
{
	return flat_part(t, f, u, share_first(t, u), share_n(t, u));
}

int ema_begin(struct trainer *t, struct dt_err *err)
{
	int rc = 0;

	if (!t->ema.flat.p || t->ema.loaded)
		return 0;
	if (t->loop.step)
		dt_log_msg(&t->root_log,
			   "the checkpoint has no averaged weights: --ema starts from its weights");
	for (int u = 0; u < t->local.nunit && rc == 0; u++)
		if (!t->local.unit[u].frozen)
			rc = dt_kernel_check(t->dev->ops->convert(t->dev, part(t, &t->ema.flat, u),
								  part(t, &t->store.master, u)),
					     "->convert(", err);
	return rc;
}

int ema_step(struct trainer *t, struct dt_err *err)
{
	const double early = (1.0 + (double)t->loop.step) / (10.0 + (double)t->loop.step);
	const double d = t->run.ema < early ? t->run.ema : early;
	const struct dt_ops *o = t->dev->ops;
	int rc = 0;

	for (int u = 0; u < t->local.nunit && rc == 0 && t->ema.flat.p; u++) {
		if (t->local.unit[u].frozen)
			continue;
		rc = o->scale(t->dev, part(t, &t->ema.flat, u), (float)d);
		if (rc == 0)
			rc = o->axpy(t->dev, part(t, &t->ema.flat, u), (float)(1 - d),
				     part(t, &t->store.master, u));
	}
	return dt_kernel_check(rc, "->axpy(", err);
}

int ema_swap(struct trainer *t, struct dt_err *err)
{
	const struct dt_ops *o = t->dev->ops;
	int rc = 0;

	if (!t->ema.flat.p)
		return 0;
	for (int u = 0; u < t->local.nunit && rc == 0; u++) {
		struct dt_tensor w, a, room;

		if (t->local.unit[u].frozen)
			continue;
		w = part(t, &t->store.master, u);
		a = part(t, &t->ema.flat, u);
		room = dt_t1(grad_share(t, u), DT_F32, share_n(t, u));
		rc = o->convert(t->dev, room, w);
		if (rc == 0)
			rc = o->convert(t->dev, w, a);
		if (rc == 0)
			rc = o->convert(t->dev, a, room);
	}
	rc = dt_kernel_check(rc, "->convert(", err);
	return rc < 0 ? rc : store_publish(t, false, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
