/*
 * Worlds whose ranks may leave and join while the job runs (elastic.c), all on one machine. Ranks set up
 * groups over a board in shared memory and not over MPI, whose communicators do not survive a member's death
 * (Open MPI 4.1 has no ULFM).
 */
#ifndef DT_COMM_ELASTIC_H
#define DT_COMM_ELASTIC_H

#include "comm/internal.h"

#define DT_COMM_EXCHANGE_MAX 128 /* bytes a rank */

/* Maps the board, for the first ranks of the job. Collective. -ENOTSUP: several machines. */
int dt_comm_elastic_open(struct dt_world *w, struct dt_err *err);
/*
 * Joins from a process that the launcher did not start. at: "PID:FD", the board's descriptor in a member.
 * Waits until the members make a new world with this process. -ESRCH: the job has no members any more.
 */
int dt_comm_elastic_join(struct dt_world *w, const char *at, struct dt_err *err);
/*
 * All-gathers the ranks' bytes in rank order; NULL: none to send or receive. -ETIMEDOUT if a rank is lost,
 * -ESTALE if this one was voted out.
 */
int dt_comm_exchange(struct dt_world *w, const void *mine, size_t bytes, void *all, struct dt_err *err);
/*
 * For the watchdog's thread: votes out a member that has ended or has been stopped for a second, and marks
 * the world as broken. Ends this process if it is out itself.
 */
void dt_comm_elastic_watch(struct dt_world *w);
/* This process leaves the job: at its regular end (finished), or after an error. */
void dt_comm_elastic_leave(struct dt_world *w, bool finished);
void dt_comm_elastic_close(struct dt_world *w);

/* world.c: what follows from the number of ranks of this machine */
void dt_comm_count_processors(struct dt_world *w);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
