/* dt-train: trains or continues training a model, one process a rank. */
#include "base/beat.h"
#include "base/json.h"
#include "base/launch.h"
#include "base/opt.h"
#include "base/tmpfile.h"
#include "kernels/device.h"
#include "plan/listing.h"
#include "plan/objective.h"
#include "rl/actors.h"
#include "rl/feed.h"
#include "train/train.h"
#include "train/verify.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
	struct dt_run_options o;
	struct dt_strs accept, inject;
	int transport;
	bool schedule_table, print_program;
	int64_t rank;
	struct dt_verify_opts verify;
	bool json;
	double timeout;
	const char *recorder;
} a;

static const char *const examples[] = {
	"dt-train --model gpt2-124m --data corpus.h5 --seq 512 --microbatch 4 --steps 100",
	"mpirun -np 4 dt-train --model gpt2-124m --data corpus.h5 --layout dp2.tp2 --save run --metrics - | "
	"dt-plot loss",
	"dt-train verify --layouts dp1,tp2,dp2.pp2 --model gpt2-tiny --data corpus.h5 --seq 64 --precision "
	"fp32",
	NULL,
};

static const struct dt_opt own[] = {
	DT_RUN_OPT("model"),
	DT_RUN_OPT("vocab"),
	DT_RUN_OPT("rope-scaling"),
	DT_RUN_OPT("init"),
	DT_RUN_OPT("data"),
	DT_RUN_OPT("layout"),
	DT_RUN_OPT("pipeline"),
	DT_RUN_OPT("schedule-file"),
	{"schedule-table", 0, DT_OPT_FLAG, &a.schedule_table, NULL,
	 "print the pipeline's table and its bubble, and do nothing else"},
	{"print-program", 0, DT_OPT_FLAG, &a.print_program, NULL,
	 "print what a rank computes for a microbatch, node by node with flops, bytes and messages, and do "
	 "nothing else",
	 .with = "model"},
	{"rank", 0, DT_OPT_INT, &a.rank, "N", "with --print-program: which rank of the layout", .min = 0,
	 .max = 1 << 20, .def = "0", .with = "print-program"},
	DT_OPT_HEADING("Adapters"),
	DT_RUN_OPT("lora"),
	DT_RUN_OPT("lora-alpha"),
	DT_RUN_OPT("lora-targets"),
	DT_RUN_OPT("lora-modules-to-save"),
	DT_RUN_OPT("lora-base"),
	DT_RUN_OPT("lora-kind"),
	DT_RUN_OPT("lora-dropout"),
	DT_RUN_OPT("dora"),
	DT_OPT_HEADING("Fine-tuning"),
	DT_RUN_OPT("freeze"),
	DT_RUN_OPT("neftune"),
	DT_RUN_OPT("objective"),
	DT_RUN_OPT("beta"),
	DT_RUN_OPT("gamma"),
	DT_RUN_OPT("desirable-weight"),
	DT_RUN_OPT("undesirable-weight"),
	DT_RUN_OPT("reference"),
	DT_RUN_OPT("teacher"),
	DT_RUN_OPT("teacher-weight"),
	DT_RUN_OPT("teacher-top-k"),
	DT_OPT_HEADING("Scored answers"),
	DT_RUN_OPT("rollouts"),
	DT_RUN_OPT("prompts"),
	DT_RUN_OPT("task"),
	DT_RUN_OPT("reward"),
	DT_RUN_OPT("group"),
	DT_RUN_OPT("answer-tokens"),
	DT_RUN_OPT("refresh"),
	DT_RUN_OPT("overlap"),
	DT_RUN_OPT("actors"),
	DT_RUN_OPT("max-staleness"),
	DT_RUN_OPT("partial-rollouts"),
	DT_RUN_OPT("refill"),
	DT_RUN_OPT("kl"),
	DT_RUN_OPT("kl-in"),
	DT_RUN_OPT("discount"),
	DT_RUN_OPT("lambda"),
	DT_RUN_OPT("value-coef"),
	DT_RUN_OPT("clip-low"),
	DT_RUN_OPT("clip-high"),
	DT_RUN_OPT("ratio-cap"),
	DT_OPT_HEADING("Batch and length"),
	DT_RUN_OPT("seq"),
	DT_RUN_OPT("microbatch"),
	DT_RUN_OPT("global-batch"),
	DT_RUN_OPT("steps"),
	DT_RUN_OPT("stop-at"),
	DT_OPT_HEADING("Optimizer"),
	DT_RUN_OPT("optimizer"),
	DT_RUN_OPT("lr"),
	DT_RUN_OPT("min-lr"),
	DT_RUN_OPT("layer-lr-decay"),
	DT_RUN_OPT("momentum-correction"),
	DT_RUN_OPT("scale-lr"),
	DT_RUN_OPT("schedule"),
	DT_RUN_OPT("warmup"),
	DT_RUN_OPT("decay-steps"),
	DT_RUN_OPT("beta1"),
	DT_RUN_OPT("beta2"),
	DT_RUN_OPT("eps"),
	DT_RUN_OPT("weight-decay"),
	DT_RUN_OPT("no-decay"),
	DT_RUN_OPT("trust"),
	DT_RUN_OPT("clip"),
	DT_RUN_OPT("ema"),
	DT_RUN_OPT("noise-scale"),
	DT_OPT_HEADING("Images"),
	DT_RUN_OPT("image-size"),
	DT_RUN_OPT("crop"),
	DT_RUN_OPT("flip"),
	DT_RUN_OPT("cutout"),
	DT_RUN_OPT("mixup"),
	DT_RUN_OPT("cutmix"),
	DT_RUN_OPT("normalize"),
	DT_RUN_OPT("label-smoothing"),
	DT_RUN_OPT("bn-span"),
	DT_RUN_OPT("new-head"),
	DT_RUN_OPT("loader-threads"),
	DT_OPT_HEADING("Numbers and memory"),
	DT_RUN_OPT("precision"),
	DT_RUN_OPT("fp8"),
	DT_RUN_OPT("qat"),
	DT_RUN_OPT("balance-loss"),
	DT_RUN_OPT("balance-over"),
	DT_RUN_OPT("router-z-loss"),
	DT_RUN_OPT("router-bias-rate"),
	DT_RUN_OPT("capacity-factor"),
	DT_RUN_OPT("no-expert-overlap"),
	DT_RUN_OPT("master"),
	DT_RUN_OPT("recompute"),
	DT_RUN_OPT("ops"),
	DT_RUN_OPT("documents"),
	DT_RUN_OPT("stream-overlap"),
	DT_RUN_OPT("cp-comm"),
	DT_RUN_OPT("loss-chunk"),
	DT_RUN_OPT("mem-limit"),
	DT_RUN_OPT("offload"),
	DT_RUN_OPT("offload-to"),
	DT_RUN_OPT("offload-fraction"),
	DT_RUN_OPT("disk-bandwidth"),
	DT_RUN_OPT("seed"),
	DT_RUN_OPT("device"),
	DT_RUN_OPT("threads"),
	DT_RUN_OPT("loss-scale"),
	DT_RUN_OPT("reproducible"),
	DT_OPT_HEADING("Checkpoints"),
	DT_RUN_OPT("save"),
	DT_RUN_OPT("overwrite"),
	DT_RUN_OPT("save-every"),
	DT_RUN_OPT("keep"),
	DT_RUN_OPT("keep-every"),
	DT_RUN_OPT("save-async"),
	DT_RUN_OPT("save-errors"),
	DT_RUN_OPT("compress"),
	DT_RUN_OPT("save-grads"),
	DT_RUN_OPT("resume"),
	{"accept-change", 0, DT_OPT_STRS, &a.accept, "NAME",
	 "with --resume: let this option differ from the checkpoint's run; may be repeated",
	 .with = "resume"},
	DT_OPT_HEADING("Steps unlike others"),
	DT_RUN_OPT("on-spike"),
	DT_RUN_OPT("spike-window"),
	DT_RUN_OPT("spike-factor"),
	DT_RUN_OPT("nan-skips"),
	DT_RUN_OPT("find-nan"),
	DT_RUN_OPT("check-replicas"),
	DT_RUN_OPT("elastic"),
	DT_RUN_OPT("peer-copy"),
	{"inject", 0, DT_OPT_STRS, &a.inject, "FAULT",
	 "make a fault: kill, stop, nan, spike, slow, flip, wrong or enospc, with :rank=R,step=S ...; may be "
	 "repeated"},
	DT_OPT_HEADING("Reports"),
	DT_RUN_OPT("metrics"),
	DT_RUN_OPT("progress"),
	DT_RUN_OPT("eval-data"),
	DT_RUN_OPT("eval-every", .with = "eval-data"),
	DT_RUN_OPT("eval-tokens"),
	DT_RUN_OPT("mfu"),
	DT_RUN_OPT("error-file"),
	DT_RUN_OPT("trace"),
	DT_RUN_OPT("details"),
	DT_RUN_OPT("extremes"),
	DT_RUN_OPT("tensorboard"),
	DT_RUN_OPT("prometheus"),
	DT_OPT_HEADING("Communication"),
	{"comm-timeout", 0, DT_OPT_REAL, &a.timeout, "SECONDS",
	 "end the job when an operation between ranks takes longer; 0: never", .min = 0, .max = 1e9,
	 .def = "300"},
	{"flight-recorder", 0, DT_OPT_STR, &a.recorder, "FILE",
	 "keep the last 2000 operations of each rank in FILE.RANK, for dt-run explain",
	 .complete = DT_COMPLETE_FILE},
	{"transport", 0, DT_OPT_CHOICE, &a.transport, "auto|mpi",
	 "auto: shared memory inside a machine; mpi: MPI for everything", .def = "auto"},
	DT_RUN_OPT("grad-comm"),
	DT_RUN_OPT("sync"),
	DT_RUN_OPT("servers"),
	DT_RUN_OPT("server-comm"),
	DT_RUN_OPT("sync-from"),
	DT_RUN_OPT("shares"),
	DT_RUN_OPT("staleness-rate"),
	DT_RUN_OPT("delay-compensation"),
	DT_RUN_OPT("outer-lr"),
	DT_RUN_OPT("outer-momentum"),
	DT_RUN_OPT("outer-fragments"),
	DT_RUN_OPT("outer-delay"),
	DT_RUN_OPT("outer-mix"),
	DT_RUN_OPT("outer-comm"),
	DT_RUN_OPT("bucket-size"),
	DT_OPT_HEADING("dt-train verify: the same run on several layouts, compared with the first"),
	{"layouts", 0, DT_OPT_STR, &a.verify.layouts, "A,B[,C...]", "which layouts"},
	{"loss-bound", 0, DT_OPT_REAL, &a.verify.loss_bound, "X", "largest relative difference of a loss",
	 .min = 0, .max = 1e9, .def_text = "1e-5, bf16 1e-2"},
	{"tensor-bound", 0, DT_OPT_REAL, &a.verify.tensor_bound, "X",
	 "largest relative difference of a gradient norm, gradient or parameter", .min = 0, .max = 1e9,
	 .def_text = "1e-4, bf16 5e-2"},
	{"json", 0, DT_OPT_FLAG, &a.json, NULL, "a JSON line a layout; of --print-program, an object"},
	DT_OPT_END,
};
static struct dt_opt opts[DT_RUN_OPTS_MAX];

