/* dt-memest: what a model and a layout need in memory, and whether it fits. */
#include "base/opt.h"
#include "base/scratch.h"
#include "base/tmpfile.h"
#include "kernels/unpack.h"
#include "model/file.h"
#include "plan/card.h"
#include "plan/fit_print.h"
#include "plan/room.h"
#include "plan/run_options.h"

#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_SEQ 4096

static struct {
	struct dt_run_options o;
	struct dt_fit_query q;
	struct dt_schedule schedule;
	struct dt_config config;
	struct dt_model_file file;
	bool train, list, json, buffers, bars, bars_given;
	bool why, timeline, precision_given;
	const char *explain, *svg, *check;
	int precision, account, solve, kv, activations;
	int base, attention;
	bool base_given;
	const char *device;
	uint64_t params, constant; /* constant: framework's, taken off what --check reads */
	struct dt_room room;
	double tolerance;
} a = {
	.precision = DT_WF_BF16,
};

static const char *const examples[] = {
	"dt-memest llama-2-7b --train --optimizer adamw --layout dp8.z3 --gpu-mem 80GiB && "
	"echo fits",
	"dt-memest --json llama-2-7b | jq .peak_bytes",
	"dt-memest llama-3-8b --serve --max-seqs 32 --max-len 8192 --gpu-mem 80GiB",
	NULL,
};

