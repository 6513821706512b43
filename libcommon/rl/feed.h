/*
 * The struct dt_given of dt-train with a policy-gradient --objective: it takes rollouts from a file, or
 * samples them with the current weights, packs them into samples, and computes the loss of their targets.
 */
#ifndef DT_RL_FEED_H
#define DT_RL_FEED_H

#include "train/given.h"

/* r: settled later, and outlives it. *ret stays until dt_rl_feed_close. */
int dt_rl_feed_open(const struct dt_run *r, const struct dt_given **ret, struct dt_err *err);
void dt_rl_feed_close(const struct dt_given *g); /* NULL is allowed */

#endif
/* SPDX-License-Identifier: Apache-2.0 */
