#include "rl/env_priv.h"

#include "base/units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(ENV_STATE + 2 == DT_ENV_PLACE, "a place has the state, its steps and its episode");
#define DRAWS 16 /* random numbers that a reset may use */

struct env {
	struct dt_env out; /* the public part, which must be first */
	struct dt_env_spec s;
	const struct env_kind *kind; /* NULL: a program on a pipe */
	int size;
	double *state;	   /* [n, ENV_STATE] */
	int *steps;	   /* [n] of the current episode */
	uint64_t *episode; /* [n] episodes begun */
	struct env_pipe *pipe;
};

/* Finds the kind and size of "grid:8". */
static int find(struct env *e, struct dt_err *err)
{
	const char *name = e->s.name, *colon = strchr(name, ':');
	const size_t len = colon ? (size_t)(colon - name) : strlen(name);
	int64_t size = 0;

	for (int i = 0; (e->kind = env_kind_at(i)); i++)
		if (strlen(e->kind->name) == len && !strncmp(e->kind->name, name, len))
			break;
	if (!e->kind)
		return dt_err_set(err, -EINVAL, "unknown environment '%.60s': known are " DT_ENVS, name);
	if (!colon != !e->kind->size_max)
		return dt_err_set(err, -EINVAL,
				  colon ? "'%.60s': this environment takes no size"
					: "'%.60s' needs a size, as in grid:8",
				  name);
	if (colon && dt_parse_int(colon + 1, 2, e->kind->size_max, &size, NULL) < 0)
		return dt_err_set(err, -EINVAL, "'%.60s': the size must be an integer from 2 to %d", name,
				  e->kind->size_max);
	e->size = (int)size;
	e->out.agents = e->kind->agents;
	e->out.observation = e->kind->observation;
	e->out.actions = e->kind->actions;
	return 0;
}

static float *row(const struct env *e, float *of, int i)
{
	return of + (size_t)i * (size_t)(e->out.agents * e->out.observation);
}

static void begin(struct env *e, int i)
{
	const struct dt_rng r = dt_rng_make(e->s.seed, DT_RNG_DATA, (uint32_t)(e->s.first + i));

	e->kind->reset(e->state + i * ENV_STATE, e->size, &r, e->episode[i]++ * DRAWS);
	e->kind->observe(e->state + i * ENV_STATE, e->size, row(e, e->out.now, i));
	e->steps[i] = 0;
}

static int begin_all(struct env *e, struct dt_err *err)
{
	const size_t n = (size_t)e->out.n, row = (size_t)(e->out.agents * e->out.observation);
	int rc = 0;

	e->out.now = calloc(n * row, sizeof(float));
	e->out.next = calloc(n * row, sizeof(float));
	e->out.reward = calloc(n, sizeof(double));
	e->out.ended = calloc(n, sizeof(bool));
	e->out.cut = calloc(n, sizeof(bool));
	e->state = calloc(n * ENV_STATE, sizeof(double));
	e->steps = calloc(n, sizeof(*e->steps));
	e->episode = calloc(n, sizeof(*e->episode));
	if (!e->out.now || !e->out.next || !e->out.reward || !e->out.ended || !e->out.cut || !e->state ||
	    !e->steps || !e->episode)
		return dt_err_sys(err, -ENOMEM, "cannot open environments");
	memset(e->out.ended, true, n);
	if (e->pipe)
		rc = env_pipe_reset(e->pipe, &e->out, e->out.ended, err);
	for (int i = 0; i < e->out.n && !e->pipe; i++)
		begin(e, i);
	return rc;
}

int dt_env_open(struct dt_env **ret, const struct dt_env_spec *s, struct dt_err *err)
{
	struct env *e = calloc(1, sizeof(*e));
	int rc;

	if (!e)
		return dt_err_sys(err, -ENOMEM, "cannot open environments");
	e->s = *s;
	e->out.n = s->n;
	rc = s->command ? env_pipe_open(&e->pipe, &e->out, s, err) : find(e, err);
	if (rc == 0)
		rc = begin_all(e, err);
	if (rc < 0)
		dt_env_close(&e->out);
	else
		*ret = &e->out;
	return rc;
}

void dt_env_close(struct dt_env *out)
{
	struct env *e = (struct env *)out;

	if (!e)
		return;
	env_pipe_close(e->pipe);
	free(e->out.now);
	free(e->out.next);
	free(e->out.reward);
	free(e->out.ended);
	free(e->out.cut);
	free(e->state);
	free(e->steps);
	free(e->episode);
	free(e);
}

bool dt_env_place(const struct dt_env *out, int i, double *ret)
{
	const struct env *e = (const struct env *)out;

	if (e->pipe)
		return false;
	memcpy(ret, e->state + i * ENV_STATE, ENV_STATE * sizeof(*ret));
	ret[ENV_STATE] = e->steps[i];
	ret[ENV_STATE + 1] = (double)e->episode[i];
	return true;
}

void dt_env_go_on(struct dt_env *out, int i, const double *place)
{
	struct env *e = (struct env *)out;

	if (e->pipe)
		return;
	memcpy(e->state + i * ENV_STATE, place, ENV_STATE * sizeof(*place));
	e->steps[i] = (int)place[ENV_STATE];
	e->episode[i] = (uint64_t)place[ENV_STATE + 1];
	e->kind->observe(e->state + i * ENV_STATE, e->size, row(e, e->out.now, i));
}

static int step_pipe(struct env *e, const int32_t *action, struct dt_err *err)
{
	const size_t n = (size_t)(e->out.agents * e->out.observation) * sizeof(float);
	bool *over = calloc((size_t)e->out.n, sizeof(*over)), any = false;
	int rc = over ? env_pipe_step(e->pipe, &e->out, action, err)
		      : dt_err_sys(err, -ENOMEM, "cannot step environments");

	for (int i = 0; i < e->out.n && rc == 0; i++) {
		over[i] = e->out.ended[i] || e->out.cut[i];
		any |= over[i];
		memcpy(row(e, e->out.now, i), row(e, e->out.next, i), n);
	}
	if (rc == 0 && any)
		rc = env_pipe_reset(e->pipe, &e->out, over, err);
	free(over);
	return rc;
}

int dt_env_step(struct dt_env *out, const int32_t *action, struct dt_err *err)
{
	struct env *e = (struct env *)out;
	const size_t n = (size_t)(out->agents * out->observation) * sizeof(float);

	if (e->pipe)
		return step_pipe(e, action, err);
	for (int i = 0; i < out->n; i++) {
		double *s = e->state + i * ENV_STATE;
		const int limit = e->kind->limit ? e->kind->limit : 4 * e->size;

		out->ended[i] = e->kind->step(s, e->size, action + i * out->agents, &out->reward[i]);
		out->cut[i] = ++e->steps[i] >= limit && !out->ended[i];
		e->kind->observe(s, e->size, row(e, out->next, i));
		memcpy(row(e, out->now, i), row(e, out->next, i), n);
		if (out->ended[i] || out->cut[i])
			begin(e, i);
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
