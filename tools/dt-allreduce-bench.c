/* dt-allreduce-bench: times and checks collectives, with the columns of nccl-tests; fits link costs. */
#include "base/json.h"
#include "base/launch.h"
#include "base/opt.h"
#include "base/progress.h"
#include "base/tmpfile.h"
#include "base/units.h"
#include "bench/links.h"
#include "bench/predict.h"
#include "comm/compress.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RESULTS_MAX 4096

static struct {
	uint64_t min_bytes, max_bytes, step_bytes;
	bool max_given, step_given, factor_given;
	double factor, min_busbw, timeout_s;
	int64_t iters, warmup, check, root;
	int kind, op, transport;
	const char *datatype;
	int buffers, algorithm, compress;
	bool compress_given, explain;
	double keep;
	int64_t rank;
	const char *simulate;
	bool stats, cold, fit, json, compare, skew, latency;
} opt = {.max_bytes = 64 << 20};

static const struct dt_opt opts[] = {
	{"collective", 0, DT_OPT_CHOICE, &opt.kind, DT_BENCH_CHOICES "|all",
	 "which collective; all: one after another", .def = "all-reduce"},
	DT_OPT_HEADING("Sizes, bytes as in the size column"),
	{"min-bytes", 'b', DT_OPT_SIZE, &opt.min_bytes, "SIZE", "smallest size", .def = "1KiB"},
	{"max-bytes", 'e', DT_OPT_SIZE, &opt.max_bytes, "SIZE", "largest size", .given = &opt.max_given,
	 .def_text = "64MiB, or --min-bytes if that is larger"},
	{"step-bytes", 'i', DT_OPT_SIZE, &opt.step_bytes, "SIZE", "add SIZE from one size to the next",
	 .given = &opt.step_given},
	{"step-factor", 'f', DT_OPT_REAL, &opt.factor, "X", "multiply by X from one size to the next",
	 .min = 1.01, .max = 1e6, .given = &opt.factor_given, .def = "4"},
	DT_OPT_HEADING("Measuring"),
	{"iters", 'n', DT_OPT_INT, &opt.iters, "N", "timed calls a size", .min = 1, .max = 1000000,
	 .def = "20"},
	{"warmup", 'w', DT_OPT_INT, &opt.warmup, "N", "calls before them", .max = 1000000, .def = "5"},
	{"check", 'c', DT_OPT_INT, &opt.check, "0|1", "compare every element of one more call", .min = 0,
	 .max = 1, .def = "1"},
	{"op", 'o', DT_OPT_CHOICE, &opt.op, "sum|max|min|avg", "reduction", .def = "sum"},
	{"datatype", 'd', DT_OPT_STR, &opt.datatype, "TYPE",
	 "fp32, bf16, fp16, fp64, int32, int64, uint8, uint16 or int8; or float, bfloat16, half, double",
	 .def = "fp32"},
	{"root", 'r', DT_OPT_INT, &opt.root, "RANK", "root of a broadcast", .max = 1 << 24, .min = 0,
	 .def = "0"},
	{"cold", 0, DT_OPT_FLAG, &opt.cold, NULL, "walk through buffers larger than the last-level cache"},
	{"buffers", 0, DT_OPT_CHOICE, &opt.buffers, "registered|plain",
	 "registered: ranks of a machine map each other's buffers", .def = "registered"},
	{"compare", 0, DT_OPT_FLAG, &opt.compare, NULL,
	 "a call of plain MPI after each call, the ratio of their times, and what it can be at most"},
	{"skew", 0, DT_OPT_FLAG, &opt.skew, NULL, "when each rank arrives at the calls"},
	{"transport", 0, DT_OPT_CHOICE, &opt.transport, "auto|mpi",
	 "auto: shared memory inside a machine; mpi: MPI for everything", .def = "auto"},
	{"fit", 0, DT_OPT_FLAG, &opt.fit, NULL,
	 "fit latency and bandwidth of each link class (always done with --json)"},
	{"timeout", 0, DT_OPT_REAL, &opt.timeout_s, "SECONDS",
	 "end the job when a call takes longer; 0: never", .min = 0, .max = 1e6, .def = "60"},
	DT_OPT_HEADING("Algorithms"),
	{"algorithm", 'a', DT_OPT_CHOICE, &opt.algorithm, DT_ALG_CHOICES "|all",
	 "how messages go; all: every way there is, one after another", .def = "auto"},
	{"explain", 0, DT_OPT_FLAG, &opt.explain, NULL,
	 "measure what messages cost, predict every algorithm's time and say which is chosen"},
	{"simulate", 0, DT_OPT_STR, &opt.simulate, "TOPOLOGY",
	 "no ranks: simulate every algorithm on flat, fat-tree, rail, torus or dragonfly:RANKS"},
	{"compress", 0, DT_OPT_CHOICE, &opt.compress, DT_COMPRESS_CHOICES,
	 "also time compressed all-reduces, and where they pay", .given = &opt.compress_given},
	{"compress-rank", 0, DT_OPT_INT, &opt.rank, "N", "powersgd: columns of the factors", .min = 1,
	 .max = 1024, .def = "4"},
	{"compress-keep", 0, DT_OPT_SHARE, &opt.keep, "SHARE", "top-k: share of the entries sent",
	 .min = 1e-9, .max = 1, .def = "0.01"},
	DT_OPT_HEADING("Output"),
	{"stats", 0, DT_OPT_FLAG, &opt.stats, NULL,
	 "add columns: fastest, mean, median and 99th percentile call, and the fraction of what memory "
	 "allows"},
	{"latency", 0, DT_OPT_FLAG, &opt.latency, NULL,
	 "print latency in the columns of the OSU micro-benchmarks instead"},
	{"json", 0, DT_OPT_FLAG, &opt.json, NULL, "one JSON object instead of the table"},
	{"min-busbw", 0, DT_OPT_RATE, &opt.min_busbw, "GB/s",
	 "exit with 3 when the average bus bandwidth is below", .min = 0, .max = 1e9},
	DT_OPT_END,
};

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

