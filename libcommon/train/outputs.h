/* The files that a run writes: none may be one that it reads, or another that it writes. */
#ifndef DT_TRAIN_OUTPUTS_H
#define DT_TRAIN_OUTPUTS_H

#include "plan/run.h"

struct trainer;

/* The input of the run that writing path would overwrite; NULL: none. */
const char *outputs_overwrite(const struct dt_run *r, const char *path);
/* Refuses early, on rank 0, what cannot or must not be written. A missing folder of --save will be made. */
int outputs_check(const struct trainer *t, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
