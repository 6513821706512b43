/*
 * Actors: processes that answer prompts apart from the one that learns (dt-train --actors), each with
 * an engine of one thread. Weights are handed over through shared memory, in two places in turn, so
 * that one is written while the other is read. A thread shares out what is to be answered, some prompts
 * at a time. An actor that dies is started anew, and what it had not answered is asked again: with the
 * same weights the answers are the same, so nothing but time is lost.
 */
#ifndef DT_RL_ACTORS_H
#define DT_RL_ACTORS_H

#include "base/log.h"
#include "rl/answerer.h"

enum { DT_ACTORS_MOST = 128 };

struct dt_actors;

struct dt_actors_opts {
	int n;
	double patience; /* seconds for what an actor is asked at a time, then it is ended; 0: for ever */
	const struct dt_log *log;
};

int dt_actors_open(struct dt_actors **ret, const struct dt_answerer_opts *o, const struct dt_actors_opts *of,
		   struct dt_err *err);
void dt_actors_close(struct dt_actors *a); /* NULL is allowed */
/* From now on what is begun to be answered is answered by these, as dt_answerer_take says. */
int dt_actors_give(struct dt_actors *a, const void *const *weights, int64_t step, struct dt_err *err);
/* Of which step the newest are; -1: none were given. */
int64_t dt_actors_step(const struct dt_actors *a);

/* Groups to be answered. */
struct dt_batch {
	struct dt_group
		*group; /* [n], of which index is set; the caller's, to be released also after a failure */
	int64_t n;
	double draw_s, score_s; /* of all actors */
	int64_t asked, done;	/* of groups; the rest is private */
	struct dt_batch *next;
};

/* Begins behind what was posted before. b stays until waited for, or until the actors are closed. */
void dt_actors_post(struct dt_actors *a, struct dt_batch *b);
int dt_actors_wait(struct dt_actors *a, struct dt_batch *b, struct dt_err *err);
/* Whether this process was started as an actor: then main returns what dt_actor_main does, at once. */
bool dt_actor_is(void);
int dt_actor_main(void);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