static const struct dt_program program = {
	.name = "dt-train",
	.summary = "train a model, one process a rank",
	.operands = "[verify]",
	.examples = examples,
	.opts = opts,
	.isa = dt_cpu_isa,
};

/* --schedule-table: nothing but layout and batch are needed. */
static int print_schedule(struct dt_err *err)
{
	double bubble;
	int rc = dt_listing_schedule(&a.o.run, a.o.layout ? a.o.layout : "dp1", stdout, &bubble, err);

	if (rc == 0 && bubble >= 0)
		fprintf(stderr,
			"dt-train: %d stages idle %.1f%% of the time where backward takes twice as long as "
			"forward\n",
			a.o.run.layout.pp, 100 * bubble);
	return rc;
}

/* --print-program: needs a model, layout and batch, no data, no other ranks. Returns an exit status. */
static int print_program(struct dt_err *err)
{
	struct dt_run *r = &a.o.run;
	struct dt_config config;
	json_t *o = NULL;
	int rc;

	if (dt_config_load(r->model, &config, err) < 0 || dt_config_set_vocab(&config, r->vocab, err) < 0)
		return DT_EXIT_FAILED;
	rc = dt_listing_run(r, &config, (int)a.rank, stdout, a.json ? &o : NULL, err);
	if (rc == 0 && a.json)
		rc = dt_json_write_line(stdout, o, err);
	json_decref(o);
	return rc == 0 ? DT_EXIT_OK : rc == -EINVAL || rc == -ENOTSUP ? DT_EXIT_USAGE : DT_EXIT_FAILED;
}

