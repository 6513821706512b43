#include "plan/schedule.h"

#include "base/units.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

int dt_pipeline_parse(const char *s, enum dt_pipeline *ret, int *ret_chunks, struct dt_err *err)
{
	static const char *const name[] = {"gpipe", "1f1b", "interleaved", "zb-h1"};
	size_t n = strcspn(s, ":");
	int64_t chunks = 1;

	for (int i = 0; i < 4; i++) {
		if (strlen(name[i]) != n || strncmp(s, name[i], n))
			continue;
		if ((i == DT_PIPE_INTERLEAVED) != (s[n] == ':'))
			break;
		if (s[n] == ':' && dt_parse_int(s + n + 1, 2, 1024, &chunks, err) < 0)
			return dt_err_prefix(err, "pipeline '%s'", s);
		*ret = i;
		*ret_chunks = (int)chunks;
		return 0;
	}
	return dt_err_set(err, -EINVAL,
			  "'%s' is not a pipeline schedule: gpipe, 1f1b, interleaved:V or zb-h1", s);
}

int dt_schedule_alloc(struct dt_schedule *s, int pp, int chunks, int mbs, bool split, int stage,
		      struct dt_err *err)
{
	size_t per = (size_t)mbs * (size_t)chunks * (split ? 3 : 2);

	*s = (struct dt_schedule){.pp = pp, .chunks = chunks, .microbatches = mbs, .split = split};
	s->a = calloc(per * (size_t)(stage < 0 ? pp : 1) + 1, sizeof(*s->a));
	s->start = calloc((size_t)pp + 1, sizeof(*s->start));
	if (!s->a || !s->start) {
		dt_schedule_release(s);
		return dt_err_sys(err, -ENOMEM, "cannot build the schedule");
	}
	for (int i = 0; i <= pp; i++)
		s->start[i] = stage < 0 ? (int)per * i : i > stage ? (int)per : 0;
	return 0;
}

int dt_schedule_copy(const struct dt_schedule *s, struct dt_schedule *ret, struct dt_err *err)
{
	size_t n = (size_t)s->start[s->pp] * sizeof(*s->a), m = (size_t)(s->pp + 1) * sizeof(*s->start);

	*ret = *s;
	ret->a = malloc(n);
	ret->start = malloc(m);
	if (!ret->a || !ret->start) {
		dt_schedule_release(ret);
		return dt_err_sys(err, -ENOMEM, "cannot copy the schedule");
	}
	memcpy(ret->a, s->a, n);
	memcpy(ret->start, s->start, m);
	return 0;
}

void dt_schedule_release(struct dt_schedule *s)
{
	free(s->a);
	free(s->start);
	memset(s, 0, sizeof(*s));
}

/* Fills `warm` F, then F B pairs, then the remaining B. */
static void fill_1f1b(struct dt_action *a, int total, int warm, int pp, int chunks)
{
	int n = 0, f = 0, b = 0, group = pp * chunks;

	if (warm > total)
		warm = total;
	while (b < total) {
		bool forward = f < warm || (f < total && f - b <= warm);
		int k = forward ? f++ : b++;
		int chunk = k % group / pp, mb = k / group * pp + k % pp;

		if (chunks == 1) {
			chunk = 0;
			mb = k;
		}
		a[n++] = (struct dt_action){forward ? 'F' : 'B', mb, forward ? chunk : chunks - 1 - chunk};
	}
}

/*
 * ZB-H1: 1F1B in which stage i runs W of a microbatch after B of the i-th microbatch after it. Then every
 * stage holds pp microbatches, as 1F1B's first does, and with equal costs idles for (pp - 1)(F + B - W), a
 * third of 1F1B.
 */
static void fill_zb(struct dt_action *a, int stage, int pp, int m)
{
	int f = 0, w = 0;

	while (f < pp - stage && f < m)
		*a++ = (struct dt_action){'F', f++, 0};
	for (int b = 0; b < m; b++) {
		*a++ = (struct dt_action){'B', b, 0};
		if (b >= stage)
			*a++ = (struct dt_action){'W', w++, 0};
		if (f < m)
			*a++ = (struct dt_action){'F', f++, 0};
	}
	while (w < m)
		*a++ = (struct dt_action){'W', w++, 0};
}

int dt_schedule_make_stage(enum dt_pipeline kind, int pp, int chunks, int mbs, int stage,
			   struct dt_schedule *ret, struct dt_err *err)
{
	int rc;

