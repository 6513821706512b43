/* dt-train: trains a model, or continues training one, one process per rank. */
#include "base/beat.h"
#include "base/json.h"
#include "base/launch.h"
#include "base/opt.h"
#include "base/program.h"
#include "base/tmpfile.h"
#include "kernels/device.h"
#include "plan/listing.h"
#include "plan/objective.h"
#include "rl/actors.h"
#include "rl/feed.h"
#include "tools/train_options.h"
#include "train/train.h"
#include "train/verify.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const examples[] = {
	"dt-train --model gpt2-124m --data corpus.h5 --seq 512 --microbatch 4 --steps 100",
	"mpirun -np 4 dt-train --model gpt2-124m --data corpus.h5 --layout dp2.tp2 --save run --metrics - | "
	"dt-plot loss",
	"dt-train verify --layouts dp1,tp2,dp2.pp2 --model gpt2-tiny --data corpus.h5 --seq 64 --precision "
	"fp32",
	NULL,
};

static struct train_args *const a = &train_args;
static struct dt_opt opts[DT_RUN_OPTS_MAX];

static const struct dt_program program = {
	.name = "dt-train",
	.summary = "train or fine-tune a model, one process per rank",
	.operands = "[verify]",
	.examples = examples,
	.opts = opts,
	.isa = dt_cpu_isa,
};

/* --schedule-table: needs only layout and batch. */
static int print_schedule(struct dt_err *err)
{
	double bubble;
	int rc = dt_listing_schedule(&a->o.run, a->o.layout ? a->o.layout : "dp1", stdout, &bubble, err);

	if (rc == 0 && bubble >= 0)
		fprintf(stderr,
			"dt-train: %d stages are idle %.1f%% of the time if backward takes twice as long as "
			"forward\n",
			a->o.run.layout.pp, 100 * bubble);
	return rc;
}

/* --print-program: needs model, layout and batch, but no data or other ranks. Returns an exit status. */
static int print_program(struct dt_err *err)
{
	struct dt_run *r = &a->o.run;
	struct dt_config config;
	json_t *o = NULL;
	int rc;

	if (dt_config_load(r->model, &config, err) < 0 || dt_config_set_vocab(&config, r->vocab, err) < 0)
		return DT_EXIT_FAILED;
	rc = dt_listing_run(r, &config, (int)a->rank, stdout, a->json ? &o : NULL, err);
	if (rc == 0 && a->json)
		rc = dt_json_write_line(stdout, o, err);
	json_decref(o);
	return rc == 0 ? DT_EXIT_OK : rc == -EINVAL || rc == -ENOTSUP ? DT_EXIT_USAGE : DT_EXIT_FAILED;
}

static bool given(const char *name)
{
	return dt_run_options_given(&a->o, name);
}

static void print_report(void *arg, const char *layout, const struct dt_verify_report *r, bool agrees)
{
	dt_verify_print(stdout, layout, r, agrees, a->verify.tensor_bound, a->json);
}

/* The smallest batch that all layouts of a comma-separated list can use; 0: unknown. */
static int64_t common_batch(const char *layouts, int64_t microbatch)
{
	char *list = strdup(layouts), *save = NULL;
	int64_t dp = 1;

	for (char *s = list ? strtok_r(list, ",", &save) : NULL; s; s = strtok_r(NULL, ",", &save)) {
		struct dt_layout l;
		int64_t x = dp, y, rest;

		if (dt_layout_parse(s, &l, NULL) < 0)
			break; /* opening the run reports the error */
		for (y = l.dp; y; y = rest) {
			rest = x % y;
			x = y;
		}
		dp *= l.dp / x; /* x: greatest common divisor */
	}
	free(list);
	return microbatch * dp;
}

static int verify(char **args)
{
	struct dt_verify_opts *v = &a->verify;
	bool exact = a->o.run.compute == DT_F32 && !a->o.run.fp8;
	struct dt_err err = {0};
	int rc;

	if (!v->layouts || !strchr(v->layouts, ','))
		return dt_opt_usage_error(
			&program, stderr,
			"verify needs --layouts with two or more layouts, separated by commas");
	if (a->o.run.save.dir || a->o.run.save.resume)
		return dt_opt_usage_error(&program, stderr,
					  "verify writes no checkpoints: leave --save and --resume out");
	v->args = args;
	if (!given("global-batch"))
		v->batch = common_batch(v->layouts, a->o.run.microbatch);
	v->each = print_report;
	v->loss_bound = v->loss_bound >= 0 ? v->loss_bound : exact ? 1e-5 : 1e-2;
	v->tensor_bound = v->tensor_bound >= 0 ? v->tensor_bound : exact ? 1e-4 : 5e-2;
	rc = dt_train_verify(v, &err);
	if (rc < 0 || dt_close_stdout(&err) < 0)
		return dt_program_fail(&program, &err);
	return rc ? DT_EXIT_NO : DT_EXIT_OK;
}

static void tell(void *arg, const char *text)
{
	if (dt_launch_speaks())
		dt_log_msg(arg, "%s", text);
}

