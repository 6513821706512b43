/* dt-shard-ckpt: looks into checkpoints, checks, compares, recuts and converts them. */
#include "base/json.h"
#include "base/log.h"
#include "base/program.h"
#include "base/progress.h"
#include "ckpt/look.h"
#include "convert/convert.h"
#include "eval/ppl.h"
#include "eval/rounding.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static bool json, all_lines, raw, compress, dry_run, weights, any_base;
static double tolerance;
static bool tolerance_given, step_given, from_given, to_given, type_given;
static int64_t workers, window, keep, keep_every, step, experts, top_k, seed, vocab;
static uint64_t max_file;
static const char *layout_text, *tokenizer, *judged_on;
static int from, to, type, method;
static bool method_given;
static const char *calibrated_on;
static bool damping_given;
static struct dt_rounding rounding; /* quantize --calibrate */

#define TYPES "f32|f16|bf16|q8_0|q4_0|q4_1|q5_0|q4_k|q6_k"

static const struct dt_opt opts[] = {
	{"json", 0, DT_OPT_FLAG, &json, .help = "print one JSON object", .commands = "ls,verify,diff,stats"},
	{"all", 'a', DT_OPT_FLAG, &all_lines, .help = "a line for every tensor: fold no layers",
	 .commands = "ls,diff"},
	{"weights", 'w', DT_OPT_FLAG, &weights, .help = "leave out the states of the optimizer",
	 .commands = "diff"},
	{"workers", 'j', DT_OPT_INT, &workers, "N", "threads", "verify,reshard,merge", 1, 64,
	 .def_text = "one a processor, at most 8"},
	{"tolerance", 't', DT_OPT_REAL, &tolerance, "X",
	 "call tensors equal up to X times the largest magnitude in A", "diff", 0, 1e30, &tolerance_given,
	 .def_text = "bit by bit"},
	{"layout", 'l', DT_OPT_STR, &layout_text, "LAYOUT",
	 "the layout to cut for, as dp2.tp4.pp2.z1 (dt-layout(7))", "reshard"},
	{"compress", 0, DT_OPT_FLAG, &compress, .help = "shuffle and deflate the pieces",
	 .commands = "reshard,merge,convert,avg,upcycle,resize-vocab"},
	{"from", 0, DT_OPT_CHOICE, &from, DT_SOURCE_FROM,
	 "what SRC is; ema: the averaged weights of a checkpoint",
	 "convert,quantize,avg,upcycle,resize-vocab,lora-merge", .given = &from_given,
	 .def_text = "what is there"},
	{"to", 0, DT_OPT_CHOICE, &to, DT_SOURCE_KINDS, "what DST becomes",
	 "convert,avg,upcycle,resize-vocab,lora-merge", .given = &to_given,
	 .def_text = "gguf by its ending; else dt, when SRC is something else"},
	{"type", 0, DT_OPT_CHOICE, &type, TYPES, "type of the weights",
	 "convert,quantize,avg,upcycle,resize-vocab,lora-merge", .given = &type_given,
	 .def_text = "as they are"},
	{"tokenizer", 0, DT_OPT_STR, &tokenizer, "FILE",
	 "what holds the tokenizer to take along instead, as dt-tokenize reads it; none: leave it out",
	 "convert,quantize,avg,upcycle,resize-vocab,lora-merge", .complete = DT_COMPLETE_TOKENIZER},
	{"text", 0, DT_OPT_STR, &judged_on, "FILE", "perplexity on this text before and after", "quantize",
	 .complete = DT_COMPLETE_FILE},
	{"seq", 0, DT_OPT_INT, &window, "TOKENS", "of a window of --text", "quantize", .min = 2,
	 .max = 1 << 30, .def_text = "the model's positions, 2048 at most"},
	{"method", 0, DT_OPT_CHOICE, &method, DT_ROUNDING_METHODS, "how weights are rounded with --calibrate",
	 "quantize", .given = &method_given, .def_text = "rtn"},
	{"calibrate", 0, DT_OPT_STR, &calibrated_on, "FILE",
	 "round with a look at what each layer makes of this text", "quantize", .complete = DT_COMPLETE_FILE},
	{"calibrate-tokens", 0, DT_OPT_COUNT, &rounding.tokens, "N", "of --calibrate, at most", "quantize",
	 16, 1e12, .def = "32768"},
	{"calibrate-seq", 0, DT_OPT_INT, &rounding.seq, "TOKENS", "of a window of --calibrate", "quantize", 2,
	 1 << 30, .def_text = "the model's positions, 512 at most"},
	{"damping", 0, DT_OPT_REAL, &rounding.damping, "X",
	 "of gptq: added to the inputs' squares, over their mean", "quantize", 0, 1e6, &damping_given,
	 .def = "0.01"},
	{"act-order", 0, DT_OPT_FLAG, &rounding.act_order, .help = "gptq begins with the largest inputs",
	 .commands = "quantize"},
	{"max-file-size", 0, DT_OPT_SIZE, &max_file, "SIZE",
	 "begin another safetensors file past this; 0: never", "convert,avg,upcycle,resize-vocab,lora-merge",
	 .def = "5GB"},
	{"step", 0, DT_OPT_INT, &step, "N", "step of the checkpoint that is made",
	 "convert,avg,upcycle,resize-vocab,lora-merge", .given = &step_given,
	 .def_text = "the source's, or 0"},
	{"experts", 0, DT_OPT_INT, &experts, "N", "experts of a layer", "upcycle", 1, 4096},
	{"top-k", 0, DT_OPT_INT, &top_k, "K", "experts that a token goes to", "upcycle", 1, 4096},
	{"seed", 0, DT_OPT_INT, &seed, "N", "of the routers", "upcycle", .def = "1337"},
	{"vocab", 0, DT_OPT_INT, &vocab, "N", "tokens of what is made", "resize-vocab", 1, 1 << 24},
	{"keep", 0, DT_OPT_INT, &keep, "N", "keep the newest N", "prune", 1, 1 << 30},
	{"keep-every", 0, DT_OPT_INT, &keep_every, "STEPS", "also keep steps that are multiples of this",
	 "prune", 1, 1e15},
	{"any-base", 0, DT_OPT_FLAG, &any_base, .help = "take an adapter that was trained on other weights",
	 .commands = "lora-merge,lora-convert"},
	{"dry-run", 'n', DT_OPT_FLAG, &dry_run, .help = "only say what would go", .commands = "prune"},
	{"raw", 0, DT_OPT_FLAG, &raw, .help = "write the elements as little-endian bytes", .commands = "cat"},
	DT_OPT_END,
};
static const struct dt_program prog;
static struct dt_progress bar; /* of the command */
static int rank;	       /* reshard under mpirun */
static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
	stopped = sig;
}

