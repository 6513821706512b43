/*
 * Packing by best fit, the longest first: each example goes into the sample with the least room that still
 * holds it.
 */
#ifndef DT_DATA_CHAT_PACK_H
#define DT_DATA_CHAT_PACK_H

#include "base/err.h"

#include <stdint.h>

/* length[n] of at most room each. sample[i]: of example i; their number, or -ENOMEM. */
int64_t dt_pack_best_fit(const int64_t *length, int64_t n, int64_t room, int64_t *sample, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