	if (pp < 1 || chunks < 1 || mbs < 1 || (int64_t)pp * chunks * mbs > INT_MAX / 8)
		return dt_err_set(err, -EINVAL, "no pipeline has %d stages, %d chunks and %d microbatches",
				  pp, chunks, mbs);
	if (kind != DT_PIPE_INTERLEAVED && chunks != 1)
		return dt_err_set(err, -EINVAL, "only interleaved pipelines have several chunks a stage");
	if (kind == DT_PIPE_INTERLEAVED && mbs % pp)
		return dt_err_set(err, -EINVAL,
				  "an interleaved pipeline needs a multiple of pp (%d) microbatches, not %d",
				  pp, mbs);
	rc = dt_schedule_alloc(ret, pp, chunks, mbs, kind == DT_PIPE_ZB_H1, stage, err);
	if (rc < 0)
		return rc;
	for (int i = stage < 0 ? 0 : stage; i < (stage < 0 ? pp : stage + 1); i++) {
		int warm = kind == DT_PIPE_GPIPE	 ? mbs
			   : kind == DT_PIPE_INTERLEAVED ? (pp - i - 1) * 2 + (chunks - 1) * pp
							 : pp - i - 1;

		if (kind == DT_PIPE_ZB_H1)
			fill_zb(ret->a + ret->start[i], i, pp, mbs);
		else
			fill_1f1b(ret->a + ret->start[i], mbs * chunks, warm, pp, chunks);
	}
	return 0;
}

int dt_schedule_make(enum dt_pipeline kind, int pp, int chunks, int mbs, struct dt_schedule *ret,
		     struct dt_err *err)
{
	int rc = dt_schedule_make_stage(kind, pp, chunks, mbs, -1, ret, err);

	return rc < 0 ? rc : dt_schedule_check(ret, err);
}

/* End time of each (virtual stage, microbatch, kind); negative: has not run. */
struct sim {
	double *t[3];
	int vstages, mbs;
};

static int kind_of(char op)
{
	return op == 'F' ? 0 : op == 'B' ? 1 : 2;
}

static double *cell(struct sim *m, int kind, int v, int mb)
{
	return &m->t[kind][v * m->mbs + mb];
}

/* The time when an action's inputs are available; negative: not yet. */
static double ready(struct sim *m, const struct dt_action *a, int v, double hop)
{
	double own, from;

	if (a->op == 'F')
		return v == 0 ? 0 : *cell(m, 0, v - 1, a->mb) < 0 ? -1 : *cell(m, 0, v - 1, a->mb) + hop;
	if (a->op == 'W')
		return *cell(m, 1, v, a->mb);
	own = *cell(m, 0, v, a->mb);
	if (own < 0 || v == m->vstages - 1)
		return own;
	from = *cell(m, 1, v + 1, a->mb);
	if (from < 0)
		return -1;
	return from + hop > own ? from + hop : own;
}

/* Runs every stage as far as possible. done[stage]: actions done. Returns the makespan. */
static double run(const struct dt_schedule *s, const struct dt_pipe_cost *cost, double hop, double *busy,
		  int *done, double *now)
{
	int vstages = s->pp * s->chunks;
	struct sim m = {.vstages = vstages, .mbs = s->microbatches};
	double end = 0;
	bool moved = true;

	for (int k = 0; k < 3; k++) {
		m.t[k] = malloc(sizeof(double) * (size_t)vstages * (size_t)s->microbatches);
		for (int i = 0; m.t[k] && i < vstages * s->microbatches; i++)
			m.t[k][i] = -1;
	}
	while (moved && m.t[0] && m.t[1] && m.t[2]) {
		moved = false;
		for (int i = 0; i < s->pp; i++)
			while (s->start[i] + done[i] < s->start[i + 1]) {
				const struct dt_action *a = &s->a[s->start[i] + done[i]];
				int v = a->chunk * s->pp + i;
				const struct dt_pipe_cost *c = &cost[v];
				double dur = a->op == 'F' ? c->f : a->op == 'B' ? c->b : c->w;
				double at = ready(&m, a, v, hop);

				if (at < 0)
					break;
				if (at < now[i])
					at = now[i];
				now[i] = at + dur;
				busy[i] += dur;
				*cell(&m, kind_of(a->op), v, a->mb) = now[i];
				done[i]++;
				moved = true;
				if (now[i] > end)
					end = now[i];
			}
	}
	for (int k = 0; k < 3; k++)
		free(m.t[k]);
	return end;
}

