/* dt-allreduce-bench: times and checks collectives, with the columns of nccl-tests; fits link costs. */
#include "base/launch.h"
#include "base/program.h"
#include "base/tmpfile.h"
#include "bench/session.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#define RESULTS_MAX 4096
#define DEFAULT_MAX ((uint64_t)64 << 20)

/* Options about calls of real ranks, which --simulate does not read. */
#define NOT_SIMULATED                                                                                        \
	"iters,warmup,check,op,root,cold,cache-size,buffers,compare,skew,transport,fit,timeout,explain,"     \
	"compress,stats,latency,min-busbw"

static struct {
	uint64_t min_bytes, max_bytes, step_bytes;
	bool max_given;
	double factor, min_busbw, timeout_s;
	int64_t iters, warmup, check, root;
	int kind, op, transport;
	const char *datatype;
	int buffers, algorithm, compress;
	bool compress_given, explain;
	double keep;
	int64_t rank;
	uint64_t cache;
	const char *simulate;
	bool stats, cold, fit, json, compare, skew, latency;
} opt;
static struct dt_bench_sizes sizes;

/* clang-format off: one or two lines per option */
static const struct dt_opt opts[] = {
	{"collective", 0, DT_OPT_CHOICE, &opt.kind, DT_BENCH_CHOICES "|all",
	 "collective to run; all: one after another", .def = "all-reduce"},
	DT_OPT_HEADING("Sizes, in bytes as in the size column"),
	{"min-bytes", 'b', DT_OPT_SIZE, &opt.min_bytes, "SIZE", "smallest size", .min = 1, .def = "1KiB"},
	{"max-bytes", 'e', DT_OPT_SIZE, &opt.max_bytes, "SIZE", "largest size", .given = &opt.max_given,
	 .def_text = "64MiB, or the smallest if that is larger"},
	{"step-bytes", 'i', DT_OPT_SIZE, &opt.step_bytes, "SIZE", "add SIZE from one size to the next",
	 .min = 1, .without = "step-factor"},
	{"step-factor", 'f', DT_OPT_REAL, &opt.factor, "X", "multiply by X from one size to the next",
	 .min = 1.01, .max = 1e6, .def = "4"},
	DT_OPT_HEADING("Measurement"),
	{"iters", 'n', DT_OPT_INT, &opt.iters, "N", "timed calls for each size", .min = 1, .max = 1000000,
	 .def = "20"},
	{"warmup", 'w', DT_OPT_INT, &opt.warmup, "N", "warm-up calls before the timed ones", .max = 1000000,
	 .def = "5"},
	{"check", 'c', DT_OPT_INT, &opt.check, "0|1", "whether to check every element of one more call",
	 .min = 0, .max = 1, .def = "1"},
	{"op", 'o', DT_OPT_CHOICE, &opt.op, DT_BENCH_OPS, "reduction", .def = "sum"},
	{"datatype", 'd', DT_OPT_STR, &opt.datatype, "TYPE",
	 "element type: fp32, bf16, fp16, fp64, int32, int64, uint8, uint16, int8; or float, bfloat16, half, "
	 "double",
	 .def = "fp32"},
	{"root", 'r', DT_OPT_INT, &opt.root, "RANK", "root of a broadcast, reduce, gather or scatter",
	 .max = 1 << 24, .min = 0, .def = "0"},
	{"cold", 0, DT_OPT_FLAG, &opt.cold, NULL,
	 "walk through buffers larger than the last-level cache, so that no data is cached"},
	{"cache-size", 0, DT_OPT_SIZE, &opt.cache, "SIZE",
	 "size of the last-level cache, which the buffers of --cold and of the copy bandwidth exceed",
	 .min = 1, .def_text = "what the system reports"},
	{"buffers", 0, DT_OPT_CHOICE, &opt.buffers, "registered|plain",
	 "registered: ranks of a machine map each other's buffers; plain: data is copied",
	 .def = "registered"},
	{"compare", 0, DT_OPT_FLAG, &opt.compare, NULL,
	 "also time each call with plain MPI; print the ratio of the times and its upper limit"},
	{"skew", 0, DT_OPT_FLAG, &opt.skew, NULL, "print when each rank arrives at the calls"},
	{"transport", 0, DT_OPT_CHOICE, &opt.transport, "auto|mpi",
	 "auto: shared memory inside a machine; mpi: MPI for everything", .def = "auto"},
	{"fit", 0, DT_OPT_FLAG, &opt.fit, NULL,
	 "fit latency and bandwidth of each link class (always done with --json)"},
	{"timeout", 0, DT_OPT_REAL, &opt.timeout_s, "SECONDS",
	 "end the job if a call takes longer; 0: no limit", .min = 0, .max = 1e6, .def = "60"},
	DT_OPT_HEADING("Algorithms"),
	{"algorithm", 'a', DT_OPT_CHOICE, &opt.algorithm, DT_ALG_CHOICES "|all",
	 "algorithm; all: a table of sizes by algorithms", .def = "auto"},
	{"explain", 0, DT_OPT_FLAG, &opt.explain, NULL,
	 "measure message costs, predict the time of every algorithm, and print which is chosen"},
	{"simulate", 0, DT_OPT_STR, &opt.simulate, "TOPOLOGY",
	 "without ranks, simulate every algorithm on flat, fat-tree, rail, torus or dragonfly:RANKS",
	 .without = NOT_SIMULATED},
	{"compress", 0, DT_OPT_CHOICE, &opt.compress, DT_COMPRESS_CHOICES,
	 "also time compressed all-reduces, and print the link bandwidth below which they are faster",
	 .given = &opt.compress_given},
	{"compress-rank", 0, DT_OPT_INT, &opt.rank, "N", "powersgd: rank of the factors", .min = 1,
	 .max = 1024, .def = "4", .with = "compress"},
	{"compress-keep", 0, DT_OPT_SHARE, &opt.keep, "SHARE", "top-k: share of the entries sent",
	 .min = 1e-9, .max = 1, .def = "1%", .with = "compress"},
	DT_OPT_HEADING("Output"),
	{"stats", 0, DT_OPT_FLAG, &opt.stats, NULL,
	 "add columns: fastest, mean, median and 99th percentile call, and the reached fraction of the "
	 "memory bandwidth bound"},
	{"latency", 0, DT_OPT_FLAG, &opt.latency, NULL,
	 "print the columns of the OSU micro-benchmarks instead", .without = "stats,compare"},
	{"json", 0, DT_OPT_FLAG, &opt.json, NULL, "print one JSON object instead of the table"},
	{"min-busbw", 0, DT_OPT_RATE, &opt.min_busbw, "RATE",
	 "exit with status 3 if the average bus bandwidth is below this: 10GB/s, 80Gb/s", .min = 0,
	 .max = 1e9},
	DT_OPT_END,
};
/* clang-format on */

