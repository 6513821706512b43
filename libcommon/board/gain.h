/*
 * What a change to a run would gain according to dt-plan: the run as its metrics describe it, and the same
 * with one option changed, are both timed by plan/steptime.h on a given cluster.
 */
#ifndef DT_BOARD_GAIN_H
#define DT_BOARD_GAIN_H

#include "board/doctor.h"
#include "plan/cluster.h"

enum { DT_GAINS = 8 };

struct dt_gain {
	char args[160]; /* options of dt-train that change */
	double step_s;	/* predicted step time after the change */
	double gain;	/* share of the time per sample that is saved; < 0: slower */
};

struct dt_gains {      /* for one run */
	double step_s; /* predicted step time of the run as it is */
	int n;
	struct dt_gain v[DT_GAINS]; /* in order of decreasing gain */
};

/* Number of ranks of a run, from its metrics; 0: unknown. */
int dt_gain_ranks(const json_t *run);
/* Whether the ranks run on the CPU rather than on GPUs. */
bool dt_gain_on_processor(const json_t *run);

/*
 * Predicts what changes gain. c must have as many devices as the run has ranks. room: bytes of memory a rank;
 * what needs more, or what dt-train refuses, is left out. changes NULL: none are tried. -EINVAL: `run` does
 * not describe a run.
 */
int dt_gains(const json_t *run, const struct dt_change *changes, const struct dt_cluster *c, double room,
	     struct dt_gains *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
