/* Options that are read only with some values of another option: otherwise they would be silently ignored. */
#include "plan/run_rows.h"

#include "plan/objective.h"

#include <stdio.h>
#include <string.h>

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

/* ---- values of --objective, --optimizer, --schedule and --sync ---- */

static int objective_of(const struct dt_run *r)
{
	return r->objective.kind;
}
static int optimizer_of(const struct dt_run *r)
{
	return (int)r->optim.kind;
}
static int schedule_of(const struct dt_run *r)
{
	return (int)r->lr.schedule;
}
static int sync_of(const struct dt_run *r)
{
	return (int)r->sync.kind;
}

static const struct chooser {
	const char *option;
	int (*of)(const struct dt_run *r);
} by_objective = {"objective", objective_of}, by_optimizer = {"optimizer", optimizer_of},
  by_schedule = {"schedule", schedule_of}, by_sync = {"sync", sync_of};

/* Writes word k of the option's values to buf, without what follows its colon. NULL: there are fewer. */
static const char *word(const struct chooser *by, struct dt_run_options *o, int k, char *buf, size_t n)
{
	const struct dt_opt option = dt_run_row_bound(o, dt_run_row_find(by->option));

	if (!dt_opt_choice_name(option.arg, k, buf, n))
		return NULL;
	buf[strcspn(buf, ":")] = '\0';
	return buf;
}

/* ---- which values read which options ---- */

static bool has_answers(int k)
{
	return dt_objective_rule(k)->rewards;
}
static bool has_values(int k)
{
	return dt_objective_rule(k)->values;
}
static bool clips(int k)
{
	return dt_objective_rule(k)->clips;
}
static bool caps(int k)
{
	return dt_objective_rule(k)->caps;
}
static bool has_beta(int k)
{
	return has_answers(k) || dt_objective_compares(dt_objective_rule(k));
}
static bool has_gamma(int k)
{
	return dt_objective_rule(k)->gamma > 0;
}
static bool has_labels(int k)
{
	return dt_objective_rule(k)->alone != NULL;
}
static bool has_beta1(int k)
{
	return dt_optim_rule((enum dt_optim_kind)k)->reads & DT_OPTIM_BETA1;
}
static bool has_beta2(int k)
{
	return dt_optim_rule((enum dt_optim_kind)k)->reads & DT_OPTIM_BETA2;
}
static bool has_eps(int k)
{
	return dt_optim_rule((enum dt_optim_kind)k)->reads & DT_OPTIM_EPS;
}
static bool has_trust(int k)
{
	return dt_optim_rule((enum dt_optim_kind)k)->reads & DT_OPTIM_TRUST;
}
static bool falls_to_least(int k)
{
	return k != DT_LR_CONSTANT && k != DT_LR_STEP;
}
static bool decays_late(int k)
{
	return k == DT_LR_WSD;
}
static bool trains_alone(int k)
{
	return k == DT_SYNC_LOCAL || k == DT_SYNC_DILOCO || k == DT_SYNC_GOSSIP;
}
static bool has_outer(int k)
{
	return k == DT_SYNC_DILOCO;
}

static const struct reader {
	const struct chooser *by;
	bool (*reads)(int k);
	const char *options[12];
} readers[] = {
	{&by_objective,
	 has_answers,
	 {"group", "prompts", "answer-tokens", "refresh", "kl", "kl-in", "refill", "overlap", "actors",
	  "max-staleness", "partial-rollouts"}},
	{&by_objective, has_values, {"discount", "lambda", "value-coef"}},
	{&by_objective, clips, {"clip-low", "clip-high"}},
	{&by_objective, caps, {"ratio-cap"}},
	{&by_objective, has_beta, {"beta"}},
	{&by_objective, has_gamma, {"gamma"}},
	{&by_objective, has_labels, {"desirable-weight", "undesirable-weight"}},
	{&by_optimizer, has_beta1, {"beta1"}},
	{&by_optimizer, has_beta2, {"beta2"}},
	{&by_optimizer, has_eps, {"eps"}},
	{&by_optimizer, has_trust, {"trust"}},
	{&by_schedule, falls_to_least, {"min-lr"}},
	{&by_schedule, decays_late, {"decay-steps"}},
	{&by_sync, trains_alone, {"sync-from"}},
	{&by_sync, has_outer, {"outer-lr", "outer-momentum"}},
};

static bool reads(const struct reader *e, const struct dt_run *r)
{
	return e->reads(e->by->of(r));
}

bool dt_run_reads(const struct dt_run *r, const char *name)
{
	for (int i = 0; i < COUNT(readers); i++)
		for (const char *const *option = readers[i].options; *option; option++)
			if (!strcmp(*option, name))
				return reads(&readers[i], r);
	return true;
}

/* Writes "--lambda requires --objective ppo or vtrace, not grpo". */
static const char *say_unread(const struct reader *e, const char *option, struct dt_run_options *o)
{
	const struct chooser *by = e->by;
	char *buf = o->complaint, value[40];
	const size_t n = sizeof(o->complaint);
	int last = 0, found = 0;

	for (int k = 0; word(by, o, k, value, sizeof(value)); k++)
		last = e->reads(k) ? k : last;
	snprintf(buf, n, "--%s requires --%s ", option, by->option);
	for (int k = 0; word(by, o, k, value, sizeof(value)); k++)
		if (e->reads(k))
			snprintf(buf + strlen(buf), n - strlen(buf), "%s%s",
				 !found++    ? ""
				 : k == last ? " or "
					     : ", ",
				 value);
	snprintf(buf + strlen(buf), n - strlen(buf), ", not %s",
		 word(by, o, by->of(&o->run), value, sizeof(value)));
	return buf;
}

/* The first option of the command line that the run does not read. */
static const char *unread(struct dt_run_options *o)
{
	for (int i = 0; i < COUNT(readers); i++)
		for (const char *const *name = readers[i].options; *name; name++)
			if (!reads(&readers[i], &o->run) && dt_run_options_said(o, *name))
				return say_unread(&readers[i], *name, o);
	if ((dt_run_options_said(o, "kl") || dt_run_options_said(o, "kl-in")) && o->run.objective.beta <= 0)
		return "--kl and --kl-in need --beta above 0";
	return NULL;
}

const char *dt_run_options_lonely(struct dt_run_options *o)
{
	const struct dt_run_save *save = &o->run.save;
	const char *complaint = unread(o);

	if (complaint)
		return complaint;
	if (save->resume && !strcmp(save->resume, "auto") && !save->dir)
		return "--resume auto needs --save";
	if (!save->dir && o->run.watch.on_spike == DT_RUN_SPIKE_ROLLBACK &&
	    dt_run_options_said(o, "on-spike"))
		return "--on-spike rollback needs --save";
	return NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
