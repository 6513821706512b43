#include "plan/memory_fold.h"

static uint64_t mix(uint64_t h, uint64_t x)
{
	return (h ^ x) * 0x9e3779b97f4a7c15u ^ (h >> 29);
}

/*
 * Numbers the steps of each unit and list, names values by these numbers, and hashes each unit to compare
 * them.
 */
static void look_at_units(struct dt_folding *f)
{
	const struct dt_prog *p = f->p;

	for (int u = 0; u < f->nunit; u++)
		f->unit[u] = (struct dt_fold_unit){.alike = 1, .kept = -1};
	for (int s = 0; s < p->nsegment; s++) {
		const struct dt_segment *g = &p->segment[s];
		const int u = g->unit - f->first_unit;
		struct dt_fold_unit *x = &f->unit[u];

		for (int i = g->first; i < g->first + g->n && u >= 0; i++) {
			const struct dt_node *n = &p->step[i].n;
			int list = p->step[i].list;

			x->alike = mix(x->alike, (uint64_t)(n->op * 8 + list));
			for (int o = 0; o < DT_NODE_OUT; o++) {
				if (n->out[o] < 0)
					continue;
				x->alike = mix(x->alike, dt_fold_bytes(p, n->out[o]) + (uint64_t)o);
				f->key[n->out[o]] = (struct dt_fold_key){u, list, x->nth[list], o};
			}
			x->nth[list]++;
		}
	}
}

/* Finds runs of units in which each equals the one a period before. */
static void find_runs(struct dt_folding *f)
{
	for (int u = 0, end; u < f->nunit; u = end) {
		for (end = u + f->period;
		     end < f->nunit && f->unit[end].alike == f->unit[end - f->period].alike; end++)
			;
		if (end > f->nunit || end == u + f->period)
			end = u + 1;
		for (int i = u; i < end; i++) {
			f->unit[i].first = u;
			f->unit[i].last = end - 1;
		}
	}
}

void dt_fold_units(struct dt_folding *f)
{
	look_at_units(f);
	find_runs(f);
}
/* SPDX-License-Identifier: Apache-2.0 */
