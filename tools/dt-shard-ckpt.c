/* dt-shard-ckpt: inspects, verifies, compares, reshards and converts checkpoints. */
#include "ckpt/look.h"
#include "tools/shard_ckpt.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

struct shard_options shard_options;
struct dt_progress shard_bar;

static const struct dt_opt opts[] = {
	{"json", 0, DT_OPT_FLAG, &shard_options.json, .help = "print one JSON object",
	 .commands = "ls,verify,diff,stats"},
	{"all", 'a', DT_OPT_FLAG, &shard_options.all_lines, .help = "a line for every tensor: fold no layers",
	 .commands = "ls,diff"},
	{"weights", 'w', DT_OPT_FLAG, &shard_options.weights, .help = "leave out the states of the optimizer",
	 .commands = "diff"},
	{"workers", 'j', DT_OPT_INT, &shard_options.workers, "N", "threads", "verify,reshard,merge", 1, 64,
	 .def_text = "one a processor, at most 8"},
	{"threads", 0, DT_OPT_INT, &shard_options.threads, "N", "threads of --calibrate and --text",
	 "quantize,sparsify", .min = 0, .max = 4096, .def_text = "OMP_NUM_THREADS, else all processors"},
	{"tolerance", 't', DT_OPT_REAL, &shard_options.tolerance, "X",
	 "call tensors equal up to X times the largest magnitude in A", "diff", 0, 1e30,
	 &shard_options.tolerance_given, .def_text = "bit by bit"},
	{"layout", 'l', DT_OPT_STR, &shard_options.layout, "LAYOUT",
	 "the layout to cut for, as dp2.tp4.pp2.z1 (dt-layout(7))", "reshard"},
	{"compress", 0, DT_OPT_FLAG, &shard_options.compress, .help = "shuffle and deflate the pieces",
	 .commands = "reshard,merge,convert,sparsify,avg,upcycle,resize-vocab"},
	{"from", 0, DT_OPT_CHOICE, &shard_options.from, DT_SOURCE_FROM,
	 "what SRC is; ema: the averaged weights of a checkpoint",
	 "convert,quantize,sparsify,export,avg,upcycle,resize-vocab,lora-merge",
	 .given = &shard_options.from_given, .def_text = "what is there"},
	{"to", 0, DT_OPT_CHOICE, &shard_options.to, DT_EXPORT_KINDS,
	 "what DST becomes; gptq, awq: a Hugging Face folder with its matrices packed so",
	 "convert,quantize,sparsify,avg,upcycle,resize-vocab,lora-merge", .given = &shard_options.to_given,
	 .def_text = "gguf by its ending; else dt, when SRC is something else"},
	{"type", 0, DT_OPT_CHOICE, &shard_options.type, SHARD_CKPT_TYPES, "type of the weights",
	 "convert,quantize,sparsify,avg,upcycle,resize-vocab,lora-merge", .given = &shard_options.type_given,
	 .def_text = "as they are"},
	{"tokenizer", 0, DT_OPT_STR, &shard_options.tokenizer, "FILE",
	 "what holds the tokenizer to take along instead, as dt-tokenize reads it; none: leave it out",
	 "convert,quantize,sparsify,avg,upcycle,resize-vocab,lora-merge", .complete = DT_COMPLETE_TOKENIZER},
	{"text", 0, DT_OPT_STR, &shard_options.judged_on, "FILE", "perplexity on this text before and after",
	 "quantize,sparsify", .complete = DT_COMPLETE_FILE},
	{"seq", 0, DT_OPT_INT, &shard_options.window, "TOKENS", "of a window of --text", "quantize,sparsify",
	 .min = 2, .max = 1 << 30, .def_text = "the model's positions, 2048 at most"},
	{"method", 0, DT_OPT_CHOICE, &shard_options.method, DT_ROUNDING_METHODS,
	 "how weights are rounded with --calibrate, or which are pruned", "quantize,sparsify",
	 .given = &shard_options.method_given,
	 .def_text = "rtn; of sparsify wanda, magnitude without --calibrate"},
	{"sparsity", 0, DT_OPT_SHARE, &shard_options.rounding.sparsity, "SHARE",
	 "of the weights of a matrix that become zero", "sparsify", 0, 1, &shard_options.sparsity_given},
	{"pattern", 0, DT_OPT_CHOICE, &shard_options.pattern, "2:4|4:8",
	 "weights that stay of so many neighbours, instead of --sparsity", "sparsify",
	 .given = &shard_options.pattern_given, .without = "sparsity"},
	{"calibrate", 0, DT_OPT_STR, &shard_options.calibrated_on, "FILE",
	 "round or prune with a look at what each layer makes of this text", "quantize,sparsify",
	 .complete = DT_COMPLETE_FILE},
	{"calibrate-tokens", 0, DT_OPT_COUNT, &shard_options.rounding.tokens, "N", "of --calibrate, at most",
	 "quantize,sparsify", 16, 1e12, .def = "32768", .with = "calibrate"},
	{"calibrate-seq", 0, DT_OPT_INT, &shard_options.rounding.seq, "TOKENS", "of a window of --calibrate",
	 "quantize,sparsify", 2, 1 << 30, .def_text = "the model's positions, 512 at most",
	 .with = "calibrate"},
	{"damping", 0, DT_OPT_REAL, &shard_options.rounding.damping, "X",
	 "of gptq: added to the inputs' squares, over their mean", "quantize", 0, 1e6,
	 &shard_options.damping_given, .def = "0.01"},
	{"act-order", 0, DT_OPT_FLAG, &shard_options.rounding.act_order,
	 .help = "gptq begins with the largest inputs", .commands = "quantize"},
	{"max-file-size", 0, DT_OPT_SIZE, &shard_options.max_file, "SIZE",
	 "begin another safetensors file past this; 0: never",
	 "convert,sparsify,avg,upcycle,resize-vocab,lora-merge", .def = "5GB"},
	{"step", 0, DT_OPT_INT, &shard_options.step, "N", "step of the checkpoint that is made",
	 "convert,sparsify,avg,upcycle,resize-vocab,lora-merge", .given = &shard_options.step_given,
	 .def_text = "the source's, or 0"},
	{"experts", 0, DT_OPT_INT, &shard_options.experts, "N", "experts of a layer", "upcycle", 1, 4096},
	{"top-k", 0, DT_OPT_INT, &shard_options.top_k, "K", "experts that a token goes to", "upcycle", 1,
	 4096},
	{"seed", 0, DT_OPT_INT, &shard_options.seed, "N", "of the routers", "upcycle", .def = "1337"},
	{"vocab", 0, DT_OPT_INT, &shard_options.vocab, "N", "tokens of what is made", "resize-vocab", 1,
	 1 << 24},
	{"keep", 0, DT_OPT_INT, &shard_options.keep, "N", "keep the newest N", "prune", 1, 1 << 30},
	{"keep-every", 0, DT_OPT_INT, &shard_options.keep_every, "STEPS",
	 "also keep steps that are multiples of this", "prune", 1, 1e15},
	{"any-base", 0, DT_OPT_FLAG, &shard_options.any_base,
	 .help = "take an adapter that was trained on other weights", .commands = "lora-merge,lora-convert"},
	{"dry-run", 'n', DT_OPT_FLAG, &shard_options.dry_run, .help = "only say what would go",
	 .commands = "prune"},
	{"raw", 0, DT_OPT_FLAG, &shard_options.raw, .help = "write the elements as little-endian bytes",
	 .commands = "cat"},
	DT_OPT_END,
};
int shard_fail(const struct dt_err *err)
{
	dt_program_fail(&shard_program, err);
	return err->code == -EBADMSG ? DT_EXIT_NO : DT_EXIT_FAILED;
}

