#include "rl/replay.h"

#include "base/rng.h"
#include "rl/sumtree.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST 1e-6 /* added to errors, so that transitions without error are still sampled */

struct dt_replay {
	struct dt_replay_opts o;
	size_t row; /* numbers in an observation of all agents */
	int agents;
	int64_t kept, at;
	uint64_t draws;
	struct dt_sumtree tree;
	float *state;		  /* [capacity, 2, row] state and next state */
	int32_t *action;	  /* [capacity, agents] */
	double *reward, *follows; /* [capacity] */
};

struct dt_transition dt_unroll_ahead(const struct dt_unroll *u, int e, int t, int n, double discount)
{
	const size_t row = (size_t)(u->size.agents * u->size.observation);
	int64_t i = (int64_t)e * u->size.steps + t;
	struct dt_transition r = {
		.now = u->now + (size_t)i * row, .action = u->action + i * u->size.agents, .follows = 1};

	for (int k = 0;; k++, i++) {
		r.reward += r.follows * u->reward[i];
		r.follows *= discount;
		if (u->over[i] || k == n - 1 || t + k == u->size.steps - 1)
			break;
	}
	r.next = u->next + (size_t)i * row;
	if (u->over[i] == DT_ENDED)
		r.follows = 0;
	return r;
}

int dt_replay_open(struct dt_replay **ret, const struct dt_replay_opts *o, int agents, int observation,
		   struct dt_err *err)
{
	struct dt_replay *r = calloc(1, sizeof(*r));
	const size_t n = (size_t)o->capacity;
	int rc;

	if (!r)
		return dt_err_sys(err, -ENOMEM, "cannot keep transitions");
	r->o = *o;
	r->agents = agents;
	r->row = (size_t)agents * (size_t)observation;
	rc = dt_sumtree_open(&r->tree, o->capacity, err);
	r->state = calloc(n, 2 * r->row * sizeof(*r->state)); /* pages are allocated when written */
	r->action = calloc(n, (size_t)agents * sizeof(*r->action));
	r->reward = calloc(n, sizeof(*r->reward));
	r->follows = calloc(n, sizeof(*r->follows));
	if (rc == 0 && (!r->state || !r->action || !r->reward || !r->follows))
		rc = dt_err_sys(err, -ENOMEM, "cannot keep %zu transitions", n);
	if (rc < 0)
		dt_replay_close(r);
	else
		*ret = r;
	return rc;
}

void dt_replay_close(struct dt_replay *r)
{
	if (!r)
		return;
	dt_sumtree_release(&r->tree);
	free(r->state);
	free(r->action);
	free(r->reward);
	free(r->follows);
	free(r);
}

void dt_replay_push(struct dt_replay *r, const struct dt_transition *t, double error)
{
	const int64_t i = r->at;
	float *state = r->state + (size_t)i * 2 * r->row;

	memcpy(state, t->now, r->row * sizeof(*state));
	memcpy(state + r->row, t->next, r->row * sizeof(*state));
	memcpy(r->action + i * r->agents, t->action, (size_t)r->agents * sizeof(*r->action));
	r->reward[i] = t->reward;
	r->follows[i] = t->follows;
	dt_replay_judge(r, i, error);
	r->at = (i + 1) % r->o.capacity;
	if (r->kept < r->o.capacity)
		r->kept++;
}

int64_t dt_replay_kept(const struct dt_replay *r)
{
	return r->kept;
}

void dt_replay_judge(struct dt_replay *r, int64_t number, double error)
{
	dt_sumtree_set(&r->tree, number, pow(error + LEAST, r->o.priority));
}

void dt_replay_draw(struct dt_replay *r, int n, struct dt_transition *ret, int64_t *number, double *weight)
{
	const struct dt_rng g = dt_rng_make(r->o.seed, DT_RNG_SAMPLE, dt_hash_str("replay"));
	const double sum = dt_sumtree_sum(&r->tree);
	double most = 0;

	for (int k = 0; k < n; k++) {
		const double u = dt_rng_uniform53(&g, r->draws++);
		const int64_t i = dt_sumtree_find(&r->tree, (k + u) / n * sum);
		const float *state = r->state + (size_t)i * 2 * r->row;

		number[k] = i;
		ret[k] = (struct dt_transition){state, state + r->row, r->action + i * r->agents,
						r->reward[i], r->follows[i]};
		weight[k] = pow((double)r->kept * dt_sumtree_get(&r->tree, i) / sum, -r->o.importance);
		most = fmax(most, weight[k]);
	}
	for (int k = 0; k < n; k++)
		weight[k] /= most;
}
/* SPDX-License-Identifier: Apache-2.0 */
