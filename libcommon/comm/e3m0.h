/* Numbers in 4 bits, a sign and an exponent (struct dt_e3m0), in blocks of their own. */
#ifndef DT_COMM_E3M0_H
#define DT_COMM_E3M0_H

#include "plan/outer.h"

/* n values to (n + 255) / 256 blocks, each to the nearest that there is; of NaN and Inf the scale is NaN. */
void dt_e3m0_put(struct dt_e3m0 *to, const float *x, int64_t n);
/* x += what n values were rounded to. */
void dt_e3m0_add(float *x, const struct dt_e3m0 *from, int64_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
