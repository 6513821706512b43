#include "train/check.h"
#include "train/trainer.h"

#include "base/crc.h"
#include "plan/listing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The flat buffers that replicas may hold alike: weights, masters, optimizer states. */
enum { FLATS = 2 + DT_OPTIM_STATES };

static const struct flat *flat_no(const struct trainer *t, int k)
{
	const struct flat *f = k == 0	? &t->store.weights
			       : k == 1 ? &t->store.master
					: &t->optim.state[k - 2];

	/* States with a value a row or a block are not compared: a difference shows in the weights. */
	if (k >= 2 && dt_optim_rule(t->run.optim.kind)->state[k - 2].shape != DT_STATE_EACH)
		return NULL;
	/* Shards differ between ranks and are not compared. The masters of an f32 run are its weights. */
	return f->p && !f->shared && !(k == 1 && f->p == t->store.weights.p) ? f : NULL;
}

static const char *flat_name(int k)
{
	return k == 0 ? "weights" : k == 1 ? "master weights" : "optimizer states";
}

/* Whether unit u has elements in flat buffer k. Frozen units have weights only. */
static bool has(const struct trainer *t, int k, int u)
{
	return flat_no(t, k) && t->local.unit[u].numel && !t->local.unit[u].packed &&
	       (k == 0 || !t->local.unit[u].frozen);
}

static int checksum(struct trainer *t, int k, int u, uint64_t *ret, struct dt_err *err)
{
	const struct flat *f = flat_no(t, k);
	size_t bytes = (size_t)t->local.unit[u].numel * dt_dtype_size(f->dtype), part = (size_t)4 << 20;
	char *at = flat_at(t, f, u, 0), *copy;
	uint32_t crc = 0;
	int rc = 0;

	if (dt_dev_is_host(t->dev)) {
		*ret = dt_crc32(0, at, bytes);
		return 0;
	}
	copy = malloc(part);
	if (!copy)
		return dt_err_sys(err, -ENOMEM, "cannot compare replicas");
	for (size_t i = 0; i < bytes && rc == 0; i += part) {
		size_t n = bytes - i < part ? bytes - i : part;

		rc = device_get(t, copy, at + i, n, err);
		crc = dt_crc32(crc, copy, n);
	}
	free(copy);
	*ret = crc;
	return rc;
}

/* The first index of the value that more than half of v[0 .. n - 1] have; -1: there is none. */
static int majority(const uint64_t *v, int n)
{
	for (int i = 0; i < n; i++) {
		int same = 0;

		for (int j = 0; j < n; j++)
			same += v[j] == v[i];
		if (2 * same > n)
			return i;
	}
	return -1;
}

static bool differs(const uint64_t *v, int n)
{
	for (int i = 1; i < n; i++)
		if (v[i] != v[0])
			return true;
	return false;
}

/* Fills ret[p] with element i of each replica; v is [p][n]. */
static void column(const uint64_t *v, int p, int n, int i, uint64_t *ret)
{
	for (int r = 0; r < p; r++)
		ret[r] = v[(size_t)r * (size_t)n + (size_t)i];
}

/* The world rank of replica r, which is the last of its n values in v. */
static int rank_of(const uint64_t *v, int n, int r)
{
	return (int)v[(size_t)(r + 1) * (size_t)n - 1];
}

/* Reports a difference within c and broadcasts the majority's values. -EBADMSG: no majority. */
static int mend(struct trainer *t, struct dt_comm *c, const uint64_t *v, int n, int k, int u,
		const uint64_t *col, struct dt_err *err)
{
	int p = dt_comm_size(c), good = majority(col, p);
	const struct flat *f = flat_no(t, k);
	char unit[64];

	dt_unit_name(t->local.unit[u].layer, t->config.layers, unit, sizeof(unit));
	if (good < 0) {
		t->agreed = false; /* the ranks of other groups do not know of this error */
		dt_err_set(
			err, -EBADMSG,
			"step %lld: %s of '%s' differ between rank %d and rank %d, and there is no majority",
			(long long)t->loop.step, flat_name(k), unit, rank_of(v, n, 0), rank_of(v, n, p - 1));
		dt_err_hint(err,
			    "--resume auto continues from the newest checkpoint, which was compared before");
		return -EBADMSG;
	}
	for (int r = 0; r < p && dt_comm_rank(c) == good; r++)
		if (col[r] != col[good])
			dt_log_msg(t->log,
				   "step %lld: %s of '%s' are corrupt on rank %d: copied from rank %d",
				   (long long)t->loop.step, flat_name(k), unit, rank_of(v, n, r),
				   rank_of(v, n, good));
	t->corrupt.now |= col[dt_comm_rank(c)] != col[good];
	trainer_before_update(t);
	return dt_broadcast(c, flat_at(t, f, u, 0), (size_t)t->local.unit[u].numel, f->dtype, good, "repair",
			    err);
}

