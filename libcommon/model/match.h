/* Names of tensors that an extended regular expression matches as a whole. */
#ifndef DT_MODEL_MATCH_H
#define DT_MODEL_MATCH_H

#include "base/err.h"

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>

/* -EINVAL, in which `what` names whose expression it is ("--no-decay"), where it is none. regfree it. */
int dt_match_open(regex_t *ret, const char *what, const char *expression, struct dt_err *err);
static inline bool dt_match(const regex_t *re, const char *name)
{
	return regexec(re, name, 0, NULL, 0) == 0;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
