/*
 * Makes a trainer for the ranks that remain or have joined. The old trainer stays until the new one has its
 * state: parameters, optimizer states, and the rest of what a manifest holds. Ranks whose update was
 * interrupted, that are a step behind or that join receive the state from the first rank that has the newest.
 */
#include "train/elastic_meet.h"
#include "train/init.h"
#include "train/trainer.h"

#include "base/beat.h"
#include "base/progress.h"
#include "base/tmpfile.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PART ((size_t)16 << 20)

bool elastic_can(struct trainer *t, int rc)
{
	return t->run.watch.elastic &&
	       (rc == ELASTIC_JOIN || (rc < 0 && !t->agreed && dt_world_lost(t->world)));
}

/* Returns to the system the pages of the old trainer that hold no part of its state. */
static void drop_memory(struct trainer *t)
{
	const uint64_t page = 4096, most = (uint64_t)2 << 20;

	for (uint64_t at = 0; at < t->arena.bytes;) {
		uint64_t end = at + most < t->arena.bytes ? at + most : t->arena.bytes / page * page;
		bool keep = false;

		for (int i = 0; i < DT_MEMORY_CARRIED; i++) {
			const struct dt_buf *b = dt_memory_find(&t->plan, dt_memory_carried[i], -1);

			keep |= b && b->offset < end && b->offset + b->bytes > at;
		}
		if (end <= at)
			return;
		if (!keep && madvise(t->arena.base + at, end - at, MADV_REMOVE) < 0)
			madvise(t->arena.base + at, end - at, MADV_DONTNEED);
		at = end;
	}
}

/* Address of buffer id in the old trainer's state, in host memory. */
static char *kept_at(const struct trainer *t, enum dt_buf_id id)
{
	char *at = t->carried;

	if (dt_dev_is_host(t->dev))
		return dt_plan_address(&t->plan, t->arena.base, id, -1);
	for (int i = 0; i < DT_MEMORY_CARRIED; i++) {
		const struct dt_buf *b = dt_memory_find(&t->plan, dt_memory_carried[i], -1);

		if (dt_memory_carried[i] == id)
			return b ? at : NULL;
		at += b ? b->bytes : 0;
	}
	return NULL;
}

/* Copies the state to the host and frees the device arena for the next trainer. */
static int leave_card(struct trainer *t, struct dt_err *err)
{
	int rc = 0;

	if (!t->arena.base)
		return 0;
	for (int i = 0; i < DT_MEMORY_CARRIED && rc == 0; i++) {
		const struct dt_buf *b = dt_memory_find(&t->plan, dt_memory_carried[i], -1);

		if (b)
			rc = device_get(t, kept_at(t, b->id), t->arena.base + b->offset, b->bytes, err);
	}
	if (rc < 0)
		return rc;
	arena_leave(t);
	t->store.weights.p = kept_at(t, DT_B_WEIGHTS);
	t->store.master.p = kept_at(t, DT_B_MASTER) ? kept_at(t, DT_B_MASTER) : t->store.weights.p;
	t->optim.state[0].p = kept_at(t, DT_B_OPTIM1);
	t->optim.state[1].p = kept_at(t, DT_B_OPTIM2);
	for (int k = 0; k < PEER_STATES; k++)
		t->peer.state[k] = (float *)(void *)kept_at(t, peer_copies[k]);
	return 0;
}

/* Waits for this trainer's transfers, closes its files and frees its groups; its state stays. */
static void quiesce(struct trainer *t)
{
	const struct dt_coords at = t->mesh.at; /* kept: it says which shards this rank has */
	struct dt_err ignored = {0};
	const char *staged;

	for (int i = 0; t->grads.bucket && i < t->grads.nbucket; i++)
		dt_wait(&t->grads.bucket[i].req, NULL, &ignored);
	for (int u = 0; t->grads.unit && u < t->local.nunit; u++)
		dt_wait(&t->grads.unit[u].req, NULL, &ignored);
	for (int k = 0; k < DT_UNIT_SLOTS; k++)
		dt_wait(&t->store.gather[k], NULL, &ignored);
	trainer_drop_save(t);
	metrics_close(t, &ignored);
	export_close(t, &ignored);
	folder_release(t);
	dt_world_device(t->world, NULL, &staged, NULL); /* other ranks can no longer reach the device */
	replicas_release(t);
	dt_mesh_release(&t->mesh);
	dt_mesh_release(&t->everyone);
	t->mesh.at = at;
}

static void release(struct trainer *t)
{
	if (!t)
		return;
	trainer_release(t);
	free(t);
}

