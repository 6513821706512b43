/*
 * The board of an elastic world: an anonymous shared mapping with a slot for every process. A slot is written
 * by its process, but for its state, which any member sets to OUT. The members of an epoch are a list on the
 * board. Ranks are places in it.
 *
 * The next epoch begins when every member of this one has arrived or is out: the first to see that writes the
 * new list, under a lock that dies with its holder. A member that is lost between its arrival and the list is
 * found by the next exchange, and the epoch after it begins in the same way. A process that joins takes a
 * free slot, arrives for the next epoch, and is on its list; the members need not wait for it.
 *
 * The epoch is in every number that a rank publishes here, and all other memory that ranks share is made anew
 * for each epoch: what a process of an earlier epoch still writes nobody reads.
 */
#ifndef DT_COMM_ELASTIC_SLOTS_H
#define DT_COMM_ELASTIC_SLOTS_H

#include "comm/elastic.h"

#define DT_SLOTS 256 /* processes at a time; the slot of one that has ended is used again */

#define DT_SLOT_STOPPED_S 1.0 /* after so long a process that stands still is lost */

#define DT_SLOTS_MAGIC 0x64742d656c617333ull

enum {
	DT_SLOT_FREE,
	DT_SLOT_TAKEN, /* being filled in */
	DT_SLOT_JOINS,
	DT_SLOT_MEMBER,
	DT_SLOT_OUT,
	DT_SLOT_FINISHED
};
enum { DT_SLOT_LEFT, DT_SLOT_DIED, DT_SLOT_STANDS }; /* why a process is out */

struct dt_slot {
	_Alignas(128) _Atomic int state;
	_Atomic int pid, how;
	_Atomic uint64_t born;	  /* of the process, in ticks since boot: numbers of processes come again */
	_Atomic uint64_t arrived; /* the epoch it waits for */
	_Atomic uint64_t said;	  /* epoch << 32 | number of the exchange */
	char blob[2][DT_COMM_EXCHANGE_MAX];
};

/* The members of an epoch. The lists of two epochs take turns: the new one is whole when its epoch begins. */
struct dt_slot_list {
	int n, member[DT_SLOTS];
};

struct dt_slots {
	uint64_t magic;
	char build[32]; /* of the first rank's program */
	_Atomic uint64_t epoch;
	_Atomic int decider;	/* slot + 1 of who writes the list; 0: nobody */
	_Atomic unsigned taken; /* slots so far: a process takes the one not used for longest */
	struct dt_slot_list list[2];
	struct dt_slot slot[DT_SLOTS];
};

struct dt_elastic {
	struct dt_slots *b;
	int fd, me, n, member[DT_SLOTS];
	uint64_t epoch, said;
	atomic_bool breaking;
	double still[2][DT_SLOTS]; /* since when a process stands still, as each of two threads has seen it */
};

/* The state letter and the start of a process; 0: it has ended. */
char dt_slot_look(int pid, uint64_t *ret_born);
/* Whether the process of slot i is lost: 0, or why. thread: 0 for the watchdog's, 1 for the rank's own. */
int dt_slot_lost(struct dt_elastic *e, int thread, int i);
/* Whether slot i is out; it is voted out where it is lost. */
bool dt_slot_vote(struct dt_elastic *e, int thread, int i);
/* Makes slot i this process's. */
void dt_slot_take(struct dt_elastic *e, int i, int state);
/* What a board is known by: one of another program is not joined. */
void dt_slots_build(char buf[32]);
/* What the first rank writes before others read it. */
void dt_slots_begin(struct dt_slots *b, const struct dt_elastic *e);
/* Whether this process is no member any more; its slot may be another's by now. */
bool dt_slots_out(const struct dt_elastic *e);
/* Whether every process that is to be a member of it has arrived. */
bool dt_slots_here(struct dt_elastic *e, uint64_t next);
/* Takes the lock, also from a holder that is lost, and writes the list unless somebody has. */
void dt_slots_decide(struct dt_elastic *e, uint64_t next);
/* Whether the job has a member. */
bool dt_slots_anybody(struct dt_elastic *e);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
