/* Free memory of a CUDA device of this machine, without opening it as a dt_dev. */
#ifndef DT_PLAN_CARD_H
#define DT_PLAN_CARD_H

#include "base/err.h"

#include <stdint.h>

/*
 * What is free on card "cuda" (the first) or "cuda:N", bytes, next to a context of CUDA as any run has one;
 * by the driver's libcuda.so.1, found at run time. -EINVAL: no such name; -ENODEV: no driver or no such card.
 */
int dt_card_free(const char *name, uint64_t *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
