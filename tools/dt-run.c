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
	 "how many ranks; mpirun and the layout are then written here, and the command is dt-train's alone"},
	{"discover", 0, DT_OPT_STR, &a.o.discover, "COMMAND", "lists the hosts, NAME[:SLOTS] a line"},
	{"discover-every", 0, DT_OPT_REAL, &a.o.discover_s, "SECONDS", "between two of them", .min = 0.1,
	 .max = 1e6, .def = "30"},
	{"launcher", 0, DT_OPT_STR, &a.o.launcher, "COMMAND", "what starts ranks, with its own options",
	 .def = "mpirun"},
	{"cluster", 0, DT_OPT_STR, &a.o.cluster, "FILE",
	 "description of the machines for the choice of a layout, of dt-plan --emit cluster",
	 .def_text = "this one", .complete = DT_COMPLETE_FILE},
	{"cool-down", 0, DT_OPT_REAL, &a.o.cool_s, "SECONDS",
	 "a host that cannot be reached is left out for so long, then for twice as long", .min = 0,
	 .max = 1e6, .def = "60"},
	DT_OPT_HEADING("What is a failure"),
	{"heartbeat-timeout", 0, DT_OPT_REAL, &a.o.heartbeat_s, "SECONDS",
	 "a rank not heard for so long is lost; 0: never", .min = 0, .max = 1e6, .def = "5"},
	{"step-timeout", 0, DT_OPT_REAL, &a.o.step_s, "SECONDS", "longest time without a new step; 0: any",
	 .min = 0, .max = 1e9, .def = "600"},
	{"replace", 0, DT_OPT_FLAG, &a.o.replace, NULL,
	 "with dt-train --elastic: a new process joins in place of a rank that is lost"},
	{"slow", 0, DT_OPT_SHARE, &a.o.slow, "X",
	 "name a rank that computes at less than this share of the others' pace; 0: do "
	 "not look",
	 .min = 0, .max = 1, .def = "0.6"},
	{"evict-slow", 0, DT_OPT_SHARE, &a.o.evict, "X",
	 "and leave its host out, or with --elastic its process; 0: never", .min = 0, .max = 1, .def = "0"},
	{"tries", 0, DT_OPT_INT, &a.tries, "N", "starts without a new step after which it is given up",
	 .min = 1, .max = 1000, .def = "3"},
	DT_OPT_HEADING("Ends and checkpoints on request"),
	{"notice", 0, DT_OPT_STR, &a.o.notice, "COMMAND",
	 "exits 0 when this machine is about to be taken away"},
	{"notice-every", 0, DT_OPT_REAL, &a.o.notice_s, "SECONDS", "between two of them", .min = 0.1,
	 .max = 1e6, .def = "5"},
	{"kill-file", 0, DT_OPT_STR, &a.o.kill_file, "FILE",
	 "when it is there: save, end, and start nothing"},
	{"save-file", 0, DT_OPT_STR, &a.o.save_file, "FILE", "when it is there: remove it and save"},
	{"grace", 0, DT_OPT_REAL, &a.o.grace_s, "SECONDS",
	 "for the checkpoint and the end of a job that was asked to end", .min = 0, .max = 1e6, .def = "120"},
	DT_OPT_HEADING("Checkpoints elsewhere"),
	{"mirror", 0, DT_OPT_STR, &a.o.mirror, "COMMAND",
	 "sends each checkpoint: %s is its folder, %n its name there"},
	{"mirror-get", 0, DT_OPT_STR, &a.o.mirror_get, "COMMAND",
	 "fetches the folder %n of the mirror as %s, to check it and to start from it"},
	{"mirror-remove", 0, DT_OPT_STR, &a.o.mirror_remove, "COMMAND",
	 "removes the folder %n of the mirror: as many checkpoints stay as --keep of dt-train says",
	 .with = "mirror", .def_text = "all stay"},
	{"mirror-timeout", 0, DT_OPT_REAL, &a.o.mirror_s, "SECONDS", "longest time of one of these commands",
	 .min = 0.1, .max = 1e6, .def = "3600"},
	DT_OPT_HEADING("Reports"),
	{"events", 0, DT_OPT_STR, &a.o.events, "FILE",
	 "append what happens as JSON Lines; - is standard output", .complete = DT_COMPLETE_FILE},
	{"prometheus", 0, DT_OPT_STR, &a.o.prometheus, "FILE", "a page for Prometheus, renewed each second",
	 .complete = DT_COMPLETE_FILE},
	DT_OPT_HEADING("dt-run sweep: the command with other options, many times"),
	{"grid", 0, DT_OPT_STRS, &a.sweep.grid, "OPTION=A,B,...",
	 "each of these values, with each of the others"},
	{"random", 0, DT_OPT_STRS, &a.sweep.random, "OPTION=LOW:HIGH[:log][:int]",
	 "values drawn between; log: evenly in the logarithm; int: whole numbers"},
	{"samples", 0, DT_OPT_INT, &a.sweep.samples, "N", "how many times --random draws", .min = 1,
	 .max = 9999, .def = "16", .with = "random"},
	{"sweep-seed", 0, DT_OPT_INT, &a.sweep.seed, "N", "of what --random draws", .def = "1",
	 .with = "random"},
	{"halve", 0, DT_OPT_INT, &a.sweep.halve, "K",
	 "successive halving: one trial in K trains on, K times as far", .min = 2, .max = 100,
	 .def_text = "all train to the end"},
	{"first", 0, DT_OPT_INT, &a.sweep.first, "STEPS", "with --halve: how far all train", .min = 1,
	 .max = 1e12},
	{"dir", 0, DT_OPT_STR, &a.sweep.dir, "DIR", "a folder for each trial, and sweep.jsonl",
	 .complete = DT_COMPLETE_DIR, .def = "sweep"},
	{"metric", 0, DT_OPT_STR, &a.sweep.metric, "KEY", "what is compared, of the metrics lines",
	 .def_text = "eval_loss with --eval-data, else loss"},
	{"last", 0, DT_OPT_INT, &a.sweep.last, "N", "the mean of its last N values counts", .min = 1,
	 .max = 1000, .def_text = "10 of loss, else 1"},
	{"largest", 0, DT_OPT_FLAG, &a.sweep.largest, NULL, "the largest is best, not the smallest"},
	{"jobs", 0, DT_OPT_INT, &a.sweep.jobs, "N", "trials at a time", .min = 1, .max = 4096,
	 .def_text = "processors over the ranks of a trial"},
	DT_OPT_END,
};

