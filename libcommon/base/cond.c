#include "base/cond.h"

#include "base/progress.h"

#include <time.h>

void dt_cond_init_monotonic(pthread_cond_t *c)
{
	pthread_condattr_t a;

	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(c, &a);
	pthread_condattr_destroy(&a);
}

int dt_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *mu, double when)
{
	struct timespec t = {.tv_sec = (time_t)when};

	t.tv_nsec = (long)((when - (double)t.tv_sec) * 1e9);
	return -pthread_cond_timedwait(c, mu, &t);
}

int dt_cond_wait_s(pthread_cond_t *c, pthread_mutex_t *mu, double seconds)
{
	return dt_cond_wait_until(c, mu, dt_now() + seconds);
}
/* SPDX-License-Identifier: Apache-2.0 */
