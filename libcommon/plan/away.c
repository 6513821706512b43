/*
 * Chooses activations to offload between forward and backward: kept values of layers, except the last two,
 * for which there is no time, and except small ones. Such a value remains in memory from the node that
 * computes it to the end of the segment of its last read in forward, and from the beginning of the segment of
 * its first read in backward.
 */
#include "plan/memory_priv.h"

#include <errno.h>
#include <stdlib.h>

#define SMALL 16 /* values smaller than the largest / SMALL stay */
#define BLOCK ((uint64_t)4096)

static uint64_t file_bytes(const struct dt_prog *p, int v)
{
	uint64_t n = (uint64_t)dt_value_numel(p, v) * (uint64_t)dt_dtype_size(p->value[v].dtype);

	return (n + BLOCK - 1) / BLOCK * BLOCK;
}

static int segment_of(const struct dt_prog *p, int step)
{
	int s = 0;

	while (p->segment[s].first + p->segment[s].n <= step)
		s++;
	return s;
}

/* Finds the steps that read v: the last one in forward, the first one after forward. -1: none. */
static void readers(const struct dt_prog *p, int v, int *ret_last, int *ret_first)
{
	*ret_last = p->value[v].def;
	*ret_first = -1;
	for (int i = p->value[v].def; i < p->nstep; i++) {
		bool reads = false;

		for (int k = 0; k < DT_NODE_IN; k++)
			reads |= p->step[i].n.in[k] == v;
		if (!reads)
			continue;
		if (i < p->start[DT_LIST_LOSS]) {
			*ret_last = i;
		} else {
			*ret_first = i;
			return;
		}
	}
}

/* Whether a value may be offloaded: kept, of an early layer, with memory of its own. */
static bool can_leave(const struct dt_plan_builder *b, const struct dt_prog *p, const bool *shared, int v)
{
	const struct dt_value *x = &p->value[v];
	const struct dt_run_offload *o = &b->r->offload;
	const double layers = (double)(b->r->config->layers - DT_AWAY_STAYS);
	const int64_t leave = (int64_t)(o->fraction * (1 - o->stay) * layers + 1e-9);

	return leave > 0 && x->def >= 0 && x->life == DT_LIFE_KEPT && x->over < 0 && !shared[v] &&
	       v != p->input && x->unit < leave;
}

int dt_plan_find_away(struct dt_plan_builder *b)
{
	struct dt_memory_plan *plan = b->plan;
	const struct dt_prog *p = &plan->stage.chunk[0];
	bool *shared = calloc((size_t)p->nvalue + 1, sizeof(*shared));
	uint64_t most = 0;

	plan->away = calloc((size_t)p->nvalue + 1, sizeof(*plan->away));
	if (!shared || !plan->away) {
		free(shared);
		return -ENOMEM;
	}
	for (int v = 0; v < p->nvalue; v++)
		if (p->value[v].over >= 0)
			shared[p->value[v].over] = true;
	for (int v = 0; v < p->nvalue; v++)
		if (can_leave(b, p, shared, v) && file_bytes(p, v) > most)
			most = file_bytes(p, v);
	for (int v = 0; v < p->nvalue; v++) {
		uint64_t bytes = can_leave(b, p, shared, v) ? file_bytes(p, v) : 0;
		int last, first;

		if (!bytes || bytes * SMALL < most)
			continue;
		readers(p, v, &last, &first);
		if (first < 0)
			continue;
		plan->away[plan->naway++] = (struct dt_away){v, segment_of(p, last), segment_of(p, first),
							     bytes, plan->away_bytes};
		plan->away_bytes += bytes;
		plan->away_layers = p->value[v].unit + 1; /* the first layers */
		plan->away_most = most;
	}
	free(shared);
	return 0;
}

const struct dt_away *dt_plan_away(const struct dt_memory_plan *plan, int v)
{
	for (int i = 0; i < plan->naway; i++)
		if (plan->away[i].value == v)
			return &plan->away[i];
	return NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
