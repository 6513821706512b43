/* dt-train: trains or continues training a model, one process a rank. */
#include "base/opt.h"
#include "base/tmpfile.h"
#include "kernels/device.h"
#include "train/train.h"
#include "train/verify.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct args {
	struct dt_run r;
	const char *layout, *pipeline, *recompute, *loss_scale;
	int precision, optimizer, schedule, grad_comm, save_errors, transport;
	bool schedule_table, master;
	struct dt_verify_opts verify;
	int64_t seed;
	double lr, min_lr, beta1, beta2, eps, weight_decay, timeout;
	bool min_lr_given;
	uint64_t bucket;
};

static const char *const examples[] = {
	"dt-train --model gpt2-124m --data corpus.h5 --seq 512 --microbatch 4 --steps 100",
	"mpirun -np 4 dt-train --model gpt2-124m --data corpus.h5 --layout dp2.tp2 --save run --metrics - | "
	"dt-plot loss",
	"dt-train verify --layouts dp1,tp2,dp2.pp2 --model gpt2-tiny --data corpus.h5 --seq 64 --precision "
	"fp32",
	NULL,
};

static struct args a = {
	.pipeline = "1f1b",
	.master = true,
	.recompute = "none",
	.layout = "dp1",
	.r = {.seq = 256,
	      .microbatch = 4,
	      .steps = 100,
	      .clip = 1.0,
	      .metrics = "-",
	      .measure_mfu = true,
	      .lr = {.schedule = DT_LR_COSINE}},
	.precision = 0,
	.optimizer = DT_OPTIM_ADAMW,
	.schedule = DT_LR_COSINE,
	.seed = 1337,
	.lr = 3e-4,
	.beta1 = 0.9,
	.beta2 = 0.95,
	.eps = 1e-8,
	.weight_decay = 0.1,
	.timeout = 300,
	.bucket = 25u << 20,
};