static const char *const examples[] = {
	"mpirun -np 4 dt-allreduce-bench -b 8 -e 256M -f 2",
	"mpirun -np 2 dt-allreduce-bench --json | jq '.links'",
	"mpirun -np 8 dt-allreduce-bench --collective all -d bf16 --stats",
	NULL,
};

static const struct dt_program program = {
	.name = "dt-allreduce-bench",
	.summary = "time and check collectives between ranks",
	.operands = "",
	.examples = examples,
	.opts = opts,
};

static int write_json(struct dt_bench_session *b, struct dt_err *err)
{
	json_t *o = dt_bench_report_json(&b->info, &b->totals, b->results, b->compression);
	int rc = o ? dt_json_write_line(stdout, o, err) : dt_err_sys(err, -ENOMEM, "results");

	json_decref(o);
	return rc;
}

/*
 * With --json stdout is one valid object even if the run is interrupted: the results so far. The ranks may be
 * inside a collective, so a thread waits for the signal and ends the program.
 */
static void *on_signal(void *arg)
{
	struct dt_bench_session *b = arg;
	struct dt_err err;
	sigset_t set;
	int sig;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	if (sigwait(&set, &sig))
		return NULL;
	pthread_mutex_lock(b->lock); /* never unlocked: freezes the results */
	b->totals.interrupted = true;
	b->totals.nlink = 0;
	if (!write_json(b, &err))
		dt_close_stdout(&err);
	_exit(DT_EXIT_FAILED);
}

static int catch_signals(struct dt_bench_session *b, struct dt_err *err)
{
	pthread_t thread;
	sigset_t set;
	int rc;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	rc = pthread_create(&thread, NULL, on_signal, b);
	if (!rc)
		pthread_detach(thread);
	return rc ? dt_err_sys(err, -rc, "thread") : 0;
}

/* The run between MPI's init and finalize. Returns an exit status, the same on all ranks. */
static int run(struct dt_bench_session *b, struct dt_err *err)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	bool speaks = b->info.world.rank == 0;
	int rc = 0;

	b->lock = &lock;
	if (speaks && opt.json) {
		b->results = json_array();
		b->compression = opt.compress_given ? json_array() : NULL;
		rc = catch_signals(b, err);
	} else if (speaks) {
		b->table = stdout;
	}
	if (!rc)
		rc = dt_bench_session_run(b, err);
	pthread_mutex_lock(&lock); /* never unlocked: the other thread must not print a second object */
	if (!rc && b->results)
		rc = write_json(b, err);
	else if (!rc && b->table)
		dt_bench_print_totals(b->table, &b->totals);
	json_decref(b->results);
	json_decref(b->compression);
	if (rc)
		return DT_EXIT_FAILED;
	return b->totals.wrong || b->totals.avg_busbw_gbs < opt.min_busbw ? DT_EXIT_NO : DT_EXIT_OK;
}

