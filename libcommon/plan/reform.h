/*
 * Memory while ranks re-form (--elastic dp): the old trainer's state stays until the new one, on a layout of
 * other ranks, has its own. Everything else of the old one has gone back to the system. A card's memory goes
 * back whole: the old state is in the host's memory then (DT_B_CARRIED).
 */
#ifndef DT_PLAN_REFORM_H
#define DT_PLAN_REFORM_H

#include "plan/memory.h"

/*
 * Bytes of a rank's device then, at most: its state, and that of the layout with one data-parallel rank less;
 * of a card all that this layout has there. 0 where ranks cannot be lost.
 */
int dt_reform_bytes(const struct dt_run *r, struct dt_coords at, uint64_t *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