static bool given(const char *name)
{
	return dt_run_options_given(&a.o, name);
}

static void print_report(void *arg, const char *layout, const struct dt_verify_report *r, bool agrees)
{
	dt_verify_print(stdout, layout, r, agrees, a.verify.tensor_bound, a.json);
}

static int verify(char **args)
{
	struct dt_verify_opts *v = &a.verify;
	bool exact = a.o.run.compute == DT_F32 && !a.o.run.fp8;
	struct dt_err err = {0};
	int rc;

	if (!v->layouts)
		return dt_opt_usage_error(&program, stderr, "verify needs --layouts");
	if (a.o.run.save.dir || a.o.run.save.resume)
		return dt_opt_usage_error(&program, stderr,
					  "verify keeps no checkpoint: not with --save and --resume");
	v->args = args;
	v->each = print_report;
	v->loss_bound = v->loss_bound > 0 ? v->loss_bound : exact ? 1e-5 : 1e-2;
	v->tensor_bound = v->tensor_bound > 0 ? v->tensor_bound : exact ? 1e-4 : 5e-2;
	rc = dt_train_verify(v, &err);
	if (rc < 0 || dt_close_stdout(&err) < 0) {
		fprintf(stderr, "dt-train: %s%s%s\n", err.msg, err.hint[0] ? "; " : "", err.hint);
		return DT_EXIT_FAILED;
	}
	return rc ? DT_EXIT_NO : DT_EXIT_OK;
}

