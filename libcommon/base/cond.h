/*
 * Condition variables whose timed waits use CLOCK_MONOTONIC, as dt_now() does, so that setting the wall clock
 * does not change a timeout. pthread_cond_timedwait is called here and nowhere else.
 */
#ifndef DT_BASE_COND_H
#define DT_BASE_COND_H

#include <pthread.h>

/* The waits below accept only condition variables made here. Destroy them with pthread_cond_destroy. */
void dt_cond_init_monotonic(pthread_cond_t *c);

/* Like pthread_cond_wait, but waits at most until dt_now() reaches `when`. Returns 0 or -ETIMEDOUT. */
int dt_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *mu, double when);
/* The same with a timeout in seconds from now. */
int dt_cond_wait_s(pthread_cond_t *c, pthread_mutex_t *mu, double seconds);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
