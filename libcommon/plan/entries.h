/* Building an estimate's list of entries; only for libcommon/plan. */
#ifndef DT_PLAN_ENTRIES_H
#define DT_PLAN_ENTRIES_H

#include "plan/estimate.h"

/*
 * Appends an entry of a device's memory, exactness modelled; NULL when there is nothing to add or no
 * memory.
 */
struct dt_entry *dt_entry_put(struct dt_estimate *t, int cat, double bytes, enum dt_phase first,
			      enum dt_phase last, const char *name, const char *formula);

/* Sums by phase and, in the largest phase, by category. Frees the list and fails when it is incomplete. */
int dt_entries_finish(struct dt_estimate *t, struct dt_err *err);

/* Fills t->params with what the rank holds. */
int dt_rank_params(const struct dt_run *s, struct dt_coords at, struct dt_estimate *t, struct dt_err *err);

/* Lists what the published formulas say of a rank: every account but dt. */
int dt_account_train(const struct dt_run *s, struct dt_coords at, enum dt_account account,
		     const struct dt_extras *x, struct dt_estimate *t, struct dt_err *err);

/* estimate_images.c: entries of a rank that serves a classifier of images; max_seqs: images of a pass. */
int dt_estimate_images(const struct dt_serve_shape *s, struct dt_estimate *t, struct dt_err *err);

/* ---- estimate_scratch.c ---- */

struct dt_kept_as { /* how a rank's engine keeps its parameters, by local index */
	int n;
	struct dt_param *part;
	enum dt_format *format, *others; /* others: what adapters replace whole; NULL: no adapters */
};
/* -ENOTSUP: dt-serve does not have the format. To be released also then. */
int dt_kept_as_open(const struct dt_serve_shape *s, const struct dt_params *table,
		    const struct dt_local *local, struct dt_kept_as *ret, struct dt_err *err);
void dt_kept_as_release(struct dt_kept_as *k);

struct dt_serving;
struct dt_stage;
/*
 * Entries of the scratch of s->scratch, if that has threads: of dt's engine, and of one for any layout.
 * least: what others on the device take; NULL: none. dt_scratch_of: that of an engine, without entries.
 */
void dt_scratch_of(const struct dt_serve_shape *s, const struct dt_serving *serving,
		   const struct dt_stage *stage, const struct dt_kept_as *kept, enum dt_dtype cache,
		   struct dt_scratch *ret);
void dt_put_scratch(struct dt_estimate *t, const struct dt_serve_shape *s, const struct dt_serving *serving,
		    const struct dt_stage *stage, const struct dt_kept_as *kept, enum dt_dtype cache,
		    const struct dt_scratch *least);
/*
 * estimate_tower.c: entries of the tower of vision of s->config, for tiles of the size that its positions
 * are for, and the scratch that it takes.
 */
int dt_put_tower(struct dt_estimate *t, const struct dt_serve_shape *s, struct dt_scratch *least,
		 struct dt_err *err);
int dt_put_scratch_of_any(struct dt_estimate *t, const struct dt_serve_shape *s, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
