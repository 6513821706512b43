/* Memory in use over time: by phase, by category at the peak, and over a step. */
#include "plan/memory_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct change {
	int time, item; /* item + 1: it becomes live; -(item + 1): it ends */
};

static int by_time(const void *x, const void *y)
{
	const struct change *a = x, *b = y;

	if (a->time != b->time)
		return a->time < b->time ? -1 : 1;
	return (a->item > 0) - (b->item > 0); /* ends first, as they free memory */
}

/* The phase of a time; for a plan with one chunk also the step. */
static enum dt_phase phase_at(const struct dt_plan_builder *b, int time)
{
	const struct dt_memory_plan *p = b->plan;

	for (int k = 0; k < p->stage.nchunk; k++) {
		const struct dt_prog *c = &p->stage.chunk[k];

		if (time < c->start[DT_LIST_LOSS])
			return DT_PH_FORWARD;
		if (time < c->start[DT_LIST_BACKWARD])
			return DT_PH_LOSS;
		if (time < c->nstep)
			return DT_PH_BACKWARD;
		time -= c->nstep;
	}
	return DT_PH_STEP;
}

/*
 * Adds memory by category, cat, which holds from `time` to the next change. A point is the maximum of its
 * part of the step; the last point is the update.
 */
static void put_points(struct dt_plan_builder *b, int time, int next, const uint64_t cat[DT_MEM_CAT_N])
{
	struct dt_memory_plan *p = b->plan;
	const int n = b->end < DT_MEM_POINTS - 1 ? b->end : DT_MEM_POINTS - 1;

	p->nover = n + 1;
	for (; time < next && time <= b->end; time++) {
		struct dt_memory_point *over = &p->over[time < b->end ? (int64_t)time * n / b->end : n];
		uint64_t here = 0, was = 0;

		for (int c = 0; c < DT_MEM_CAT_N; c++) {
			here += cat[c];
			was += over->cat_bytes[c];
		}
		if (here < was)
			continue;
		over->phase = phase_at(b, time);
		memcpy(over->cat_bytes, cat, sizeof(over->cat_bytes));
	}
}

/* Computes bytes in use by phase, by category at the peak, and over the step. */
int plan_account(struct dt_plan_builder *b)
{
	struct dt_memory_plan *p = b->plan;
	struct change *c = malloc((size_t)(2 * DT_PLACE_SPANS * b->nitem + 1) * sizeof(*c));
	uint64_t now = 0, most = 0, cat[DT_MEM_CAT_N] = {0};
	int n = 0;

	if (!c)
		return -ENOMEM;
	for (int i = 0; i < b->nitem; i++)
		for (int k = 0; k < b->item[i].nspan && !b->place[i]; k++) {
			c[n++] = (struct change){b->item[i].span[k].first, i + 1};
			c[n++] = (struct change){b->item[i].span[k].last + 1, -(i + 1)};
		}
	qsort(c, (size_t)n, sizeof(*c), by_time);
	for (int i = 0; i < n; i++) {
		int item = abs(c[i].item) - 1;
		enum dt_phase ph = phase_at(b, c[i].time);
		uint64_t bytes = c[i].item > 0 ? b->item[item].bytes : -b->item[item].bytes;

		now += bytes;
		cat[b->cat[item]] += bytes;
		if (i + 1 < n && c[i + 1].time == c[i].time)
			continue;
		if (now > p->phase_bytes[ph] && c[i].time <= b->end)
			p->phase_bytes[ph] = now;
		put_points(b, c[i].time, i + 1 < n ? c[i + 1].time : c[i].time + 1, cat);
		if (now > most) {
			most = now;
			p->peak = ph;
			p->peak_step = ph == DT_PH_STEP ? -1 : c[i].time;
			b->peak_time = c[i].time;
			memcpy(p->cat_bytes, cat, sizeof(cat));
		}
	}
	free(c);
	/* Gaps that placement left between buffers. */
	p->gap_bytes = p->arena_bytes - most;
	p->cat_bytes[DT_MEM_WORKSPACE] += p->gap_bytes;
	p->phase_bytes[p->peak] = p->arena_bytes;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
