/* Comparison of the ranks' recordings of operations (base/recorder.h). */
#ifndef DT_SUPERVISE_EXPLAIN_H
#define DT_SUPERVISE_EXPLAIN_H

#include "base/err.h"

#include <stdio.h>

/* Prints which rank lags, calls something else, or other sizes. Returns the number of findings. */
int dt_supervise_explain(char *const *path, int n, FILE *out, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
