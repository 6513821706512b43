/* dt-shard-ckpt: inspects, verifies, compares, reshards and converts checkpoints. */
#include "ckpt/look.h"
#include "kernels/device.h"
#include "tools/shard_ckpt.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

struct shard_options shard_options;
struct dt_progress shard_bar;

static const struct dt_opt opts[] = {
	{"json", 0, DT_OPT_FLAG, &shard_options.json, .help = "print one JSON object",
	 .commands = "ls,verify,diff,stats"},
	{"all", 'a', DT_OPT_FLAG, &shard_options.all_lines, .help = "show every layer separately",
	 .commands = "ls,diff"},
	{"weights", 'w', DT_OPT_FLAG, &shard_options.weights,
	 .help = "compare only the weights, not the optimizer states", .commands = "diff"},
	{"workers", 'j', DT_OPT_INT, &shard_options.workers, "N", "number of threads",
	 "verify,diff,reshard,merge", 1, 64, .def_text = "one per processor, at most 8"},
	{"threads", 0, DT_OPT_INT, &shard_options.threads, "N", "number of threads", "quantize,sparsify",
	 .min = 0, .max = 4096, .def_text = "OMP_NUM_THREADS or all processors"},
	{"tolerance", 't', DT_OPT_REAL, &shard_options.tolerance, "X",
	 "treat tensors as equal up to a difference of X times the largest magnitude in A", "diff", 0, 1e30,
	 &shard_options.tolerance_given, .def_text = "bit by bit"},
	{"layout", 'l', DT_OPT_STR, &shard_options.layout, "LAYOUT",
	 "target layout, such as dp2.tp4.pp2.z1; see dt-layout(7)", "reshard"},
	{"compress", 0, DT_OPT_FLAG, &shard_options.compress,
	 .help = "compress the tensors of a new checkpoint",
	 .commands = "reshard,merge,convert,sparsify,avg,upcycle,resize-vocab"},
	{"from", 0, DT_OPT_CHOICE, &shard_options.from, DT_SOURCE_FROM,
	 "format of SRC; ema: the averaged weights of a checkpoint",
	 "convert,quantize,sparsify,export,avg,upcycle,resize-vocab,lora-merge",
	 .given = &shard_options.from_given, .def_text = "auto: detected"},
	{"to", 0, DT_OPT_CHOICE, &shard_options.to, DT_EXPORT_KINDS,
	 "format of DST; gptq, awq: a Hugging Face folder with matrices packed in that format",
	 "convert,quantize,sparsify,avg,upcycle,resize-vocab,lora-merge", .given = &shard_options.to_given,
	 .def_text = "gguf if DST ends in .gguf or for quantize, else dt"},
	{"type", 0, DT_OPT_CHOICE, &shard_options.type, SHARD_CKPT_TYPES, "type of the weights",
	 "convert,quantize,sparsify,avg,upcycle,resize-vocab,lora-merge", .given = &shard_options.type_given,
	 .def_text = "as in SRC"},
	{"tokenizer", 0, DT_OPT_STR, &shard_options.tokenizer, "FILE",
	 "use the tokenizer in this file or folder instead of that of SRC; none: write no tokenizer",
	 "convert,quantize,sparsify,avg,upcycle,resize-vocab,lora-merge", .complete = DT_COMPLETE_TOKENIZER},
	{"text", 0, DT_OPT_STR, &shard_options.judged_on, "FILE",
	 "measure perplexity on this text before and after", "quantize,sparsify",
	 .complete = DT_COMPLETE_FILE},
	{"seq", 0, DT_OPT_INT, &shard_options.window, "TOKENS", "window length for --text",
	 "quantize,sparsify", .min = 2, .max = 1 << 30, .def_text = "the model's positions, 2048 at most",
	 .with = "text"},
	{"method", 0, DT_OPT_CHOICE, &shard_options.method, DT_ROUNDING_METHODS,
	 "how to round weights with --calibrate, or which to prune", "quantize,sparsify",
	 .given = &shard_options.method_given,
	 .def_text = "rtn; for sparsify wanda with --calibrate, else magnitude"},
	{"sparsity", 0, DT_OPT_SHARE, &shard_options.rounding.sparsity, "SHARE",
	 "fraction of the weights of each matrix to set to zero", "sparsify", 0, 1,
	 &shard_options.sparsity_given},
	{"pattern", 0, DT_OPT_CHOICE, &shard_options.pattern, "2:4|4:8",
	 "keep 2 of every 4, or 4 of every 8 neighbouring weights, instead of --sparsity", "sparsify",
	 .given = &shard_options.pattern_given, .without = "sparsity"},
	{"calibrate", 0, DT_OPT_STR, &shard_options.calibrated_on, "FILE",
	 "calibration text, whose activations determine how to round or prune", "quantize,sparsify",
	 .complete = DT_COMPLETE_FILE},
	{"calibrate-tokens", 0, DT_OPT_COUNT, &shard_options.rounding.tokens, "N",
	 "maximum number of tokens of --calibrate to use", "quantize,sparsify", 16, 1e12, .def = "32768",
	 .with = "calibrate"},
	{"calibrate-seq", 0, DT_OPT_INT, &shard_options.rounding.seq, "TOKENS",
	 "window length for --calibrate", "quantize,sparsify", 2, 1 << 30,
	 .def_text = "the model's positions, 512 at most", .with = "calibrate"},
	{"damping", 0, DT_OPT_REAL, &shard_options.rounding.damping, "X",
	 "gptq: add X times the mean of the Hessian diagonal to the diagonal", "quantize", 0, 1e6,
	 &shard_options.damping_given, .def = "0.01"},
	{"act-order", 0, DT_OPT_FLAG, &shard_options.rounding.act_order,
	 .help = "gptq: round the columns with the largest inputs first", .commands = "quantize"},
	{"max-file-size", 0, DT_OPT_SIZE, &shard_options.max_file, "SIZE",
	 "start a new safetensors file beyond this size; 0: no limit",
	 "convert,sparsify,avg,upcycle,resize-vocab,lora-merge", .given = &shard_options.max_file_given,
	 .def = "5GB"},
	{"step", 0, DT_OPT_INT, &shard_options.step, "N", "step of the new checkpoint",
	 "convert,sparsify,avg,upcycle,resize-vocab,lora-merge", .given = &shard_options.step_given,
	 .def_text = "that of SRC, or 0"},
	{"experts", 0, DT_OPT_INT, &shard_options.experts, "N", "number of experts per layer", "upcycle", 1,
	 4096},
	{"top-k", 0, DT_OPT_INT, &shard_options.top_k, "K", "number of experts per token", "upcycle", 1,
	 4096},
	{"seed", 0, DT_OPT_INT, &shard_options.seed, "N", "random seed of the routers", "upcycle",
	 .def = "1337"},
	{"vocab", 0, DT_OPT_INT, &shard_options.vocab, "N", "new vocabulary size", "resize-vocab", 1,
	 1 << 24},
	{"keep", 0, DT_OPT_INT, &shard_options.keep, "N", "keep the newest N", "prune", 1, 1 << 30},
	{"keep-every", 0, DT_OPT_INT, &shard_options.keep_every, "STEPS",
	 "also keep steps that are multiples of STEPS", "prune", 1, 1e15},
	{"any-base", 0, DT_OPT_FLAG, &shard_options.any_base,
	 .help = "accept an adapter that was trained on other weights",
	 .commands = "lora-merge,lora-convert"},
	{"dry-run", 'n', DT_OPT_FLAG, &shard_options.dry_run, .help = "only print what would be deleted",
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
					 .workers = (int)shard_options.workers,
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
	{"ls", "CKPT", "List the tensors as a tree, and how they are cut", cmd_ls, 1, 1},
	{"verify", "CKPT...", "Check all files, structure and checksums", cmd_verify, 1, -1},
	{"diff", "A B", "Compare two checkpoints or models tensor by tensor", cmd_diff, 2, 2},
	{"reshard", "SRC DST", "Rewrite SRC for another layout; DST '-': write a tar stream", shard_reshard,
	 2, 2},
	{"merge", "SRC DST", "Rewrite SRC as a single shard", shard_merge, 2, 2},
	{"convert", "SRC DST", "Convert between checkpoints, safetensors, GGUF, llm.c and llama2.c",
	 shard_convert, 2, 2},
	{"quantize", "SRC DST",
	 "Quantise to a GGUF file (--type q8_0, q4_k, ...), or to a folder with --to gptq or awq",
	 shard_quantize, 2, 2},
	{"sparsify", "SRC DST", "Set the least important weights to zero (pruning)", shard_sparsify, 2, 2},
	{"export", "SRC DST", "Export SRC as an ONNX model", shard_export, 2, 2},
	{"upcycle", "DENSE DST", "Make a mixture of experts whose experts are copies of the MLPs of DENSE",
	 shard_upcycle, 2, 2},
	{"resize-vocab", "SRC DST", "Enlarge the vocabulary; new rows are the mean of the others",
	 shard_resize_vocab, 2, 2},
	{"avg", "SRC... DST", "Average the weights of several models", shard_convert, 3, 64},
	{"lora-merge", "BASE ADAPTER DST", "Merge a LoRA adapter into the weights of BASE", shard_lora_merge,
	 3, 3},
	{"lora-convert", "BASE ADAPTER DST",
	 "Convert an adapter to a PEFT folder, or to a llama.cpp file if DST ends in .gguf",
	 shard_lora_convert, 3, 3},
	{"prune", "ROOT", "Delete old checkpoints, as --keep and --keep-every say", cmd_prune, 1, 1},
	{"repair", "CKPT REPLICA", "Restore damaged parts of CKPT from REPLICA", cmd_repair, 2, 2},
	{"cat", "NAME CKPT", "Print the elements of a tensor", cmd_cat, 2, 2},
	{"stats", "CKPT",
	 "Print mean, standard deviation, range, and numbers of zeros, NaNs and infinities of each tensor",
	 cmd_stats, 1, 1},
	{NULL},
};

static const char *const examples[] = {"dt-shard-ckpt verify run/latest",
				       "dt-shard-ckpt reshard --layout tp2 run serve-tp2",
				       "dt-shard-ckpt convert Qwen3-0.6B/ qwen", NULL};
const struct dt_program shard_program = {
	.name = "dt-shard-ckpt",
	.summary = "Inspect, verify, compare, reshard and convert checkpoints.",
	.examples = examples,
	.opts = opts,
	.commands = commands,
};

int main(int argc, char **argv)
{
	dt_dev_spin_less(argv);
	shard_options.workers = sysconf(_SC_NPROCESSORS_ONLN);
	shard_options.workers = shard_options.workers < 1   ? 1
				: shard_options.workers > 8 ? 8
							    : shard_options.workers;
	return dt_program_main(&shard_program, argc, argv);
}
/* SPDX-License-Identifier: Apache-2.0 */
