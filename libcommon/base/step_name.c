#include "base/step_name.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dt_step_name(char buf[DT_STEP_NAME], int64_t step)
{
	snprintf(buf, DT_STEP_NAME, "step-%08" PRId64, step);
}

int64_t dt_step_of(const char *name)
{
	char again[DT_STEP_NAME];
	int64_t step;

	if (strncmp(name, "step-", 5) != 0)
		return -1;
	errno = 0;
	step = strtoll(name + 5, NULL, 10);
	if (errno || step < 0)
		return -1;
	dt_step_name(again, step);
	return strcmp(again, name) == 0 ? step : -1;
}
/* SPDX-License-Identifier: Apache-2.0 */
