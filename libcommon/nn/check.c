#include "nn/exec.h"

#include <string.h>

int dt_kernel_check(int rc, const char *op, struct dt_err *err)
{
	const char *end = strchr(op, '(');
	const char *start = end;

	if (rc >= 0)
		return rc;
	while (start && start > op && start[-1] != '>')
		start--;
	return dt_err_sys(err, rc, "kernel %.*s failed", end ? (int)(end - start) : 40, end ? start : op);
}
/* SPDX-License-Identifier: Apache-2.0 */