static const struct dt_opt own[] = {
	{"train", 0, DT_OPT_FLAG, &a.train, NULL, "memory of training, which is meant without --serve",
	 .without = "serve"},
	{"serve", 0, DT_OPT_FLAG, &a.q.serve, NULL, "memory of serving"},
	DT_RUN_OPT("layout", .def = "dp1"),
	{"precision", 'p', DT_OPT_CHOICE, &a.precision, DT_WEIGHT_CHOICES,
	 "type of weights (and activations where it is one that computes)", .elsewhere = DT_WEIGHT_ELSEWHERE,
	 .given = &a.precision_given, .def_text = "bf16, or that of the file"},
	{"params", 0, DT_OPT_COUNT, &a.params, "COUNT",
	 "no MODEL: a Llama of so many parameters, for when nothing else is known"},
	DT_RUN_OPT("vocab"),
	DT_RUN_OPT("rope-scaling"),
	DT_OPT_HEADING("Training"),
	DT_RUN_OPT("optimizer", .without = "serve"),
	DT_RUN_OPT("microbatch", .def = "1", .without = "serve"),
	DT_RUN_OPT("global-batch", .def_text = "by --accumulate"),
	{"accumulate", 0, DT_OPT_INT, &a.o.run.accumulation, "N",
	 "microbatches of a step, which bounds those in flight in a pipeline", .min = 1, .max = 1 << 24,
	 .def_text = "twice the stages", .without = "global-batch"},
	DT_RUN_OPT("pipeline"),
	DT_RUN_OPT("schedule-file"),
	DT_RUN_OPT("seq", .def_text = "the model's, 4096 at most"),
	DT_RUN_OPT("fp8"),
	DT_RUN_OPT("qat"),
	DT_RUN_OPT("capacity-factor"),
	DT_RUN_OPT("no-expert-overlap"),
	DT_RUN_OPT("master"),
	DT_RUN_OPT("grad-comm"),
	DT_RUN_OPT("reproducible"),
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
	DT_RUN_OPT("recompute"),
	DT_RUN_OPT("ops"),
	DT_RUN_OPT("documents"),
	DT_RUN_OPT("stream-overlap"),
	DT_RUN_OPT("cp-comm"),
	DT_RUN_OPT("loss-chunk"),
	{"account", 0, DT_OPT_CHOICE, &a.account, "auto|" DT_ACCOUNT_CHOICES,
	 "what is counted: what dt-train or dt-serve allocates (dt), textbook formulas (generic), what "
	 "Megatron-LM "
	 "keeps or DeepSpeed says; auto: dt for what can run, else generic",
	 .def = "auto"},
	{"attention", 0, DT_OPT_CHOICE, &a.attention, "flash|scores",
	 "whether attention keeps its seq x seq scores, in formulas", .def = "flash"},
	DT_RUN_OPT("freeze"),
	DT_RUN_OPT("lora", .without = "serve"),
	DT_RUN_OPT("lora-targets"),
	DT_RUN_OPT("lora-modules-to-save"),
	DT_RUN_OPT("lora-dropout"),
	DT_RUN_OPT("dora"),
	DT_RUN_OPT("objective"),
	{.name = "teacher-top-k", .def_text = "there is no teacher"},
	DT_RUN_OPT("beta"),
	DT_RUN_OPT("task"),
	DT_RUN_OPT("actors"),
	{"base-precision", 0, DT_OPT_CHOICE, &a.base, DT_WEIGHT_CHOICES,
	 "type of the frozen weights; nf4 is QLoRA", .given = &a.base_given,
	 .def_text = "that of --precision"},
	DT_RUN_OPT("clip", .without = "serve"),
	DT_RUN_OPT("offload", .without = "serve"),
	DT_RUN_OPT("offload-to"),
	DT_RUN_OPT("offload-fraction"),
	DT_RUN_OPT("disk-bandwidth"),
	DT_OPT_HEADING("Serving"),
	{"max-seqs", 0, DT_OPT_INT, &a.q.max_seqs, "N", "sequences served at a time", .min = 1,
	 .max = 1 << 24, .def = "32", .with = "serve"},
	{"max-len", 0, DT_OPT_INT, &a.q.max_len, "TOKENS", "longest prompt and completion together", .min = 1,
	 .max = 1 << 30, .def_text = "the model's, 4096 at most"},
	{"max-tokens", 0, DT_OPT_INT, &a.q.max_tokens, "TOKENS", "new tokens of one forward pass", .min = 1,
	 .max = 1 << 24, .def = "2048"},
	{"block-size", 0, DT_OPT_INT, &a.q.block, "TOKENS", "tokens a block of the cache holds", .min = 1,
	 .max = 1 << 16, .def = "16"},
	{"activations", 0, DT_OPT_CHOICE, &a.activations, "auto|bf16|fp32",
	 "type that is computed in; auto: that of the weights, bf16 for block formats", .def = "auto",
	 .with = "serve"},
	{"kv-precision", 0, DT_OPT_CHOICE, &a.kv, DT_KV_CHOICES,
	 "type of the cache; auto: that of the activations", .def = "auto", .with = "serve"},
	{"max-loras", 0, DT_OPT_INT, &a.q.loras, "N", "adapters in memory at a time, beside the base",
	 .min = 1, .max = 65536, .def_text = "none", .with = "serve"},
	{"max-lora-rank", 0, DT_OPT_INT, &a.q.lora_rank, "N", "their rank", .min = 1, .max = 4096,
	 .with = "max-loras", .def = "64"},
	{"weights-disk", 0, DT_OPT_STR, &a.room.weights_dir, "DIR",
	 "folder of dt-serve --weights-disk, whose free space is looked at", .complete = DT_COMPLETE_DIR,
	 .with = "weights-memory"},
	{"weights-memory", 0, DT_OPT_SIZE, &a.q.weights_memory, "SIZE",
	 "memory of a rank's weights, the others are on disk, as dt-serve --weights-memory", .with = "serve"},
	DT_OPT_HEADING("The question"),
	{"gpu-mem", 'm', DT_OPT_SIZE, &a.room.device, "SIZE",
	 "memory of one device, or of one rank on a processor", .min = 1 << 20},
	{"device", 0, DT_OPT_STR, &a.device, "cuda[:N]", "what is free on a card here is --gpu-mem",
	 .without = "gpu-mem"},
	{"margin", 0, DT_OPT_PERCENT, &a.room.margin, "PCT",
	 "percent of it kept free, for libraries and the driver", .min = 0, .max = 99, .def = "5"},
	{"framework-mem", 0, DT_OPT_SIZE, &a.q.extras.framework_bytes, "SIZE",
	 "what context, libraries and allocator take, a category of its own", .def = "0"},
	{"gpus-per-node", 0, DT_OPT_INT, &a.room.node, "N", "devices of a machine, for --why", .min = 1,
	 .max = 4096, .def = "8"},
	{"solve", 0, DT_OPT_CHOICE, &a.solve, DT_SOLVE_CHOICES,
	 "find what just fits --gpu-mem: largest batch, longest sequence (seq, context), fewest ranks "
	 "(gpus), lowest "
	 "ZeRO stage of --layout, or the simplest layout of as many ranks as --layout",
	 .with = "gpu-mem,device"},
	{"why", 0, DT_OPT_FLAG, &a.why, NULL, "walk the decision tree: what to split, and why",
	 .with = "gpu-mem,device"},
	{"check", 0, DT_OPT_STR, &a.check, "FILE",
	 "compare with the peak_bytes (or rss_bytes) that dt-train --metrics wrote",
	 .complete = DT_COMPLETE_FILE, .without = "solve,why,explain"},
	{"tolerance", 0, DT_OPT_PERCENT, &a.tolerance, "PCT", "by how much --check may be off", .min = 0,
	 .max = 1000, .def = "0"},
	DT_OPT_HEADING("Output"),
	{"list", 0, DT_OPT_FLAG, &a.list, NULL, "list the models known by name, and their parameters"},
	{"json", 0, DT_OPT_FLAG, &a.json, NULL, "one JSON object"},
	{"timeline", 0, DT_OPT_FLAG, &a.timeline, NULL, "bytes of every category in each phase of a step"},
	{"svg", 0, DT_OPT_STR, &a.svg, "FILE", "draw them as stacked bars", .complete = DT_COMPLETE_FILE},
	{"buffers", 0, DT_OPT_FLAG, &a.buffers, NULL, "list every buffer of the fullest rank"},
	{"explain", 0, DT_OPT_STR, &a.explain, "CATEGORY", "say what a category holds, and list its buffers",
	 .without = "json"},
	{"bars", 0, DT_OPT_FLAG, &a.bars, NULL, "draw shares as bars", .given = &a.bars_given,
	 .negatable = true, .def_text = "on a terminal"},
	DT_OPT_END,
};

