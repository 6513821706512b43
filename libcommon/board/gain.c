#include "board/gain.h"

#include "plan/run_options.h"
#include "plan/search.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int dt_gain_ranks(const json_t *run)
{
	json_int_t n = json_integer_value(json_object_get(run, "ranks"));

	return n > 0 && n <= 1 << 20 ? (int)n : 0;
}

bool dt_gain_on_processor(const json_t *run)
{
	const char *device = json_string_value(json_object_get(run, "device"));

	return device && !strcmp(device, "cpu");
}

/* ---- a run ---- */

struct known { /* a run, and the storage its members point to */
	struct dt_run_options o;
	struct dt_config config;
	struct dt_run run;
};

static int describe(const json_t *run, const json_t *options, struct known *k, struct dt_err *err)
{
	int rc = dt_config_from_json(json_object_get(run, "model"), &k->config, err);

	if (rc == 0)
		rc = dt_run_from_settings(&k->o, options, &k->run, err);
	if (rc < 0)
		return rc;
	k->run.config = &k->config;
	return dt_run_settle(&k->run, err);
}

/* Predicts the seconds of a step and whether it fits in memory. Fails for what dt-train refuses. */
static int judge(const struct dt_run *r, const struct dt_cluster *c, double room, double *ret_s,
		 bool *ret_fits, struct dt_err *err)
{
	struct dt_fit_query q = {.run = *r, .account = DT_ACCOUNT_DT};
	struct dt_step_time t;
	struct dt_fit f;
	int rc = dt_fit_estimate(&q, &f, err);

	if (rc < 0)
		return rc;
	*ret_fits = (double)dt_fit_worst(&f)->peak_bytes <= room;
	dt_fit_release(&f);
	if ((rc = dt_step_time(c, r, &dt_stack_dt, &t, err)) < 0)
		return rc;
	*ret_s = t.step;
	return 0;
}

/* ---- changes ---- */

struct judged { /* the run as it is */
	const struct dt_cluster *c;
	double room;
	const struct known *is;
	double step_s;
};

static void keep(const struct judged *j, struct dt_gains *ret, const char *args, double step_s, double batch)
{
	struct dt_gain g = {.step_s = step_s,
			    .gain = 1 - step_s / batch / (j->step_s / (double)j->is->run.global_batch)};
	int at = ret->n;

	if (ret->n == DT_GAINS)
		return;
	snprintf(g.args, sizeof(g.args), "%s", args);
	for (; at > 0 && ret->v[at - 1].gain < g.gain; at--)
		ret->v[at] = ret->v[at - 1];
	ret->v[at] = g;
	ret->n++;
}

/* Tries the fastest layout for the same ranks and global batch, if it differs. */
static void try_layouts(const struct judged *j, struct dt_gains *ret)
{
	struct dt_plan_query q = {.cluster = j->c,
				  .stack = &dt_stack_dt,
				  .fit = {.run = j->is->run, .account = DT_ACCOUNT_DT},
				  .recompute = -1,
				  .room = (uint64_t)j->room,
				  .dt_train = true};
	const struct dt_run *r = &j->is->run;
	char layout[80], was[80], keep_text[32], args[160];
	struct dt_plan p = {0};

	q.fit.run.microbatch = q.fit.run.accumulation = 0;
	if (dt_plan_search(&q, 1, &p, NULL) == 0 && p.n) {
		const struct dt_candidate *b = &p.best[0];

		dt_layout_format(&b->layout, layout, sizeof(layout));
		dt_layout_format(&r->layout, was, sizeof(was));
		if (strcmp(layout, was) != 0 || b->microbatch != r->microbatch ||
		    b->recompute != r->recompute.mode) {
			dt_keep_format((struct dt_keep){.mode = b->recompute}, keep_text, sizeof(keep_text));
			snprintf(args, sizeof(args), "--layout %s --microbatch %lld --recompute %s", layout,
				 (long long)b->microbatch, keep_text);
			keep(j, ret, args, b->t.step, (double)r->global_batch);
		}
	}
	dt_plan_release(&p);
}

/* Writes the value that a change asks for; false: the run has it already, or it does not apply. */
static bool changed_value(const json_t *options, const struct dt_change *ch, char *buf, size_t n)
{
	const char *was = json_string_value(json_object_get(options, ch->option));
	char *end;
	long long v;

	snprintf(buf, n, "%s", ch->value);
	if (strcmp(ch->value, "x2") != 0)
		return !was || strcmp(was, ch->value) != 0;
	v = was ? strtoll(was, &end, 10) : 0;
	if (v < 1 || v > 1 << 30 || *end)
		return false;
	snprintf(buf, n, "%lld", 2 * v);
	return true;
}

static void try_option(const struct judged *j, const json_t *run, const struct dt_change *ch,
		       struct dt_gains *ret)
{
	json_t *options = json_copy(json_object_get(run, "options"));
	char value[64], args[160];
	struct known k;
	double step_s;
	bool fits;

	if (changed_value(options, ch, value, sizeof(value))) {
		json_object_set_new(options, ch->option, json_string(value));
		snprintf(args, sizeof(args), "--%s %s", ch->option, value);
		if (describe(run, options, &k, NULL) == 0 &&
		    judge(&k.run, j->c, j->room, &step_s, &fits, NULL) == 0 && fits)
			keep(j, ret, args, step_s, (double)k.run.global_batch);
	}
	json_decref(options);
}

int dt_gains(const json_t *run, const struct dt_change *changes, const struct dt_cluster *c, double room,
	     struct dt_gains *ret, struct dt_err *err)
{
	struct known k;
	struct judged j = {.c = c, .room = room, .is = &k};
	bool fits;
	int rc = describe(run, json_object_get(run, "options"), &k, err);

	*ret = (struct dt_gains){0};
	if (rc == 0 && dt_layout_world(&k.run.layout) != c->gpus)
		rc = dt_err_set(err, -EINVAL, "the run has %d ranks, the machines have %d devices",
				dt_layout_world(&k.run.layout), c->gpus);
	if (rc == 0)
		rc = judge(&k.run, c, room, &j.step_s, &fits, err);
	if (rc < 0)
		return rc;
	ret->step_s = j.step_s;
	for (; changes && changes->option; changes++)
		if (!strcmp(changes->option, "layout"))
			try_layouts(&j, ret);
		else
			try_option(&j, run, changes, ret);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
