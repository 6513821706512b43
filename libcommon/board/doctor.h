/*
 * What is wrong with a run, from its metrics alone: symptoms as a table of rules, each with its evidence and
 * with what to try. A rule is silent where it has too little to judge by; thresholds are beside their rules.
 */
#ifndef DT_BOARD_DOCTOR_H
#define DT_BOARD_DOCTOR_H

#include "board/run.h"

enum { DT_DOCTOR_MAX = 32 };

/* An option of dt-train that may help, with its value; "x2": twice what it is; layout "any": another one. */
struct dt_change {
	const char *option, *value;
};

struct dt_finding {
	const char *name, *what_to_try; /* static */
	char evidence[256];
	double gain; /* share of the step's time that would be saved at best; 0: not about time */
	const struct dt_change *changes; /* static, the last without an option; NULL: dt-plan knows none */
};

/* Fills ret, the largest gain first, then in the order of rules. Their number, or -ENOMEM. */
int dt_doctor(const struct dt_board_run *r, struct dt_finding ret[DT_DOCTOR_MAX], struct dt_err *err);
/* The median of a settled step's seconds; NAN where there is none. */
double dt_doctor_step_s(const struct dt_board_run *r);
/* The names of all rules, one after another; NULL: no more. */
const char *dt_doctor_rule(int i);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
