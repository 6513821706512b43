/* dt-run: supervises a training job. */
#include "base/log.h"
#include "base/opt.h"
#include "base/tmpfile.h"
#include "supervise/explain.h"
#include "supervise/supervise.h"
#include "supervise/sweep.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct {
	struct dt_supervise o;
	const char *ranks;
	int64_t tries;
	struct dt_sweep sweep;
} a;

static const char *const examples[] = {
	"dt-run -- mpirun -np 4 dt-train --model gpt2-124m --data corpus.h5 --save run --save-every 100",
	"dt-run --ranks 2:4 --discover 'cat hosts' -- dt-train --model gpt2-124m --data corpus.h5 --save run "
	"--save-every 100",
	"dt-run sweep --grid lr=1e-3,3e-3 --grid warmup=10,100 --halve 3 --first 100 -- dt-train --model "
	"gpt2-mini "
	"--data corpus.h5 --eval-data eval.h5 --steps 900",
	"dt-run explain flight.*",
	NULL,
};

static const struct dt_opt opts[] = {
	DT_OPT_HEADING("Where ranks run"),
	{"ranks", 0, DT_OPT_STR, &a.ranks, "MIN[:MAX]",
	 "number of ranks; dt-run writes the mpirun command line and the layout, COMMAND begins with "
	 "dt-train"},
	{"discover", 0, DT_OPT_STR, &a.o.discover, "COMMAND",
	 "shell command that lists the hosts, NAME[:SLOTS] a line"},
	{"discover-every", 0, DT_OPT_REAL, &a.o.discover_s, "SECONDS", "time between two runs of --discover",
	 .min = 0.1, .max = 1e6, .def = "30"},
	{"launcher", 0, DT_OPT_STR, &a.o.launcher, "COMMAND", "launcher of the ranks, with its own options",
	 .def = "mpirun"},
	{"cluster", 0, DT_OPT_STR, &a.o.cluster, "FILE",
	 "description of the machines for the choice of a layout, from dt-plan --emit cluster",
	 .def_text = "this machine", .complete = DT_COMPLETE_FILE},
	{"cool-down", 0, DT_OPT_REAL, &a.o.cool_s, "SECONDS",
	 "time for which an unreachable host is left out; doubles each time it fails again", .min = 0,
	 .max = 1e6, .def = "60"},
	DT_OPT_HEADING("Failure detection"),
	{"heartbeat-timeout", 0, DT_OPT_REAL, &a.o.heartbeat_s, "SECONDS",
	 "time without a heartbeat after which a rank counts as lost; 0: never", .min = 0, .max = 1e6,
	 .def = "5"},
	{"step-timeout", 0, DT_OPT_REAL, &a.o.step_s, "SECONDS",
	 "longest time without a new step; 0: no limit", .min = 0, .max = 1e9, .def = "600"},
	{"replace", 0, DT_OPT_FLAG, &a.o.replace, NULL,
	 "with dt-train --elastic: start a new process for each rank that is lost"},
	{"slow", 0, DT_OPT_SHARE, &a.o.slow, "X",
	 "report ranks that compute slower than this fraction of the median speed; 0: do not check", .min = 0,
	 .max = 1, .def = "0.6"},
	{"evict-slow", 0, DT_OPT_SHARE, &a.o.evict, "X",
	 "exclude the host of a rank slower than this, or with --elastic kill its process; 0: never",
	 .min = 0, .max = 1, .def = "0"},
	{"tries", 0, DT_OPT_INT, &a.tries, "N", "give up after N starts in a row without a new step",
	 .min = 1, .max = 1000, .def = "3"},
	DT_OPT_HEADING("Stopping and saving on request"),
	{"notice", 0, DT_OPT_STR, &a.o.notice, "COMMAND",
	 "shell command that exits with 0 when this machine is about to be reclaimed"},
	{"notice-every", 0, DT_OPT_REAL, &a.o.notice_s, "SECONDS", "time between two runs of --notice",
	 .min = 0.1, .max = 1e6, .def = "5"},
	{"kill-file", 0, DT_OPT_STR, &a.o.kill_file, "FILE",
	 "if this file exists: save a checkpoint, stop, and start nothing"},
	{"save-file", 0, DT_OPT_STR, &a.o.save_file, "FILE",
	 "if this file exists: remove it and save a checkpoint"},
	{"grace", 0, DT_OPT_REAL, &a.o.grace_s, "SECONDS",
	 "time that a job has to save and exit after it was asked to stop; then it is killed", .min = 0,
	 .max = 1e6, .def = "120"},
	DT_OPT_HEADING("Remote copies of checkpoints"),
	{"mirror", 0, DT_OPT_STR, &a.o.mirror, "COMMAND",
	 "shell command that uploads the checkpoint folder %s under the name %n"},
	{"mirror-get", 0, DT_OPT_STR, &a.o.mirror_get, "COMMAND",
	 "shell command that downloads %n into the folder %s, to verify it or to start from it"},
	{"mirror-remove", 0, DT_OPT_STR, &a.o.mirror_remove, "COMMAND",
	 "shell command that removes %n from the mirror, so that as many stay as --keep of dt-train says",
	 .with = "mirror", .def_text = "all stay"},
	{"mirror-timeout", 0, DT_OPT_REAL, &a.o.mirror_s, "SECONDS", "longest time of a mirror command",
	 .min = 0.1, .max = 1e6, .def = "3600"},
	DT_OPT_HEADING("Reports"),
	{"events", 0, DT_OPT_STR, &a.o.events, "FILE", "append events as JSON Lines; - is standard output",
	 .complete = DT_COMPLETE_FILE},
	{"prometheus", 0, DT_OPT_STR, &a.o.prometheus, "FILE",
	 "write metrics for Prometheus to FILE every second", .complete = DT_COMPLETE_FILE},
	DT_OPT_HEADING("Options of sweep"),
	{"grid", 0, DT_OPT_STRS, &a.sweep.grid, "OPTION=A,B,...",
	 "values to try for an option of dt-train; all combinations of several --grid are run"},
	{"random", 0, DT_OPT_STRS, &a.sweep.random, "OPTION=LOW:HIGH[:log][:int]",
	 "draw values uniformly between the bounds; log: uniform logarithm; int: rounded"},
	{"samples", 0, DT_OPT_INT, &a.sweep.samples, "N", "number of draws of --random", .min = 1,
	 .max = 9999, .def = "16", .with = "random"},
	{"sweep-seed", 0, DT_OPT_INT, &a.sweep.seed, "N", "random seed of --random", .def = "1",
	 .with = "random"},
	{"halve", 0, DT_OPT_INT, &a.sweep.halve, "K",
	 "successive halving: the best 1 in K trials continue, for K times as many steps", .min = 2,
	 .max = 100, .def_text = "all train to the end"},
	{"first", 0, DT_OPT_INT, &a.sweep.first, "STEPS", "with --halve: steps that all trials train",
	 .min = 1, .max = 1e12},
	{"dir", 0, DT_OPT_STR, &a.sweep.dir, "DIR",
	 "folder of the sweep: a subfolder a trial, and sweep.jsonl", .complete = DT_COMPLETE_DIR,
	 .def = "sweep"},
	{"metric", 0, DT_OPT_STR, &a.sweep.metric, "KEY",
	 "key of the metrics lines by which trials are compared",
	 .def_text = "eval_loss with --eval-data, else loss"},
	{"last", 0, DT_OPT_INT, &a.sweep.last, "N", "compare the mean of the last N values of the metric",
	 .min = 1, .max = 1000, .def_text = "10 of loss, else 1"},
	{"largest", 0, DT_OPT_FLAG, &a.sweep.largest, NULL,
	 "the largest value of the metric is the best, not the smallest"},
	{"jobs", 0, DT_OPT_INT, &a.sweep.jobs, "N", "number of trials that run at a time", .min = 1,
	 .max = 4096, .def_text = "processors divided by ranks of a trial"},
	DT_OPT_END,
};