/* Times collectives over all ranks. Returns an exit status; on FAILED the other ranks have been ended too. */
static int measure(struct dt_world *w, enum dt_dtype t, const struct dt_log *log)
{
	struct dt_compress_opts compress = {
		.kind = (enum dt_compress_kind)opt.compress, .rank = (int)opt.rank, .keep = opt.keep};
	struct dt_bench_session b = {.o = {.kind = (enum dt_bench_kind)opt.kind,
					   .algorithm = (enum dt_alg)opt.algorithm,
					   .sizes = sizes,
					   .warmup = (int)opt.warmup,
					   .cache = opt.cache,
					   .check = opt.check,
					   .explain = opt.explain,
					   .skew = opt.skew,
					   .fit = opt.fit || opt.json,
					   .latency = opt.latency,
					   .compress = opt.compress_given ? &compress : NULL},
				     .info = {.program = program.name,
					      .t = t,
					      .op = (enum dt_redop)opt.op,
					      .root = (int)opt.root,
					      .iters = opt.iters,
					      .cold = opt.cold,
					      .stats = opt.stats,
					      .compare = opt.compare}};
	struct dt_err err = {0};
	int status;

	dt_world_info(w, &b.info.world);
	b.info.registered = opt.buffers == 0 && opt.transport == 0 && b.info.world.local_size > 1;
	if (dt_comm_create(&b.c, w, "world", 0, 0, &err)) {
		dt_log_err(log, &err);
		dt_world_abort(w, DT_EXIT_FAILED);
	}
	b.info.transport = dt_comm_transport(b.c);
	if (b.o.algorithm != DT_ALG_N && dt_comm_set_algorithm(b.c, b.o.algorithm, &err)) {
		if (b.info.world.rank == 0)
			dt_log_err(log, &err);
		dt_world_finalize(w);
		return DT_EXIT_FAILED;
	}
	status = run(&b, &err);
	if (status == DT_EXIT_FAILED) {
		if (err.code != -EPIPE)
			dt_log_err(log, &err);
		dt_world_abort(w, status);
	}
	dt_world_finalize(w);
	dt_bench_session_release(&b);
	return status;
}

/* --simulate: predicts every algorithm on a described network. */
static int simulate(enum dt_dtype type, struct dt_err *err)
{
	int first = opt.kind == DT_BENCH_N ? 0 : opt.kind;
	int last = opt.kind == DT_BENCH_N ? DT_BENCH_N - 1 : opt.kind;
	enum dt_alg only = opt.algorithm == DT_ALG_N ? DT_ALG_AUTO : (enum dt_alg)opt.algorithm;
	json_t *results = json_array(), *o;
	double time_s[DT_ALG_N];
	struct dt_bench_topo t;
	char name[32];
	int rc = dt_bench_topo_parse(opt.simulate, &t, err);

	for (int k = first; k <= last && !rc; k++) {
		enum dt_bench_kind kind = (enum dt_bench_kind)k;
		unsigned set = 0;

		for (int a = DT_ALG_NAIVE; a < DT_ALG_N; a++)
			if (dt_bench_has_algorithm(kind, (enum dt_alg)a) &&
			    (only == DT_ALG_AUTO || only == (enum dt_alg)a))
				set |= 1u << a;
		if (set && !opt.json) {
			printf("# %s simulated on %s\n",
			       dt_opt_choice_name(DT_BENCH_CHOICES, k, name, sizeof(name)), opt.simulate);
			dt_bench_print_algorithms_head(stdout, set);
		}
		for (size_t s = sizes.min; s <= sizes.max && !rc && set; s = dt_bench_next_size(&sizes, s)) {
			rc = dt_bench_simulate_all(&t, kind, s, type, only, time_s, err);
			if (!rc && opt.json)
				dt_bench_simulated_json(&t, kind, s, time_s, results);
			else if (!rc)
				dt_bench_print_algorithms_row(stdout, set, s, NULL, time_s, NULL);
		}
	}
	if (!rc && opt.json) {
		o = json_pack("{s:i, s:s, s:s, s:i, s:O}", "schema", 1, "program", program.name, "topology",
			      opt.simulate, "ranks", t.ranks, "results", results);
		rc = o ? dt_json_write_line(stdout, o, err) : dt_err_sys(err, -ENOMEM, "results");
		json_decref(o);
	}
	json_decref(results);
	return rc;
}

