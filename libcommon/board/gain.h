/*
 * What dt-plan predicts that a change of a run gains: the run as its metrics describe it, and the same with
 * one option changed, both timed by plan/steptime.h on a description of the machines.
 */
#ifndef DT_BOARD_GAIN_H
#define DT_BOARD_GAIN_H

#include "board/doctor.h"
#include "plan/cluster.h"

enum { DT_GAINS = 8 };

struct dt_gain {
	char args[160]; /* of dt-train, those that change */
	double step_s;	/* of the changed run, predicted */
	double gain;	/* share of a sample's time that is saved; < 0: it takes longer */
};

struct dt_gains {      /* of one run */
	double step_s; /* of the run as it is, predicted */
	int n;
	struct dt_gain v[DT_GAINS]; /* the largest gain first */
};

/* Ranks of a run as its metrics describe it; 0: no line does. */
int dt_gain_ranks(const json_t *run);
/* Whether they are processes, as opposed to cards. */
bool dt_gain_on_processor(const json_t *run);

/*
 * c has as many devices as the run has ranks. room: bytes that a rank may hold; what needs more, and what
 * dt-train refuses, is left out. changes NULL: none are tried. -EINVAL: run does not describe one.
 */
int dt_gains(const json_t *run, const struct dt_change *changes, const struct dt_cluster *c, double room,
	     struct dt_gains *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