static const struct dt_program program = {
	.name = "dt-run",
	.summary =
		"restart a training job or a server when it fails, resize it, stop it cleanly; sweep options",
	.operands = "-- COMMAND ... | sweep -- COMMAND ... | explain FILE ...",
	.examples = examples,
	.opts = opts,
};

/* Parses MIN or MIN:MAX; false: neither. */
static bool parse_ranks(const char *s, int *min, int *max)
{
	char *end;
	long lo = strtol(s, &end, 10), hi = lo;

	if (end == s)
		return false;
	if (*end == ':') {
		s = end + 1;
		hi = strtol(s, &end, 10);
		if (end == s)
			return false;
	}
	*min = (int)lo;
	*max = (int)hi;
	return !*end && lo >= 1 && hi >= lo && hi <= 1 << 20;
}

static int explain(int n, char **path)
{
	struct dt_err err = {0};
	int found;

	if (n < 1)
		return dt_opt_usage_error(&program, stderr, "explain needs the recording files of the ranks");
	found = dt_supervise_explain(path, n, stdout, &err);
	if (found < 0)
		fprintf(stderr, "dt-run: %s\n", err.msg);
	return found < 0 ? DT_EXIT_FAILED : found ? DT_EXIT_NO : DT_EXIT_OK;
}

