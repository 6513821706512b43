/*
 * Rewards of answers: from a task of this library, or from a command that reads one JSON object per line,
 *
 *   {"prompt": "...", "answer": "...", "finish": "stop", "item": {...}}
 *
 * and answers each with a line: a number, or an object with a number under "reward". Several copies of the
 * command run side by side; each has one answer at a time, and so many seconds for it. A copy that is late,
 * dies, or says something else is killed with its children and started anew, and its answer is tried once
 * more; then it has no reward (NAN) and the reason stands beside it. A command that never gives a number,
 * MOST_FAILURES times in a row, is an error.
 */
#ifndef DT_RL_REWARD_H
#define DT_RL_REWARD_H

#include "rl/rollout.h"
#include "rl/task.h"

#define DT_REWARD_MOST_FAILURES 32

struct dt_reward_opts {
	const char *command; /* run by /bin/sh -c; NULL: the task */
	struct dt_rl_task task;
	int workers;
	double timeout; /* seconds an answer */
};

struct dt_reward;

int dt_reward_open(const struct dt_reward_opts *o, struct dt_reward **ret, struct dt_err *err);
/* Ends the copies of the command. NULL is allowed. */
void dt_reward_close(struct dt_reward *r);
/* Fills reward and fail of every answer of n groups. */
int dt_reward_score(struct dt_reward *r, struct dt_group *g, int64_t n, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