/* nccl-tests' names, in the order of enum dt_dtype. */
static const char *const nccl_type[DT_DTYPE_N] = {"float", "bfloat16", "half",	 "double", "int32",
						  "int64", "uint8",    "uint16", "int8"};

/* Those of the other programs, in the same order. */
static const char *const type_name[DT_DTYPE_N] = {"fp32",  "bf16",  "fp16",   "fp64", "int32",
						  "int64", "uint8", "uint16", "int8"};

struct bench {
	struct dt_world *w;
	struct dt_comm *c;
	struct dt_world_info info;
	enum dt_dtype t;
	double copy_gbs, busbw_sum;
	struct dt_bench_skew skew;
	bool registered, measured;
	struct dt_bench_topo topo;
	struct dt_bench_costs *costs; /* with --explain on several machines */
	json_t *compression;
	int nbusbw;
	int64_t wrong;
	json_t *results;      /* rank 0 with --json */
	pthread_mutex_t lock; /* of results, against the thread that waits for signals */
	FILE *table;	      /* rank 0 without */
};

static int parse_type(const char *s)
{
	int t = dt_dtype_parse(s);

	for (int i = 0; i < DT_DTYPE_N && t < 0; i++)
		if (!strcmp(s, nccl_type[i]) || !strcmp(s, type_name[i]))
			t = i;
	return t;
}

static const char *kind_name(int k, char buf[32])
{
	return dt_opt_choice_name(DT_BENCH_CHOICES, k, buf, 32);
}

static void print_head(const struct bench *b, int kind)
{
	char name[32];
	const char *more = opt.stats ? "       min      mean       p50       p99  bound" : "";
	int side = 31 + (opt.stats ? 47 : 0) + (opt.compare ? 27 : 0);
	FILE *f = b->table;

	if (!f)
		return;
	if (opt.latency) {
		fprintf(f, "# %s latency over %d ranks, transport %s\n# %-10s %16s %16s %16s %12s\n",
			kind_name(kind, name), b->info.size, dt_comm_transport(b->c), "Size",
			"Avg Latency(us)", "Min Latency(us)", "Max Latency(us)", "Iterations");
		return;
	}
	fprintf(f, "# %s over %d rank%s on %d machine%s, transport %s%s%s\n#\n", kind_name(kind, name),
		b->info.size, b->info.size == 1 ? "" : "s", b->info.nodes, b->info.nodes == 1 ? "" : "s",
		dt_comm_transport(b->c), b->registered ? ", registered buffers" : "",
		opt.cold ? ", cold buffers" : "");
	fprintf(f, "# %10s  %12s  %8s  %6s  %6s  %*s  %*s\n", "", "", "", "", "", side,
		"out-of-place           ", side, "in-place             ");
	for (int unit = 0; unit < 2; unit++) {
		fprintf(f, "# %10s  %12s  %8s  %6s  %6s", unit ? "(B)" : "size",
			unit ? "(elements)" : "count", unit ? "" : "type", unit ? "" : "redop",
			unit ? "" : "root");
		for (int i = 0; i < 2; i++)
			fprintf(f, "  %9s  %6s  %6s  %6s%s%s", unit ? "(us)" : "time",
				unit ? "(GB/s)" : "algbw", unit ? "(GB/s)" : "busbw", unit ? "" : "#wrong",
				unit && opt.stats ? "      (us)      (us)      (us)      (us)    (%)"
				: unit		  ? ""
						  : more,
				!opt.compare ? ""
				: unit	     ? "       (us)                "
					     : "   MPI time   ratio    most");
		fputc('\n', f);
	}
}

