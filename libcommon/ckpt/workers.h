/* Work shared by threads of a program that reads or writes checkpoints. */
#ifndef DT_CKPT_WORKERS_H
#define DT_CKPT_WORKERS_H

#include <pthread.h>

#define CK_WORKERS_MOST 64

/*
 * Calls work(arg) in n threads, of which the calling one is the first, and returns when all are done. In
 * fewer if threads cannot be had, and in at most CK_WORKERS_MOST beside the calling one: any of them must be
 * able to do all of the work.
 */
static inline void ck_workers_run(int n, void *(*work)(void *), void *arg)
{
	pthread_t id[CK_WORKERS_MOST];
	int more = 0;

	while (more < n - 1 && more < CK_WORKERS_MOST && pthread_create(&id[more], NULL, work, arg) == 0)
		more++;
	work(arg);
	while (more > 0)
		pthread_join(id[--more], NULL);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