static int sweep(int n, char **argv, const struct dt_log *log)
{
	struct dt_err err = {0};

	if (n < 1)
		return dt_opt_usage_error(&program, stderr, "sweep needs a dt-train command after --");
	if ((a.sweep.halve != 0) != (a.sweep.first != 0))
		return dt_opt_usage_error(&program, stderr, "--halve and --first need each other");
	a.sweep.argv = argv;
	a.sweep.log = log;
	return dt_sweep_run(&a.sweep, stdout, &err);
}

static int run(int n, char **argv)
{
	struct dt_log log = {.f = stderr, .name = program.name, .rank = -1};

	if (n < 1)
		return dt_opt_usage_error(&program, stderr, "a command is missing after --");
	if (a.ranks && !parse_ranks(a.ranks, &a.o.min_ranks, &a.o.max_ranks))
		return dt_opt_usage_error(&program, stderr, "option '--ranks': '%s' is not MIN[:MAX]",
					  a.ranks);
	if (!a.ranks && (a.o.discover || a.o.cluster))
		return dt_opt_usage_error(&program, stderr, "--discover and --cluster need --ranks");
	if (!a.o.mirror != !a.o.mirror_get)
		return dt_opt_usage_error(&program, stderr, "--mirror and --mirror-get need each other");
	if (a.o.mirror && (!strstr(a.o.mirror, "%s") || !strstr(a.o.mirror_get, "%s")))
		return dt_opt_usage_error(&program, stderr,
					  "--mirror%s has no %%s, the path of the folder to %s",
					  strstr(a.o.mirror, "%s") ? "-get" : "",
					  strstr(a.o.mirror, "%s") ? "create" : "upload");
	if (a.o.mirror_remove && !strstr(a.o.mirror_remove, "%n"))
		return dt_opt_usage_error(&program, stderr,
					  "--mirror-remove has no %%n, the name of the folder to remove");
	if (!strcmp(argv[1], "sweep"))
		return sweep(n - 1, argv + 2, &log);
	if (a.sweep.grid.n || a.sweep.random.n)
		return dt_opt_usage_error(&program, stderr, "--grid and --random are options of sweep");
	if (!strcmp(argv[1], "explain"))
		return explain(n - 1, argv + 2);
	a.o.argv = argv + 1;
	a.o.tries = (int)a.tries;
	a.o.log = &log;
	return dt_supervise_run(&a.o);
}

/* Whether a command of dt-train or dt-serve follows without --: its options would be taken for dt-run's. */
static bool lacks_dashes(int n, char *const *argv)
{
	bool command = false;

	for (int i = 1; i < n; i++) {
		const char *name = basename(argv[i]);

		if (!strcmp(argv[i], "--") || !strcmp(argv[i], "explain"))
			return false;
		command = command || (i + 1 < n && (!strcmp(name, "dt-train") || !strcmp(name, "dt-serve")));
	}
	return command;
}

int main(int argc, char **argv)
{
	struct dt_err err = {0};
	int status, n;

	if (lacks_dashes(argc, argv))
		return dt_opt_usage_error(&program, stderr,
					  "the command must follow --: dt-run [option ...] -- COMMAND");
	n = dt_opt_main(&program, argc, argv, stdout, stderr, &status);

	if (n >= 0)
		status = run(n, argv);
	if (dt_close_stdout(&err) < 0 && status != DT_EXIT_FAILED) {
		if (err.code != -EPIPE)
			fprintf(stderr, "dt-run: %s\n", err.msg);
		status = DT_EXIT_FAILED;
	}
	return status;
}
/* SPDX-License-Identifier: Apache-2.0 */
