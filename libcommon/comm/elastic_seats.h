/*
 * The board of an elastic world: an anonymous shared mapping with a seat for every process. A seat is written
 * by its process, but for its state, which any member sets to OUT. The members of an epoch are a list on the
 * board. Ranks are places in it.
 *
 * The next epoch begins when every member of this one has arrived or is out: the first to see that writes the
 * new list, under a lock that dies with its holder. A member that is lost between its arrival and the list is
 * found by the next exchange, and the epoch after it begins in the same way. A process that joins takes a
 * free seat, arrives for the next epoch, and is on its list; the members need not wait for it.
 *
 * The epoch is in every number that a rank publishes here, and all other memory that ranks share is made anew
 * for each epoch: what a process of an earlier epoch still writes nobody reads.
 */
#ifndef DT_COMM_ELASTIC_SEATS_H
#define DT_COMM_ELASTIC_SEATS_H

#include "comm/elastic.h"

#define DT_SEATS 256 /* processes at a time; the seat of one that has ended is used again */

#define DT_SEAT_STOPPED_S 1.0 /* after so long a process that stands still is lost */

#define DT_SEATS_MAGIC 0x64742d656c617333ull

enum {
	DT_SEAT_FREE,
	DT_SEAT_TAKEN, /* being filled in */
	DT_SEAT_JOINS,
	DT_SEAT_MEMBER,
	DT_SEAT_OUT,
	DT_SEAT_FINISHED
};
enum { DT_SEAT_LEFT, DT_SEAT_DIED, DT_SEAT_STANDS }; /* why a process is out */

struct dt_seat {
	_Alignas(128) _Atomic int state;
	_Atomic int pid, how;
	_Atomic uint64_t born;	  /* of the process, in ticks since boot: numbers of processes come again */
	_Atomic uint64_t arrived; /* the epoch it waits for */
	_Atomic uint64_t said;	  /* epoch << 32 | number of the exchange */
	char blob[2][DT_COMM_EXCHANGE_MAX];
};

/* The members of an epoch. The lists of two epochs take turns: the new one is whole when its epoch begins. */
struct dt_seat_list {
	int n, member[DT_SEATS];
};

struct dt_seats {
	uint64_t magic;
	char build[32]; /* of the first rank's program */
	_Atomic uint64_t epoch;
	_Atomic int decider;	/* seat + 1 of who writes the list; 0: nobody */
	_Atomic unsigned taken; /* seats so far: a process takes the one not used for longest */
	struct dt_seat_list list[2];
	struct dt_seat seat[DT_SEATS];
};

struct dt_elastic {
	struct dt_seats *b;
	int fd, me, n, member[DT_SEATS];
	uint64_t epoch, said;
	atomic_bool breaking;
	double still[2][DT_SEATS]; /* since when a process stands still, as each of two threads has seen it */
};

/* Whether the process of seat i is lost: 0, or why. thread: 0 for the watchdog's, 1 for the rank's own. */
int dt_seat_lost(struct dt_elastic *e, int thread, int i);
/* Whether seat i is out; it is voted out where it is lost. */
bool dt_seat_vote(struct dt_elastic *e, int thread, int i);
/* Makes seat i this process's. */
void dt_seat_take(struct dt_elastic *e, int i, int state);
/* What a board is known by: one of another program is not joined. */
void dt_seats_build(char buf[32]);
/* What the first rank writes before others read it. */
void dt_seats_begin(struct dt_seats *b, const struct dt_elastic *e);
/* Whether this process has ceased to be a member; another process may have its seat. */
bool dt_seats_out(const struct dt_elastic *e);
/* Whether every process that is to be a member of it has arrived. */
bool dt_seats_here(struct dt_elastic *e, uint64_t next);
/* Takes the lock, also from a holder that is lost, and writes the list unless somebody has. */
void dt_seats_decide(struct dt_elastic *e, uint64_t next);
/* Whether the job has a member. */
bool dt_seats_anybody(struct dt_elastic *e);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