static void print_side(FILE *f, const struct dt_bench_result *r)
{
	char wrong[24] = "N/A", bound[16] = "N/A", most[16] = "N/A";

	if (!r) {
		fprintf(f, "  %9s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
		if (opt.stats)
			fprintf(f, "%10s%10s%10s%10s%7s", "N/A", "N/A", "N/A", "N/A", "N/A");
		if (opt.compare)
			fprintf(f, "  %9s%8s%8s", "N/A", "N/A", "N/A");
		return;
	}
	if (r->wrong >= 0)
		snprintf(wrong, sizeof(wrong), "%lld", (long long)r->wrong);
	if (r->bound_fraction > 0)
		snprintf(bound, sizeof(bound), "%.0f", 100 * r->bound_fraction);
	if (r->copy_s > 0)
		snprintf(most, sizeof(most), "%.2f", r->mpi_s / r->copy_s);
	fprintf(f, "  %9.2f  %6.2f  %6.2f  %6s", r->time_s * 1e6, r->algbw_gbs, r->busbw_gbs, wrong);
	if (opt.stats)
		fprintf(f, "%10.2f%10.2f%10.2f%10.2f%7s", r->min_s * 1e6, r->mean_s * 1e6, r->p50_s * 1e6,
			r->p99_s * 1e6, bound);
	if (opt.compare)
		fprintf(f, "  %9.2f%8.2f%8s", r->mpi_s * 1e6, r->mpi_s / r->time_s, most);
}

/* The prediction for the algorithm in use, or -1: DIRECT and MPI are not step lists. */
static double predicted(struct bench *b, int kind, enum dt_alg a, const struct dt_bench_result *r)
{
	double t;

	if (!b->measured || a <= DT_ALG_MPI ||
	    dt_bench_predict(&b->topo, (enum dt_bench_kind)kind, a, r->bytes / (size_t)dt_dtype_size(b->t),
			     (size_t)dt_dtype_size(b->t), true, &t, NULL))
		return -1;
	return t;
}

static void explain(struct bench *b, int kind, const struct dt_bench_result *r)
{
	enum dt_alg used = dt_bench_chosen(b->c, (enum dt_bench_kind)kind, r->count, b->t);
	char name[16];

	fprintf(b->table, "#");
	for (int a = DT_ALG_NAIVE; a < DT_ALG_N; a++) {
		double t = predicted(b, kind, (enum dt_alg)a, r);

		if (t >= 0)
			fprintf(b->table, " %s %.4g us,", dt_alg_name((enum dt_alg)a, name), t * 1e6);
	}
	fprintf(b->table, " chosen: %s\n", dt_alg_name(used, name));
}

/* Times compressed calls beside plain ones on random data. */
static int run_compressed(struct bench *b, size_t bytes, double plain_s, struct dt_err *err)
{
	struct dt_compress_opts o = {
		.kind = (enum dt_compress_kind)opt.compress, .rank = (int)opt.rank, .keep = opt.keep};
	size_t n = bytes / sizeof(float);
	double p = b->info.size, codec = 0, v[2], t0, wire, even;
	struct dt_compress *z = NULL;
	float *x = calloc(n + 1, sizeof(*x));
	char name[16], size[32];
	int rc = x ? dt_compress_open(&z, b->c, &o, n, err) : dt_err_sys(err, -ENOMEM, "%zu bytes", bytes);

	t0 = 0;
	for (int i = -1; i < 3 && !rc; i++) {
		for (size_t k = 0; k < n; k++)
			x[k] = (float)((k * 2654435761u + (size_t)b->info.rank * 97) % 2001) / 1000 - 1;
		rc = dt_barrier(b->c, "compression", err);
		if (i < 0)
			codec = t0 = 0;
		v[0] = dt_now();
		if (!rc)
			rc = dt_compress_all_reduce(z, x, DT_AVG, "compression", i < 0 ? NULL : &codec, err);
		t0 += i < 0 ? 0 : dt_now() - v[0];
	}
	v[0] = t0 / 3;
	v[1] = codec / 3;
	if (!rc)
		rc = dt_all_reduce(b->c, v, NULL, 2, DT_F64, DT_MAX, "compression", err);
	if (!rc) {
		wire = dt_compress_wire_bytes(z);
		even = dt_compress_break_even(2 * (p - 1) / p * 4 * (double)n, wire, v[1]);
		dt_opt_choice_name(DT_COMPRESS_CHOICES, opt.compress, name, sizeof(name));
		if (b->table)
			fprintf(b->table,
				"# %s of %s: %.4g us, %.4g us of it computing; plain %.4g us; sends %.4g of "
				"%.4g "
				"bytes; pays on links below %.4g GB/s\n",
				name, dt_format_size(4 * n, size, sizeof(size)), v[0] * 1e6, v[1] * 1e6,
				plain_s * 1e6, wire, 2 * (p - 1) / p * 4 * (double)n, even / 1e9);
		if (b->compression)
			json_array_append_new(
				b->compression,
				json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "method", name,
					  "size_bytes", (json_int_t)(4 * n), "time_s", v[0], "codec_s", v[1],
					  "plain_time_s", plain_s, "wire_bytes", wire, "plain_wire_bytes",
					  2 * (p - 1) / p * 4 * (double)n, "break_even_gbs", even / 1e9));
	}
	dt_compress_close(z);
	free(x);
	return rc;
}

