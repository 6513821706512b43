/* Statistics of a batch of scored rollouts. */
#ifndef DT_RL_STATS_H
#define DT_RL_STATS_H

#include "rl/rollout.h"

struct dt_rl_stats {
	int64_t groups, answers, tokens;
	int64_t unscored;    /* answers without a reward, which no other number counts */
	int64_t flat;	     /* groups whose rewards are all equal: they give no gradient */
	int64_t truncated;   /* answers that reached the token limit */
	double sum, squares; /* of rewards */
};

void dt_rl_count(struct dt_rl_stats *s, const struct dt_group *g, int64_t n);
double dt_rl_mean(const struct dt_rl_stats *s); /* NAN: no answers */
double dt_rl_std(const struct dt_rl_stats *s);	/* of all answers counted */
/* "reward_mean", "reward_std", "flat_groups", "answer_tokens", "truncated": shares and means. */
int dt_rl_put(const struct dt_rl_stats *s, json_t *line);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