/* A damaged checkpoint is an answer (3), not a failure of ours. */
static int fail(const struct dt_err *err)
{
	dt_program_fail(&prog, err);
	return err->code == -EBADMSG ? DT_EXIT_NO : DT_EXIT_FAILED;
}

static void say(void *arg, const char *text)
{
	dt_progress_end(&bar);
	dt_program_say(&prog, "%s", text);
}

static int open_tensors(const char *path, struct dt_tensors **ret)
{
	struct dt_err err = {0};

	if (dt_tensors_open(path, ret, &err) < 0)
		return fail(&err);
	if (dt_tensors_note(*ret))
		say(NULL, dt_tensors_note(*ret));
	return 0;
}

static int print_json(json_t *o)
{
	struct dt_err err = {0};
	int rc = dt_json_write_line(stdout, o, &err);

	json_decref(o);
	return rc < 0 ? fail(&err) : 0;
}

static void draw(void *arg, uint64_t done, uint64_t total)
{
	bar.total = total;
	dt_progress_set(&bar, done);
}

static int cmd_ls(int n, char **argv)
{
	struct dt_err err = {0};
	struct dt_tensors *t;
	int rc = open_tensors(argv[0], &t);

	if (rc)
		return rc;
	if (json)
		rc = print_json(dt_report_list_json(t));
	else if (dt_report_list(t, all_lines, stdout, &err) < 0)
		rc = fail(&err);
	dt_tensors_close(t);
	return rc;
}