double dt_schedule_simulate(const struct dt_schedule *s, const struct dt_pipe_cost *cost, double hop,
			    double *ret_bubble)
{
	double *busy = calloc((size_t)s->pp * 2, sizeof(*busy)), end = -1, total = 0;
	int *done = calloc((size_t)s->pp, sizeof(*done));

	if (busy && done) {
		end = run(s, cost, hop, busy, done, busy + s->pp);
		for (int i = 0; i < s->pp; i++) {
			total += busy[i];
			if (s->start[i] + done[i] != s->start[i + 1])
				end = -1;
		}
	}
	if (ret_bubble)
		*ret_bubble = end > 0 ? 1 - total / (end * s->pp) : 0;
	free(busy);
	free(done);
	return end;
}

static int check_stage(const struct dt_schedule *s, int i, char *seen, struct dt_err *err)
{
	int n = s->microbatches * s->chunks, kinds = s->split ? 3 : 2;

	memset(seen, 0, (size_t)n * 3);
	for (int k = s->start[i]; k < s->start[i + 1]; k++) {
		const struct dt_action *a = &s->a[k];
		char *c;

		if (a->mb < 0 || a->mb >= s->microbatches || a->chunk < 0 || a->chunk >= s->chunks)
			return dt_err_set(err, -EINVAL, "stage %d: action %c%d.%d is out of range", i, a->op,
					  a->mb, a->chunk);
		c = &seen[kind_of(a->op) * n + a->chunk * s->microbatches + a->mb];
		if ((*c)++)
			return dt_err_set(err, -EINVAL, "stage %d runs %c%d.%d twice", i, a->op, a->mb,
					  a->chunk);
	}
	for (int k = 0; k < n * kinds; k++)
		if (!seen[k])
			return dt_err_set(err, -EINVAL, "stage %d never runs %c%d.%d", i, "FBW"[k / n],
					  k % n % s->microbatches, k % n / s->microbatches);
	return 0;
}

int dt_schedule_check(const struct dt_schedule *s, struct dt_err *err)
{
	size_t n = (size_t)s->microbatches * (size_t)s->chunks * 3, v = (size_t)s->pp * (size_t)s->chunks;
	char *seen = malloc(n);
	struct dt_pipe_cost *unit = calloc(v, sizeof(*unit));
	double *busy = calloc((size_t)s->pp * 2, sizeof(*busy));
	int *done = calloc((size_t)s->pp, sizeof(*done)), rc = 0;

	if (!seen || !unit || !busy || !done)
		rc = dt_err_sys(err, -ENOMEM, "cannot check the schedule");
	for (int i = 0; i < s->pp && rc == 0; i++)
		rc = check_stage(s, i, seen, err);
	for (size_t i = 0; i < v && rc == 0; i++)
		unit[i] = (struct dt_pipe_cost){1, 1, 1};
	if (rc == 0)
		run(s, unit, 0, busy, done, busy + s->pp);
	for (int i = 0; i < s->pp && rc == 0; i++) {
		const struct dt_action *a = &s->a[s->start[i] + done[i]];

		if (s->start[i] + done[i] < s->start[i + 1])
			rc = dt_err_set(err, -EDEADLK,
					"the schedule deadlocks: stage %d waits forever before %c%d.%d", i,
					a->op, a->mb, a->chunk);
	}
	free(seen);
	free(unit);
	free(busy);
	free(done);
	return rc;
}

/* The change in the number of microbatches held. */
static int holds(const struct dt_schedule *s, const struct dt_action *a)
{
	return a->op == 'F' ? 1 : a->op == (s->split ? 'W' : 'B') ? -1 : 0;
}

int dt_schedule_in_flight(const struct dt_schedule *s, int stage, int chunk)
{
	int now = 0, most = 0;

	for (const struct dt_action *a = s->a + s->start[stage]; a < s->a + s->start[stage + 1]; a++) {
		now += a->chunk == chunk ? holds(s, a) : 0;
		most = now > most ? now : most;
	}
	return most;
}

double dt_schedule_held(const struct dt_schedule *s, int stage, const double *weight)
{
	double now = 0, most = 0;

	for (const struct dt_action *a = s->a + s->start[stage]; a < s->a + s->start[stage + 1]; a++) {
		now += holds(s, a) * weight[a->chunk];
		most = now > most ? now : most;
	}
	return most;
}
/* SPDX-License-Identifier: Apache-2.0 */
