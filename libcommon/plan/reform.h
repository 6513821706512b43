/*
 * Memory while an elastic run re-forms (--elastic dp): the old trainer's state is kept until the new trainer,
 * on the new layout, has its own; everything else of the old one has been freed. With a CUDA device all
 * device memory is freed, and the old state is kept in host memory (DT_B_CARRIED).
 */
#ifndef DT_PLAN_REFORM_H
#define DT_PLAN_REFORM_H

#include "plan/memory.h"

/*
 * Bytes of a rank's device then, at most: its state, and that of the layout with one data-parallel rank less;
 * of a card all that this layout has there. 0 where ranks cannot be lost.
 */
int dt_reform_bytes(const struct dt_run *r, struct dt_coords at, uint64_t *ret, struct dt_err *err);

/* The most of any stage of a run, settled or not; 0 too where it is unknown. */
uint64_t dt_reform_most(const struct dt_run *run);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
