/*
 * The device that the run computes on, and copies between host and device. On a device the arena of the plan
 * is its only allocation.
 */
#include "nn/device.h"
#include "train/init.h"
#include "train/trainer.h"

#include "base/units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STAGE ((size_t)16 << 20) /* bytes of each of the two pinned buffers */

/* The device number, kept when an elastic run re-forms; -1: none yet. */
static int card_of_process = -1;

int device_choose(struct trainer *t, struct dt_err *err)
{
	const int n = dt_dev_count(DT_DEV_CUDA), size = t->info.size;
	int32_t *of, *users;
	int rc;

	t->turn = t->info.local_rank;
	if (!t->run.watch.elastic || !t->run.on_card)
		return 0;
	of = calloc((size_t)size + (size_t)n, sizeof(*of));
	users = of ? of + size : NULL;
	rc = trainer_agree(t, of ? 0 : dt_err_sys(err, -ENOMEM, "GPUs of ranks"), err);
	if (rc == 0) {
		of[t->info.rank] = card_of_process;
		rc = dt_all_gather(dt_mesh_comm(&t->everyone, DT_ON_ALL), of, NULL, 1, DT_I32,
				   "GPUs of ranks", err);
	}
	for (int r = 0; r < size && rc == 0; r++)
		if (of[r] >= 0 && of[r] < n)
			users[of[r]]++;
	for (int r = 0; r < size && rc == 0 && n > 0; r++) {
		if (of[r] < 0) { /* a new rank takes one of the devices with the fewest ranks */
			of[r] = 0;
			for (int i = 1; i < n; i++)
				of[r] = users[i] < users[of[r]] ? i : of[r];
			users[of[r]]++;
		}
		t->turn = r == t->info.rank ? of[r] : t->turn;
	}
	free(of);
	return rc;
}

int device_open(struct trainer *t, int nthreads, struct dt_err *err)
{
	int rc = dt_nn_device_open(&t->dev, t->run.device, t->turn, nthreads, err);

	if (rc == -EINVAL)
		t->status = DT_EXIT_USAGE;
	if (rc < 0)
		return rc;
	card_of_process = t->run.on_card ? t->dev->index : -1;
	if (t->run.fp8 && !dt_dev_multiplies(t->dev, DT_E4M3)) {
		dt_err_set(err, -ENOTSUP, "--fp8: this GPU (%s) has no matrix products of 8-bit floats",
			   dt_dev_isa(t->dev));
		dt_err_hint(err, "GPUs of sm_89 (Ada, Hopper) and later have");
		return -ENOTSUP;
	}
	return dt_nn_device_convolves(t->dev, &t->config, err);
}

/* Tells comm/ how collectives and messages reach the arena on the device. */
static int open_messages(struct trainer *t, struct dt_err *err)
{
	struct dt_comm_device d = dt_card_device(t->dev, &t->card, t->arena.base, t->arena.bytes);
	const char *staged;
	int rc = dt_world_device(t->world, &d, &staged, err);

	if (rc == 0 && staged && !t->staged_said)
		dt_log_msg(&t->root_log,
			   "messages between ranks are copied through host memory, which is slow: %s",
			   staged);
	t->staged_said |= staged != NULL;
	return rc;
}

int arena_open(struct trainer *t, struct dt_err *err)
{
	size_t n = t->plan.arena_bytes, room = 0, all = 0;
	char want[32], have[32];
	void *base;
	int rc;

	if (dt_dev_is_host(t->dev))
		return dt_arena_init(&t->arena, n, err);
	rc = dt_dev_memory(t->dev, &room, &all);
	if (rc == 0 && n + t->draws.bytes > room) {
		t->status = DT_EXIT_NO;
		dt_err_set(err, -ENOSPC, "the plan needs %s on the device, %s are free",
			   dt_format_size(n + t->draws.bytes, want, sizeof(want)),
			   dt_format_size(room, have, sizeof(have)));
		dt_err_hint(err, "see dt-memest for what would make it fit");
		return -ENOSPC;
	}
	if (rc == 0)
		rc = dt_dev_alloc(t->dev, &base, n);
	if (rc < 0)
		return dt_err_sys(err, rc, "cannot allocate %s on the device",
				  dt_format_size(n, want, sizeof(want)));
	t->arena.base = base;
	t->arena.bytes = n;
	for (int i = 0; i < 2 && rc == 0; i++) {
		rc = dt_dev_host_alloc(t->dev, &t->stage[i], STAGE);
		if (rc == 0)
			rc = dt_event_open(&t->staged[i], t->dev);
	}
	if (rc == 0)
		rc = dt_dev_clear(t->dev, base, n); /* zeroed like host memory: moments start at zero */
	return rc < 0 ? dt_err_sys(err, rc, "cannot set up the device") : open_messages(t, err);
}

/* Gives the device its scratch, after all measurements, whose operations are not the plan's. */
void arena_lend(struct trainer *t)
{
	for (int b = 0; b < DT_SCRATCH_N; b++) {
		const struct dt_buf *s = dt_memory_find(&t->plan, DT_B_SCRATCH, b);

		dt_dev_scratch_lend(t->dev, (enum dt_scratch_buffer)b, s ? t->arena.base + s->offset : NULL,
				    s ? s->bytes : 0);
	}
}

uint64_t arena_lent(const struct trainer *t)
{
	uint64_t n = 0;

	for (int b = 0; b < DT_SCRATCH_N; b++)
		n += dt_align_up(dt_dev_scratch_most(t->dev, (enum dt_scratch_buffer)b));
	return n;
}

