#include "model/match.h"

#include <errno.h>
#include <stdio.h>

int dt_match_open(regex_t *ret, const char *what, const char *expression, struct dt_err *err)
{
	char text[512], why[80];
	int rc;

	if ((size_t)snprintf(text, sizeof(text), "^(%s)$", expression) >= sizeof(text))
		return dt_err_set(err, -EINVAL, "%s is longer than %zu characters", what, sizeof(text) - 5);
	rc = regcomp(ret, text, REG_EXTENDED | REG_NOSUB);
	if (!rc)
		return 0;
	regerror(rc, ret, why, sizeof(why));
	return dt_err_set(err, -EINVAL, "%s '%.60s' is no expression: %s", what, expression, why);
}
/* SPDX-License-Identifier: Apache-2.0 */