static struct dt_opt opts[DT_RUN_OPTS_MAX];

static const struct dt_program program = {
	.name = "dt-memest",
	.summary = "estimate the memory of training or serving a model, and whether it fits",
	.operands = "MODEL",
	.examples = examples,
	.opts = opts,
};

/* ---- printing ---- */

static int print_json(const struct dt_fit *f, const struct dt_solve *s, struct dt_err *err)
{
	json_t *o = dt_fit_json(&a.q, f, a.buffers);
	int rc;

	dt_room_json(&a.room, &a.q, f, s, o);
	if (a.file.tensors)
		json_object_set_new(o, "file",
				    json_pack("{s:s, s:i, s:I, s:I}", "kind", a.file.kind, "tensors",
					      a.file.tensors, "params", (json_int_t)a.file.params,
					      "weight_bytes", (json_int_t)a.file.weight_bytes));
	if (a.why) {
		struct dt_why w;

		rc = dt_why(&a.q, dt_room_budget(&a.room), (int)a.room.node, &w, err);
		if (rc < 0) {
			json_decref(o);
			return rc;
		}
		json_object_set_new(o, "why", dt_why_json(&w));
	}
	rc = dt_json_write_line(stdout, o, err);
	json_decref(o);
	return rc;
}

static int write_svg(const struct dt_fit *f, struct dt_err *err)
{
	struct dt_tmpfile t;
	int rc = dt_tmpfile_open(&t, a.svg, err);

	if (rc < 0)
		return rc;
	dt_fit_svg(&a.q, dt_fit_worst(f), a.room.device ? dt_room_budget(&a.room) : 0, t.f);
	return dt_tmpfile_commit(&t, err);
}

/* ---- the program ---- */

static int fail(const struct dt_err *err)
{
	fprintf(stderr, "dt-memest: %s%s%s\n", err->msg, err->hint[0] ? "; " : "", err->hint);
	return DT_EXIT_FAILED;
}

/* What the table cannot check; -1: all is well. */
static int check_usage(int nargs)
{
	const char *dumb = getenv("TERM");
	static const enum dt_dtype plain[] = {DT_F32, DT_BF16, DT_F16};
	struct dt_err err = {0};
	int rc;

	if (nargs == 0 && a.list)
		return -1;
	if (nargs != (a.params ? 0 : 1) || a.list)
		return dt_opt_usage_error(&program, stderr,
					  a.list     ? "--list takes no model"
					  : a.params ? "--params takes no model"
					  : nargs    ? "one model at a time"
						     : "a model is missing");
	a.o.run.compute = a.precision < DT_WF_Q8_0 ? plain[a.precision] : DT_BF16;
	if (dt_run_options_finish(&a.o, &err) < 0)
		return dt_opt_usage_error(&program, stderr, "%s%s%s", err.msg, err.hint[0] ? "; " : "",
					  err.hint);
	a.q.run = a.o.run;
	if (!a.q.serve && a.precision >= DT_WF_Q8_0)
		return dt_opt_usage_error(&program, stderr,
					  "--precision of block formats goes with --serve only");
	if (a.device && (rc = dt_card_free(a.device, &a.room.device, &err)) < 0)
		return rc == -EINVAL ? dt_opt_usage_error(&program, stderr, "option '--device': %s", err.msg)
				     : fail(&err);
	a.q.run.on_card = a.device != NULL;
	if (a.q.serve && a.q.run.lora.dora) { /* of adapters beside a base */
		a.q.loras_dora = true;
		a.q.run.lora.dora = false;
	}
	if (a.q.loras_dora && !a.q.loras)
		return dt_opt_usage_error(&program, stderr, "--dora goes with --lora, or with --max-loras");
	if (a.q.serve && a.solve == DT_SOLVE_ZERO)
		return dt_opt_usage_error(&program, stderr, "--solve zero goes with --train");
	if (!a.bars_given)
		a.bars = isatty(STDOUT_FILENO) && dumb && strcmp(dumb, "dumb");
	return -1;
}

