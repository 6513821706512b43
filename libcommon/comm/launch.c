#include "base/launch.h"
#include "comm/internal.h"

#include <stdlib.h>

static int positive(const char *s)
{
	char *end;
	long v;

	if (!s || !*s)
		return 0;
	v = strtol(s, &end, 10);
	return *end || v < 1 || v > 1 << 24 ? 0 : (int)v;
}

/*
 * In a batch script outside srun, SLURM_NTASKS and SLURM_PROCID are set although only one process runs. Only
 * a step has SLURM_STEP_NUM_TASKS.
 */
struct dt_comm_launch dt_comm_launch_detect(char *(*get)(const char *))
{
	const struct dt_launcher *known;
	struct dt_comm_launch l = {0};

	for (int i = 0; (known = dt_launcher(i)); i++) {
		int n = positive(get(known->size));

		if (!n || !get(known->rank))
			continue;
		if (n > 1)
			l = (struct dt_comm_launch){known->by, n, known->size};
		return l;
	}
	if (get("PMIX_RANK")) /* a PMIx launcher does not export the number of ranks */
		l.by = "a PMIx launcher";
	return l;
}
/* SPDX-License-Identifier: Apache-2.0 */
