/* Names of tensors that an extended regular expression matches as a whole. */
#ifndef DT_MODEL_MATCH_H
#define DT_MODEL_MATCH_H

#include "model/params.h"

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>

/* -EINVAL, in which `what` names whose expression it is ("--no-decay"), where it is none. regfree it. */
int dt_match_open(regex_t *ret, const char *what, const char *expression, struct dt_err *err);
static inline bool dt_match(const regex_t *re, const char *name)
{
	return regexec(re, name, 0, NULL, 0) == 0;
}
/*
 * Which parameters of a table the expression of an option matches: *ret [t->n], malloc'd. Returns how many.
 * -EINVAL, with `hint` for the user, where there is none.
 */
int dt_match_params(const char *option, const char *expression, const struct dt_params *t, const char *model,
		    const char *hint, bool **ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