#define ANY .min = -1e300, .max = 1e300
static const struct dt_opt opts[] = {
	{"model", 'm', DT_OPT_STR, &a.r.model, "MODEL", "preset, config.json or checkpoint folder",
	 .complete = DT_COMPLETE_MODEL},
	{"data", 'd', DT_OPT_STR, &a.r.data.train, "FILE", "training set made by dt-dataset",
	 .complete = DT_COMPLETE_FILE},
	{"layout", 'l', DT_OPT_STR, &a.layout, "LAYOUT",
	 "how ranks split the work, dp2.tp2 for example; see dt-layout(7)"},
	{"pipeline", 0, DT_OPT_STR, &a.pipeline, "NAME",
	 "schedule where pp > 1: gpipe, 1f1b, interleaved:V or zb-h1"},
	{"schedule-file", 0, DT_OPT_STR, &a.r.schedule_file, "FILE",
	 "run this table of a pipeline, in the form that --schedule-table prints",
	 .complete = DT_COMPLETE_FILE},
	{"schedule-table", 0, DT_OPT_FLAG, &a.schedule_table, NULL,
	 "print the pipeline's table and its bubble, and do nothing else"},
	DT_OPT_HEADING("Batch and length"),
	{"seq", 's', DT_OPT_INT, &a.r.seq, "TOKENS", "sequence length", .min = 1, .max = 1 << 24},
	{"microbatch", 'b', DT_OPT_INT, &a.r.microbatch, "SAMPLES", "samples a rank computes at a time",
	 .min = 1, .max = 1 << 24},
	{"global-batch", 0, DT_OPT_INT, &a.r.global_batch, "SAMPLES",
	 "samples a step over all ranks; default microbatch x dp", .min = 1, .max = 1 << 30},
	{"steps", 'n', DT_OPT_INT, &a.r.steps, "N", "train until this many steps are done", .min = 1,
	 .max = 1e15},
	DT_OPT_HEADING("Optimizer"),
	{"optimizer", 0, DT_OPT_CHOICE, &a.optimizer, DT_OPTIM_CHOICES, "update rule"},
	{"lr", 0, DT_OPT_REAL, &a.lr, "X", "peak learning rate", .min = 0, .max = 1e6},
	{"min-lr", 0, DT_OPT_REAL, &a.min_lr, "X", "learning rate at the end; default a tenth of --lr",
	 .min = 0, .max = 1e6, .given = &a.min_lr_given},
	{"schedule", 0, DT_OPT_CHOICE, &a.schedule, DT_LR_CHOICES, "course of the learning rate"},
	{"warmup", 0, DT_OPT_INT, &a.r.lr.warmup, "STEPS", "steps of linear warm-up", .min = 0, .max = 1e15},
	{"decay-steps", 0, DT_OPT_INT, &a.r.lr.decay, "STEPS",
	 "length of the decay at the end of wsd; default a tenth of --steps", .min = 0, .max = 1e15},
	{"beta1", 0, DT_OPT_REAL, &a.beta1, "X", "momentum; first Adam moment", .min = 0, .max = 1},
	{"beta2", 0, DT_OPT_REAL, &a.beta2, "X", "second Adam moment; RMSprop's average", .min = 0, .max = 1},
	{"eps", 0, DT_OPT_REAL, &a.eps, "X", "term added to the denominator", .min = 0, .max = 1},
	{"weight-decay", 0, DT_OPT_REAL, &a.weight_decay, "X", "on matrices; norms and biases are left alone",
	 .min = 0, .max = 1e6},
	{"clip", 0, DT_OPT_REAL, &a.r.clip, "X", "largest gradient norm; 0: no clipping", .min = 0,
	 .max = 1e30},
	DT_OPT_HEADING("Numbers and memory"),
	{"precision", 'p', DT_OPT_CHOICE, &a.precision, "bf16|fp32|fp16",
	 "compute type; master weights and gradients are always fp32"},
	{"fp8", 0, DT_OPT_FLAG, &a.r.fp8, NULL,
	 "linears of the layers in 8 bits: E4M3 forward, E5M2 gradients, a scale a tensor"},
	{"master", 0, DT_OPT_FLAG, &a.master, NULL,
	 "keep fp32 master weights beside 16-bit ones; without them bf16 is rounded at random",
	 .negatable = true},
	{"recompute", 0, DT_OPT_STR, &a.recompute, DT_RECOMPUTE_CHOICES,
	 "what backward computes again instead of keeping"},
	{"loss-chunk", 0, DT_OPT_INT, &a.r.loss_chunk, "TOKENS", "rows of logits held at a time", .min = 1,
	 .max = 1 << 24},
	{"mem-limit", 0, DT_OPT_SIZE, &a.r.mem_limit, "SIZE",
	 "refuse to start (exit 3) when the plan needs more a rank"},
	{"seed", 0, DT_OPT_INT, &a.seed, "N", "of initial weights and data order"},
	{"device", 0, DT_OPT_STR, &a.r.device, "auto|cpu|cuda[:N]",
	 "where to compute; default the processor"},
	{"threads", 't', DT_OPT_INT, &a.r.threads, "N",
	 "threads a rank; default cores over the ranks of the machine", .min = 1, .max = 4096},
	{"loss-scale", 0, DT_OPT_STR, &a.loss_scale, "X|dynamic[:X]",
	 "factor of the loss during backward; default dynamic for fp16, else 1"},
	{"reproducible", 0, DT_OPT_FLAG, &a.r.reproducible, NULL,
	 "sum gradients so that dp, pp and accumulation do not change a bit"},
	DT_OPT_HEADING("Checkpoints"),
	{"save", 0, DT_OPT_STR, &a.r.save.dir, "DIR",
	 "folder of checkpoints; one is always written at the end", .complete = DT_COMPLETE_DIR},
	{"save-every", 0, DT_OPT_INT, &a.r.save.every, "STEPS", "also save this often", .min = 1,
	 .max = 1e15},
	{"keep", 0, DT_OPT_INT, &a.r.save.keep, "N", "keep only the newest N checkpoints", .min = 1,
	 .max = 1 << 30},
	{"keep-every", 0, DT_OPT_INT, &a.r.save.keep_every, "STEPS",
	 "with --keep: also keep multiples of this", .min = 1, .max = 1e15},
	{"save-async", 0, DT_OPT_FLAG, &a.r.save.async, NULL,
	 "write checkpoints from a copy in memory while training goes on"},
	{"save-errors", 0, DT_OPT_CHOICE, &a.save_errors, "stop|continue",
	 "what a checkpoint that cannot be written does to the run"},
	{"compress", 0, DT_OPT_FLAG, &a.r.save.compress, NULL, "deflate checkpoints"},
	{"save-grads", 0, DT_OPT_FLAG, &a.r.save.grads, NULL,
	 "checkpoints also hold the gradients of their step, as grad/NAME"},
	{"resume", 0, DT_OPT_STR, &a.r.save.resume, "auto|PATH",
	 "go on from the newest checkpoint of --save if there is one, or from PATH",
	 .complete = DT_COMPLETE_DIR},
	DT_OPT_HEADING("Reports"),
	{"metrics", 0, DT_OPT_STR, &a.r.metrics, "FILE", "JSON line a step; - is standard output",
	 .complete = DT_COMPLETE_FILE},
	{"eval-data", 0, DT_OPT_STR, &a.r.data.eval, "FILE", "evaluation set, of the same tokenizer",
	 .complete = DT_COMPLETE_FILE},
	{"eval-every", 0, DT_OPT_INT, &a.r.data.eval_every, "STEPS", "evaluate this often, and at the end",
	 .min = 1, .max = 1e15},
	{"eval-tokens", 0, DT_OPT_INT, &a.r.data.eval_tokens, "N",
	 "stop an evaluation after this many tokens", .min = 1, .max = 1e15},
	{"mfu", 0, DT_OPT_FLAG, &a.r.measure_mfu, NULL, "measure the matmul rate at the start, for mfu",
	 .negatable = true},
	DT_OPT_HEADING("Communication"),
	{"comm-timeout", 0, DT_OPT_REAL, &a.timeout, "SECONDS",
	 "end the job when an operation between ranks takes longer; 0: never", .min = 0, .max = 1e9},
	{"transport", 0, DT_OPT_CHOICE, &a.transport, "auto|mpi",
	 "auto: shared memory inside a machine; mpi: MPI for everything"},
	{"grad-comm", 0, DT_OPT_CHOICE, &a.grad_comm, "fp32|bf16", "type in which gradients travel"},
	{"bucket-size", 0, DT_OPT_SIZE, &a.bucket, "SIZE",
	 "gradients are reduced in pieces of about this size"},
	DT_OPT_HEADING("dt-train verify: the same run on several layouts, compared with the first"),
	{"layouts", 0, DT_OPT_STR, &a.verify.layouts, "A,B[,C...]", "which layouts"},
	{"loss-bound", 0, DT_OPT_REAL, &a.verify.loss_bound, "X",
	 "largest relative difference of a loss; default 1e-5, bf16 1e-2", .min = 0, .max = 1e9},
	{"tensor-bound", 0, DT_OPT_REAL, &a.verify.tensor_bound, "X",
	 "largest relative difference of a gradient norm, gradient or parameter; default 1e-4, bf16 5e-2",
	 .min = 0, .max = 1e9},
	{"json", 0, DT_OPT_FLAG, &a.verify.json, NULL, "a JSON line a layout"},
	DT_OPT_END,
};

