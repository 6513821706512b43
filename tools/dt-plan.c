/* dt-plan: how to split a model over machines, and how fast it will go. */
#include "base/opt.h"
#include "base/tmpfile.h"
#include "base/units.h"
#include "plan/calibrate.h"
#include "plan/enough.h"
#include "plan/here.h"
#include "plan/machines.h"
#include "plan/plan_print.h"
#include "plan/roofline.h"
#include "plan/run_options.h"
#include "plan/search.h"
#include "tools/plan_serve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
	struct dt_run_options o;
	struct dt_plan_query q;
	struct dt_config config;
	struct plan_serve_args server;
	struct dt_cluster cluster;
	struct dt_machines m;
	const char *calibrate, *validate, *compare;
	uint64_t tokens;
	bool serve, json, explain;
	int64_t top;
	int recompute, account, emit, kv;
	double mtbf_hours, save_s, restart_s, every_s, spot;
} a;

static const char *const examples[] = {
	"dt-plan --gpus 64 --gpu H100 llama-2-70b",
	"dt-plan --gpus 4 --emit args gpt2-124m",
	"dt-plan --serve --gpu H100 --rate 20 --tpot 0.03 llama-3-70b",
	"dt-plan roofline --gpu A100 llama-2-7b",
	NULL,
};

enum { EMIT_NOTHING, EMIT_ARGS, EMIT_COMMAND, EMIT_SRUN, EMIT_CLUSTER };

