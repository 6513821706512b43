/*
 * Worlds whose ranks leave and come while the job runs (elastic.c), all on one machine. What is set up
 * together then goes over a board of the job's own and not over MPI, whose communicators do not survive a
 * member's death (Open MPI 4.1 has no ULFM).
 */
#ifndef DT_COMM_ELASTIC_H
#define DT_COMM_ELASTIC_H

#include "comm/internal.h"

#define DT_COMM_EXCHANGE_MAX 128 /* bytes a rank */

/* The first ranks, once they are known: maps the board. Collective. -ENOTSUP: several machines. */
int dt_comm_elastic_open(struct dt_world *w, struct dt_err *err);
/*
 * Another process, which no launcher started with them: "PID:FD", where a member has the board. Waits until
 * the members make a new world, and is in it. -ESRCH: there is no member any more.
 */
int dt_comm_elastic_join(struct dt_world *w, const char *at, struct dt_err *err);
/*
 * Every rank's bytes to every rank, in rank order; NULL: nothing to say or to hear. -ETIMEDOUT when one of
 * them is lost, -ESTALE when this one was voted out.
 */
int dt_comm_exchange(struct dt_world *w, const void *mine, size_t bytes, void *all, struct dt_err *err);
/*
 * For the watchdog's thread: a member that has ended, or stood still for a second, is out, and the world is
 * broken. Ends this process where it is out itself.
 */
void dt_comm_elastic_watch(struct dt_world *w);
/* This process leaves: by its own end (finished), or by an error of its own. */
void dt_comm_elastic_leave(struct dt_world *w, bool finished);
void dt_comm_elastic_close(struct dt_world *w);

/* world.c: what follows from the number of ranks of this machine */
void dt_comm_count_processors(struct dt_world *w);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
