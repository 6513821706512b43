/*
 * Condition variables whose timed waits follow CLOCK_MONOTONIC, as dt_now() does: a wall clock that is set
 * back or forth makes none longer or shorter. pthread_cond_timedwait is called here and nowhere else.
 */
#ifndef DT_BASE_COND_H
#define DT_BASE_COND_H

#include <pthread.h>

/* The only kind that the waits below may be given. Ended by pthread_cond_destroy. */
void dt_cond_init_monotonic(pthread_cond_t *c);

/* As pthread_cond_wait, until dt_now() is `when` at the latest. 0, or -ETIMEDOUT. */
int dt_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *mu, double when);
/* The same, for so many seconds from now at most. */
int dt_cond_wait_s(pthread_cond_t *c, pthread_mutex_t *mu, double seconds);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