/* The verdict on a measurement: an exit status. */
static int check_measured(const struct dt_fit *f, struct dt_err *err)
{
	int rc = dt_fit_check_file(dt_fit_worst(f), a.check, a.constant, a.tolerance, a.json, stdout, err);

	return rc < 0 ? fail(err) : rc ? DT_EXIT_OK : DT_EXIT_NO;
}

/* What options and model together say. */
static void complete_query(void)
{
	struct dt_fit_query *q = &a.q;
	int64_t usual = a.config.max_seq < DEFAULT_SEQ ? a.config.max_seq : DEFAULT_SEQ;

	q->run.seq = q->run.seq ? q->run.seq : usual;
	q->max_len = q->max_len ? q->max_len : usual;
	q->precision = (enum dt_weight_format)a.precision;
	if (a.activations)
		q->run.compute = a.activations == 1 ? DT_BF16 : DT_F32;
	if (q->serve)
		q->cache_bits = dt_kv_bits(&a.config, a.kv);
	/* A file says what its weights take; another type was asked for where --precision is given. */
	q->weight_bytes = q->serve && !a.precision_given ? a.file.weight_bytes : 0;
	q->stored = a.precision_given ? NULL : a.file.format;
	q->extras.lora_rank = q->run.lora.rank;
	q->extras.base = a.base_given ? (enum dt_weight_format)a.base : (enum dt_weight_format)q->run.compute;
	q->extras.scores = a.attention;
	if (a.check) {
		a.constant = q->extras.framework_bytes;
		q->extras.framework_bytes = 0;
	}
	q->any_account = a.account == 0;
	q->account = a.account ? (enum dt_account)(a.account - 1) : DT_ACCOUNT_DT;
}

/* The table of --schedule-file, for as many microbatches as the step has. */
static int read_schedule(struct dt_err *err)
{
	struct dt_run *r = &a.q.run;
	int rc;

	if (!r->schedule_file)
		return 0;
	if (!r->accumulation && !r->global_batch)
		r->accumulation = 2 * r->layout.pp;
	rc = dt_run_settle(r, err);
	return rc < 0 ? rc : dt_run_read_schedule(r, &a.schedule, err);
}

/* Formulas know sets of matrices, not expressions; dt's own account takes the graph. */
static int set_targets(struct dt_err *err)
{
	const char *which = a.q.run.lora.targets;
	int i = dt_opt_choice_index(DT_LORA_CHOICES, which);

	if (!a.q.run.lora.rank)
		return 0;
	if (i < 0 && a.account != 1 + DT_ACCOUNT_DT)
		return dt_err_set(err, -EINVAL,
				  "--lora-targets '%s' goes with --account dt, formulas know %s", which,
				  DT_LORA_CHOICES);
	a.q.extras.targets = i < 0 ? DT_LORA_ALL : (enum dt_lora_targets)i;
	return 0;
}

static int set_vocab(const char *model, struct dt_err *err)
{
	if (a.file.weight_bytes && a.o.run.vocab && a.o.run.vocab != a.config.vocab)
		return dt_err_set(err, -EINVAL, "--vocab %lld: '%s' holds weights for %lld tokens",
				  (long long)a.o.run.vocab, model, (long long)a.config.vocab);
	return dt_config_set_vocab(&a.config, a.o.run.vocab, err);
}

/* What blocks of --base-precision the frozen weights of --lora are in. */
static enum dt_block_kind base_blocks(void)
{
	if (!a.base_given || !a.q.run.lora.rank)
		return DT_BLOCKS_NONE;
	switch (a.base) {
	case DT_WF_Q8_0:
		return DT_BLOCKS_Q8_0;
	case DT_WF_Q4_0:
		return DT_BLOCKS_Q4_0;
	case DT_WF_Q4_K:
		return DT_BLOCKS_Q4_K;
	case DT_WF_NF4:
	case DT_WF_NF4_DQ:
		return DT_BLOCKS_NF4;
	default:
		return DT_BLOCKS_NONE;
	}
}