static int cmd_verify(int n, char **argv)
{
	json_t *out = json_array();
	int status = 0, w = 0;

	for (int i = 0; i < n; i++) {
		struct dt_err err = {0};
		int rc;

		dt_progress_start(&bar, stderr, argv[i], 0, true);
		rc = dt_report_verify(argv[i], (int)workers, draw, NULL, json ? NULL : stdout, out, &err);
		dt_progress_end(&bar);
		rc = rc < 0 ? fail(&err) : rc ? DT_EXIT_NO : 0;
		/* a failure of ours says less than a broken checkpoint, so it does not hide one */
		if (rc == DT_EXIT_NO || status == 0)
			status = rc;
	}
	if (json)
		w = print_json(
			json_pack("{s:i, s:b, s:O}", "schema", 1, "ok", status == 0, "checkpoints", out));
	json_decref(out);
	return w ? w : status;
}

static int cmd_diff(int n, char **argv)
{
	const struct dt_report_diff o = {.tolerance = tolerance_given ? tolerance : -1,
					 .weights_only = weights,
					 .all = all_lines,
					 .progress = draw};
	struct dt_tensors *a = NULL, *b = NULL;
	struct dt_err err = {0};
	json_t *found = NULL;
	int rc = open_tensors(argv[0], &a), w = 0, differ;

	if (rc == 0)
		rc = open_tensors(argv[1], &b);
	if (rc == 0) {
		dt_progress_start(&bar, stderr, "diff", 0, true);
		differ = dt_report_diff(a, b, &o, stdout, json ? &found : NULL, &err);
		dt_progress_end(&bar);
		rc = differ < 0 ? fail(&err) : differ ? DT_EXIT_NO : 0;
		if (found)
			w = print_json(found);
	}
	dt_tensors_close(a);
	dt_tensors_close(b);
	return w ? w : rc;
}

static bool draw_unless_stopped(void *arg, uint64_t done, uint64_t total)
{
	draw(arg, done, total);
	return !stopped;
}

/* Before something is made: on a signal it is stopped and removed. */
static void begin(struct dt_convert_job *job, const char *label)
{
	*job = (struct dt_convert_job){.note = say, .progress = draw_unless_stopped};
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	dt_progress_start(&bar, rank ? NULL : stderr, label, 0, true);
}

/* The exit status; prints what was made. A signal that stopped the work ends the program as it would have. */
static int end(int rc, const struct dt_convert_job *job, const struct dt_err *err)
{
	dt_progress_end(&bar);
	if (stopped) {
		signal(stopped, SIG_DFL);
		raise(stopped);
	}
	if (rc < 0)
		return job->misused ? dt_opt_usage_error(&prog, stderr, "%s", err->msg) : fail(err);
	if (rank == 0 && job->made[0])
		printf("%s\n", job->made);
	return 0;
}

static int recut(const char *src, const char *dst, const char *layout)
{
	struct dt_recut r = {.compress = compress, .workers = (int)workers, .fd = STDOUT_FILENO};
	struct dt_log log = {.f = stderr, .name = prog.name, .rank = -1};
	struct dt_convert_job job;
	struct dt_world_info info;
	struct dt_err err = {0};
	struct dt_comm *all = NULL;
	struct dt_world *w;
	int rc;

	if (dt_layout_parse(layout, &r.layout, &err) < 0)
		return dt_opt_usage_error(&prog, stderr, "%s", err.msg);
	if (dt_world_init(&w, 0, &log, &err) < 0)
		return fail(&err);
	dt_world_info(w, &info);
	if (dt_comm_create(&all, w, "world", 0, info.rank, &err) < 0) {
		fail(&err);
		dt_world_abort(w, DT_EXIT_FAILED);
	}
	rank = info.rank;
	begin(&job, "reshard");
	rc = end(dt_recut(all, info.rank, info.size, src, dst, &r, &job, &err), &job, &err);
	dt_comm_free(all);
	dt_world_finalize(w);
	return rc;
}

