/*
 * Silent corruption: what data-parallel ranks hold alike is compared by checksum, and one microbatch is
 * computed by all of them and compared to the bit (--check-replicas).
 *
 * Of three replicas and more the majority is right: ranks that differ are named, and their parameters and
 * states are taken from a rank of the majority. Of two that differ neither can be believed: the run ends, and
 * goes on from its newest checkpoint. A loss that differs is computed again; a rank that then answers
 * otherwise is named. A rank of an elastic run that the majority has named twice leaves it.
 */
#ifndef DT_TRAIN_CHECK_H
#define DT_TRAIN_CHECK_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct trainer;

enum { CHECK_EVICT = 2 }; /* times */

struct corrupt {
	int times; /* comparisons of this process that found this rank to differ from the majority */
	bool now;  /* the one under way has */
};

/*
 * Of n equal values the one that more than half have, as the first index of it; -1: there is none.
 */
int check_majority(const uint64_t *v, int n);
/* Every rank calls it, between steps. */
int check_replicas(struct trainer *t, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
