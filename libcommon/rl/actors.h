/*
 * Actors: processes beside the learner that sample answers to prompts (dt-train --actors), each with an
 * engine of one thread. Weights are passed through shared memory in two alternating buffers, so that one is
 * written while the other is read. A thread hands out prompts to actors, a few at a time. An actor that dies
 * is restarted, and its unfinished prompts are asked again: with the same weights the answers are the same,
 * so only time is lost.
 */
#ifndef DT_RL_ACTORS_H
#define DT_RL_ACTORS_H

#include "base/log.h"
#include "rl/answerer.h"

enum { DT_ACTORS_MOST = 128 };

struct dt_actors;

struct dt_actors_opts {
	int n;
	double patience; /* seconds that an actor may take for one request before it is killed; 0: no limit */
	const struct dt_log *log;
};

int dt_actors_open(struct dt_actors **ret, const struct dt_answerer_opts *o, const struct dt_actors_opts *of,
		   struct dt_err *err);
void dt_actors_close(struct dt_actors *a); /* NULL is allowed */
/* Passes new weights, as for dt_answerer_take; requests begun from now on use them. */
int dt_actors_give(struct dt_actors *a, const void *const *weights, int64_t step, struct dt_err *err);
/* The step of the newest weights; -1: none were passed. */
int64_t dt_actors_step(const struct dt_actors *a);

/* Groups to be answered. */
struct dt_batch {
	struct dt_group *group; /* [n] with index set; the caller's, to be released also after a failure */
	int64_t n;
	double draw_s, score_s; /* summed over actors */
	int64_t asked, done;	/* groups handed out, and finished; private, as is next */
	struct dt_batch *next;
};

/* Queues b after earlier batches. b must stay in place until it is waited for, or the actors are closed. */
void dt_actors_post(struct dt_actors *a, struct dt_batch *b);
int dt_actors_wait(struct dt_actors *a, struct dt_batch *b, struct dt_err *err);
/* Whether this process was started as an actor: then main returns what dt_actor_main does, at once. */
bool dt_actor_is(void);
int dt_actor_main(void);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