static int add_json(struct bench *b, int kind, bool in_place, const struct dt_bench_result *r)
{
	enum dt_alg used = dt_bench_chosen(b->c, (enum dt_bench_kind)kind, r->count, b->t);
	double predicts = predicted(b, kind, used, r);
	char alg[16];
	char name[32], op[8];
	int rc;
	bool reduces = dt_bench_reduces((enum dt_bench_kind)kind);
	json_t *o = json_pack(
		"{s:s, s:I, s:I, s:s, s:s?, s:i, s:b, s:b, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o, "
		"s:o, s:o, s:o, s:o, s:s, s:o}",
		"collective", kind_name(kind, name), "size_bytes", (json_int_t)r->bytes, "count",
		(json_int_t)r->count, "dtype", type_name[b->t], "op",
		reduces ? dt_opt_choice_name("sum|max|min|avg", opt.op, op, sizeof(op)) : NULL, "root",
		dt_bench_has_root((enum dt_bench_kind)kind) ? (int)opt.root : -1, "in_place", in_place,
		"registered", b->registered, "time_s", r->time_s, "min_s", r->min_s, "mean_s", r->mean_s,
		"p50_s", r->p50_s, "p99_s", r->p99_s, "algbw_gbs", r->algbw_gbs, "busbw_gbs", r->busbw_gbs,
		"bound_fraction", r->bound_fraction > 0 ? json_real(r->bound_fraction) : json_null(), "wrong",
		r->wrong >= 0 ? json_integer(r->wrong) : json_null(), "mpi_time_s",
		opt.compare ? json_real(r->mpi_s) : json_null(), "speedup",
		opt.compare ? json_real(r->mpi_s / r->time_s) : json_null(), "copy_s",
		r->copy_s > 0 ? json_real(r->copy_s) : json_null(), "speedup_limit",
		opt.compare && r->copy_s > 0 ? json_real(r->mpi_s / r->copy_s) : json_null(), "copy_fraction",
		r->copy_s > 0 ? json_real(r->copy_s / r->time_s) : json_null(), "algorithm",
		dt_alg_name(used, alg), "predicted_s", predicts >= 0 ? json_real(predicts) : json_null());

	pthread_mutex_lock(&b->lock);
	rc = !o || json_array_append_new(b->results, o) ? -ENOMEM : 0;
	pthread_mutex_unlock(&b->lock);
	return rc;
}