static const struct dt_program program = {
	.name = "dt-train",
	.summary = "train a model, one process a rank",
	.operands = "[verify]",
	.examples = examples,
	.opts = opts,
};

/* "X", "dynamic" or "dynamic:X", where X is what it starts from. */
static int parse_loss_scale(const char *s, struct dt_run *o, struct dt_err *err)
{
	bool dynamic = s ? !strncmp(s, "dynamic", 7) : o->compute == DT_F16;
	const char *number = !s || !dynamic ? s : s[7] == ':' ? s + 8 : s[7] ? s : NULL;
	double x = dynamic ? 0x1p16 : 1;
	char *end;

	if (number) {
		x = strtod(number, &end);
		if (end == number || *end || !(x >= 0x1p-20) || !(x <= 0x1p40))
			return dt_err_set(err, -EINVAL,
					  "--loss-scale '%s' is neither a number above 0 nor dynamic[:X]", s);
	}
	o->loss_scale = dynamic ? 0 : x;
	o->loss_scale_start = x;
	return 0;
}

/* --schedule-table: nothing but layout and batch are needed. */
static int print_schedule(struct dt_err *err)
{
	struct dt_run *o = &a.r;
	struct dt_layout l = o->layout;
	struct dt_schedule s;
	struct dt_pipe_cost *cost;
	int64_t each, mbs;
	double bubble;
	int chunks = dt_layout_chunks(&l), rc;

	each = o->microbatch * l.dp;
	mbs = o->global_batch ? o->global_batch / each : 1;
	if (l.pp == 1 || (o->global_batch && o->global_batch % each) || mbs > 65536)
		return dt_err_set(
			err, -EINVAL,
			l.pp == 1 ? "layout '%s' has no pipeline"
				  : "--global-batch is not a (small) multiple of --microbatch x dp of '%s'",
			a.layout);
	rc = dt_schedule_make(chunks > 1 ? DT_PIPE_INTERLEAVED : o->pipeline, l.pp, chunks, (int)mbs, &s,
			      err);
	if (rc < 0)
		return rc;
	cost = calloc((size_t)(l.pp * chunks), sizeof(*cost));
	for (int v = 0; cost && v < l.pp * chunks; v++)
		cost[v] = (struct dt_pipe_cost){1, s.split ? 1 : 2, s.split ? 1 : 0};
	dt_schedule_print(&s, stdout);
	if (cost && dt_schedule_simulate(&s, cost, 0, &bubble) >= 0)
		fprintf(stderr,
			"dt-train: %d stages idle %.1f%% of the time where backward takes twice as long as "
			"forward\n",
			l.pp, 100 * bubble);
	free(cost);
	dt_schedule_release(&s);
	return 0;
}

