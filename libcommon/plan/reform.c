#include "plan/reform.h"

/* Bytes of the state that is carried over. */
static uint64_t state_bytes(const struct dt_memory_plan *p)
{
	uint64_t sum = 0;

	for (int i = 0; i < DT_MEMORY_CARRIED; i++) {
		const struct dt_buf *b = dt_memory_find(p, dt_memory_carried[i], -1);

		sum += b ? b->bytes : 0;
	}
	return sum;
}

int dt_reform_bytes(const struct dt_run *r, struct dt_coords at, uint64_t *ret, struct dt_err *err)
{
	struct dt_run less = *r;
	struct dt_memory_plan before, after;
	int rc;

	*ret = 0;
	if (!r->watch.elastic || r->layout.dp == 1)
		return 0;
	less.layout.dp--;
	at.dp = 0;
	rc = dt_memory_plan(r, at, &before, err);
	if (rc < 0)
		return rc;
	rc = dt_memory_plan(&less, at, &after, err);
	if (rc == 0) {
		*ret = r->on_card ? after.arena_bytes : state_bytes(&before) + state_bytes(&after);
		dt_memory_plan_release(&after);
	}
	dt_memory_plan_release(&before);
	return rc;
}

uint64_t dt_reform_most(const struct dt_run *run)
{
	struct dt_run r = *run;
	uint64_t most = 0, bytes;

	if (!r.watch.elastic || dt_run_settle(&r, NULL) < 0)
		return 0;
	for (int p = 0; p < r.layout.pp; p++)
		if (dt_reform_bytes(&r, (struct dt_coords){.pp = p}, &bytes, NULL) == 0 && bytes > most)
			most = bytes;
	return most;
}
/* SPDX-License-Identifier: Apache-2.0 */