static const struct dt_program program = {
	.name = "dt-run",
	.summary = "keep a training job or a server running: restart, shrink, grow, stop in good order",
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
		return dt_opt_usage_error(&program, stderr, "explain needs the recordings of the ranks");
	found = dt_supervise_explain(path, n, stdout, &err);
	if (found < 0)
		fprintf(stderr, "dt-run: %s\n", err.msg);
	return found < 0 ? DT_EXIT_FAILED : found ? DT_EXIT_NO : DT_EXIT_OK;
}

static int sweep(int n, char **argv, const struct dt_log *log)
{
	struct dt_err err = {0};

	if (n < 1)
		return dt_opt_usage_error(&program, stderr, "sweep needs a command of dt-train");
	if ((a.sweep.halve != 0) != (a.sweep.first != 0))
		return dt_opt_usage_error(&program, stderr, "--halve and --first belong together");
	a.sweep.argv = argv;
	a.sweep.log = log;
	return dt_sweep_run(&a.sweep, stdout, &err);
}

static int run(int n, char **argv)
{
	struct dt_log log = {.f = stderr, .name = program.name, .rank = -1};

	if (n < 1)
		return dt_opt_usage_error(&program, stderr, "a command is missing");
	if (a.ranks && !parse_ranks(a.ranks, &a.o.min_ranks, &a.o.max_ranks))
		return dt_opt_usage_error(&program, stderr, "option '--ranks': '%s' is not MIN[:MAX]",
					  a.ranks);
	if (!a.ranks && (a.o.discover || a.o.cluster))
		return dt_opt_usage_error(&program, stderr, "--discover and --cluster need --ranks");
	if (!a.o.mirror != !a.o.mirror_get)
		return dt_opt_usage_error(&program, stderr, "--mirror and --mirror-get belong together");
	if (a.o.mirror_remove && !strstr(a.o.mirror_remove, "%n"))
		return dt_opt_usage_error(&program, stderr,
					  "--mirror-remove has no %%n: what is it to remove?");
	if (!strcmp(argv[1], "sweep"))
		return sweep(n - 1, argv + 2, &log);
	if (a.sweep.grid.n || a.sweep.random.n)
		return dt_opt_usage_error(&program, stderr, "--grid and --random belong to sweep");
	if (!strcmp(argv[1], "explain"))
		return explain(n - 1, argv + 2);
	a.o.argv = argv + 1;
	a.o.tries = (int)a.tries;
	a.o.log = &log;
	return dt_supervise_run(&a.o);
}

int main(int argc, char **argv)
{
	struct dt_err err = {0};
	int status, n = dt_opt_main(&program, argc, argv, stdout, stderr, &status);

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