/* What the table cannot check; NULL or the complaint. */
static const char *finish_options(void)
{
	static const enum dt_dtype types[] = {DT_BF16, DT_F32, DT_F16};
	struct dt_run *o = &a.r;
	static struct dt_err err;

	int chunks = 1;

	if (dt_layout_parse(a.layout, &o->layout, &err) < 0 ||
	    dt_pipeline_parse(a.pipeline, &o->pipeline, &chunks, &err) < 0)
		return err.msg;
	/* --pipeline interleaved:V and a layout's vV say the same thing. */
	if (o->layout.pp > 1 && chunks > 1 && o->layout.chunks > 1 && o->layout.chunks != chunks)
		return "--layout and --pipeline disagree on the number of chunks";
	if (o->layout.pp > 1 && chunks > 1)
		o->layout.chunks = chunks;
	if (dt_keep_parse(a.recompute, &o->recompute, &err) < 0)
		return err.msg;
	if (a.schedule_table)
		return NULL;
	if (!o->model || !o->data.train)
		return "--model and --data are needed";
	if (o->save.grads && !o->save.dir)
		return "--save-grads needs --save";
	if (o->save.resume && !strcmp(o->save.resume, "auto") && !o->save.dir)
		return "--resume auto needs --save";
	if ((o->save.every || o->save.keep) && !o->save.dir)
		return "--save-every and --keep need --save";
	if ((o->save.async || a.save_errors) && !o->save.dir)
		return "--save-async and --save-errors need --save";
	if (o->save.keep_every && !o->save.keep)
		return "--keep-every needs --keep";
	o->save.proceed = a.save_errors == 1;
	if (o->data.eval_every && !o->data.eval)
		return "--eval-every needs --eval-data";
	if (a.min_lr_given && a.min_lr > a.lr)
		return "--min-lr is larger than --lr";
	o->compute = types[a.precision];
	o->no_master = !a.master && o->compute != DT_F32;
	o->grad_comm = a.grad_comm == 0 ? DT_F32 : DT_BF16;
	if (parse_loss_scale(a.loss_scale, o, &err) < 0)
		return err.msg;
	o->data.seed = (uint64_t)a.seed;
	o->bucket_bytes = (double)a.bucket;
	o->lr.schedule = (enum dt_lr_schedule)a.schedule;
	o->lr.lr = a.lr;
	o->lr.min_lr = a.min_lr_given ? a.min_lr : a.lr / 10;
	o->lr.steps = o->steps;
	if (!o->lr.decay)
		o->lr.decay = o->steps / 10;
	o->optim = (struct dt_optim){.kind = (enum dt_optim_kind)a.optimizer,
				     .beta1 = (float)a.beta1,
				     .beta2 = (float)a.beta2,
				     .eps = (float)a.eps,
				     .weight_decay = (float)a.weight_decay};
	return NULL;
}