/* Several processes of mpirun recut together; of another command each would do the same. */
static int cmd_reshard(int n, char **argv)
{
	if (!layout_text)
		return dt_opt_usage_error(&prog, stderr, "reshard needs --layout");
	return recut(argv[0], argv[1], layout_text);
}

/* The cut for one rank. */
static int cmd_merge(int n, char **argv)
{
	return recut(argv[0], argv[1], "dp1");
}

/* What the options say of a model to be written. */
static struct dt_convert conversion(void)
{
	char word[16];

	return (struct dt_convert){
		.from = from_given ? (enum dt_source_kind)from : DT_SOURCE_AUTO,
		.to = to_given ? (enum dt_source_kind)to : DT_SOURCE_AUTO,
		.tokenizer = tokenizer,
		.format = type_given ? dt_format_parse(dt_opt_choice_name(TYPES, type, word, sizeof(word)))
				     : -1,
		.step = step_given ? step : -1,
		.compress = compress,
		.max_file_bytes = max_file,
		.any_base = any_base,
		.change = calibrated_on ? dt_round_source : NULL,
		.change_arg = &rounding,
	};
}

/* convert and quantize of one source, avg of several. */
static int cmd_convert(int n, char **argv)
{
	const struct dt_convert c = conversion();
	struct dt_convert_job job;
	struct dt_err err = {0};

	begin(&job, "convert");
	return end(dt_convert((const char *const *)argv, n - 1, argv[n - 1], &c, &job, &err), &job, &err);
}

/* Of a model that is another one than its source: dt, where dst does not say otherwise. */
static struct dt_convert conversion_to(const char *dst)
{
	struct dt_convert c = conversion();
	const char *ending = strrchr(dst, '.');

	if (!to_given && (!ending || strcmp(ending, ".gguf")))
		c.to = DT_SOURCE_DT;
	return c;
}

static int cmd_upcycle(int n, char **argv)
{
	const struct dt_convert c = conversion_to(argv[1]);
	struct dt_convert_job job;
	struct dt_err err = {0};
	int rc;

	if (!experts || !top_k)
		return dt_opt_usage_error(&prog, stderr, "upcycle needs --experts and --top-k");
	begin(&job, "convert");
	rc = dt_convert_upcycle(argv[0], experts, top_k, (uint64_t)seed, argv[1], &c, &job, &err);
	return end(rc, &job, &err);
}

static int cmd_resize_vocab(int n, char **argv)
{
	const struct dt_convert c = conversion_to(argv[1]);
	struct dt_convert_job job;
	struct dt_err err = {0};

	if (!vocab)
		return dt_opt_usage_error(&prog, stderr, "resize-vocab needs --vocab");
	begin(&job, "convert");
	return end(dt_convert_vocab(argv[0], vocab, argv[1], &c, &job, &err), &job, &err);
}

/* What the rounding has cost, on a text. */
static int judge(const char *before, const char *after)
{
	struct dt_ppl_files f = {before, after, judged_on, tokenizer, window};
	struct dt_err err = {0};
	struct dt_ppl_pair p;
	double a, b;

	if (dt_ppl_compare_files(&f, &p, &err) < 0)
		return fail(&err);
	a = dt_ppl_perplexity(&p.a);
	b = dt_ppl_perplexity(&p.b);
	dt_program_say(
		&prog,
		"perplexity %.4f before, %.4f after (%+.2f%%), KL %.5f, same top-1 %.2f%%, over %lld tokens",
		a, b, 100 * (b / a - 1), p.kl, 100 * p.same_top, (long long)p.a.tokens);
	return 0;
}

