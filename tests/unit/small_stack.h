/* Code that clients' texts reach must get by with the stack of a thread that serves a connection. */
#ifndef DT_TEST_SMALL_STACK_H
#define DT_TEST_SMALL_STACK_H

#include <pthread.h>
#include <stddef.h>

/* Runs f(arg), without assertions in it, in a thread with as much stack as those of serve/http. */
static inline void on_small_stack(void *(*f)(void *), void *arg)
{
	pthread_attr_t small;
	pthread_t thread;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 1 << 20);
	if (pthread_create(&thread, &small, f, arg) == 0)
		pthread_join(thread, NULL);
	pthread_attr_destroy(&small);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
