#include "train/trainer.h"

#include "base/scratch.h"
#include "base/units.h"
#include "plan/here.h"

#include <errno.h>
#include <stdlib.h>

enum { HOST, DISK, POOLS };

/* The bytes that this rank will take from each pool, and the bytes available there; 0: not known. */
static int look(struct trainer *t, uint64_t need[POOLS], uint64_t room[POOLS], struct dt_err *err)
{
	const struct dt_memory_plan *p = &t->plan;
	int rc = 0;

	need[HOST] = p->place_bytes[DT_PLACE_HOST] + t->draws.host +
		     (dt_dev_is_host(t->dev) ? p->arena_bytes + t->draws.bytes : 0);
	need[DISK] = p->place_bytes[DT_PLACE_DISK];
	room[HOST] = dt_here_free("");
	if (t->run.offload.what && t->run.offload.dir)
		rc = dt_scratch_free(t->run.offload.dir, &room[DISK], err);
	return rc;
}

static int refuse(struct trainer *t, int pool, double need, uint64_t room, struct dt_err *err)
{
	char want[32], have[32];

	t->status = DT_EXIT_NO;
	dt_format_size((uint64_t)need, want, sizeof(want));
	dt_format_size(room, have, sizeof(have));
	if (pool == DISK) {
		dt_err_set(err, -ENOSPC, "'%s': this machine's ranks offload %s, but %s are free",
			   t->run.offload.dir, want, have);
		dt_err_hint(err, "see dt-memest; --offload-fraction leaves a part in memory");
	} else {
		dt_err_set(err, -ENOSPC, "this machine's ranks need %s of memory, but %s are available", want,
			   have);
		dt_err_hint(err, "see dt-memest for what would make it fit");
	}
	return -ENOSPC;
}

int trainer_check_room(struct trainer *t, struct dt_err *err)
{
	const size_t n = (size_t)t->info.nodes * POOLS;
	uint64_t need[POOLS] = {0}, room[POOLS] = {0};
	double *sum = calloc(n, sizeof(*sum));
	int rc = trainer_agree(
		t, sum ? look(t, need, room, err) : dt_err_sys(err, -ENOMEM, "cannot check the memory"), err);

	for (int i = 0; i < POOLS && rc == 0; i++)
		sum[t->info.node * POOLS + i] = (double)need[i];
	if (rc == 0)
		rc = dt_all_reduce(dt_mesh_comm(&t->mesh, DT_ON_ALL), sum, NULL, n, DT_F64, DT_SUM,
				   "memory that ranks need", err);
	for (int i = 0; i < POOLS && rc == 0; i++)
		if (sum[t->info.node * POOLS + i] > (double)room[i] && need[i] && (i == DISK || room[i]))
			rc = refuse(t, i, sum[t->info.node * POOLS + i], room[i], err);
	free(sum);
	return trainer_agree(t, rc, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