/* Broadcasts the run's metadata, as in a manifest, from the root to all ranks. */
static int carry_meta(struct trainer *t, struct trainer *old, const struct meeting *m, struct dt_err *err)
{
	struct dt_comm *c = dt_mesh_comm(&t->mesh, DT_ON_ALL);
	char *text = t->info.rank == m->root ? trainer_words(old) : NULL;
	uint64_t n = text ? strlen(text) + 1 : 0;
	json_t *meta = NULL;
	int rc = trainer_agree(t, t->info.rank == m->root && !text ? -ENOMEM : 0, err);

	if (rc == 0)
		rc = dt_broadcast(c, &n, 1, DT_I64, m->root, "state of the run", err);
	if (rc == 0 && !text && !(text = malloc(n)))
		rc = dt_err_sys(err, -ENOMEM, "state of the run");
	if (rc == 0)
		rc = dt_broadcast(c, text, n, DT_U8, m->root, "state of the run", err);
	if (rc == 0)
		rc = dt_json_parse(text, n - 1, "state of the run", &meta, err);
	if (rc == 0)
		rc = trainer_take_words(t, meta, err);
	json_decref(meta);
	free(text);
	return rc;
}

/* Fills one buffer of the state from the old trainer's memory or, by broadcast, from the root's. */
static int carry(struct trainer *t, const struct trainer *old, enum dt_buf_id id, const struct meeting *m,
		 struct dt_err *err)
{
	const struct dt_buf *to = dt_memory_find(&t->plan, id, -1);
	const struct dt_buf *from = old ? dt_memory_find(&old->plan, id, -1) : NULL;
	const bool have = old && old->loop.held == m->all.step;
	int rc = 0;

	if (!to || !to->bytes)
		return 0;
	if (old && (!from || from->bytes != to->bytes))
		return dt_err_set(err, -EIO, "the state of %llu bytes does not fit another layout",
				  (unsigned long long)to->bytes);
	if (have)
		rc = state_put(t, t->arena.base + to->offset, kept_at(old, id), to->bytes, err);
	for (size_t at = 0; at < to->bytes && rc == 0 && !m->alike; at += PART)
		rc = dt_broadcast(dt_mesh_comm(&t->mesh, DT_ON_ALL), t->arena.base + to->offset + at,
				  to->bytes - at < PART ? to->bytes - at : PART, DT_U8, m->root,
				  "state of the run", err);
	return rc;
}

/*
 * Chooses which of the two trainers has the valid shards, and frees the other one. If any rank uses the new
 * trainer, every rank has its part of it (peer_fill).
 */
static void choose(struct trainer **old, struct trainer **made, struct meeting *m)
{
	for (int r = 0; r < m->n; r++)
		m->newest = m->v[r].place[0].epoch > m->newest ? m->v[r].place[0].epoch : m->newest;
	if (*made && (*made)->peer.place.epoch == m->newest) {
		struct trainer *t = *old;

		*old = *made;
		*made = t;
	}
	release(*made);
	*made = NULL;
}

/* ZeRO: makes this rank's update of the step if other ranks have made theirs before it heard of it. */
static int catch_up(struct trainer *old, struct meeting *m, struct dt_err *err)
{
	const struct arrival *root = &m->v[m->root];

	if (!old || !old->run.watch.peer_copy || old->loop.held == m->all.step)
		return 0;
	if (old->loop.held != m->all.step - 1 || old->peer.ready != m->all.step)
		return dt_err_set(err, -EIO, "the remaining ranks have states of step %lld and of step %lld",
				  (long long)old->loop.held, (long long)m->all.step);
	old->loop.last = old->peer.result;
	old->loop.last.grad_norm = root->norm;
	old->loop.last.skipped = root->updated != m->all.step;
	return trainer_catch_up(old, !old->loop.last.skipped, root->norm, err);
}

/* Redistributes the shards of all ranks to the new layout. */
static int take_shares(struct trainer *t, const struct trainer *old, const struct meeting *m,
		       struct dt_err *err)
{
	struct peer_place *v = calloc((size_t)m->n, sizeof(*v));
	int rc = v ? 0 : dt_err_sys(err, -ENOMEM, "table of ranks");

	for (int r = 0; r < m->n && rc == 0; r++)
		v[r] = m->v[r].place[m->v[r].place[1].epoch == m->newest];
	if (rc == 0)
		rc = peer_hand_over(t, old, v, m->n, err);
	free(v);
	return rc;
}