void shard_say(void *arg, const char *text)
{
	dt_progress_end(&shard_bar);
	dt_program_say(&shard_program, "%s", text);
}

static int open_tensors(const char *path, struct dt_tensors **ret)
{
	struct dt_err err = {0};

	if (dt_tensors_open(path, ret, &err) < 0)
		return shard_fail(&err);
	if (dt_tensors_note(*ret))
		shard_say(NULL, dt_tensors_note(*ret));
	return 0;
}

static int print_json(json_t *o)
{
	struct dt_err err = {0};
	int rc = dt_json_write_line(stdout, o, &err);

	json_decref(o);
	return rc < 0 ? shard_fail(&err) : 0;
}

void shard_draw(void *arg, uint64_t done, uint64_t total)
{
	shard_bar.total = total;
	dt_progress_set(&shard_bar, done);
}

static int cmd_ls(int n, char **argv)
{
	struct dt_err err = {0};
	struct dt_tensors *t;
	int rc = open_tensors(argv[0], &t);

	if (rc)
		return rc;
	if (shard_options.json)
		rc = print_json(dt_report_list_json(t));
	else if (dt_report_list(t, shard_options.all_lines, stdout, &err) < 0)
		rc = shard_fail(&err);
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

		dt_progress_start(&shard_bar, stderr, argv[i], 0, true);
		rc = dt_report_verify(argv[i], (int)shard_options.workers, shard_draw, NULL,
				      shard_options.json ? NULL : stdout, out, &err);
		dt_progress_end(&shard_bar);
		rc = rc < 0 ? shard_fail(&err) : rc ? DT_EXIT_NO : 0;
		/* "no" (a broken checkpoint) takes precedence over a failure */
		if (rc == DT_EXIT_NO || status == 0)
			status = rc;
	}
	if (shard_options.json)
		w = print_json(
			json_pack("{s:i, s:b, s:O}", "schema", 1, "ok", status == 0, "checkpoints", out));
	json_decref(out);
	return w ? w : status;
}

