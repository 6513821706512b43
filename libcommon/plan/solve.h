/* dt-memest --solve: the largest number, or the first layout, that fits in memory, as plan/fit.h finds it. */
#ifndef DT_PLAN_SOLVE_H
#define DT_PLAN_SOLVE_H

#include "plan/fit.h"

#include <stdio.h>

#define DT_SOLVE_CHOICES "no|batch|seq|context|gpus|zero|layout"
enum dt_solve_what {
	DT_SOLVE_NOTHING,
	DT_SOLVE_BATCH,
	DT_SOLVE_SEQ,
	DT_SOLVE_CONTEXT,
	DT_SOLVE_GPUS,
	DT_SOLVE_ZERO,
	DT_SOLVE_LAYOUT,
};

struct dt_solve {
	enum dt_solve_what what;
	struct dt_fit_query *q; /* its unknown is changed */
	uint64_t room;		/* bytes a rank may hold */
	bool solved;
};

/* Sets s->solved and the unknown of s->q. 0 or a negative errno. */
int dt_solve(struct dt_solve *s, struct dt_err *err);

/* Whether what is asked for is a number of tokens. */
bool dt_solve_is_length(enum dt_solve_what what);

/* why: --why follows and says what would fit. */
void dt_solve_print(const struct dt_solve *s, bool why, FILE *f);
json_t *dt_solve_json(const struct dt_solve *s);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