static void tell(void *arg, const char *text)
{
	if (dt_launch_speaks())
		dt_log_msg(arg, "%s", text);
}

/* What the command line and the checkpoint to go on from say together; -1: a run, else an exit status. */
static int make_run(const struct dt_log *log, struct dt_err *err)
{
	struct dt_run *r = &a.o.run;
	const char *complaint = dt_run_options_lonely(&a.o);
	int rc;

	if (complaint)
		return dt_opt_usage_error(&program, stderr, "%s", complaint);
	r->save.accept = &a.accept;
	r->inject = &a.inject;
	rc = dt_train_continue(&a.o, tell, (void *)log, err);
	if (rc < 0) {
		if (dt_launch_speaks()) {
			dt_log_err(log, err);
			dt_train_write_error(r->error_file, err);
		}
		return DT_EXIT_FAILED;
	}
	if (dt_objective_rule(r->objective.kind)->rewards &&
	    !r->data.train) /* what metrics must not be written over */
		r->data.train = r->rl.rollouts ? r->rl.rollouts : "";
	if (!a.schedule_table && !a.print_program && (!r->model || !r->data.train))
		return dt_opt_usage_error(&program, stderr, "--model and --data are needed%s",
					  r->model	  ? ": there is no --data"
					  : r->data.train ? ": there is no --model"
							  : "");
	if (dt_run_options_finish(&a.o, err) < 0)
		return dt_opt_usage_error(&program, stderr, "%s%s%s", err->msg, err->hint[0] ? "; " : "",
					  err->hint);
	return -1;
}

/* A terminal gets the progress line. JSON lines appear there too only when they were asked for. */
static void for_people(void)
{
	struct dt_run *r = &a.o.run;
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
	struct dt_world_opts wo = {.timeout_s = a.timeout,
				   .recorder = a.recorder,
				   .transport = a.transport ? DT_TRANSPORT_MPI : DT_TRANSPORT_AUTO,
				   .elastic = a.o.run.watch.elastic,
				   .join = a.o.run.watch.elastic ? getenv(DT_JOIN_ENV) : NULL};
	struct dt_world_info info;
	struct dt_err err = {0};
	const struct dt_given *given = NULL;
	struct dt_world *world;
	int status;

	dt_train_catch_signals();
	if (!wo.join) /* else its number is known once it has joined */
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
	if (dt_objective_rule(a.o.run.objective.kind)->rewards &&
	    dt_rl_feed_open(&a.o.run, &given, &err) < 0) {
		dt_log_err(log, &err);
		return DT_EXIT_FAILED;
	}
	status = dt_train_run(&a.o.run, given, world, log);
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
	if (a.verify.layouts)
		return dt_opt_usage_error(&program, stderr, "--layouts is for dt-train verify");
	if (a.o.run.watch.elastic && a.transport)
		return dt_opt_usage_error(&program, stderr, "--elastic does not go with --transport mpi");
	if (a.o.run.watch.elastic && !a.print_program && dt_launch_ends_all())
		return dt_opt_usage_error(&program, stderr,
					  "--elastic needs mpirun --enable-recovery, or dt-run: mpirun ends "
					  "all ranks with one");
	signal(SIGPIPE, SIG_IGN);
	if (a.print_program) {
		status = print_program(&err);
		if (status == DT_EXIT_OK && dt_close_stdout(&err) < 0)
			status = DT_EXIT_FAILED;
		if (status != DT_EXIT_OK)
			dt_log_err(&log, &err);
		return status;
	}
	if (!a.schedule_table)
		return train(&log);
	if (print_schedule(&err) < 0)
		return dt_opt_usage_error(&program, stderr, "%s", err.msg);
	return dt_close_stdout(&err) < 0 ? dt_log_err(&log, &err), DT_EXIT_FAILED : DT_EXIT_OK;
}

int main(int argc, char **argv)
{
	char **words; /* before parsing reorders them */
	int status;

	if (dt_actor_is())
		return dt_actor_main();
	words = calloc((size_t)argc + 1, sizeof(*words));
	if (!words)
		return DT_EXIT_FAILED;
	memcpy(words, argv, (size_t)argc * sizeof(*words));
	dt_run_options_table(&a.o, own, opts);
	status = run(argc, argv, words);
	free(words);
	return status;
}
/* SPDX-License-Identifier: Apache-2.0 */