static const struct dt_opt own[] = {
	DT_OPT_HEADING("Machines"),
	{"here", 0, DT_OPT_FLAG, &a.m.here, NULL,
	 "say what this machine has and which models are not too large for it; with MODEL, plan for it"},
	{"gpus", 'n', DT_OPT_INT, &a.m.gpus, "N", "devices, one a rank", .min = 1, .max = 1 << 20,
	 .given = &a.m.gpus_given, .def = "8"},
	{"gpu", 'g', DT_OPT_STR, &a.m.gpu, "NAME",
	 "A100, A100-40GB, H100, H200, B200, MI300X, T4, L4, or cpu for ranks on this machine; unlike ones "
	 "as "
	 "H100:8,A100:16",
	 .given = &a.m.gpu_given, .def = "A100", .complete = DT_COMPLETE_GPU},
	{"gpus-per-node", 0, DT_OPT_INT, &a.m.gpus_a_node, "N", "devices of a machine", .min = 1,
	 .max = 1 << 20, .given = &a.m.node_given, .def_text = "the usual number"},
	{"gpu-mem", 'm', DT_OPT_SIZE, &a.m.gpu_mem, "SIZE", "memory of a device, instead of its usual",
	 .min = 1 << 20},
	{"margin", 0, DT_OPT_PERCENT, &a.m.margin, "PCT", "percent of it kept free", .min = 0, .max = 99,
	 .def = "5"},
	{"topology", 0, DT_OPT_CHOICE, &a.m.topology, "auto|" DT_TOPOLOGY_CHOICES,
	 "how machines are connected; auto: single or fat-tree", .def = "auto"},
	{"nic-bandwidth", 0, DT_OPT_RATE, &a.m.nic_gbs, "GB/S", "of a device into the network", .min = 0,
	 .max = 1e6},
	DT_RUN_OPT("disk-bandwidth"),
	{"oversubscription", 0, DT_OPT_REAL, &a.m.oversubscription, "X",
	 "how much narrower the network is above --leaf machines", .min = 1, .max = 1e4, .def = "1"},
	{"leaf", 0, DT_OPT_INT, &a.m.leaf, "NODES", "machines below one switch, or of a dragonfly's group",
	 .min = 1, .max = 1 << 20, .def = "16"},
	{"cluster", 0, DT_OPT_STR, &a.m.cluster_file, "FILE",
	 "a description in JSON, as --emit cluster writes it", .without = "gpu"},
	{"links", 0, DT_OPT_STR, &a.m.links, "FILE",
	 "measured links: output of dt-allreduce-bench --json; - is standard input"},
	{"ops", 0, DT_OPT_STR, &a.m.ops, "FILE",
	 "measured operations: output of dt-calibrate; ranks are processes on such machines",
	 .complete = DT_COMPLETE_FILE},
	{"calibrate", 0, DT_OPT_STR, &a.calibrate, "FILE",
	 "measured steps, JSON Lines: fit what programs reach of the device"},
	{"validate", 0, DT_OPT_STR, &a.validate, "FILE", "measured steps: compare with what is predicted"},
	DT_RUN_OPT("vocab"),
	DT_RUN_OPT("rope-scaling"),
	DT_RUN_OPT("freeze"),
	DT_RUN_OPT("lora"),
	DT_RUN_OPT("lora-targets"),
	DT_RUN_OPT("lora-modules-to-save"),
	DT_RUN_OPT("lora-dropout"),
	DT_RUN_OPT("dora"),
	DT_RUN_OPT("lora-base"),
	DT_OPT_HEADING("Training"),
	DT_RUN_OPT("global-batch", .def_text = "16 a device"),
	DT_RUN_OPT("seq", .def_text = "the model's, 4096 at most"),
	DT_RUN_OPT("microbatch", .help = "only this one", .def_text = "any"),
	{"recompute", 0, DT_OPT_CHOICE, &a.recompute, "any|none|selective|full", "only this one",
	 .def = "any"},
	DT_RUN_OPT("pipeline", .help = "schedule where pp > 1: gpipe, 1f1b or zb-h1"),
	DT_RUN_OPT("precision"),
	DT_RUN_OPT("fp8"),
	DT_RUN_OPT("qat"),
	DT_RUN_OPT("capacity-factor"),
	DT_RUN_OPT("no-expert-overlap"),
	DT_RUN_OPT("master"),
	DT_RUN_OPT("documents"),
	DT_RUN_OPT("stream-overlap"),
	DT_RUN_OPT("cp-comm"),
	DT_RUN_OPT("loss-chunk"),
	DT_RUN_OPT("reproducible"),
	DT_RUN_OPT("grad-comm"),
	DT_RUN_OPT("ema"),
	DT_RUN_OPT("sync"),
	DT_RUN_OPT("servers"),
	DT_RUN_OPT("server-comm"),
	DT_RUN_OPT("outer-fragments"),
	DT_RUN_OPT("outer-delay"),
	DT_RUN_OPT("outer-comm"),
	DT_RUN_OPT("elastic"),
	DT_RUN_OPT("peer-copy"),
	DT_RUN_OPT("save-async"),
	DT_RUN_OPT("save-grads"),
	DT_RUN_OPT("optimizer"),
	DT_RUN_OPT("clip"),
	DT_RUN_OPT("offload"),
	DT_RUN_OPT("offload-to"),
	DT_RUN_OPT("offload-fraction"),
	{"account", 0, DT_OPT_CHOICE, &a.account, "auto|" DT_ACCOUNT_CHOICES,
	 "whose memory and habits: dt plans only what dt-train runs; auto: dt where it can run the "
	 "model, else generic",
	 .def = "auto"},
	DT_OPT_HEADING("Serving"),
	{"serve", 0, DT_OPT_FLAG, &a.serve, NULL, "plan a server: tp and replicas"},
	{"rate", 0, DT_OPT_REAL, &a.server.q.rate, "REQ/S", "requests a second to answer", .min = 1e-6,
	 .max = 1e9, .given = &a.server.rate_given, .def = "1"},
	{"prompt-len", 0, DT_OPT_INT, &a.server.q.prompt, "TOKENS", "of a request", .min = 1, .max = 1 << 24,
	 .without = "trace", .def = "1024"},
	{"output-len", 0, DT_OPT_INT, &a.server.q.output, "TOKENS", "of an answer", .min = 1, .max = 1 << 24,
	 .without = "trace", .def = "256"},
	{"trace", 0, DT_OPT_STR, &a.server.trace, "FILE",
	 "times and lengths of a real service, as dt-loadgen reads them", .complete = DT_COMPLETE_FILE,
	 .with = "serve"},
	{"requests", 0, DT_OPT_INT, &a.server.requests, "N", "that are simulated; of a trace the first N",
	 .min = 1, .max = 1 << 20, .given = &a.server.requests_given, .with = "serve", .def = "4000"},
	{"max-num-batched-tokens", 0, DT_OPT_INT, &a.server.q.max_tokens, "N",
	 "tokens of a step, as dt-serve has them", .min = 1, .max = 1 << 20, .with = "serve", .def = "2048"},
	{"ttft", 0, DT_OPT_REAL, &a.server.q.ttft_s, "SECONDS", "longest time to the first token, at P99",
	 .min = 1e-6, .max = 1e6, .def = "1"},
	{"tpot", 0, DT_OPT_REAL, &a.server.q.tpot_s, "SECONDS", "longest time a further token, at P99",
	 .min = 1e-6, .max = 1e6, .def = "0.05"},
	{"weights", 0, DT_OPT_CHOICE, &a.server.q.weights, DT_WEIGHT_CHOICES, "type of the weights served",
	 .elsewhere = DT_WEIGHT_ELSEWHERE, .def = "bf16"},
	{"kv-precision", 0, DT_OPT_CHOICE, &a.kv, DT_KV_CHOICES, "type of the KV cache served; auto: bf16",
	 .def = "auto"},
	{"max-loras", 0, DT_OPT_INT, &a.server.q.loras, "N", "adapters in memory at a time, beside the base",
	 .min = 1, .max = 65536, .def_text = "none", .with = "serve"},
	{"max-lora-rank", 0, DT_OPT_INT, &a.server.q.lora_rank, "N", "their rank", .min = 1, .max = 4096,
	 .with = "max-loras", .def = "64"},
	DT_OPT_HEADING("The whole run"),
	{"tokens", 0, DT_OPT_COUNT, &a.tokens, "COUNT", "tokens to train on: days, device hours and cost"},
	{"price", 0, DT_OPT_REAL, &a.m.price, "X", "of a device hour", .min = 0, .max = 1e6},
	{"mtbf", 0, DT_OPT_REAL, &a.mtbf_hours, "HOURS",
	 "between failures or preemptions of one device: the best checkpoint interval", .min = 1e-3,
	 .max = 1e9},
	{"save-time", 0, DT_OPT_REAL, &a.save_s, "SECONDS", "of a checkpoint, for --mtbf", .min = 1e-6,
	 .max = 1e6, .def_text = "its bytes at 2 GB/s a machine"},
	{"restart-time", 0, DT_OPT_REAL, &a.restart_s, "SECONDS",
	 "from a failure to the next step, for --mtbf", .min = 0, .max = 1e6, .with = "mtbf", .def = "0"},
	{"checkpoint-every", 0, DT_OPT_REAL, &a.every_s, "SECONDS", "between checkpoints, for --mtbf",
	 .min = 1e-3, .max = 1e9, .with = "mtbf", .def_text = "what loses the least"},
	{"spot", 0, DT_OPT_SHARE, &a.spot, "SHARE",
	 "what devices are cheaper by that are taken away every --mtbf: what that saves", .min = 0, .max = 1,
	 .with = "mtbf"},
	DT_OPT_HEADING("Output"),
	{"top", 0, DT_OPT_INT, &a.top, "N", "plans listed", .min = 1, .max = 100, .def = "5"},
	{"compare", 0, DT_OPT_STR, &a.compare, "LAYOUT", "judge this layout beside the best"},
	{"explain", 0, DT_OPT_FLAG, &a.explain, NULL,
	 "say what a step's time goes into, and what was passed over"},
	{"emit", 0, DT_OPT_CHOICE, &a.emit, "no|args|command|srun|cluster",
	 "only the best plan: arguments of dt-train, the whole line with mpirun or srun; or the description "
	 "of the machines"},
	DT_RUN_OPT("data", .help = "data set in the line of --emit command", .def_text = "corpus.h5"),
	{"json", 0, DT_OPT_FLAG, &a.json, NULL, "one JSON object", .without = "emit"},
	DT_OPT_END,
};

