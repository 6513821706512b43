#include "model/match.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

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

int dt_match_params(const char *option, const char *expression, const struct dt_params *t, const char *model,
		    const char *hint, bool **ret, struct dt_err *err)
{
	bool *of;
	int n = 0, rc;
	regex_t re;

	if ((rc = dt_match_open(&re, option, expression, err)) < 0)
		return rc;
	of = malloc(((size_t)t->n + 1) * sizeof(*of));
	for (int i = 0; of && i < t->n; i++)
		n += of[i] = dt_match(&re, t->p[i].name);
	regfree(&re);
	if (!of)
		return dt_err_sys(err, -ENOMEM, "%s", option);
	if (n > 0) {
		*ret = of;
		return n;
	}
	free(of);
	dt_err_set(err, -EINVAL, "%s '%.60s' matches no parameter of '%s'", option, expression, model);
	dt_err_hint(err, "%s", hint);
	return -EINVAL;
}
/* SPDX-License-Identifier: Apache-2.0 */