static int run_size(struct bench *b, struct dt_bench *bench, int kind, size_t bytes, struct dt_err *err)
{
	bool two = dt_bench_has_in_place((enum dt_bench_kind)kind);
	struct dt_bench_result r[2];
	char op[8];

	for (int i = 0; i < (two ? 2 : 1); i++) {
		int rc = dt_bench_run(bench, bytes, i == 1, b->info.nodes == 1 ? b->copy_gbs : 0,
				      opt.skew ? &b->skew : NULL, &r[i], err);

		if (rc)
			return rc;
		b->wrong += r[i].wrong > 0 ? r[i].wrong : 0;
		if (kind != DT_BENCH_BARRIER) {
			b->busbw_sum += r[i].busbw_gbs;
			b->nbusbw++;
		}
		if (b->results && add_json(b, kind, i == 1, &r[i]))
			return dt_err_sys(err, -ENOMEM, "results");
	}
	if (opt.compress_given && kind == DT_BENCH_ALL_REDUCE) {
		int rc = run_compressed(b, r[0].bytes, r[0].time_s, err);

		if (rc)
			return rc;
	}
	if (!b->table)
		return 0;
	if (opt.explain)
		explain(b, kind, &r[0]);
	if (opt.latency) {
		fprintf(b->table, "%-12zu %16.2f %16.2f %16.2f %12lld\n", r[0].bytes, r[0].mean_s * 1e6,
			r[0].min_s * 1e6, r[0].max_s * 1e6, (long long)opt.iters);
		return fflush(b->table) ? dt_err_sys(err, -errno, "cannot write results") : 0;
	}
	fprintf(b->table, "%12zu  %12zu  %8s  %6s  %6d", r[0].bytes, r[0].count, nccl_type[b->t],
		dt_bench_reduces((enum dt_bench_kind)kind)
			? dt_opt_choice_name("sum|max|min|avg", opt.op, op, sizeof(op))
			: "none",
		dt_bench_has_root((enum dt_bench_kind)kind) ? (int)opt.root : -1);
	print_side(b->table, &r[0]);
	print_side(b->table, two ? &r[1] : NULL);
	fputc('\n', b->table);
	if (fflush(b->table))
		return dt_err_sys(err, -errno, "cannot write results");
	return 0;
}

static size_t next_size(size_t s)
{
	size_t n;

	if (opt.step_given)
		return s + opt.step_bytes;
	n = (size_t)((double)s * opt.factor);
	return n > s ? n : s + 1;
}

static int run_kind(struct bench *b, int kind, struct dt_progress *bar, struct dt_err *err)
{
	struct dt_bench_opts o = {.kind = (enum dt_bench_kind)kind,
				  .t = b->t,
				  .op = (enum dt_redop)opt.op,
				  .root = (int)opt.root,
				  .iters = (int)opt.iters,
				  .warmup = (int)opt.warmup,
				  .check = opt.check,
				  .cold = opt.cold,
				  .registered = b->registered,
				  .compare = opt.compare,
				  .apart = opt.explain};
	struct dt_bench *bench = NULL;
	int rc = dt_bench_open(&bench, b->c, &o, opt.max_bytes, err);

	if (!rc)
		print_head(b, kind);
	for (size_t s = opt.min_bytes; s <= opt.max_bytes && !rc; s = next_size(s)) {
		rc = run_size(b, bench, kind, s, err);
		dt_progress_set(bar, ++bar->done);
		if (kind == DT_BENCH_BARRIER)
			break;
	}
	dt_bench_close(bench);
	return rc;
}

/* Every algorithm the collective has and these ranks can use. */
static int run_algorithms(struct bench *b, int kind, struct dt_progress *bar, struct dt_err *err)
{
	char name[16];
	int rc = 0;

	for (int a = DT_ALG_DIRECT; a < DT_ALG_N && !rc; a++) {
		if (!dt_bench_has_algorithm((enum dt_bench_kind)kind, (enum dt_alg)a) ||
		    dt_comm_set_algorithm(b->c, (enum dt_alg)a, NULL))
			continue;
		if (b->table)
			fprintf(b->table, "# algorithm %s\n", dt_alg_name((enum dt_alg)a, name));
		rc = run_kind(b, kind, bar, err);
	}
	return rc;
}