/* What the options ask of rounding; an exit status where they do not fit together. */
static int ask_rounding(const char *dst)
{
	if (!type_given || type < 3)
		return dt_opt_usage_error(&prog, stderr,
					  "quantize needs --type q8_0, q6_k, q5_0, q4_k, q4_1 or q4_0");
	if (!calibrated_on && method_given)
		return dt_opt_usage_error(&prog, stderr, "--method needs a text to --calibrate with");
	if ((rounding.act_order || damping_given) && method != DT_ROUND_GPTQ)
		return dt_opt_usage_error(&prog, stderr, "--%s is of --method gptq",
					  damping_given ? "damping" : "act-order");
	rounding.method = (enum dt_rounding_method)method;
	rounding.text = calibrated_on;
	rounding.tokenizer = tokenizer;
	rounding.near = dst;
	rounding.progress = draw_unless_stopped;
	return 0;
}

static int cmd_quantize(int n, char **argv)
{
	int rc = ask_rounding(argv[1]);
	struct dt_convert_job job;
	struct dt_err err = {0};
	struct dt_convert c;

	if (rc)
		return rc;
	to = DT_SOURCE_GGUF;
	to_given = true;
	begin(&job, calibrated_on ? "round" : "convert");
	c = conversion();
	rounding.format = (enum dt_format)c.format;
	rounding.arg = job.arg;
	rc = end(dt_convert((const char *const *)argv, 1, argv[1], &c, &job, &err), &job, &err);
	if (rc == 0 && calibrated_on)
		dt_program_say(&prog, "%d matrices were rounded with a look at %lld tokens",
			       rounding.matrices, (long long)rounding.read);
	return rc == 0 && judged_on ? judge(argv[0], argv[1]) : rc;
}

static int cmd_lora_merge(int n, char **argv)
{
	const struct dt_convert c = conversion();
	struct dt_convert_job job;
	struct dt_err err = {0};

	begin(&job, "convert");
	return end(dt_convert_merge(argv[0], argv[1], argv[2], &c, &job, &err), &job, &err);
}

static int cmd_lora_convert(int n, char **argv)
{
	const struct dt_convert c = conversion();
	struct dt_err err = {0};
	int linears = dt_convert_adapter(argv[0], argv[1], argv[2], &c, &err);

	if (linears >= 0)
		printf("%s: %d linears\n", argv[2], linears);
	return linears < 0 ? fail(&err) : 0;
}

static void print_line(void *arg, const char *text)
{
	puts(text);
}

static int cmd_prune(int n, char **argv)
{
	struct dt_err err = {0};

	if (!keep && !keep_every)
		return dt_opt_usage_error(&prog, stderr, "prune needs --keep or --keep-every");
	return dt_ckpt_prune(argv[0], -1, (int)keep, keep_every, dry_run, print_line, NULL, &err) < 0
		       ? fail(&err)
		       : 0;
}

static int cmd_repair(int n, char **argv)
{
	struct dt_err err = {0};
	int repaired = dt_ckpt_repair(argv[0], argv[1], print_line, NULL, &err);

	if (repaired == 0)
		printf("%s: nothing to repair\n", argv[0]);
	return repaired < 0 ? fail(&err) : 0;
}

static int cmd_cat(int n, char **argv)
{
	struct dt_err err = {0};
	struct dt_tensors *t;
	char full[128];
	int i, rc = open_tensors(argv[1], &t);

	if (rc)
		return rc;
	i = dt_tensors_find(t, argv[0]);
	if (i < 0 && (size_t)snprintf(full, sizeof(full), "model/%s", argv[0]) < sizeof(full))
		i = dt_tensors_find(t, full);
	if (i < 0)
		dt_err_set(&err, -ENOENT, "'%s' has no tensor '%s'", dt_tensors_path(t), argv[0]);
	rc = i < 0 || dt_tensors_print(t, i, raw, stdout, &err) < 0 ? fail(&err) : 0;
	dt_tensors_close(t);
	return rc;
}

