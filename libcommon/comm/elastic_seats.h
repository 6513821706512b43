/*
 * The board of an elastic world: an anonymous shared mapping with a seat for every process. Only its process
 * writes a seat, except that any member may set its state to OUT. The board has the list of the members of an
 * epoch; a rank is an index in that list.
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

#define DT_SEAT_STOPPED_S 1.0 /* seconds after which a stopped process counts as lost */

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
	_Atomic uint64_t born;	  /* start of the process in ticks since boot, because pids are reused */
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
	_Atomic int decider;	/* lock of the list: the holder's seat + 1; 0: free */
	_Atomic unsigned taken; /* seats taken so far: a process takes the least recently used one */
	struct dt_seat_list list[2];
	struct dt_seat seat[DT_SEATS];
};

struct dt_elastic {
	struct dt_seats *b;
	int fd, me, n, member[DT_SEATS];
	uint64_t epoch, said;
	atomic_bool breaking;
	double still[2][DT_SEATS]; /* since when a process is stopped, as seen by each of two threads */
};

/* Whether seat i is out. Votes it out if its process is lost. */
bool dt_seat_vote(struct dt_elastic *e, int thread, int i);
/* Makes seat i this process's. */
void dt_seat_take(struct dt_elastic *e, int i, int state);
/* The identity of this program's build: a process does not join a board of another build. */
void dt_seats_build(char buf[32]);
/* Initializes the board, on the first rank, before others read it. */
void dt_seats_begin(struct dt_seats *b, const struct dt_elastic *e);
/* Whether this process has ceased to be a member; another process may have its seat. */
bool dt_seats_out(const struct dt_elastic *e);
/* Whether every process that is to be a member of epoch `next` has arrived. */
bool dt_seats_here(struct dt_elastic *e, uint64_t next);
/* Takes the lock, also from a holder that is lost, and writes the list unless another process has. */
void dt_seats_decide(struct dt_elastic *e, uint64_t next);
/* Whether the job has a member. */
bool dt_seats_anybody(struct dt_elastic *e);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
