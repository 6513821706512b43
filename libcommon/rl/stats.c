#include "rl/stats.h"

#include <errno.h>
#include <math.h>
#include <string.h>

void dt_rl_count(struct dt_rl_stats *s, const struct dt_group *g, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		double low = INFINITY, high = -INFINITY;

		s->groups++;
		for (int k = 0; k < g[i].n; k++) {
			const struct dt_answer *a = &g[i].answer[k];

			if (!isfinite(a->reward)) {
				s->unscored++;
				continue;
			}
			s->answers++;
			s->tokens += a->n;
			s->truncated += !strcmp(a->finish, "length");
			s->sum += a->reward;
			s->squares += a->reward * a->reward;
			low = fmin(low, a->reward);
			high = fmax(high, a->reward);
		}
		s->flat += !(high > low);
	}
}

double dt_rl_mean(const struct dt_rl_stats *s)
{
	return s->answers ? s->sum / (double)s->answers : (double)NAN;
}

double dt_rl_std(const struct dt_rl_stats *s)
{
	const double mean = dt_rl_mean(s);

	return s->answers ? sqrt(fmax(0, s->squares / (double)s->answers - mean * mean)) : (double)NAN;
}

int dt_rl_put(const struct dt_rl_stats *s, json_t *line)
{
	const double n = s->answers ? (double)s->answers : 1, groups = s->groups ? (double)s->groups : 1;
	json_t *o = json_pack("{s:f, s:f, s:f, s:f, s:f, s:I}", "reward_mean",
			      s->answers ? dt_rl_mean(s) : 0.0, "reward_std", s->answers ? dt_rl_std(s) : 0.0,
			      "flat_groups", (double)s->flat / groups, "answer_tokens", (double)s->tokens / n,
			      "truncated", (double)s->truncated / n, "unscored", (json_int_t)s->unscored);
	int rc = o ? json_object_update(line, o) : -1;

	json_decref(o);
	return rc ? -ENOMEM : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
