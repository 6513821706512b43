/*
 * Countdown: an expression of given numbers that makes a target, as TinyZero scores it: every number once,
 * + - * / and brackets, exact fractions. Private to rl/.
 */
#ifndef DT_RL_COUNTDOWN_H
#define DT_RL_COUNTDOWN_H

#include "base/rng.h"

#define DT_COUNTDOWN_MAX 6 /* numbers */

/* "3 7 25=46:" and an expression that makes it. The target is positive and below 1000. */
void dt_countdown_make(const struct dt_rng *r, int n, char *prompt, char *solution);

/* 1, 0.1 or 0; -EINVAL where the prompt is not one of n numbers and a target. */
int dt_countdown_score(const char *prompt, int n, const char *answer, double *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