/* Merges the command line with the checkpoint to resume from. Returns -1 to run, else an exit status. */
static int make_run(const struct dt_log *log, struct dt_err *err)
{
	struct dt_run *r = &a->o.run;
	const char *complaint;
	int rc;

	r->save.accept = &a->accept;
	r->inject = &a->inject;
	rc = dt_train_continue(&a->o, tell, (void *)log, err);
	if (rc < 0) {
		if (dt_launch_speaks()) {
			dt_log_err(log, err);
			dt_train_write_error(r, err);
		}
		return DT_EXIT_FAILED;
	}
	if (dt_objective_rule(r->objective.kind)->rewards &&
	    !r->data.train) /* a file that metrics must not overwrite */
		r->data.train = r->rl.rollouts ? r->rl.rollouts : "";
	if (!a->schedule_table && !a->print_program && (!r->model || !r->data.train))
		return dt_opt_usage_error(&program, stderr, "--model and --data are needed%s",
					  r->model	  ? ": there is no --data"
					  : r->data.train ? ": there is no --model"
							  : "");
	if (dt_run_options_finish(&a->o, err) < 0)
		return dt_opt_usage_of(&program, stderr, NULL, err);
	if ((complaint = dt_run_options_lonely(&a->o)))
		return dt_opt_usage_error(&program, stderr, "%s", complaint);
	return -1;
}

/* A terminal gets the progress line; JSON lines are also printed there only if asked for. */
static void for_people(void)
{
	struct dt_run *r = &a->o.run;
	bool on_stdout = dt_launch_terminal(STDOUT_FILENO);

	if (on_stdout && !given("metrics") && r->progress != DT_RUN_PROGRESS_OFF)
		r->metrics = NULL;
	if (r->progress == DT_RUN_PROGRESS_AUTO)
		r->progress = dt_launch_terminal(STDERR_FILENO) &&
					      !(on_stdout && r->metrics && !strcmp(r->metrics, "-"))
				      ? DT_RUN_PROGRESS_LINE
				      : DT_RUN_PROGRESS_OFF;
}

static int train(struct dt_log *log)
{
	struct dt_world_opts wo = {.timeout_s = a->timeout,
				   .recorder = a->recorder,
				   .transport = a->transport ? DT_TRANSPORT_MPI : DT_TRANSPORT_AUTO,
				   .elastic = a->o.run.watch.elastic,
				   .join = a->o.run.watch.elastic ? getenv(DT_JOIN_ENV) : NULL};
	struct dt_world_info info;
	struct dt_err err = {0};
	const struct dt_given *given = NULL;
	struct dt_world *world;
	int status;

	dt_train_catch_signals();
	if (!wo.join) /* else the rank number is known only after joining */
		dt_beat_open(-1);
	if (dt_world_open(&world, &wo, log, &err) < 0) {
		dt_log_err(log, &err);
		dt_beat_close(DT_EXIT_FAILED);
		return DT_EXIT_FAILED;
	}
	if (wo.join)
		dt_beat_open(dt_world_epoch(world).place);
	dt_world_info(world, &info);
	if (info.size > 1)
		log->rank = info.rank;
	for_people();
	if (dt_objective_rule(a->o.run.objective.kind)->rewards &&
	    dt_rl_feed_open(&a->o.run, &given, &err) < 0) {
		dt_log_err(log, &err);
		return DT_EXIT_FAILED;
	}
	status = dt_train_run(&a->o.run, given, world, log);
	dt_rl_feed_close(given);
	dt_beat_close(status);
	dt_world_finalize(world);
	if (dt_close_stdout(&err) < 0 && status == DT_EXIT_OK) {
		dt_log_err(log, &err);
		status = DT_EXIT_FAILED;
	}
	return status;
}

static int run(int argc, char **argv, char **words)
{
	struct dt_log log = {.f = stderr, .name = program.name, .rank = -1};
	struct dt_err err = {0};
	int status, n;

	dt_dev_spin_less(argv);
	n = dt_opt_main(&program, argc, argv, stdout, stderr, &status);
	if (n < 0)
		return status;
	if (n > 1 || (n == 1 && strcmp(argv[1], "verify") != 0))
		return dt_opt_usage_error(&program, stderr, "unexpected operand '%s'", argv[n]);
	status = make_run(&log, &err);
	if (status >= 0)
		return status;
	if (n == 1) {
		char **args = dt_verify_arguments(argc, words, argv[1]);

		status = args ? verify(args) : DT_EXIT_FAILED;
		free(args);
		return status;
	}
	if (a->verify.layouts)
		return dt_opt_usage_error(&program, stderr, "--layouts is for dt-train verify");
	if (a->o.run.watch.elastic && a->transport)
		return dt_opt_usage_error(&program, stderr,
					  "--elastic cannot be combined with --transport mpi");
	if (a->o.run.watch.elastic && !a->print_program && dt_launch_ends_all())
		return dt_opt_usage_error(
			&program, stderr,
			"--elastic needs dt-run or mpirun --enable-recovery: otherwise mpirun "
			"ends all ranks when one fails");
	signal(SIGPIPE, SIG_IGN);
	if ((a->print_program || a->schedule_table) && !dt_launch_speaks())
		return DT_EXIT_OK;
	if (a->print_program) {
		status = print_program(&err);
		if (status == DT_EXIT_OK && dt_close_stdout(&err) < 0)
			status = DT_EXIT_FAILED;
		if (status != DT_EXIT_OK)
			dt_log_err(&log, &err);
		return status;
	}
	if (!a->schedule_table)
		return train(&log);
	if (print_schedule(&err) < 0)
		return dt_opt_usage_of(&program, stderr, NULL, &err);
	return dt_close_stdout(&err) < 0 ? dt_log_err(&log, &err), DT_EXIT_FAILED : DT_EXIT_OK;
}

int main(int argc, char **argv)
{
	char **words; /* copied before parsing permutes them */
	int status;

	if (dt_actor_is())
		return dt_actor_main();
	words = calloc((size_t)argc + 1, sizeof(*words));
	if (!words)
		return DT_EXIT_FAILED;
	memcpy(words, argv, (size_t)argc * sizeof(*words));
	dt_run_options_table(&a->o, train_opts, opts);
	status = run(argc, argv, words);
	free(words);
	return status;
}
/* SPDX-License-Identifier: Apache-2.0 */