static struct dt_opt opts[DT_RUN_OPTS_MAX];

static const struct dt_program program = {
	.name = "dt-plan",
	.summary = "rank ways to split a model over machines by predicted step time",
	.operands = "[roofline] MODEL",
	.examples = examples,
	.opts = opts,
};

static int fail(const struct dt_err *err)
{
	fprintf(stderr, "dt-plan: %s%s%s\n", err->msg, err->hint[0] ? "; " : "", err->hint);
	return DT_EXIT_FAILED;
}

/* ---- measured steps ---- */

static int calibrate(struct dt_err *err)
{
	struct dt_runs runs;
	double error;
	int rc = dt_runs_read(a.calibrate, &runs, err);

	if (rc < 0)
		return rc;
	rc = dt_calibrate(&a.cluster, a.q.stack, &runs, &error, err);
	if (rc == 0)
		fprintf(stderr, "dt-plan: calibrated on %d runs, mean error %.1f%%\n", runs.n, 100 * error);
	dt_runs_release(&runs);
	return rc;
}

/* ---- training plans ---- */

/* What is printed, and how. */
static struct dt_plan_view view(void)
{
	return (struct dt_plan_view){.q = &a.q,
				     .assumed = !a.m.gpu_given && !a.m.cluster_file,
				     .links = a.m.links != NULL,
				     .explain = a.explain,
				     .memory = dt_machines_room(&a.m, &a.cluster) / (1 - a.m.margin / 100),
				     .tokens = a.tokens,
				     .mtbf_hours = a.mtbf_hours,
				     .save_s = a.save_s,
				     .restart_s = a.restart_s,
				     .every_s = a.every_s,
				     .spot = a.spot,
				     .f = stdout};
}

