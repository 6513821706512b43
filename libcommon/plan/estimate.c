#include "plan/entries.h"

#include "base/room.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *dt_est_cat_name(int cat)
{
	static const char *const more[] = {"kv-cache", "adapters", "rounding", "framework"};

	return cat >= DT_EST_CACHE ? more[cat - DT_EST_CACHE] : dt_mem_cat_name(cat);
}

int dt_est_cat_find(const char *name)
{
	for (int c = 0; c < DT_EST_CAT_N; c++)
		if (!strcmp(name, dt_est_cat_name(c)))
			return c;
	return -1;
}

void dt_estimate_release(struct dt_estimate *e)
{
	free(e->e);
	memset(e, 0, sizeof(*e));
}

struct dt_entry *dt_entry_put(struct dt_estimate *t, int cat, double bytes, enum dt_phase first,
			      enum dt_phase last, const char *name, const char *formula)
{
	struct dt_entry *e;

	if (t->cap < 0 || bytes < 1)
		return NULL;
	if (!DT_ROOM(t->e, t->n, t->cap, 64)) {
		t->cap = -1;
		return NULL;
	}
	e = &t->e[t->n++];
	*e = (struct dt_entry){.cat = cat, .bytes = (uint64_t)ceil(bytes), .first = first, .last = last};
	e->formula = formula;
	dt_layer_name(e->name, sizeof(e->name), -1, name);
	memcpy(e->kind, e->name, sizeof(e->kind));
	return e;
}

int dt_entries_finish(struct dt_estimate *t, struct dt_err *err)
{
	if (t->cap < 0) {
		dt_estimate_release(t);
		return dt_err_sys(err, -ENOMEM, "cannot estimate");
	}
	for (int i = 0; i < t->n; i++) {
		t->place_bytes[t->e[i].place] += t->e[i].place ? t->e[i].bytes : 0;
		for (int ph = t->e[i].first; ph <= (int)t->e[i].last && !t->e[i].place && !t->summed; ph++)
			t->phase_bytes[ph] += t->e[i].bytes;
	}
	for (int ph = 0; ph < DT_PH_N; ph++)
		if (t->phase_bytes[ph] > t->phase_bytes[t->peak])
			t->peak = ph;
	t->peak_bytes = t->place_bytes[DT_PLACE_DEVICE] = t->phase_bytes[t->peak];
	for (int i = 0; i < t->n && !t->summed; i++)
		if (!t->e[i].place && t->e[i].first <= t->peak && t->e[i].last >= t->peak) {
			t->cat_bytes[t->e[i].cat] += t->e[i].bytes;
			t->e[i].at_peak = true;
		}
	return 0;
}

/* ---- our trainer ---- */
/* SPDX-License-Identifier: Apache-2.0 */