static int compare_state(struct trainer *t, struct dt_comm *c, struct dt_err *err)
{
	int p = dt_comm_size(c), n = t->local.nunit * FLATS + 1, rc = 0;
	uint64_t *mine = calloc((size_t)n, sizeof(*mine)), *all = calloc((size_t)(n * p), sizeof(*all)),
		 *col = calloc((size_t)p, sizeof(*col));

	if (!mine || !all || !col)
		rc = dt_err_sys(err, -ENOMEM, "cannot compare replicas");
	for (int i = 0; i < n - 1 && rc == 0; i++)
		if (has(t, i % FLATS, i / FLATS))
			rc = checksum(t, i % FLATS, i / FLATS, &mine[i], err);
	if (rc == 0) {
		mine[n - 1] = (uint64_t)t->info.rank;
		rc = dt_all_gather(c, all, mine, (size_t)n, DT_I64, "checksums of replicas", err);
	}
	for (int i = 0; i < n - 1 && rc == 0; i++) {
		column(all, p, n, i, col);
		if (differs(col, p))
			rc = mend(t, c, all, n, i % FLATS, i / FLATS, col, err);
	}
	free(mine);
	free(all);
	free(col);
	return rc;
}

/* Samples that every replica can load at once: a microbatch, or the smallest part of a round of images. */
static int64_t samples_of_all(const struct trainer *t)
{
	int64_t n = t->run.microbatch;

	for (int r = 0; trainer_images(t) && r < t->run.layout.dp; r++)
		n = t->shares.part[r] < n ? t->shares.part[r] : n;
	return n > 0 ? n : 1;
}

/*
 * Computes the loss of the next step's first microbatch; *ret: the bits of the double. An objective does not
 * judge it: what it counts belongs to the metrics of the step.
 */
static int one_loss(struct trainer *t, uint64_t *ret, struct dt_err *err)
{
	struct dt_objective *o = &t->exec.objective, kept = *o;
	const bool keeping = t->objective.keeping;
	int64_t first = t->loop.cursor;
	double loss = 0;
	int rc;

	o->judge = NULL;
	t->objective.keeping = true; /* no reference is asked */
	rc = pipeline_forward(t, false, first, first + samples_of_all(t), &loss, err);
	*o = kept;
	t->objective.keeping = keeping;
	loss *= inject_wrong(t);
	memcpy(ret, &loss, sizeof(*ret));
	return rc;
}

static int compare_compute(struct trainer *t, struct dt_comm *c, struct dt_err *err)
{
	int p = dt_comm_size(c), n = 3, good, rc;
	uint64_t mine[3] = {0, 0, (uint64_t)t->info.rank}, *all = calloc((size_t)(n * p), sizeof(*all)),
		 *col = calloc((size_t)p, sizeof(*col));

	rc = all && col ? one_loss(t, &mine[0], err) : dt_err_sys(err, -ENOMEM, "cannot compare replicas");
	if (rc == 0)
		rc = dt_all_gather(c, all, mine, (size_t)n, DT_I64, "losses of replicas", err);
	if (rc < 0)
		goto out;
	column(all, p, n, 0, col);
	if (!differs(col, p))
		goto out;
	good = majority(col, p);
	t->corrupt.now |= good >= 0 && col[dt_comm_rank(c)] != col[good];
	rc = one_loss(t, &mine[1], err); /* a transient fault does not show again */
	if (rc == 0)
		rc = dt_all_gather(c, all, mine, (size_t)n, DT_I64, "losses of replicas, again", err);
	for (int r = 0; r < p && rc == 0 && dt_comm_rank(c) == 0; r++) {
		bool same = all[r * n] == all[r * n + 1];

		if (good >= 0 ? col[r] != col[good] : !same || p == 2)
			dt_log_msg(t->log,
				   "step %lld: rank %d computes a different loss of the same samples than "
				   "%s; a second try gives %s value",
				   (long long)t->loop.step, rank_of(all, n, r),
				   good >= 0 ? "the other replicas" : "the other replica",
				   same ? "the same" : "another");
	}
out:
	free(all);
	free(col);
	return rc;
}

/* In an elastic run, aborts this rank when it is corrupt for the second time; the run goes on without it. */
static void leave_if_again(struct trainer *t)
{
	t->corrupt.times += t->corrupt.now;
	if (!t->run.watch.elastic || !t->corrupt.now || t->corrupt.times < CHECK_EVICT)
		return;
	dt_log_msg(t->log, "step %lld: corrupt for the second time: this rank (process %d) leaves the run",
		   (long long)t->loop.step, (int)getpid());
	dt_world_abort(t->world, DT_EXIT_FAILED);
}

int check_replicas(struct trainer *t, struct dt_err *err)
{
	struct dt_comm *c = dt_mesh_comm(&t->mesh, DT_ON_DATA);
	int rc = 0;

	t->corrupt.now = false;
	if (dt_comm_size(c) > 1)
		rc = compare_state(t, c, err);
	rc = trainer_agree(t, rc, err);
	if (rc == 0 && t->run.layout.dp > 1 && t->run.layout.cp == 1)
		rc = trainer_agree(t, compare_compute(t, c, err), err);
	if (rc == 0)
		leave_if_again(t);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