/* Reads the model and completes the query with it. */
static int read_model(const char *model, struct dt_err *err)
{
	int rc;

	if ((rc = a.params ? dt_config_of_size((double)a.params, &a.config, err)
			   : dt_model_describe(model, &a.config, &a.file, err)) < 0 ||
	    (rc = set_vocab(model, err)) < 0)
		return rc;
	if (dt_config_is_image(&a.config) && (a.why || dt_solve_is_length((enum dt_solve_what)a.solve)))
		return dt_err_set(err, -EINVAL, "'%s' has no sequences and no layers to split", model);
	a.q.run.config = &a.config;
	if (a.base_given || !a.q.run.lora.rank)
		a.q.run.lora.base = base_blocks();
	if ((rc = dt_run_adapt(&a.q.run, &a.config, err)) < 0)
		return rc;
	complete_query();
	if ((rc = set_targets(err)) < 0 || (rc = read_schedule(err)) < 0)
		return rc;
	return dt_room_dir(&a.room, &a.q)
		       ? dt_scratch_free(dt_room_dir(&a.room, &a.q), &a.room.disk_free, err)
		       : 0;
}

static int print_report(const struct dt_fit *f, const struct dt_solve *s, int cat, struct dt_err *err)
{
	struct dt_fit_view v = {&a.q, &a.file, a.o.recompute, a.bars, a.timeline, stdout};
	const struct dt_estimate *worst = dt_fit_worst(f);

	if (a.explain) {
		dt_fit_print_category(&v, worst, cat);
		return 0;
	}
	dt_fit_print_heading(&v, f);
	dt_fit_print_categories(&v, worst);
	if (f->n > 1)
		dt_fit_print_stages(&v, f);
	if (a.buffers)
		dt_fit_print_buffers(&v, worst, -1);
	dt_room_print(&a.room, &a.q, f, s, a.why, stdout);
	return a.why ? dt_fit_print_why(&v, dt_room_budget(&a.room), (int)a.room.node, err) : 0;
}

/* Says what was asked of an answer: an exit status. */
static int answer(const struct dt_fit *f, const struct dt_solve *s, int cat)
{
	int status = dt_room_fits(&a.room, &a.q, f) ? DT_EXIT_OK : DT_EXIT_NO;
	struct dt_err err = {0};

	if (a.svg && write_svg(f, &err) < 0)
		return fail(&err);
	if (a.check)
		return check_measured(f, &err);
	if ((a.json ? print_json(f, s, &err) : print_report(f, s, cat, &err)) < 0)
		return fail(&err);
	return status;
}

static int run(const char *model, int cat)
{
	struct dt_fit r;
	struct dt_err err = {0};
	struct dt_solve s = {(enum dt_solve_what)a.solve, &a.q, dt_room_budget(&a.room), false};
	int status;

	if (read_model(model, &err) < 0 || (a.solve && dt_solve(&s, &err) < 0) ||
	    dt_fit_estimate(&a.q, &r, &err) < 0) {
		status = fail(&err);
	} else {
		if (a.params)
			dt_fit_guessed(&r);
		status = answer(&r, &s, cat);
		dt_fit_release(&r);
	}
	dt_model_file_release(&a.file);
	dt_schedule_release(&a.schedule);
	return status;
}

int main(int argc, char **argv)
{
	struct dt_err err = {0};
	int status, cat = -1, nargs;

	dt_run_options_table(&a.o, own, opts);
	nargs = dt_opt_main(&program, argc, argv, stdout, stderr, &status);
	setlocale(LC_CTYPE, "");
	if (nargs >= 0) {
		status = check_usage(nargs);
		if (status < 0 && a.explain) {
			cat = dt_est_cat_find(a.explain);
			if (cat < 0)
				status = dt_opt_usage_error(&program, stderr,
							    "option '--explain': no category is called '%s'",
							    a.explain);
		}
		if (status < 0)
			status = a.list ? dt_fit_print_models(stdout), DT_EXIT_OK : run(argv[1], cat);
	}
	if (dt_close_stdout(&err) < 0 && status != DT_EXIT_FAILED)
		status = err.code == -EPIPE ? DT_EXIT_FAILED : fail(&err);
	return status;
}
/* SPDX-License-Identifier: Apache-2.0 */
