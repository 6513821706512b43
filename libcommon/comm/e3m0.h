/* Blocks of 4-bit numbers with a sign and a 3-bit exponent (struct dt_e3m0). */
#ifndef DT_COMM_E3M0_H
#define DT_COMM_E3M0_H

#include "plan/outer.h"

/* Rounds n values to the nearest, into (n + 255) / 256 blocks. A block with NaN or Inf gets the scale NaN. */
void dt_e3m0_put(struct dt_e3m0 *to, const float *x, int64_t n);
/* x += the n values that `from` holds. */
void dt_e3m0_add(float *x, const struct dt_e3m0 *from, int64_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
