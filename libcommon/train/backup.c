#include "train/backup.h"

#include "comm/arrivals.h"
#include "train/trainer.h"

#include <errno.h>

int backup_open(struct trainer *t, struct dt_err *err)
{
	return t->run.sync.kind == DT_SYNC_BACKUP && t->run.layout.dp > 1
		       ? dt_arrivals_open(&t->backup.a, dt_mesh_comm(&t->mesh, DT_ON_DATA), err)
		       : 0;
}

void backup_release(struct trainer *t)
{
	dt_arrivals_close(t->backup.a);
	t->backup.a = NULL;
}

void backup_announce(const struct trainer *t)
{
	if (t->backup.a && t->run.sync.backup)
		dt_log_msg(&t->root_log,
			   "--sync backup:%lld: a step uses the gradients of the first %lld of %d "
			   "data-parallel ranks; the samples of the others are dropped and not counted. "
			   "Results depend on which ranks are slow: no two runs are the same",
			   (long long)t->run.sync.backup, (long long)(t->run.layout.dp - t->run.sync.backup),
			   t->run.layout.dp);
}

void backup_sum_up(const struct trainer *t)
{
	if (t->backup.a && t->run.sync.backup)
		dt_log_msg(&t->root_log,
			   "--sync backup: ranks were dropped from %lld steps, with %lld samples",
			   (long long)t->backup.steps, (long long)t->backup.lost);
}

int64_t backup_part(const struct trainer *t)
{
	const int dp = t->run.layout.dp;

	return (t->mesh.at.dp + t->loop.step % dp) % dp;
}

static struct dt_tensor unit_grads(const struct trainer *t, int u)
{
	return dt_t1(t->grads.unit_g[u], DT_F32, t->local.unit[u].numel);
}

int backup_begin(struct trainer *t, struct dt_err *err)
{
	struct backup *b = &t->backup;

	if (!b->a)
		return 0;
	b->dropped = false;
	b->racing = true;
	return dt_arrivals_begin(b->a, err);
}

int backup_look(struct trainer *t)
{
	struct backup *b = &t->backup;

	if (b->racing && !b->dropped)
		b->dropped = dt_arrivals_count(b->a) >= t->run.layout.dp - t->run.sync.backup;
	return b->racing && b->dropped ? -ECANCELED : 0;
}

int backup_finish(struct trainer *t, double *loss, struct dt_err *err)
{
	struct backup *b = &t->backup;
	int rc = 0;

	if (!b->a)
		return 0;
	b->racing = false;
	b->targets = b->dropped ? 0 : source_part_targets(t, backup_part(t));
	if (b->dropped) {
		*loss = 0;
		t->grads.bad = NULL;
		t->grads.own = 0;
		for (int u = 0; u < t->local.nunit && rc == 0; u++)
			if (!t->local.unit[u].frozen)
				rc = dt_kernel_check(t->dev->ops->fill(t->dev, unit_grads(t, u), 0),
						     "->fill(", err);
	}
	return rc == 0 ? dt_arrivals_say(b->a, !b->dropped, err) : rc;
}

int backup_end(struct trainer *t, struct dt_err *err)
{
	int finished = 0, rc;

	if (!t->backup.a)
		return 0;
	rc = dt_arrivals_end(t->backup.a, &finished, err);
	t->backup.ranks = rc < 0 ? 0 : t->run.layout.dp - finished;
	return rc;
}

double backup_counted(struct trainer *t, double targets)
{
	struct backup *b = &t->backup;
	const int64_t end = t->loop.cursor + t->run.global_batch;
	const double all = (double)source_targets(t, false, t->loop.cursor, end);

	targets = targets > 0 ? targets : 1;
	b->scale = (all > 0 ? all : 1) / targets;
	b->steps += b->ranks > 0;
	b->lost += backup_lost(t);
	return targets;
}

int backup_scale(struct trainer *t, struct dt_err *err)
{
	int rc = 0;

	for (int u = 0; u < t->local.nunit && rc == 0 && t->backup.ranks; u++)
		if (!t->local.unit[u].frozen)
			rc = dt_kernel_check(
				t->dev->ops->scale(t->dev, unit_grads(t, u), (float)t->backup.scale),
				"->scale(", err);
	return rc;
}

int64_t backup_lost(const struct trainer *t)
{
	return t->run.global_batch / t->run.layout.dp * t->backup.ranks;
}

void backup_metrics(const struct trainer *t, json_t *line)
{
	json_object_set_new(line, "dropped_ranks", json_integer(t->backup.ranks));
	json_object_set_new(line, "dropped_samples", json_integer(backup_lost(t)));
}
/* SPDX-License-Identifier: Apache-2.0 */