static int finish_json(struct bench *b, const struct dt_bench_link *link, int nlink, double avg,
		       bool interrupted, struct dt_err *err)
{
	json_t *links = json_array(), *skew = opt.skew ? json_array() : json_null(), *o;
	char topo[512];
	int rc;

	for (int i = 0; i < nlink; i++)
		json_array_append_new(links, json_pack("{s:s, s:i, s:f, s:f, s:f}", "class", link[i].name,
						       "ranks", link[i].ranks, "latency_s", link[i].latency_s,
						       "bandwidth_gbs", link[i].bandwidth_gbs,
						       "relative_error", link[i].error));
	for (int r = 0; r < b->skew.ranks && b->skew.calls; r++)
		json_array_append_new(skew, json_pack("{s:i, s:f, s:f, s:f}", "rank", r, "mean_s",
						      b->skew.sum_s[r] / (double)b->skew.calls, "max_s",
						      b->skew.max_s[r], "last_fraction",
						      (double)b->skew.last[r] / (double)b->skew.calls));
	o = json_pack("{s:i, s:s, s:i, s:i, s:s, s:b, s:f, s:O, s:o, s:o, s:o, s:I, s:f, s:b, s:s?}",
		      "schema", 1, "program", program.name, "ranks", b->info.size, "nodes", b->info.nodes,
		      "transport", dt_comm_transport(b->c), "cold", opt.cold, "copy_gbs", b->copy_gbs,
		      "results", b->results, "links", links, "skew", skew, "compression",
		      b->compression ? json_incref(b->compression) : json_null(), "out_of_bounds",
		      (json_int_t)b->wrong, "avg_busbw_gbs", avg, "interrupted", interrupted, "topology",
		      b->measured ? dt_bench_topo_format(&b->topo, topo, sizeof(topo)) : NULL);
	rc = o ? dt_json_write_line(stdout, o, err) : dt_err_sys(err, -ENOMEM, "results");
	json_decref(o);
	return rc;
}

/*
 * --json is one valid object also where the run is interrupted: what there is by then. Whatever the ranks are
 * doing, so it is a thread that waits for the signal and, with it, ends the program.
 */
static void *on_signal(void *arg)
{
	struct bench *b = arg;
	struct dt_err err;
	sigset_t set;
	int sig;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	if (sigwait(&set, &sig))
		return NULL;
	pthread_mutex_lock(&b->lock); /* for good */
	if (!finish_json(b, NULL, 0, b->nbusbw ? b->busbw_sum / b->nbusbw : 0, true, &err))
		dt_close_stdout(&err);
	_exit(DT_EXIT_FAILED);
}

static int catch_signals(struct bench *b, struct dt_err *err)
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

static void finish_table(const struct bench *b, const struct dt_bench_link *link, int nlink, double avg)
{
	fprintf(b->table, "# Out of bounds values : %lld %s\n", (long long)b->wrong,
		b->wrong ? "FAILED" : "OK");
	fprintf(b->table, "# Avg bus bandwidth    : %g\n", avg);
	fprintf(b->table, "# Copy bandwidth       : %.4g GB/s read and written by all ranks of a machine\n",
		b->copy_gbs);
	for (int i = 0; i < nlink; i++)
		fprintf(b->table,
			"# Link %-15s : latency %.3g us, bandwidth %.4g GB/s, fitted within %.0f%%\n",
			link[i].name, link[i].latency_s * 1e6, link[i].bandwidth_gbs, 100 * link[i].error);
	for (int r = 0; r < b->skew.ranks; r++)
		fprintf(b->table,
			"# Rank %-15d : arrives %.3g us after the first (at most %.3g us), is last in %.0f%% "
			"of calls\n",
			r, b->skew.sum_s[r] / (double)b->skew.calls * 1e6, b->skew.max_s[r] * 1e6,
			100 * (double)b->skew.last[r] / (double)b->skew.calls);
}

/* Everything between the world and its end. Returns an exit status, the same on all ranks. */
static int run(struct bench *b, struct dt_err *err)
{
	struct dt_bench_link link[2];
	struct dt_progress bar = {0};
	int nlink = 0, rc, first = opt.kind == DT_BENCH_N ? 0 : opt.kind;
	int last = opt.kind == DT_BENCH_N ? DT_BENCH_N - 1 : opt.kind;
	bool speaks = b->info.rank == 0;
	char topo[512];
	double avg;

	b->registered = opt.buffers == 0 && opt.transport == 0 && b->info.local_size > 1;
	pthread_mutex_init(&b->lock, NULL);
	if (speaks && opt.json) {
		b->results = json_array();
		b->compression = opt.compress_given ? json_array() : NULL;
		rc = catch_signals(b, err);
		if (rc)
			return DT_EXIT_FAILED;
	}
	rc = dt_bench_copy(b->c, &b->copy_gbs, err);
	if (!rc && opt.skew)
		rc = dt_bench_skew_init(&b->skew, b->c, err);
	if (!rc && (opt.fit || opt.json)) {
		nlink = dt_bench_links(b->w, link, err);
		rc = nlink < 0 ? nlink : 0;
	}
	if (!rc && opt.explain && b->info.size > 1) {
		rc = dt_bench_topology(b->c, &b->topo, err);
		if (!rc && b->info.nodes > 1)
			rc = dt_bench_costs_open(&b->costs, b->c, &b->topo, err);
		b->measured = !rc;
		if (!rc && speaks && !opt.json)
			printf("# messages: --simulate %s\n",
			       dt_bench_topo_format(&b->topo, topo, sizeof(topo)));
	}
	if (b->results) {
		for (size_t s = opt.min_bytes; s <= opt.max_bytes; s = next_size(s))
			bar.total += (uint64_t)(last - first + 1);
		dt_progress_start(&bar, stderr, "sizes", bar.total, false);
	} else if (speaks) {
		b->table = stdout;
	}
	for (int k = first; k <= last && !rc; k++)
		rc = opt.algorithm == DT_ALG_N ? run_algorithms(b, k, &bar, err)
		     : dt_bench_has_algorithm((enum dt_bench_kind)k, (enum dt_alg)opt.algorithm)
			     ? run_kind(b, k, &bar, err)
			     : 0;
	dt_progress_end(&bar);
	avg = b->nbusbw ? b->busbw_sum / b->nbusbw : 0;
	pthread_mutex_lock(&b->lock); /* not to be had again: one object is enough */
	if (!rc && b->results)
		rc = finish_json(b, link, nlink, avg, false, err);
	else if (!rc && b->table)
		finish_table(b, link, nlink, avg);
	json_decref(b->results);
	json_decref(b->compression);
	dt_bench_skew_release(&b->skew);
	if (rc)
		return DT_EXIT_FAILED;
	return b->wrong || avg < opt.min_busbw ? DT_EXIT_NO : DT_EXIT_OK;
}

