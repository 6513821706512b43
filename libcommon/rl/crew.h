/*
 * Worker processes (actors), each connected by a socket. One that ends or reports a failure is restarted,
 * until it has failed DT_CREW_MOST_FAILURES times without delivering anything.
 */
#ifndef DT_RL_CREW_H
#define DT_RL_CREW_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define DT_CREW_MOST_FAILURES 8

/* What goes before a message's bytes. */
struct dt_wire {
	uint32_t kind; /* the caller's; 0: the sender has failed, the bytes say why */
	uint64_t bytes;
	int64_t version; /* of weights */
	double number[2];
};

/* The parts one behind the other; w->bytes is set here. -EPIPE where the other end is gone. */
struct dt_part {
	const void *data;
	size_t bytes;
};
int dt_wire_send(int fd, struct dt_wire *w, const struct dt_part *p, int n, struct dt_err *err);
/* The head; its bytes into a place of exactly so many. -EPIPE: the other end is gone. */
int dt_wire_head(int fd, struct dt_wire *w, struct dt_err *err);
int dt_wire_body(int fd, void *to, size_t bytes, struct dt_err *err);

struct dt_crew;

struct dt_crew_opts {
	int n;
	/* In the new process: returns when fd's other end is gone, or fails. */
	int (*work)(void *arg, int number, int fd, struct dt_err *err);
	void *arg;
	/* Here, of each that is started anew, with the reason as far as it is known; NULL: nobody asks. */
	void (*anew)(void *arg, int number, const char *why);
	/* Seconds in which a message that has begun comes on, or its worker is started anew; 0: for ever. */
	double patience;
};

int dt_crew_open(struct dt_crew **ret, const struct dt_crew_opts *o, struct dt_err *err);
/* Ends them all. NULL is allowed. */
void dt_crew_close(struct dt_crew *c);
/* Kills a worker. Its end is then noticed as if it had died by itself. */
void dt_crew_kill(struct dt_crew *c, int number);
int dt_crew_fd(const struct dt_crew *c, int number);
int64_t dt_crew_restarts(const struct dt_crew *c);

enum dt_crew_event { DT_CREW_SAYS, DT_CREW_ANEW, DT_CREW_OTHER };
/*
 * Waits for the next event. SAYS: a message of worker *ret_number; w is its head, dt_crew_body reads its
 * bytes. ANEW: worker *ret_number has been restarted. OTHER: the descriptor `other` (-1: none) can be read.
 * -EAGAIN: nothing for a fifth of a second, so that the caller can check whether to end.
 */
int dt_crew_wait(struct dt_crew *c, int other, enum dt_crew_event *ret, int *ret_number, struct dt_wire *w,
		 struct dt_err *err);
/* Reads a message's bytes. 1: done; 0: the worker ended in the middle, and the next wait returns ANEW. */
int dt_crew_body(struct dt_crew *c, int number, void *to, size_t bytes, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