static int print_search(const struct dt_plan *p, const struct dt_candidate *other, struct dt_err *err)
{
	struct dt_plan_view v = view();
	bool good = p->n > 0 && (!other || other->fits);
	int rc = 0;

	if (a.json) {
		json_t *o = dt_plan_json(&v, p, other);

		rc = dt_json_write_line(stdout, o, err);
		json_decref(o);
	} else {
		good = dt_plan_print(&v, p, other);
	}
	return rc < 0 ? fail(err) : good ? DT_EXIT_OK : DT_EXIT_NO;
}

static bool emits_plan(void)
{
	return a.emit == EMIT_ARGS || a.emit == EMIT_COMMAND || a.emit == EMIT_SRUN;
}

/* The plan's arguments, or the line that starts it. */
static void print_command(const char *args)
{
	int ranks = a.cluster.gpus, here = a.cluster.gpus_a_node, nodes = (ranks + here - 1) / here;

	if (a.emit == EMIT_SRUN)
		printf("srun --nodes %d --ntasks %d --ntasks-per-node %d ", nodes, ranks,
		       nodes > 1 ? here : ranks);
	else if (a.emit == EMIT_COMMAND && nodes > 1)
		printf("mpirun -np %d --map-by ppr:%d:node ", ranks, here);
	else if (a.emit == EMIT_COMMAND && ranks > 1)
		printf("mpirun -np %d ", ranks);
	if (a.emit != EMIT_ARGS)
		printf("dt-train --data %s%s ", a.o.run.data.train ? a.o.run.data.train : "corpus.h5",
		       a.cluster.cores ? "" : " --device cuda");
	puts(args);
}

static int plan_training(const char *model, struct dt_err *err)
{
	struct dt_candidate other;
	struct dt_plan p = {0};
	static char args[1 << 17];
	int status, rc;

	if (a.compare && dt_plan_judge_layout(&a.q, a.compare, &other, err) < 0)
		return fail(err);
	rc = dt_plan_search(&a.q, (int)a.top, &p, err);
	if (rc < 0 && !(a.compare && rc == -EINVAL)) /* a layout nobody would try can still be judged */
		return fail(err);
	if (emits_plan() && p.n == 0 && !a.compare) {
		dt_err_set(err, -ENOSPC, "nothing fits");
		fail(err);
		status = DT_EXIT_NO;
	} else if (emits_plan()) {
		print_command(dt_plan_args(&a.q, a.compare ? &other : &p.best[0], model, args, sizeof(args)));
		status = DT_EXIT_OK;
	} else {
		status = print_search(&p, a.compare ? &other : NULL, err);
	}
	dt_plan_release(&p);
	return status;
}

