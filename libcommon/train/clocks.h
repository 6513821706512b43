/*
 * Who is where in a stretch of training by servers (train/servers.h): memory that all ranks of a machine map.
 * Nothing here fails, and a rank that dies with a lock is found by the watchdog, which ends the job.
 */
#ifndef DT_TRAIN_CLOCKS_H
#define DT_TRAIN_CLOCKS_H

#include "plan/memory.h"
#include "plan/run.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct clocks_rank {
	_Alignas(64) atomic_int lock;	    /* of its share */
	_Atomic int64_t version;	    /* updates of its share */
	int32_t arrived[DT_SYNC_AHEAD + 1]; /* ssp: gradients in each sum */
	_Alignas(64) _Atomic int64_t done;  /* ssp: steps that it has given all gradients of */
};

/* What a line of metrics is of. */
struct clocks_line {
	double loss, targets, ages;
	int64_t gradients, oldest;
};
/* Lines that may be under way: of steps that the slowest rank has not ended, or the first not told of. */
enum { CLOCKS_LINES = 2 * DT_SYNC_AHEAD + 4 };

struct clocks {
	_Alignas(64) atomic_int lock; /* of what follows */
	int64_t next, limit;	      /* parts (async) or steps (ssp) begun; to be begun */
	int64_t done;		      /* gradients given */
	struct clocks_line line[CLOCKS_LINES];
	_Alignas(64) struct clocks_rank rank[];
};
_Static_assert(sizeof(struct clocks) <= DT_CLOCKS_ALL && sizeof(struct clocks_rank) <= DT_CLOCKS_RANK,
	       "planned for");

void clocks_lock(atomic_int *lock);
void clocks_unlock(atomic_int *lock);

/* A new stretch of so many parts or steps; nobody is in one. */
void clocks_begin(struct clocks *c, int ranks, int64_t limit);
/* The number of the next part of the stretch; -1: it ends. */
int64_t clocks_take(struct clocks *c);
/* ssp: whether a rank may begin step `own`: the slowest of so many has given all but `ahead` before it. */
struct clocks_turn {
	int64_t may;	    /* 1; 0: the stretch ends before; -1: not yet */
	int64_t rank, done; /* the slowest, and steps that it has given */
};
struct clocks_turn clocks_turn(struct clocks *c, int ranks, int64_t own, int64_t ahead);
/* Backs off before the n-th retry: yields first, sleeps later, so that the rank waited for can run. */
void clocks_wait(int n);
/* The stretch ends with what is begun: a multiple of `of`, which is more than 0. */
void clocks_end(struct clocks *c, int64_t of);
int64_t clocks_slowest(struct clocks *c, int ranks);
/* One gradient is given: what it adds to a line. Gradients given so far. */
int64_t clocks_say(struct clocks *c, int64_t line, const struct clocks_line *l);
/*
 * Takes the sums added to a line since the last call. Returns false, and takes nothing, once `before` or more
 * gradients have been given.
 */
bool clocks_read(struct clocks *c, int64_t line, int64_t before, struct clocks_line *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