/* Fills the new trainer's state. */
static int take(struct trainer *t, struct trainer *old, const struct meeting *m, struct dt_err *err)
{
	int rc = carry_meta(t, old, m, err);

	if (rc == 0 && dt_params_any_frozen(&t->table))
		rc = trainer_agree(t, store_init_frozen(t, err), err);
	for (int i = 0; i < DT_MEMORY_CARRIED && rc == 0 && !t->run.watch.peer_copy; i++)
		rc = carry(t, old, dt_memory_carried[i], m, err);
	if (rc == 0 && t->run.watch.peer_copy)
		rc = take_shares(t, old, m, err);
	init_close(t);
	t->loop.held = t->loop.step;
	t->loop.owed = m->all.owed;
	t->save.newest = m->all.saved;
	t->report.matmul_rate = m->all.matmul_rate * t->info.size;
	t->report.memory_said = true;
	t->born = dt_world_epoch(t->world).place;
	t->loop.line = t->loop.step;
	if (!old) {
		inject_pass(t);
		return rc;
	}
	t->report.memory_said = old->report.memory_said;
	t->t = old->t;
	t->loop.line = old->loop.line;
	t->loop.last = old->loop.last;
	/* This rank was lost to the step before the others had its norm. */
	if (!isfinite(t->loop.last.grad_norm))
		t->loop.last.grad_norm = m->v[m->root].norm;
	t->corrupt = old->corrupt;
	memcpy(t->inject, old->inject, sizeof(t->inject));
	if (t->info.rank == 0 && old->save.dropped[0])
		dt_remove_tree(old->save.dropped, NULL);
	return rc;
}

/* Initializes t as a new trainer with the state of old. */
static int make(struct trainer *t, struct trainer *old, const struct meeting *m, const struct dt_run *r,
		struct dt_world *w, const struct dt_log *log, struct dt_err *err)
{
	struct dt_world_info info;
	struct dt_run run = *r;
	int rc;

	dt_world_info(w, &info);
	run.layout.dp = run.layout.dp ? info.size : 0; /* dp not given: the trainer takes all ranks */
	run.global_batch = m->all.global_batch;
	run.accumulation = 0;
	run.save.overwrite = false;
	run.save.resume = "auto"; /* so that metrics are appended */
	run.measure_mfu = false;
	rc = trainer_init(t, &run, NULL, w, log, err);
	if (rc == 0)
		rc = take(t, old, m, err);
	if (rc == 0)
		rc = trainer_begin(t, err);
	return rc == 0 ? peer_fill(t, err) : rc; /* last: the old trainer is not needed after it */
}

/* One attempt: ranks meet, and t is made from *old. *made: the trainer of an earlier attempt that failed. */
static int attempt(struct trainer *t, struct trainer **old, struct trainer **made, struct meeting *m,
		   const struct dt_run *r, struct dt_world *w, const struct dt_log *log, struct dt_err *err)
{
	int rc;

	*m = (struct meeting){0};
	rc = elastic_meet(w, *old, *made, m, err);
	if (rc == 0) {
		choose(old, made, m);
		rc = catch_up(*old, m, err);
	}
	if (rc == 0 && *old) {
		if (dt_dev_is_host((*old)->dev))
			drop_memory(*old);
		else
			rc = leave_card(*old, err);
	}
	if (rc == 0)
		rc = make(t, *old, m, r, w, log, err);
	free(m->v);
	m->v = NULL;
	return rc;
}

/* Reports the change to the supervisor and the metrics. */
static void tell(struct trainer *t, const struct meeting *m, const char *why, double seconds,
		 int64_t computed)
{
	struct dt_beat b = dt_beat_get();

	metrics_ranks(t, m->all.was, why, seconds, computed);
	b.recovery_s += seconds;
	dt_beat_set(&b, false);
}

/* Repeats attempts until all ranks have a new trainer *pt, since more ranks may be lost meanwhile. */
static int until_whole(struct trainer **pt, struct trainer **old, struct meeting *m, const struct dt_run *r,
		       struct dt_world *w, const struct dt_log *log, char why[400], struct dt_err *err)
{
	struct trainer *made = NULL, *t = NULL;
	bool reform = *old != NULL; /* a process that joins comes with a new world */
	int rc = 0;

	for (;; reform = true) {
		if (dt_world_broken(w))
			snprintf(why, 400, "%s", dt_world_broken(w));
		t = NULL;
		if (reform && (rc = dt_world_reform(w, err)) < 0)
			break;
		t = calloc(1, sizeof(*t));
		if (!t) {
			rc = dt_err_sys(err, -ENOMEM, "trainer");
			break;
		}
		*err = (struct dt_err){0};
		rc = attempt(t, old, &made, m, r, w, log, err);
		if (rc == 0 || t->agreed || !dt_world_lost(w))
			break;
		quiesce(t);
		if (t->peer.whole)
			made = t;
		else
			release(t);
	}
	release(made);
	*pt = t;
	return rc;
}

int elastic_again(struct trainer **pt, const struct dt_run *r, struct dt_world *w, const struct dt_log *log,
		  struct dt_err *err)
{
	struct trainer *t, *old = *pt;
	struct meeting m = {0};
	double began = dt_now();
	int64_t computed = old ? old->flow.done[0] : 0;
	char why[400] = "a process joins";
	int rc;

	if (old)
		quiesce(old);
	rc = until_whole(&t, &old, &m, r, w, log, why, err);
	if (!t) {
		*pt = old;
		return rc;
	}
	if (rc == 0)
		metrics_late(t);
	release(old);
	*pt = t;
	if (rc == 0)
		tell(t, &m, why, dt_now() - began, computed);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