static int cmd_stats(int n, char **argv)
{
	struct dt_err err = {0};
	struct dt_tensors *t;
	json_t *o = NULL;
	int rc = open_tensors(argv[0], &t);

	if (rc)
		return rc;
	dt_progress_start(&bar, stderr, "stats", 0, false);
	rc = dt_report_stats(t, draw, NULL, stdout, json ? &o : NULL, &err);
	dt_progress_end(&bar);
	rc = rc < 0 ? fail(&err) : json ? print_json(o) : 0;
	dt_tensors_close(t);
	return rc;
}

static const struct dt_command commands[] = {
	{"ls", "CKPT", "Show the tensors as a tree, and how they are cut", cmd_ls, 1, 1},
	{"verify", "CKPT...", "Read everything and check structure and checksums", cmd_verify, 1, -1},
	{"diff", "A B", "Compare two checkpoints or models tensor by tensor", cmd_diff, 2, 2},
	{"reshard", "SRC DST", "Write SRC again as another layout would have; DST - is a tar stream",
	 cmd_reshard, 2, 2},
	{"merge", "SRC DST", "Write SRC again with a single shard", cmd_merge, 2, 2},
	{"convert", "SRC DST", "Between checkpoints, safetensors, GGUF, llm.c and llama2.c", cmd_convert, 2,
	 2},
	{"quantize", "SRC DST", "Write a GGUF file of small blocks (--type q8_0, q4_k, ...)", cmd_quantize, 2,
	 2},
	{"upcycle", "DENSE DST", "Write a mixture of experts whose experts are copies of DENSE's MLPs",
	 cmd_upcycle, 2, 2},
	{"resize-vocab", "SRC DST", "Write SRC with more tokens, their rows the mean of the others",
	 cmd_resize_vocab, 2, 2},
	{"avg", "SRC... DST", "Write the mean of several models", cmd_convert, 3, 64},
	{"lora-merge", "BASE ADAPTER DST", "Write BASE with the adapter added to its weights", cmd_lora_merge,
	 3, 3},
	{"lora-convert", "BASE ADAPTER DST",
	 "Write the adapter as PEFT's folder, or where DST ends in .gguf as llama.cpp's file",
	 cmd_lora_convert, 3, 3},
	{"prune", "ROOT", "Remove old checkpoints by --keep and --keep-every", cmd_prune, 1, 1},
	{"repair", "CKPT REPLICA", "Replace what is damaged in CKPT by what REPLICA has", cmd_repair, 2, 2},
	{"cat", "NAME CKPT", "Print the elements of a tensor", cmd_cat, 2, 2},
	{"stats", "CKPT", "Print mean, deviation, extremes, zeros and non-numbers of each tensor", cmd_stats,
	 1, 1},
	{NULL},
};

static const char *const examples[] = {"dt-shard-ckpt verify run/latest",
				       "dt-shard-ckpt reshard --layout tp2 run serve-tp2",
				       "dt-shard-ckpt convert Qwen3-0.6B/ qwen", NULL};
static const struct dt_program prog = {
	.name = "dt-shard-ckpt",
	.summary = "Inspect, verify, compare, recut and convert checkpoints.",
	.examples = examples,
	.opts = opts,
	.commands = commands,
};

int main(int argc, char **argv)
{
	workers = sysconf(_SC_NPROCESSORS_ONLN);
	workers = workers < 1 ? 1 : workers > 8 ? 8 : workers;
	return dt_program_main(&prog, argc, argv);
}
/* SPDX-License-Identifier: Apache-2.0 */
