/* Learning rates of parameters by name: --lr-scale REGEX:X[,REGEX:X...]; the first match counts. */
#include "model/match.h"
#include "plan/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OPTION "--lr-scale"

/* Applies one "REGEX:X". The expression may contain colons: X is after the last. */
static int apply(const struct dt_run *r, char *item, struct dt_params *t, struct dt_err *err)
{
	char *colon = strrchr(item, ':'), *end = NULL;
	double x = colon ? strtod(colon + 1, &end) : -1;
	bool *matched;
	int rc;

	if (!colon || colon == item || end == colon + 1 || *end || !(x >= 0 && x <= 1e6))
		return dt_err_set(err, -EINVAL, OPTION " '%.60s' is not REGEX:X with X from 0 to 1e6", item);
	*colon = '\0';
	rc = dt_match_params(OPTION, item, t, r->config->name,
			     "an expression is of whole names, 'layers.*weight' for one", &matched, err);
	if (rc < 0)
		return rc;
	for (int i = 0; i < t->n; i++)
		if (matched[i] && t->p[i].rate < 0)
			t->p[i].rate = x;
	free(matched);
	return 0;
}

int dt_run_rates(const struct dt_run *r, struct dt_params *t, struct dt_err *err)
{
	char *list, *next, *item;
	int rc = 0;

	for (int i = 0; i < t->n; i++)
		t->p[i].rate = r->lr_scale ? -1 : 1;
	if (!r->lr_scale)
		return 0;
	if (!(list = next = strdup(r->lr_scale)))
		return dt_err_sys(err, -ENOMEM, OPTION);
	while (rc == 0 && (item = strsep(&next, ",")))
		rc = apply(r, item, t, err);
	free(list);
	for (int i = 0; i < t->n; i++)
		if (t->p[i].rate < 0)
			t->p[i].rate = 1;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