/* Arguments for every run: as given, less the word verify and what only it knows. */
static char **run_arguments(int argc, char **argv)
{
	static const char *const own[] = {"--layouts", "--loss-bound", "--tensor-bound"};
	char **ret = calloc((size_t)argc + 1, sizeof(*ret));
	int n = 0;

	for (int i = 1; ret && i < argc; i++) {
		bool drop = !strcmp(argv[i], "verify") || !strcmp(argv[i], "--json");

		for (int k = 0; k < 3; k++) {
			size_t len = strlen(own[k]);

			if (strncmp(argv[i], own[k], len) || (argv[i][len] && argv[i][len] != '='))
				continue;
			drop = true;
			i += argv[i][len] == '\0';
			break;
		}
		if (!drop)
			ret[n++] = argv[i];
	}
	return ret;
}

static int verify(char **args)
{
	struct dt_verify_opts *v = &a.verify;
	bool exact = a.r.compute == DT_F32 && !a.r.fp8;
	struct dt_err err = {0};
	int rc;

	if (!v->layouts)
		return dt_opt_usage_error(&program, stderr, "verify needs --layouts");
	if (a.r.save.dir || a.r.save.resume)
		return dt_opt_usage_error(&program, stderr,
					  "verify keeps no checkpoint: not with --save and --resume");
	v->args = args;
	v->loss_bound = v->loss_bound > 0 ? v->loss_bound : exact ? 1e-5 : 1e-2;
	v->tensor_bound = v->tensor_bound > 0 ? v->tensor_bound : exact ? 1e-4 : 5e-2;
	rc = dt_train_verify(v, &err);
	if (rc < 0 || dt_close_stdout(&err) < 0) {
		fprintf(stderr, "dt-train: %s\n", err.msg);
		return DT_EXIT_FAILED;
	}
	return rc ? DT_EXIT_NO : DT_EXIT_OK;
}

static int run(int argc, char **argv, char **args)
{
	struct dt_log log = {.f = stderr, .name = program.name, .rank = -1};
	struct dt_world_opts wo = {0};
	struct dt_world_info info;
	struct dt_err err = {0};
	struct dt_world *world;
	const char *complaint;
	int status, n;

	dt_dev_spin_less(argv);
	n = dt_opt_main(&program, argc, argv, stdout, stderr, &status);
	if (n < 0)
		return status;
	if (n > 1 || (n == 1 && strcmp(argv[1], "verify") != 0))
		return dt_opt_usage_error(&program, stderr, "unexpected operand '%s'", argv[n]);
	complaint = finish_options();
	if (complaint)
		return dt_opt_usage_error(&program, stderr, "%s", complaint);
	if (n == 1)
		return verify(args);
	if (a.verify.layouts)
		return dt_opt_usage_error(&program, stderr, "--layouts is for dt-train verify");
	signal(SIGPIPE, SIG_IGN);
	if (a.schedule_table) {
		if (print_schedule(&err) < 0)
			return dt_opt_usage_error(&program, stderr, "%s", err.msg);
		return dt_close_stdout(&err) < 0 ? dt_log_err(&log, &err), DT_EXIT_FAILED : DT_EXIT_OK;
	}
	wo.timeout_s = a.timeout;
	wo.transport = a.transport ? DT_TRANSPORT_MPI : DT_TRANSPORT_AUTO;
	if (dt_world_open(&world, &wo, &log, &err) < 0) {
		dt_log_err(&log, &err);
		return DT_EXIT_FAILED;
	}
	dt_world_info(world, &info);
	if (info.size > 1)
		log.rank = info.rank;
	status = dt_train_run(&a.r, world, &log);
	dt_world_finalize(world);
	if (dt_close_stdout(&err) < 0 && status == DT_EXIT_OK) {
		dt_log_err(&log, &err);
		status = DT_EXIT_FAILED;
	}
	return status;
}

int main(int argc, char **argv)
{
	char **args = run_arguments(argc, argv); /* before parsing reorders them */
	int status = args ? run(argc, argv, args) : DT_EXIT_FAILED;

	free(args);
	return status;
}