/* ---- serving plans and rooflines ---- */

static int plan_serving(struct dt_err *err)
{
	int status = plan_serve(&a.server, a.json, err);

	return status < 0 ? fail(err) : status;
}

static int roofline(struct dt_err *err)
{
	const struct dt_roofline r = {
		.config = &a.config,
		.device = dt_cluster_rank_device(&a.cluster, 1),
		.weights = (enum dt_weight_format)a.server.q.weights,
		.cache_bits = a.kv ? dt_kv_bits(&a.config, a.kv) : 16,
		.seq = a.q.fit.run.seq,
		.microbatch = a.q.fit.run.microbatch ? a.q.fit.run.microbatch : 1,
	};

	return dt_roofline_print(&r, a.json, stdout, err) < 0 ? fail(err) : DT_EXIT_OK;
}

/* ---- the program ---- */

static int check_usage(int nargs, char **argv, const char **ret_model)
{
	bool roof = nargs > 0 && !strcmp(argv[1], "roofline");
	struct dt_err err = {0};
	int want = roof ? 2 : 1;

	if (a.m.here && nargs == 0)
		want = 0;
	if (a.emit == EMIT_CLUSTER || a.validate)
		want = nargs < 1 ? 0 : want;
	if (nargs != want)
		return dt_opt_usage_error(&program, stderr,
					  nargs < want ? "a model is missing" : "one model at a time");
	*ret_model = want ? argv[want] : NULL;
	if (!strncmp(a.o.pipeline, "interleaved", 11))
		return dt_opt_usage_error(&program, stderr,
					  "option '--pipeline': chunks are searched over; name 1f1b");
	if (dt_run_options_finish(&a.o, &err) < 0)
		return dt_opt_usage_error(&program, stderr, "%s%s%s", err.msg, err.hint[0] ? "; " : "",
					  err.hint);
	a.q.fit.run = a.o.run;
	if (a.spot > 0 && (!a.tokens || (a.m.price <= 0 && !a.m.cluster_file)))
		return dt_opt_usage_error(&program, stderr, "--spot needs --tokens and --price");
	if (a.serve && (a.compare || emits_plan() || roof))
		return dt_opt_usage_error(&program, stderr,
					  "--serve has no layout to compare, emit or draw a roofline of");
	return -1;
}

static void complete_query(void)
{
	struct dt_config *c = &a.config;
	bool dt = dt_config_computable(c, NULL) == 0;

	a.q.fit.run.seq = a.q.fit.run.seq ? a.q.fit.run.seq : c->max_seq < 4096 ? c->max_seq : 4096;
	a.q.fit.precision = (enum dt_weight_format)a.q.fit.run.compute; /* both begin with f32, bf16, f16 */
	a.q.recompute = a.recompute - 1;
	a.q.fit.account = a.account ? (enum dt_account)(a.account - 1)
			  : dt	    ? DT_ACCOUNT_DT
				    : DT_ACCOUNT_GENERIC;
	a.q.dt_train = a.q.fit.account == DT_ACCOUNT_DT;
	a.q.fit.run.global_batch =
		a.q.fit.run.global_batch ? a.q.fit.run.global_batch : 16 * (int64_t)a.cluster.gpus;
	a.q.fit.run.config = c;
	if (!a.cluster.cores) /* as dt-train does on a card */
		a.q.fit.run.stream_overlap = DT_RUN_OVERLAP_OFF;
	a.q.cluster = a.server.q.cluster = &a.cluster;
	a.q.room = (uint64_t)dt_machines_room(&a.m, &a.cluster);
	a.server.q.room = a.q.room;
	a.server.q.price = a.cluster.price_a_gpu_hour;
	a.server.q.devices = a.m.gpus_given || a.m.cluster_file ? (int)a.m.gpus : 0;
	a.server.q.config = *c;
	a.server.q.cache_bits = dt_kv_bits(c, a.kv);
}

