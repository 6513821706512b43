/* Shared by watchdog.c (the thread), watchdog_states.c (states of ranks) and watchdog_report.c (text). */
#ifndef DT_COMM_WATCHDOG_H
#define DT_COMM_WATCHDOG_H

#include "comm/internal.h"

#define DT_COMM_ADDRESSES 4 /* of a machine */

struct dt_comm_contact { /* where a rank's watchdog listens */
	uint32_t ip[DT_COMM_ADDRESSES];
	uint16_t port;
};

/* State of a rank at the time of the report. */
struct dt_comm_rank_state {
	bool known;
	char run; /* state letter of /proc: R, S, D, T ...; 0: ended */
	int rank, pid, phase;
	uint64_t arrived;
	struct dt_comm_where at;
};

struct dt_comm_watch {
	pthread_t thread;
	int wake, udp;
	_Atomic bool stop, connected;
	double wrong;	/* since when NCCL has an error; 0: it has none */
	double resumed; /* when this process last continued after being stopped, alone or with its machine */
	uint64_t cookie[2];
	struct dt_comm_contact *contact;  /* [world size]; NULL on one machine */
	int *pidfd;			  /* [board_n], -1: none */
	bool *dead;			  /* [board_n] */
	struct dt_comm_rank_state *state; /* [world size] */
};

/* The state letter of a process in /proc, and its start in clock ticks; 0: it has ended (a zombie has). */
char dt_comm_process(int pid, uint64_t *ret_born);
/* Of such a letter: stopped by a signal or by a debugger. */
static inline bool dt_comm_process_stopped(char run)
{
	return run == 'T' || run == 't';
}
/* Ranks of the group of at, of the world during start-up, to be freed. Returns how many. */
int dt_comm_watch_members(struct dt_world *w, const struct dt_comm_where *at, int **ret, char name[16]);
/* The current operation of a slot; zero while it is changing. */
struct dt_comm_where dt_comm_watch_where(const struct dt_comm_slot *s);
/* Reads incoming datagrams: answers questions, stores answers. */
void dt_comm_watch_receive(struct dt_world *w);
/*
 * Fills state as far as possible, within about a second. Every process of a machine is queried, because some
 * may be stopped.
 */
void dt_comm_watch_collect(struct dt_world *w, int group);
/* Collects, and logs why the operation has not completed; the first line goes to w->why as well. */
void dt_comm_watch_report(struct dt_world *w, const struct dt_comm_where *at);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
