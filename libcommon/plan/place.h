/*
 * Places buffers in one arena so that no two that live at the same time overlap. Finding the smallest arena
 * is NP-complete; buffers are placed largest first, each at the lowest address that is free over all its
 * lifetimes, and then again in order of first use: the better of the two is taken (Pisarchyk and Lee 2020,
 * who call it greedy by size). The largest sum of bytes alive at one time bounds it from below.
 */
#ifndef DT_PLAN_PLACE_H
#define DT_PLAN_PLACE_H

#include <stdint.h>

#define DT_PLACE_SPANS 4

struct dt_span {
	int first, last; /* inclusive; any numbers that order what happens */
};

struct dt_item {
	uint64_t bytes, offset;
	struct dt_span span[DT_PLACE_SPANS]; /* it has one address in all of them */
	int nspan;
};

/* Fills in offsets. *ret_bytes: of the arena; *ret_bound: the lower bound. -ENOMEM. -EINVAL: an item without
 * a span. */
int dt_place_items(struct dt_item *item, int n, uint64_t *ret_bytes, uint64_t *ret_bound);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