/* --here without a model: what this machine has, and what is not too large for it. */
static int print_here(struct dt_err *err)
{
	struct dt_here h;
	uint64_t room;
	json_t *o;
	int rc;

	dt_here_look("", &h);
	room = (uint64_t)((double)(h.ncard ? h.card[0].room : h.available) * (1 - a.m.margin / 100));
	if (!a.json) {
		dt_here_print(&h, stdout);
		putchar('\n');
		dt_enough_print(room, stdout);
		return DT_EXIT_OK;
	}
	o = json_pack("{s:i, s:o, s:o}", "schema", 1, "machine", dt_here_json(&h), "fits",
		      dt_enough_json(room));
	rc = dt_json_write_line(stdout, o, err);
	json_decref(o);
	return rc < 0 ? fail(err) : DT_EXIT_OK;
}

static int run(bool roof, const char *model, struct dt_err *err)
{
	int rc;

	if (a.m.here && !model)
		return print_here(err);
	if (a.m.here)
		dt_machines_here(&a.m);
	a.q.stack = a.account - 1 == DT_ACCOUNT_MEGATRON ? &dt_stack_megatron : &dt_stack_dt;
	rc = dt_machines_describe(&a.m, &a.cluster, err);
	if (rc == 0 && a.cluster.nkind && (a.calibrate || a.m.ops || a.validate || a.serve || roof))
		rc = dt_err_set(err, -ENOTSUP, "unlike devices are for training plans: not with %s",
				a.serve	     ? "--serve"
				: roof	     ? "roofline"
				: a.m.ops    ? "--ops"
				: a.validate ? "--validate"
					     : "--calibrate");
	if (rc == 0 && a.calibrate)
		rc = calibrate(err);
	if (rc < 0)
		return fail(err);
	if (a.emit == EMIT_CLUSTER) {
		json_t *o = dt_cluster_to_json(&a.cluster);

		rc = dt_json_write_line(stdout, o, err);
		json_decref(o);
		return rc < 0 ? fail(err) : DT_EXIT_OK;
	}
	if (a.validate)
		return dt_runs_validate(a.validate, &a.cluster, a.q.stack, a.json, stdout, err) < 0
			       ? fail(err)
			       : DT_EXIT_OK;
	if (dt_config_load(model, &a.config, err) < 0 ||
	    dt_config_set_vocab(&a.config, a.o.run.vocab, err) < 0 ||
	    dt_run_adapt(&a.q.fit.run, &a.config, err) < 0)
		return fail(err);
	complete_query();
	if (a.o.run.offload.what && !a.cluster.cores) {
		dt_err_set(err, -ENOTSUP, "--offload is for ranks on a processor: --gpu cpu, or --ops");
		return fail(err);
	}
	if (dt_plan_check_fp8(&a.q, err) < 0)
		return fail(err);
	return roof ? roofline(err) : a.serve ? plan_serving(err) : plan_training(model, err);
}

int main(int argc, char **argv)
{
	const char *model = NULL;
	struct dt_err err = {0};
	int status, nargs;

	dt_run_options_table(&a.o, own, opts);
	nargs = dt_opt_main(&program, argc, argv, stdout, stderr, &status);
	if (nargs >= 0) {
		status = check_usage(nargs, argv, &model);
		if (status < 0)
			status = run(nargs > 0 && !strcmp(argv[1], "roofline"), model, &err);
	}
	dt_cluster_release(&a.cluster);
	if (dt_close_stdout(&err) < 0 && status != DT_EXIT_FAILED)
		status = err.code == -EPIPE ? DT_EXIT_FAILED : fail(&err);
	return status;
}
/* SPDX-License-Identifier: Apache-2.0 */
