/*
 * Detection of silent data corruption (--check-replicas): checksums of the state that data-parallel ranks
 * replicate are compared, and all ranks compute the same microbatch and compare the losses bit by bit.
 *
 * With three or more replicas the majority is right: ranks that differ are reported, and their parameters and
 * optimizer states are copied from a rank of the majority. With two replicas that differ neither can be
 * trusted: the run ends, and resumes from its newest checkpoint. A loss that differs is computed again; a
 * rank whose second result differs from its first is reported. In an elastic run a rank that the majority has
 * reported twice leaves the run.
 */
#ifndef DT_TRAIN_CHECK_H
#define DT_TRAIN_CHECK_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct trainer;

enum { CHECK_EVICT = 2 }; /* times */

struct corrupt {
	int times; /* comparisons, by this process, in which this rank differed from the majority */
	bool now;  /* it does in the comparison under way */
};

/* Every rank calls it, between steps. */
int check_replicas(struct trainer *t, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
