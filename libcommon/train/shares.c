#include "train/shares.h"

#include "plan/rounds.h"
#include "train/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { EVERY = 4 }; /* steps between two fits of the times */
#define GAIN 0.95   /* shares change only if the step's time falls below this fraction */

/* Allocates the time lines (fixed + each * count) of all ranks, and the fits for new ones. */
static int open_lines(struct shares *s, size_t dp)
{
	s->fixed = calloc(dp, 5 * sizeof(*s->fixed));
	s->fit = calloc(dp, sizeof(*s->fit));
	s->each = s->fixed ? s->fixed + dp : NULL;
	s->took = s->fixed ? s->each + dp : NULL;
	return s->fixed && s->fit ? 0 : -ENOMEM;
}

static int open_images(struct trainer *t, struct dt_err *err)
{
	const size_t dp = (size_t)t->run.layout.dp;
	struct shares *s = &t->shares;

	s->automatic = dt_rounds_measured(&t->run);
	s->part = calloc(dp, 2 * sizeof(*s->part));
	return open_lines(s, dp) == 0 && s->part ? dt_rounds_each(&t->run, s->each, err)
						 : dt_err_sys(err, -ENOMEM, "shares of ranks");
}

void shares_images(struct trainer *t, int64_t round, int64_t *ret_first, int64_t *ret_end)
{
	const int64_t first = dt_rounds_first(t->run.global_batch, t->run.accumulation, round),
		      n = dt_rounds_first(t->run.global_batch, t->run.accumulation, round + 1) - first;
	struct shares *s = &t->shares;

	if (s->of != n)
		dt_rounds_parts(&t->run, s->fixed, s->each, n, s->part);
	s->of = n;
	*ret_first = t->loop.cursor + first;
	for (int r = 0; r < t->mesh.at.dp; r++)
		*ret_first += s->part[r];
	*ret_end = *ret_first + s->part[t->mesh.at.dp];
}

int shares_open(struct trainer *t, struct dt_err *err)
{
	const size_t dp = (size_t)t->run.layout.dp;
	struct shares *s = &t->shares;

	if (trainer_images(t))
		return open_images(t, err);
	if (!dt_run_unequal(&t->run))
		return 0;
	s->n = calloc(dp, 2 * sizeof(*s->n));
	if (open_lines(s, dp) < 0 || !s->n)
		return dt_err_sys(err, -ENOMEM, "shares of ranks");
	s->automatic = !strcmp(t->run.shares, "auto");
	for (size_t r = 0; r < dp; r++)
		s->each[r] = 1;
	if (!s->automatic && dt_shares_parse(t->run.shares, t->run.layout.dp, s->each, err) < 0)
		return err->code;
	for (size_t r = 0; r < dp; r++)
		s->each[r] = 1 / s->each[r];
	return 0;
}

void shares_release(struct trainer *t)
{
	free(t->shares.n);
	free(t->shares.part);
	free(t->shares.fixed);
	free(t->shares.fit);
}

static void divide(struct trainer *t)
{
	struct shares *s = &t->shares;

	dt_shares_best(t->run.layout.dp, s->fixed, s->each, 1, s->total, s->n);
	s->first = 0;
	for (int r = 0; r < t->mesh.at.dp; r++)
		s->first += s->n[r];
}

void shares_begin(struct trainer *t)
{
	struct shares *s = &t->shares;
	const int64_t total = t->run.accumulation * t->run.layout.dp;

	if (!s->n)
		return;
	if (s->total != total || s->changed) {
		s->total = total;
		s->changed = false;
		divide(t);
	}
}

/* The best shares for these time lines: in microbatches, or in images of the largest round. */
static void by_lines(const struct trainer *t, const double *fixed, const double *each, int64_t *ret)
{
	const struct shares *s = &t->shares;

	if (s->part)
		dt_rounds_parts(&t->run, fixed, each, s->of, ret);
	else
		dt_shares_best(t->run.layout.dp, fixed, each, 1, s->total, ret);
}

/* Fits new time lines to the measured times, and uses them from the next step on if the gain is enough. */
static void look(struct trainer *t)
{
	const int dp = t->run.layout.dp;
	struct shares *s = &t->shares;
	double *fixed = s->took + dp, *each = fixed + dp;
	int64_t *now = s->part ? s->part : s->n, *n = now + dp;

	for (int r = 0; r < dp; r++) {
		dt_shares_add(&s->fit[r], (double)now[r], s->took[r]);
		if (!dt_shares_line(&s->fit[r], &fixed[r], &each[r]))
			return;
	}
	by_lines(t, fixed, each, n);
	if (dt_shares_time(dp, fixed, each, n) > GAIN * dt_shares_time(dp, fixed, each, now))
		return;
	memcpy(s->fixed, fixed, 2 * (size_t)dp * sizeof(*fixed)); /* and each, which follows fixed */
	s->changed = true;
	s->of = 0;
	if (s->part)
		images_expect(t, n[t->mesh.at.dp]);
}

int shares_end(struct trainer *t, struct dt_err *err)
{
	struct shares *s = &t->shares;
	int rc;

	if (!s->automatic)
		return 0;
	/* The first step is slower than later ones. */
	if (s->steps++ > 0)
		s->sum += t->t.compute / (s->part ? (double)t->run.accumulation : 1);
	if (s->steps <= EVERY)
		return 0;
	s->took[t->mesh.at.dp] = s->sum / EVERY;
	s->steps = 1;
	s->sum = 0;
	rc = dt_all_gather(dt_mesh_comm(&t->mesh, DT_ON_DATA), s->took, NULL, 1, DT_F64, "seconds of ranks",
			   err);
	if (rc == 0)
		look(t);
	return rc;
}

void shares_metrics(const struct trainer *t, json_t *line)
{
	const int64_t *n = t->shares.part ? t->shares.part : t->shares.n;
	json_t *list = json_array();

	for (int r = 0; r < t->run.layout.dp; r++)
		json_array_append_new(list, json_integer(n[r]));
	json_object_set_new(line, "shares", list);
}
/* SPDX-License-Identifier: Apache-2.0 */