static void take_back(struct trainer *t)
{
	for (int b = 0; b < DT_SCRATCH_N && t->dev; b++)
		dt_dev_scratch_lend(t->dev, (enum dt_scratch_buffer)b, NULL, 0);
}

void arena_leave(struct trainer *t)
{
	const char *staged;

	if (!t->arena.base)
		return;
	take_back(t);
	dt_world_device(t->world, NULL, &staged, NULL);
	dt_dev_free(t->dev, t->arena.base);
	for (int i = 0; i < 2; i++) {
		dt_dev_host_free(t->dev, t->stage[i]);
		dt_event_close(t->staged[i]);
	}
	t->arena = (struct dt_arena){0};
}

void arena_close(struct trainer *t)
{
	if (!t->dev || dt_dev_is_host(t->dev)) {
		take_back(t);
		if (t->arena.base)
			dt_buffer_unshare(t->world, t->arena.base, t->arena.bytes);
		dt_arena_release(&t->arena);
		return;
	}
	arena_leave(t);
	for (int i = 0; i < t->nhost; i++) {
		dt_buffer_unshare(t->world, t->host[i].base, t->host[i].bytes);
		dt_arena_release(&t->host[i]);
	}
}

bool arena_has(const struct trainer *t, const void *p)
{
	const char *base = t->arena.base, *c = p;

	return c >= base && c < base + t->arena.bytes;
}

void *buffer_at(const struct trainer *t, enum dt_buf_id id)
{
	const struct dt_buf *b = dt_memory_find(&t->plan, id, -1);

	if (!b || b->place == DT_PLACE_DEVICE)
		return b ? t->arena.base + b->offset : NULL;
	for (int i = 0; i < t->nhost; i++)
		if (t->host_id[i] == id)
			return t->host[i].base;
	return NULL;
}

int host_buffer(struct trainer *t, enum dt_buf_id id, void *ret, struct dt_err *err)
{
	const struct dt_buf *b = dt_memory_find(&t->plan, id, -1);
	char *at = b && b->place == DT_PLACE_DEVICE ? t->arena.base + b->offset : NULL;
	int rc = 0;

	if (b && !at && !(at = buffer_at(t, id))) {
		if (t->nhost == (int)(sizeof(t->host) / sizeof(*t->host)))
			return dt_err_set(err, -ENOSPC, "too many host buffers: no room for '%s'", b->name);
		rc = dt_arena_init(&t->host[t->nhost], b->bytes, err);
		if (rc == 0)
			at = t->host[t->nhost].base;
		if (rc == 0)
			t->host_id[t->nhost++] = id;
	}
	memcpy(ret, &at, sizeof(at));
	return rc;
}

int device_put(struct trainer *t, void *to, const void *from, size_t n, struct dt_err *err)
{
	int rc = 0, turn = 0;

	for (size_t at = 0; at < n && rc == 0; at += STAGE, turn = !turn) {
		size_t part = n - at < STAGE ? n - at : STAGE;

		if (at >= 2 * STAGE)
			rc = dt_event_sync(t->staged[turn]);
		if (rc < 0)
			break;
		memcpy(t->stage[turn], (const char *)from + at, part);
		rc = dt_dev_copy(t->dev, (char *)to + at, t->stage[turn], part);
		if (rc == 0)
			rc = dt_event_record(t->staged[turn], t->dev);
	}
	if (rc == 0)
		rc = dt_dev_sync(t->dev);
	return rc < 0 ? dt_err_sys(err, rc, "cannot copy to the device") : 0;
}

int state_put(struct trainer *t, void *to, const void *from, size_t n, struct dt_err *err)
{
	if (!dt_dev_is_host(t->dev))
		return device_put(t, to, from, n, err);
	memcpy(to, from, n);
	return 0;
}

/* Copies a part from the device while the previous part is moved to `to`. */
int device_get(struct trainer *t, void *to, const void *from, size_t n, struct dt_err *err)
{
	size_t parts = (n + STAGE - 1) / STAGE;
	int rc = 0;

	for (size_t i = 0; i <= parts && rc == 0; i++) {
		if (i < parts) {
			size_t part = n - i * STAGE < STAGE ? n - i * STAGE : STAGE;

			rc = dt_dev_copy(t->dev, t->stage[i % 2], (const char *)from + i * STAGE, part);
			if (rc == 0)
				rc = dt_event_record(t->staged[i % 2], t->dev);
		}
		if (i > 0 && rc == 0) {
			size_t at = (i - 1) * STAGE;

			rc = dt_event_sync(t->staged[(i - 1) % 2]);
			if (rc == 0)
				memcpy((char *)to + at, t->stage[(i - 1) % 2],
				       n - at < STAGE ? n - at : STAGE);
		}
	}
	return rc < 0 ? dt_err_sys(err, rc, "cannot copy from the device") : 0;
}

int device_init_param(struct trainer *t, const struct dt_local_param *lp, int64_t first, int64_t n, float *to,
		      struct dt_err *err)
{
	const int64_t most = (int64_t)(STAGE / sizeof(float));
	int rc = 0;

	if (dt_dev_is_host(t->dev) || !arena_has(t, to))
		return init_values(t, lp, first, n, to, err);
	for (int64_t i = 0; i < n && rc == 0; i += most) {
		int64_t part = n - i < most ? n - i : most;

		rc = init_values(t, lp, first + i, part, t->stage[0], err);
		if (rc < 0)
			return rc;
		rc = dt_dev_copy(t->dev, to + i, t->stage[0], (size_t)part * sizeof(float));
		if (rc == 0)
			rc = dt_dev_sync(t->dev);
	}
	return rc < 0 ? dt_err_sys(err, rc, "cannot copy to the device") : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