/* Every algorithm on a network that is not here. */
static int simulate(enum dt_dtype type, struct dt_err *err)
{
	struct dt_bench_topo t;
	json_t *results = json_array(), *o;
	int rc = dt_bench_topo_parse(opt.simulate, &t, err), first = opt.kind == DT_BENCH_N ? 0 : opt.kind;
	int last = opt.kind == DT_BENCH_N ? DT_BENCH_N - 1 : opt.kind;
	size_t e = (size_t)dt_dtype_size(type);
	char name[32], alg[16];

	if (rc) {
		json_decref(results);
		return rc;
	}
	if (!opt.json)
		printf("# %s, simulated\n# %-14s %12s %-14s %14s %10s\n", opt.simulate, "collective",
		       "size (B)", "algorithm", "time (us)", "busbw");
	for (int k = first; k <= last && !rc; k++)
		for (size_t size = opt.min_bytes; size <= opt.max_bytes && !rc; size = next_size(size))
			for (int a = DT_ALG_NAIVE; a < DT_ALG_N && !rc; a++) {
				double s, bus;

				if (!dt_bench_has_algorithm((enum dt_bench_kind)k, (enum dt_alg)a) ||
				    (opt.algorithm && opt.algorithm != DT_ALG_N && opt.algorithm != a))
					continue;
				rc = dt_bench_predict(&t, (enum dt_bench_kind)k, (enum dt_alg)a,
						      size / e ? size / e : 1, e, false, &s, err);
				bus = (double)size / s / 1e9 *
				      dt_bench_bus_factor((enum dt_bench_kind)k, t.ranks);
				if (!rc && !opt.json)
					printf("%-16s %12zu %-14s %14.2f %10.3f\n", kind_name(k, name), size,
					       dt_alg_name((enum dt_alg)a, alg), s * 1e6, bus);
				else if (!rc)
					json_array_append_new(
						results,
						json_pack("{s:s, s:s, s:I, s:f, s:f}", "collective",
							  kind_name(k, name), "algorithm",
							  dt_alg_name((enum dt_alg)a, alg), "size_bytes",
							  (json_int_t)size, "time_s", s, "busbw_gbs", bus));
			}
	if (rc || !opt.json) {
		json_decref(results);
		return rc;
	}
	o = json_pack("{s:i, s:s, s:s, s:i, s:o}", "schema", 1, "program", program.name, "topology",
		      opt.simulate, "ranks", t.ranks, "results", results);
	rc = o ? dt_json_write_line(stdout, o, err) : dt_err_sys(err, -ENOMEM, "results");
	json_decref(o);
	return rc;
}

