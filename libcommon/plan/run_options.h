/*
 * The options of a run, one row each: how it is parsed and explained, how its value is written, and what
 * happens when a run that goes on from a checkpoint says something else. Every program that asks about a run
 * takes its options from here; the arguments dt-plan emits and the run in a checkpoint's manifest are written
 * from the same rows.
 */
#ifndef DT_PLAN_RUN_OPTIONS_H
#define DT_PLAN_RUN_OPTIONS_H

#include "base/json.h"
#include "base/opt.h"
#include "plan/run.h"

enum { DT_RUN_ROWS_MAX = 176, DT_RUN_OPTS_MAX = 208 };

struct dt_run_options { /* what the command line says, before it is a run */
	struct dt_run run;
	const char *layout; /* NULL: data parallel over the ranks there are */
	const char *pipeline, *recompute, *loss_scale;
	bool master;
	int64_t seed;
	double min_lr, beta1, beta2, eps, weight_decay, trust;
	uint64_t bucket;
	int save_errors;
	const char *bn_span;
	const char *batch; /* NULL: as run.global_batch has it */
	/* by row: it was on the command line, or in the checkpoint gone on from */
	bool given[DT_RUN_ROWS_MAX];
	bool inherited[DT_RUN_ROWS_MAX]; /* in that alone */
	char complaint[200];		 /* room for what dt_run_options_lonely says */
};

/* An entry of a program's table that stands for the run's option of this name. What it sets itself holds. */
#define DT_RUN_OPT(option, ...)                                                                              \
	{                                                                                                    \
		.name = option, ##__VA_ARGS__                                                                \
	}

/* Options of training that an estimate takes into account, and a server has no use for (--serve). */
#define DT_RUN_OPTS_ESTIMATED                                                                                \
	DT_RUN_OPT("fp8", .without = "serve"), DT_RUN_OPT("qat", .without = "serve"),                        \
		DT_RUN_OPT("router-bias-rate", .without = "serve"),                                          \
		DT_RUN_OPT("capacity-factor", .without = "serve"),                                           \
		DT_RUN_OPT("no-expert-overlap", .without = "serve"),                                         \
		DT_RUN_OPT("master", .without = "serve"), DT_RUN_OPT("documents", .without = "serve"),       \
		DT_RUN_OPT("stream-overlap", .without = "serve"), DT_RUN_OPT("cp-comm", .without = "serve"), \
		DT_RUN_OPT("loss-chunk", .without = "serve"),                                                \
		DT_RUN_OPT("reproducible", .without = "serve"), DT_RUN_OPT("grad-comm", .without = "serve"), \
		DT_RUN_OPT("ema", .without = "serve"), DT_RUN_OPT("sync", .without = "serve"),               \
		DT_RUN_OPT("servers", .with = "sync"), DT_RUN_OPT("server-comm", .with = "sync"),            \
		DT_RUN_OPT("outer-fragments", .with = "sync"), DT_RUN_OPT("outer-delay", .with = "sync"),    \
		DT_RUN_OPT("outer-comm", .with = "sync"), DT_RUN_OPT("elastic", .without = "serve"),         \
		DT_RUN_OPT("peer-copy", .with = "elastic"), DT_RUN_OPT("save-async", .without = "serve"),    \
		DT_RUN_OPT("save-grads", .without = "serve")

/*
 * Copies a program's table to ret, entries without a type filled from the run's rows, which store into o.
 * own, at most DT_RUN_OPTS_MAX - 1 entries, ends with DT_OPT_END. A name without a row ends the program: the
 * table is wrong.
 */
void dt_run_options_table(struct dt_run_options *o, const struct dt_opt *own,
			  struct dt_opt ret[DT_RUN_OPTS_MAX]);

/*
 * o->run from the rest of o. -EINVAL with a message for a usage error. The layout stays 0 where none is
 * given.
 */
int dt_run_options_finish(struct dt_run_options *o, struct dt_err *err);

/* Whether the option was on the command line, or in the checkpoint that the run goes on from. */
bool dt_run_options_given(const struct dt_run_options *o, const char *name);

/* Whether the option was on the command line. */
bool dt_run_options_said(const struct dt_run_options *o, const char *name);

/*
 * The complaint about an option on the command line that means nothing without another, or that the
 * objective, optimizer, schedule or synchronisation of the finished run does not read; NULL: none.
 */
const char *dt_run_options_lonely(struct dt_run_options *o);

/*
 * Arguments of dt-train that make r, from "--layout" on; what is dt-train's default is left out. shell: words
 * are quoted for sh(1). Returns buf.
 */
const char *dt_run_arguments(const struct dt_run *r, bool shell, char *buf, size_t n);

/* A settled run as an object of option names and values, for a manifest. */
json_t *dt_run_to_json(const struct dt_run *r);

/*
 * The same with what a manifest leaves out because another process may choose it: layout, pipeline, offload.
 * And back, for a prediction of such a run: options that are not named have their defaults. o and settings
 * must outlive *ret, whose config is the caller's to set. A negative errno: not a run's.
 */
json_t *dt_run_settings(const struct dt_run *r);
int dt_run_from_settings(struct dt_run_options *o, const json_t *settings, struct dt_run *ret,
			 struct dt_err *err);

/*
 * Goes on from a run that dt_run_to_json wrote: what the command line does not say is taken from it (saved
 * must outlive o). A difference that changes what is trained is refused (-EINVAL, naming each) unless its
 * option is in save.accept; other differences are told, one call each. o is not finished afterwards. If it
 * cannot be finished, nothing is compared: the caller's own dt_run_options_finish reports why.
 */
int dt_run_options_resume(struct dt_run_options *o, const json_t *saved,
			  void (*tell)(void *arg, const char *text), void *arg, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
