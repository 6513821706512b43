/*
 * Data-parallel gradients: units are grouped into buckets of about bucket_bytes in the order backward
 * completes them (last layer first); a bucket's all-reduce starts when its last unit is complete and runs
 * beside the rest of backward (Li et al., PyTorch Distributed, VLDB 2020, section 4). Each unit is checked
 * for NaN and Inf before it is mixed with other ranks' gradients, so that the guilty rank can say so.
 */
#include "train/trainer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

int reduce_init(struct trainer *t, struct dt_err *err)
{
	const struct dt_local *l = &t->local;
	int64_t want = (int64_t)(t->o->bucket_bytes / sizeof(float));
	struct bucket *b = NULL;

	t->bucket = calloc((size_t)l->nunit, sizeof(*t->bucket));
	t->unit_bucket = calloc((size_t)l->nunit, sizeof(*t->unit_bucket));
	if (!t->bucket || !t->unit_bucket)
		return dt_err_sys(err, -ENOMEM, "cannot set up gradient buckets");
	for (int u = l->nunit - 1; u >= 0; u--) {
		if (!b || b->numel >= want) {
			b = &t->bucket[t->nbucket++];
			b->last_unit = u;
			snprintf(b->what, sizeof(b->what), "gradient bucket %d", t->nbucket - 1);
		}
		b->first_unit = u;
		b->flat = l->unit[u].flat;
		b->numel += l->unit[u].numel;
		t->unit_bucket[u] = t->nbucket - 1;
	}
	return 0;
}

void reduce_begin(struct trainer *t)
{
	t->bad = NULL;
	for (int i = 0; i < t->nbucket; i++)
		t->bucket[i].pending = t->bucket[i].last_unit - t->bucket[i].first_unit + 1;
}

/* Remembers the first parameter of the unit with a gradient that is not finite. */
static int check_unit(struct trainer *t, int unit, struct dt_err *err)
{
	const struct dt_local_unit *u = &t->local.unit[unit];
	const struct dt_ops *o = t->dev->ops;
	double sum;
	int rc = o->sumsq(t->dev, &sum, dt_t1(t->grads + u->flat, DT_F32, u->numel));

	if (rc < 0 || isfinite(sum) || t->bad)
		return dt_kernel_check(rc, "->sumsq(", err);
	for (int i = 0; i < t->local.n && !t->bad; i++) {
		const struct dt_local_param *lp = &t->local.p[i];

		if (lp->unit != unit)
			continue;
		rc = o->sumsq(t->dev, &sum, dt_t1(t->grads + lp->flat, DT_F32, lp->numel));
		if (rc < 0)
			return dt_kernel_check(rc, "->sumsq(", err);
		if (!isfinite(sum))
			t->bad = t->table.p[lp->index].name;
	}
	return 0;
}

int reduce_unit(struct trainer *t, int unit, struct dt_err *err)
{
	struct bucket *b = &t->bucket[t->unit_bucket[unit]];
	int rc = check_unit(t, unit, err);

	if (rc < 0 || --b->pending > 0)
		return rc;
	if (dt_comm_size(t->mesh.dp) == 1)
		return 0;
	return dt_iall_reduce(t->mesh.dp, t->grads + b->flat, NULL, (size_t)b->numel, DT_F32, DT_SUM, b->what,
			      &b->req, err);
}

int reduce_finish(struct trainer *t, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < t->nbucket && rc == 0; i++)
		rc = dt_wait(&t->bucket[i].req, &t->t.comm_exposed, err);
	return rc;
}

void reduce_release(struct trainer *t)
{
	free(t->bucket);
	free(t->unit_bucket);
}
