/* Units of a program that are alike, of which a few stand for all when its values are placed. */
#ifndef DT_PLAN_MEMORY_FOLD_H
#define DT_PLAN_MEMORY_FOLD_H

#include "base/arena.h"
#include "plan/memory_priv.h"

struct dt_fold_unit {
	uint64_t alike;	    /* equal where the nodes of two units are */
	int first, last;    /* units of the run it is in */
	int nth[DT_LIST_N]; /* steps seen so far, by list */
	int kept;	    /* the item that holds all its kept values; -1: none */
};

struct dt_fold_key { /* which value it is of its unit: equal in units that are alike */
	int unit, list, nth, out;
};

struct dt_folding {
	struct dt_plan_builder *b;
	struct dt_prog *p;
	int k, start; /* chunk; time of its first step */
	bool single;  /* one microbatch in flight in all: lifetimes are exact */
	bool exact;   /* no unit stands for others: gradients are written over those of the unit before */
	int period;
	int first_unit, nunit;
	struct dt_fold_unit *unit;
	struct dt_fold_key *key; /* [nvalue] */
	int *item;		 /* [nvalue] */
	uint64_t *inner;	 /* [nvalue] offset in that item, bytes */
	bool *makes;		 /* [nvalue] its item was made for it */
	struct dt_fold_known {
		struct dt_fold_key key;
		int item;
	} * known;
	int nknown;
};

static inline uint64_t dt_fold_bytes(const struct dt_prog *p, int v)
{
	return dt_align_up((uint64_t)dt_value_numel(p, v) * (uint64_t)dt_dtype_size(p->value[v].dtype));
}

/*
 * Numbers the steps of each unit and list, names values by that (key), and finds the runs (unit) in which
 * every unit is like the one a period before it: the same nodes, the same sizes.
 */
void dt_fold_units(struct dt_folding *f);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