/* A usage error in the words of the option, or 0. */
static int check_options(struct bench *b, FILE *errout)
{
	int t = parse_type(opt.datatype);
	struct dt_bench_topo topo;
	struct dt_err err;
	char name[32];
	size_t n = 0;

	if (t < 0)
		return dt_opt_usage_error(&program, errout, "option '--datatype': unknown type '%s'",
					  opt.datatype);
	if (!opt.max_given && opt.max_bytes < opt.min_bytes)
		opt.max_bytes = opt.min_bytes;
	if (opt.min_bytes < 1)
		return dt_opt_usage_error(&program, errout, "option '--min-bytes': at least 1 byte");
	if (opt.max_bytes < opt.min_bytes)
		return dt_opt_usage_error(&program, errout, "option '--max-bytes': smaller than --min-bytes");
	if (opt.step_given && opt.factor_given)
		return dt_opt_usage_error(&program, errout,
					  "options '--step-bytes' and '--step-factor' exclude each other");
	if (opt.step_given && !opt.step_bytes)
		return dt_opt_usage_error(&program, errout, "option '--step-bytes': at least 1 byte");
	if (opt.max_bytes > (uint64_t)1 << 46)
		return dt_opt_usage_error(&program, errout, "option '--max-bytes': at most 64TiB");
	for (size_t s = opt.min_bytes; s <= opt.max_bytes; s = next_size(s))
		if (++n > RESULTS_MAX)
			return dt_opt_usage_error(&program, errout, "more than %d sizes", RESULTS_MAX);
	if (opt.kind != DT_BENCH_N && opt.algorithm != DT_ALG_N &&
	    !dt_bench_has_algorithm((enum dt_bench_kind)opt.kind, (enum dt_alg)opt.algorithm))
		return dt_opt_usage_error(&program, errout, "option '--algorithm': there is no such %s",
					  kind_name(opt.kind, name));
	if (opt.simulate && dt_bench_topo_parse(opt.simulate, &topo, &err))
		return dt_opt_usage_error(&program, errout, "option '--simulate': %s", err.msg);
	b->t = (enum dt_dtype)t;
	return 0;
}

static int close_stdout(const struct dt_log *log)
{
	struct dt_err err;

	if (!dt_close_stdout(&err))
		return DT_EXIT_OK;
	if (err.code != -EPIPE)
		dt_log_err(log, &err);
	return DT_EXIT_FAILED;
}

int main(int argc, char **argv)
{
	struct dt_log log = {.f = stderr, .name = program.name, .rank = -1};
	struct dt_world_opts wo = {0};
	struct bench b = {0};
	struct dt_err err = {0};
	bool speaks = dt_launch_rank() == 0;
	FILE *quiet = speaks ? NULL : fopen("/dev/null", "w"), *errout = quiet ? quiet : stderr;
	int status, n = dt_opt_main(&program, argc, argv, quiet ? quiet : stdout, errout, &status);

	if (n > 0)
		status = dt_opt_usage_error(&program, errout, "unexpected operand '%s'", argv[1]);
	else if (n == 0)
		status = check_options(&b, errout);
	if (n != 0 || status) {
		return n < 0 && !status && speaks ? close_stdout(&log) : status;
	}
	if (opt.simulate) {
		if (speaks && simulate(b.t, &err)) {
			if (err.code != -EPIPE)
				dt_log_err(&log, &err);
			return DT_EXIT_FAILED;
		}
		return speaks ? close_stdout(&log) : DT_EXIT_OK;
	}
	wo.timeout_s = opt.timeout_s;
	wo.transport = opt.transport ? DT_TRANSPORT_MPI : DT_TRANSPORT_AUTO;
	if (dt_world_open(&b.w, &wo, &log, &err)) {
		dt_log_err(&log, &err);
		return DT_EXIT_FAILED;
	}
	dt_world_info(b.w, &b.info);
	log.rank = b.info.size > 1 ? b.info.rank : -1;
	if (opt.root >= b.info.size) {
		status = dt_opt_usage_error(&program, errout, "option '--root': there is no rank %lld of %d",
					    (long long)opt.root, b.info.size);
		dt_world_finalize(b.w);
		return status;
	}
	if (dt_comm_create(&b.c, b.w, "world", 0, 0, &err)) {
		dt_log_err(&log, &err);
		dt_world_abort(b.w, DT_EXIT_FAILED);
	}
	if (opt.algorithm != DT_ALG_N && dt_comm_set_algorithm(b.c, (enum dt_alg)opt.algorithm, &err)) {
		if (b.info.rank == 0)
			dt_log_err(&log, &err);
		dt_world_finalize(b.w);
		return DT_EXIT_FAILED;
	}
	status = run(&b, &err);
	if (status == DT_EXIT_FAILED) {
		if (err.code != -EPIPE)
			dt_log_err(&log, &err);
		dt_world_abort(b.w, status);
	}
	dt_world_finalize(b.w);
	dt_bench_costs_close(b.costs);
	return close_stdout(&log) ? DT_EXIT_FAILED : status;
}