static int cmd_diff(int n, char **argv)
{
	const struct dt_report_diff o = {.tolerance =
						 shard_options.tolerance_given ? shard_options.tolerance : -1,
					 .weights_only = shard_options.weights,
					 .all = shard_options.all_lines,
					 .progress = shard_draw};
	struct dt_tensors *a = NULL, *b = NULL;
	struct dt_err err = {0};
	json_t *found = NULL;
	int rc = open_tensors(argv[0], &a), w = 0, differ;

	if (rc == 0)
		rc = open_tensors(argv[1], &b);
	if (rc == 0) {
		dt_progress_start(&shard_bar, stderr, "diff", 0, true);
		differ = dt_report_diff(a, b, &o, stdout, shard_options.json ? &found : NULL, &err);
		dt_progress_end(&shard_bar);
		rc = differ < 0 ? shard_fail(&err) : differ ? DT_EXIT_NO : 0;
		if (found)
			w = print_json(found);
	}
	dt_tensors_close(a);
	dt_tensors_close(b);
	return w ? w : rc;
}

static void print_line(void *arg, const char *text)
{
	puts(text);
}

static int cmd_prune(int n, char **argv)
{
	struct dt_err err = {0};

	if (!shard_options.keep && !shard_options.keep_every)
		return dt_opt_usage_error(&shard_program, stderr, "prune needs --keep or --keep-every");
	return dt_ckpt_prune(argv[0], -1, (int)shard_options.keep, shard_options.keep_every,
			     shard_options.dry_run, print_line, NULL, &err) < 0
		       ? shard_fail(&err)
		       : 0;
}

static int cmd_repair(int n, char **argv)
{
	struct dt_err err = {0};
	int repaired = dt_ckpt_repair(argv[0], argv[1], print_line, NULL, &err);

	if (repaired == 0)
		printf("%s: nothing to repair\n", argv[0]);
	return repaired < 0 ? shard_fail(&err) : 0;
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
	rc = i < 0 || dt_tensors_print(t, i, shard_options.raw, stdout, &err) < 0 ? shard_fail(&err) : 0;
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
	dt_progress_start(&shard_bar, stderr, "stats", 0, false);
	rc = dt_report_stats(t, shard_draw, NULL, stdout, shard_options.json ? &o : NULL, &err);
	dt_progress_end(&shard_bar);
	rc = rc < 0 ? shard_fail(&err) : shard_options.json ? print_json(o) : 0;
	dt_tensors_close(t);
	return rc;
}

static const struct dt_command commands[] = {
	{"ls", "CKPT", "Show the tensors as a tree, and how they are cut", cmd_ls, 1, 1},
	{"verify", "CKPT...", "Read everything and check structure and checksums", cmd_verify, 1, -1},
	{"diff", "A B", "Compare two checkpoints or models tensor by tensor", cmd_diff, 2, 2},
	{"reshard", "SRC DST", "Write SRC again as another layout would have; DST - is a tar stream",
	 shard_reshard, 2, 2},
	{"merge", "SRC DST", "Write SRC again with a single shard", shard_merge, 2, 2},
	{"convert", "SRC DST", "Between checkpoints, safetensors, GGUF, llm.c and llama2.c", shard_convert, 2,
	 2},
	{"quantize", "SRC DST",
	 "Write a GGUF file of small blocks (--type q8_0, q4_k, ...), or a folder --to gptq or awq",
	 shard_quantize, 2, 2},
	{"sparsify", "SRC DST", "Write SRC with the weights that count least set to zero", shard_sparsify, 2,
	 2},
	{"export", "SRC DST", "Write SRC as an ONNX model", shard_export, 2, 2},
	{"upcycle", "DENSE DST", "Write a mixture of experts whose experts are copies of DENSE's MLPs",
	 shard_upcycle, 2, 2},
	{"resize-vocab", "SRC DST", "Write SRC with more tokens, their rows the mean of the others",
	 shard_resize_vocab, 2, 2},
	{"avg", "SRC... DST", "Write the mean of several models", shard_convert, 3, 64},
	{"lora-merge", "BASE ADAPTER DST", "Write BASE with the adapter added to its weights",
	 shard_lora_merge, 3, 3},
	{"lora-convert", "BASE ADAPTER DST",
	 "Write the adapter as PEFT's folder, or where DST ends in .gguf as llama.cpp's file",
	 shard_lora_convert, 3, 3},
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
const struct dt_program shard_program = {
	.name = "dt-shard-ckpt",
	.summary = "Inspect, verify, compare, recut and convert checkpoints.",
	.examples = examples,
	.opts = opts,
	.commands = commands,
};

int main(int argc, char **argv)
{
	shard_options.workers = sysconf(_SC_NPROCESSORS_ONLN);
	shard_options.workers = shard_options.workers < 1   ? 1
				: shard_options.workers > 8 ? 8
							    : shard_options.workers;
	return dt_program_main(&shard_program, argc, argv);
}
/* SPDX-License-Identifier: Apache-2.0 */
