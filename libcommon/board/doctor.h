/*
 * Finds problems of a run from its metrics alone: a table of rules, one a symptom; each finding has evidence
 * and advice. A rule finds nothing if it has too little data. Thresholds are beside the rules.
 */
#ifndef DT_BOARD_DOCTOR_H
#define DT_BOARD_DOCTOR_H

#include "board/run.h"

enum { DT_DOCTOR_MAX = 32 };
/* Warm-up steps that rules about time ignore; least number of steps for rules about time and the loss. */
enum { DT_DOCTOR_UNSETTLED = 3, DT_DOCTOR_TIMES = 10, DT_DOCTOR_LOSSES = 40 };

/*
 * An option of dt-train that may help, and its value; "x2": double the current value; layout "any": another
 * layout.
 */
struct dt_change {
	const char *option, *value;
};

struct dt_finding {
	const char *name, *what_to_try; /* static */
	char evidence[256];
	double gain; /* share of step time saved at best; 0: the finding is not about time */
	/* static, ended by an entry without an option; NULL: no change that dt-plan can predict */
	const struct dt_change *changes;
};

/* Fills ret, sorted by decreasing gain, then in the order of the rules. Returns their number or -ENOMEM. */
int dt_doctor(const struct dt_board_run *r, struct dt_finding ret[DT_DOCTOR_MAX], struct dt_err *err);
/* Median seconds of a step after warm-up; NAN if there is none. */
double dt_doctor_step_s(const struct dt_board_run *r);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