/* What does not go together by value. Reports a usage error; 0: none. */
static int check_combinations(enum dt_dtype t)
{
	enum dt_bench_kind kind = (enum dt_bench_kind)opt.kind;
	bool one = kind != DT_BENCH_N;
	const char *why = NULL;
	char name[32];

	if (one && opt.algorithm != DT_ALG_N && !dt_bench_has_algorithm(kind, (enum dt_alg)opt.algorithm))
		return dt_opt_usage_error(&program, stderr,
					  "option '--algorithm': %s does not have this algorithm",
					  dt_opt_choice_name(DT_BENCH_CHOICES, opt.kind, name, sizeof(name)));
	if (opt.simulate && one && !dt_bench_has_algorithm(kind, DT_ALG_NAIVE))
		return dt_opt_usage_error(&program, stderr,
					  "option '--simulate': %s has no algorithm that is simulated",
					  dt_opt_choice_name(DT_BENCH_CHOICES, opt.kind, name, sizeof(name)));
	if (opt.simulate && (opt.algorithm == DT_ALG_DIRECT || opt.algorithm == DT_ALG_MPI))
		why = "option '--simulate': direct and mpi are not simulated";
	else if (opt.compress_given && one && kind != DT_BENCH_ALL_REDUCE)
		why = "option '--compress': only all-reduces are compressed";
	else if (opt.compress_given && opt.algorithm == DT_ALG_N)
		why = "--compress cannot be combined with --algorithm all";
	else if (opt.compress_given && t != DT_F32)
		why = "option '--compress': only fp32 is compressed";
	return why ? dt_opt_usage_error(&program, stderr, "%s", why) : 0;
}

/* Reports a usage error in terms of the option; 0: none. */
static int check_options(enum dt_dtype *ret_type)
{
	int t = dt_bench_type_parse(opt.datatype);
	struct dt_bench_topo topo;
	struct dt_err err;
	size_t n = 0;
	int status;

	if (t < 0)
		return dt_opt_usage_error(&program, stderr, "option '--datatype': unknown type '%s'",
					  opt.datatype);
	if (!opt.max_given)
		opt.max_bytes = opt.min_bytes > DEFAULT_MAX ? opt.min_bytes : DEFAULT_MAX;
	if (opt.max_bytes < opt.min_bytes)
		return dt_opt_usage_error(&program, stderr, "option '--max-bytes': smaller than --min-bytes");
	if (opt.max_bytes > (uint64_t)1 << 46)
		return dt_opt_usage_error(&program, stderr, "option '--max-bytes': at most 64TiB");
	sizes = (struct dt_bench_sizes){opt.min_bytes, opt.max_bytes, opt.step_bytes, opt.factor};
	for (size_t s = sizes.min; s <= sizes.max; s = dt_bench_next_size(&sizes, s))
		if (++n > RESULTS_MAX)
			return dt_opt_usage_error(&program, stderr, "more than %d sizes", RESULTS_MAX);
	status = check_combinations((enum dt_dtype)t);
	if (status)
		return status;
	if (opt.simulate && dt_bench_topo_parse(opt.simulate, &topo, &err))
		return dt_opt_usage_of(&program, stderr, "simulate", &err);
	*ret_type = (enum dt_dtype)t;
	return 0;
}

/* After all output: a full disk is a failure. */
static int finish(int status)
{
	struct dt_err err;

	return dt_close_stdout(&err) ? dt_program_fail(&program, &err) : status;
}

int main(int argc, char **argv)
{
	struct dt_log log = {.f = stderr, .name = program.name, .rank = -1};
	struct dt_world_info info;
	struct dt_world_opts wo;
	struct dt_err err = {0};
	enum dt_dtype type = DT_F32;
	struct dt_world *w;
	int status, n = dt_opt_main(&program, argc, argv, stdout, stderr, &status);

	if (n < 0)
		return status ? status : finish(DT_EXIT_OK);
	status = n > 0 ? dt_opt_usage_error(&program, stderr, "unexpected operand '%s'", argv[1])
		       : check_options(&type);
	if (status)
		return status;
	if (opt.simulate && !dt_launch_speaks())
		return DT_EXIT_OK;
	if (opt.simulate)
		return simulate(type, &err) ? dt_program_fail(&program, &err) : finish(DT_EXIT_OK);
	wo = (struct dt_world_opts){.timeout_s = opt.timeout_s,
				    .transport = opt.transport ? DT_TRANSPORT_MPI : DT_TRANSPORT_AUTO};
	if (dt_world_open(&w, &wo, &log, &err))
		return dt_program_fail(&program, &err);
	dt_world_info(w, &info);
	log.rank = info.size > 1 ? info.rank : -1;
	if (opt.root >= info.size) {
		status = dt_opt_usage_error(&program, stderr, "option '--root': there is no rank %lld of %d",
					    (long long)opt.root, info.size);
		dt_world_finalize(w);
		return status;
	}
	status = measure(w, type, &log);
	return finish(status);
}
/* SPDX-License-Identifier: Apache-2.0 */
