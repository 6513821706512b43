/*
 * Progress of all ranks within a stretch of parameter-server training (train/servers.h), in memory that all
 * ranks of a machine map. These functions cannot fail. If a rank dies while it holds a lock, the watchdog
 * notices and ends the job.
 */
#ifndef DT_TRAIN_CLOCKS_H
#define DT_TRAIN_CLOCKS_H

#include "plan/memory.h"
#include "plan/run.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct clocks_rank {
	_Alignas(64) atomic_int lock;	    /* of this server's share of the weights */
	_Atomic int64_t version;	    /* updates made to the share */
	int32_t arrived[DT_SYNC_AHEAD + 1]; /* ssp: gradients in each sum */
	_Alignas(64) _Atomic int64_t done;  /* ssp: steps whose gradients this rank has sent to all servers */
};

/* Sums that become a line of metrics. */
struct clocks_line {
	double loss, targets, ages;
	int64_t gradients, oldest;
};
/* Lines in use at a time: steps that the slowest rank has not finished, or the first rank not yet logged. */
enum { CLOCKS_LINES = 2 * DT_SYNC_AHEAD + 4 };

struct clocks {
	_Alignas(64) atomic_int lock; /* protects next, limit, done and line */
	int64_t next, limit; /* parts (async) or steps (ssp): begun so far; at which the stretch ends */
	int64_t done;	     /* gradients sent, of all ranks */
	struct clocks_line line[CLOCKS_LINES];
	_Alignas(64) struct clocks_rank rank[];
};
_Static_assert(sizeof(struct clocks) <= DT_CLOCKS_ALL && sizeof(struct clocks_rank) <= DT_CLOCKS_RANK,
	       "planned for");

void clocks_lock(atomic_int *lock);
void clocks_unlock(atomic_int *lock);

/* Resets everything for a new stretch of `limit` parts or steps. No rank may be inside a stretch. */
void clocks_begin(struct clocks *c, int ranks, int64_t limit);
/* Takes the next part of the stretch and returns its number; -1: none is left. */
int64_t clocks_take(struct clocks *c);
/* ssp: whether a rank may begin step `own`: the slowest rank must have done at least own - ahead steps. */
struct clocks_turn {
	int64_t may;	    /* 1: yes; 0: the stretch ends before that step; -1: not yet */
	int64_t rank, done; /* the slowest rank, and the steps that it has done */
};
struct clocks_turn clocks_turn(struct clocks *c, int ranks, int64_t own, int64_t ahead);
/* Backs off before the n-th retry: yields first, sleeps later, so that the rank waited for can run. */
void clocks_wait(int n);
/*
 * Ends the stretch early: lowers its limit to what has begun, rounded up to a multiple of `of`, at least
 * `of`.
 */
void clocks_end(struct clocks *c, int64_t of);
int64_t clocks_slowest(struct clocks *c, int ranks);
/* Adds one gradient's numbers to a line. Returns the gradients sent so far, that one included. */
int64_t clocks_say(struct clocks *c, int64_t line, const struct clocks_line *l);
/*
 * Takes the sums added to a line since the last call. Returns false, and takes nothing, once `before` or more
 * gradients have been given.
 */
bool clocks_read(struct clocks *c, int64_t line, int64_t before, struct clocks_line *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
