/* dt-dataset: makes HDF5 datasets of text and of images, lists and samples them. */
#include "base/json.h"
#include "base/program.h"
#include "base/progress.h"
#include "base/tmpfile.h"
#include "ckpt/tokenizer_file.h"
#include "data/chat_import.h"
#include "data/image_import.h"
#include "data/look.h"
#include "data/text_import.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct dt_data_look look = {.count = -1};
static struct dt_text_import text;
static struct dt_strs exclude;
static const char *tokenizer, *out_path, *eval_path, *crop, *match, *class_names;
static int format, pack, dedup, from, store, template, overlong, crop_to[2];
static int64_t shards, quality, resize, channels;
static double split;
static bool split_given, skip_bad, ignore_exif, preferences;

static const struct dt_opt opts[] = {
	{"json", 'j', DT_OPT_FLAG, &look.json, NULL, "print JSON", "build,chat,images,info,stats,sample"},
	DT_OPT_HEADING("Building"),
	{"out", 'o', DT_OPT_STR, &out_path, "D.h5", "the dataset to write", "build,chat,images"},
	{"tokenizer", 't', DT_OPT_STR, &tokenizer, "T",
	 "'byte', or what holds one: tokenizer.json, folder, GGUF, SentencePiece model, checkpoint",
	 "build,chat", .complete = DT_COMPLETE_TOKENIZER, .def = "byte"},
	{"format", 0, DT_OPT_CHOICE, &format, "auto|text|jsonl",
	 "what the files are; auto: jsonl by the name's ending, else text", "build", .def = "auto"},
	{"field", 0, DT_OPT_STR, &text.in.field, "NAME", "the member of a JSONL line that is the document",
	 "build", .def = "text"},
	{"separator", 0, DT_OPT_STR, &text.in.separator, "TEXT", "text between documents in one text file",
	 "build", .def_text = "each file is a document"},
	{"pack", 0, DT_OPT_CHOICE, &pack, "stream|documents",
	 "documents: keep where each begins, so that training does not look or predict across the border",
	 "build", .def = "stream"},
	{"split", 0, DT_OPT_PERCENT, &split, "PERCENT",
	 "the last PERCENT of the input go to --out-eval; of images, PERCENT of each class",
	 "build,chat,images", .min = 1e-9, .max = 99.999999, .given = &split_given},
	{"out-eval", 0, DT_OPT_STR, &eval_path, "E.h5", "the dataset for evaluation", "build,chat,images"},
	{"shards", 0, DT_OPT_INT, &shards, "N", "cut --out into N files", "build,chat,images", .min = 1,
	 .max = 99999, .def = "1"},
	{"work", 0, DT_OPT_STR, &text.work, "DIR",
	 "keep what is done in DIR, so that the same command goes on there after it was killed", "build",
	 .complete = DT_COMPLETE_DIR},
	DT_OPT_HEADING("Leaving documents out"),
	{"dedup", 0, DT_OPT_CHOICE, &dedup, "none|exact|near",
	 "documents that came before: the same, or alike in 80% of all runs of 5 words", "build",
	 .def = "none"},
	{"min-chars", 0, DT_OPT_INT, &text.clean.min_chars, "N", "shorter ones", "build", .def = "0"},
	{"max-chars", 0, DT_OPT_INT, &text.clean.max_chars, "N", "longer ones; 0: none", "build", .def = "0"},
	{"max-symbols", 0, DT_OPT_SHARE, &text.clean.max_symbols, "SHARE",
	 "those with a larger share of characters that are no letters, digits or spaces", "build",
	 .def = "100%"},
	{"max-repeats", 0, DT_OPT_SHARE, &text.clean.max_repeats, "SHARE",
	 "those with a larger share in repeated lines", "build", .def = "100%"},
	{"max-ngrams", 0, DT_OPT_SHARE, &text.clean.max_ngrams, "SHARE",
	 "those in which a larger share of the runs of 5 words came before", "build", .def = "100%"},
	{"script", 0, DT_OPT_STR, &text.clean.script, "NAME[:SHARE]",
	 "those of whose letters less than SHARE, 50%, are of this script: Latin, Han, Cyrillic ...",
	 "build"},
	{"exclude", 0, DT_OPT_STRS, &exclude, "FILE",
	 "those that share 13 words in a row with this text, an evaluation set say", "build",
	 .complete = DT_COMPLETE_FILE},
	{"removed", 0, DT_OPT_STR, &text.removed, "FILE", "a JSON line of each that is left out", "build",
	 .complete = DT_COMPLETE_FILE},
	DT_OPT_HEADING("Images"),
	{"from", 0, DT_OPT_CHOICE, &from, "auto|idx|cifar10|cifar100|folder|tar", "what the inputs are",
	 "images", .def = "auto"},
	{"store", 0, DT_OPT_CHOICE, &store, "auto|raw|jpeg",
	 "as pixels, all of one size, or as JPEG; auto: raw of IDX and CIFAR and with --crop, else jpeg",
	 "images", .def = "auto"},
	{"resize", 0, DT_OPT_INT, &resize, "N", "scale the shorter side to N pixels", "images", .min = 1,
	 .max = DT_IMAGE_SIDE_MAX, .def_text = "as it is"},
	{"crop", 0, DT_OPT_STR, &crop, "N|HxW", "keep the middle of this size", "images",
	 .def_text = "all of it"},
	{"channels", 0, DT_OPT_INT, &channels, "1|3", "grey or colour", "images", .min = 1, .max = 3,
	 .def_text = "1 of IDX, else 3"},
	{"quality", 0, DT_OPT_INT, &quality, "N", "of what is encoded as JPEG", "images", .min = 1,
	 .max = 100, .def = "95"},
	{"class-names", 0, DT_OPT_STR, &class_names, "FILE",
	 "names of the classes in their order, a line each", "images", .complete = DT_COMPLETE_FILE,
	 .def_text = "what the input says"},
	{"match", 0, DT_OPT_STR, &match, "PATTERN", "only members of a tar archive whose path fits",
	 "images"},
	{"ignore-exif", 0, DT_OPT_FLAG, &ignore_exif, NULL,
	 "leave images as stored, not upright as EXIF says", "images"},
	{"skip-bad", 0, DT_OPT_FLAG, &skip_bad, NULL, "leave out what cannot be read: images, lines of JSONL",
	 "build,chat,images"},
	DT_OPT_HEADING("Conversations"),
	{"chat-template", 0, DT_OPT_CHOICE, &template, "auto|" DT_CHAT_NAMES,
	 "how messages become text; auto: as the template says that came with --tokenizer", "chat",
	 .def = "auto"},
	{"long", 0, DT_OPT_CHOICE, &overlong, "cut|drop", "examples longer than a sample", "chat",
	 .def = "cut"},
	{"preferences", 0, DT_OPT_FLAG, &preferences, NULL,
	 "lines are pairs of answers, chosen and rejected, or answers with a label", "chat"},
	DT_OPT_HEADING("Looking"),
	{"verify", 0, DT_OPT_FLAG, &look.verify, NULL, "read every token and compare the checksums", "info"},
	{"near", 0, DT_OPT_FLAG, &look.near, NULL, "count near duplicates too", "stats"},
	{"svg", 0, DT_OPT_STR, &look.svg, "FILE", "draw the lengths, or the classes of images, as SVG",
	 "stats", .complete = DT_COMPLETE_FILE},
	{"count", 'n', DT_OPT_INT, &look.count, "N", "samples, or tokens or images for cat", "sample,cat",
	 .def_text = "3; of cat, all"},
	{"seq", 0, DT_OPT_INT, &look.seq, "N", "tokens of a sample", "sample,chat", .min = 1, .max = 1 << 24,
	 .def_text = "64, or what they are packed into; of chat, 1024"},
	{"seed", 0, DT_OPT_INT, &look.seed, "N", "seed of the order", "sample", .def = "0"},
	{"epoch", 0, DT_OPT_INT, &look.epoch, "N", "epoch to sample", "sample", .min = 0, .max = 4294967295.0,
	 .def = "0"},
	{"in-order", 0, DT_OPT_FLAG, &look.in_order, NULL, "samples in file order, not shuffled", "sample"},
	{"first", 0, DT_OPT_INT, &look.first, "N", "start at sample, token or image N", "sample,cat",
	 .def = "0"},
	{"ids", 0, DT_OPT_FLAG, &look.ids, NULL, "print ids, not text", "sample,cat"},
	{"special", 0, DT_OPT_FLAG, &look.special, NULL, "print the text of special tokens too",
	 "sample,cat"},
	DT_OPT_END,
};
static const struct dt_program program;

/* Whether one more line of what is left out is printed. */
static bool still_named(void)
{
	static int lines;

	if (++lines == 21)
		dt_program_say(&program, "more of them are counted, not named");
	return lines <= 20;
}

static void bad_line(void *ctx, const char *what)
{
	if (still_named())
		dt_program_say(&program, "left out: %s", what);
}

static int put_json(json_t *o, struct dt_err *err)
{
	int rc = dt_json_write_line(stdout, o, err);

	json_decref(o);
	return rc;
}

/* The tokenizer of --tokenizer and, where chat is not NULL, the template that came along, malloc'd. */
static int open_tokenizer(struct dt_tokenizer **ret, char **chat, struct dt_err *err)
{
	char *json = NULL;
	size_t len;
	int rc = dt_tokenizer_file_read(tokenizer, &json, &len, chat, err);

	if (rc == 0 && (rc = dt_tokenizer_from_text(json, len, ret, err)) < 0)
		dt_err_prefix(err, "cannot use the tokenizer '%s'", tokenizer);
	free(json);
	return rc;
}

static void bar_set(void *ctx, uint64_t done)
{
	dt_progress_set(ctx, done);
}

static int do_build(int n, char **paths, struct dt_err *err)
{
	const char *const outs[2] = {out_path, eval_path};
	struct dt_tokenizer *tok = NULL;
	struct dt_progress bar = {0};
	double t0 = dt_now();
	int rc = open_tokenizer(&tok, NULL, err);

	text.in.format = (enum dt_text_format)format;
	text.in.eval_percent = split_given ? split : 0;
	text.in.skip_bad = skip_bad;
	text.in.told = bad_line;
	text.clean.exact = dedup != 0;
	text.clean.near = dedup == 2 ? 0.8 : 0;
	text.exclude = exclude.v;
	text.nexclude = exclude.n;
	text.shards = (int)shards;
	text.apart = pack != 0;
	text.tok = tok;
	text.source = n == 1 ? paths[0] : "several files";
	text.progress = bar_set;
	text.ctx = &bar;
	if (rc == 0)
		rc = dt_text_import_open(&text, n, (const char *const *)paths, err);
	if (rc == 0) {
		dt_progress_start(&bar, stderr, "tokenising", text.in.total_bytes, true);
		rc = dt_text_import(&text, outs, err);
		dt_progress_end(&bar);
	}
	if (rc == 0 && look.json)
		rc = put_json(dt_text_import_json(&text, outs, dt_now() - t0), err);
	else if (rc == 0)
		dt_text_import_print(&text, outs, dt_now() - t0, stdout);
	dt_text_import_release(&text);
	dt_tokenizer_close(tok);
	return rc;
}

/* A damaged dataset is an answer (3) to who asks for it. */
static int finish_with(int rc, const struct dt_err *err)
{
	if (rc >= 0)
		return DT_EXIT_OK;
	dt_program_fail(&program, err);
	return look.verify && rc == -EBADMSG ? DT_EXIT_NO : DT_EXIT_FAILED;
}

static int usage_of_build(const char *command, int n, char **args)
{
	if (!out_path)
		return dt_opt_usage_error(&program, stderr, "%s needs --out", command);
	if (split_given != (eval_path != NULL))
		return dt_opt_usage_error(&program, stderr, "--split and --out-eval go together");
	if (eval_path && dt_out_is(out_path, eval_path))
		return dt_opt_usage_error(&program, stderr, "--out and --out-eval are the same file");
	for (int i = strcmp(tokenizer, "byte") ? -1 : 0; i < n; i++) { /* the tokenizer first */
		const char *in = i < 0 ? tokenizer : args[i];

		if (text.removed && dt_out_is(text.removed, in))
			return dt_opt_usage_error(&program, stderr,
						  "--removed would overwrite the input '%s'", in);
		if (dt_out_is(out_path, in) || (eval_path && dt_out_is(eval_path, in)))
			return dt_opt_usage_error(&program, stderr, "%s would overwrite the input '%s'",
						  dt_out_is(out_path, in) ? "--out" : "--out-eval", in);
	}
	if (text.in.separator && !*text.in.separator)
		return dt_opt_usage_error(&program, stderr, "--separator is empty");
	return 0;
}

static int make(const char *command, int (*fn)(int, char **, struct dt_err *), int n, char **args)
{
	struct dt_err err = {0};
	int status = usage_of_build(command, n, args);

	return status ? status : finish_with(fn(n, args, &err), &err);
}

static int cmd_build(int n, char **args)
{
	return make("build", do_build, n, args);
}

static int do_chat(int n, char **paths, struct dt_err *err)
{
	struct dt_tokenizer *tok = NULL;
	struct dt_chat chat;
	struct dt_chat_import im = {.seq = look.seq ? look.seq : 1024,
				    .preferences = preferences,
				    .skip_bad = skip_bad,
				    .drop_long = overlong == 1,
				    .eval_percent = split_given ? split : 0,
				    .source = n == 1 ? paths[0] : "several files",
				    .shards = (int)shards,
				    .told = bad_line};
	const char *const outs[2] = {out_path, eval_path};
	char *template_text = NULL;
	int rc = open_tokenizer(&tok, &template_text, err);

	if (rc == 0)
		rc = dt_chat_open(&chat, template - 1, template_text, tok, tokenizer, err);
	if (rc == 0 && chat.end < 0 && chat.kind != DT_CHAT_NONE)
		dt_program_say(&program, "'%s' has no token that ends a turn: the template's is spelt out",
			       tokenizer);
	im.tok = tok;
	im.chat = &chat;
	if (rc == 0 && template_text && dt_chat_recognise(template_text, tok) == (int)chat.kind)
		im.template = template_text;
	if (rc == 0)
		rc = dt_chat_import(&im, n, (const char *const *)paths, outs, err);
	if (rc == 0 && look.json)
		rc = put_json(dt_chat_import_json(&im, outs), err);
	else if (rc == 0)
		dt_chat_import_print(&im, outs, stdout);
	dt_chat_import_release(&im);
	dt_tokenizer_close(tok);
	free(template_text);
	return rc;
}

static int cmd_chat(int n, char **args)
{
	return make("chat", do_chat, n, args);
}

static void told(void *ctx, bool bad, const char *name, const char *why)
{
	if (still_named())
		dt_program_say(&program, "%s'%s': %s", bad ? "" : "passed over ", name, why);
}

static void say_empty(const struct dt_image_import *im, const char *const outs[2])
{
	for (int k = 0; k < 2 && outs[k]; k++)
		if (im->empty_classes[k])
			dt_program_say(&program, "%d of %d classes have no images%s%s; the first is '%s'",
				       im->empty_classes[k], im->classes, outs[1] ? " in " : "",
				       outs[1] ? outs[k] : "", im->empty[k]);
}

static int do_images(int n, char **paths, struct dt_err *err)
{
	struct dt_progress bar = {0};
	struct dt_image_import im = {.format = (enum dt_image_format)from,
				     .store = (enum dt_image_store)store,
				     .channels = (int)channels,
				     .quality = (int)quality,
				     .resize = (int)resize,
				     .crop = {crop_to[0], crop_to[1]},
				     .orientation = !ignore_exif,
				     .match = match,
				     .names = class_names,
				     .skip_bad = skip_bad,
				     .eval_percent = split_given ? split : 0,
				     .shards = (int)shards,
				     .source = n == 1 ? paths[0] : "several files",
				     .progress = bar_set,
				     .told = told,
				     .ctx = &bar};
	const char *const outs[2] = {out_path, eval_path};
	double t0 = dt_now();
	int rc;

	dt_progress_start(&bar, stderr, "images", 0, false);
	rc = dt_image_import(&im, n, (const char *const *)paths, outs, err);
	dt_progress_end(&bar);
	if (rc < 0)
		return rc;
	say_empty(&im, outs);
	if (look.json)
		return put_json(dt_image_import_json(&im, outs, dt_now() - t0), err);
	dt_image_import_print(&im, outs, dt_now() - t0, stdout);
	return 0;
}

static int cmd_images(int n, char **args)
{
	if (crop && dt_image_size_parse(crop, crop_to) < 0)
		return dt_opt_usage_error(&program, stderr, "--crop '%s' is neither N nor HxW", crop);
	if (channels == 2)
		return dt_opt_usage_error(&program, stderr, "--channels is 1 or 3");
	return make("images", do_images, n, args);
}

static int show(int (*fn)(const char *, const struct dt_data_look *, FILE *, struct dt_err *),
		const char *path)
{
	struct dt_err err = {0};

	return finish_with(fn(path, &look, stdout, &err), &err);
}

static int cmd_info(int n, char **args)
{
	return show(dt_data_info, args[0]);
}

static int cmd_stats(int n, char **args)
{
	if (look.svg && dt_out_is(look.svg, args[0]))
		return dt_opt_usage_error(&program, stderr, "--svg would overwrite '%s'", args[0]);
	return show(dt_data_stats, args[0]);
}

static int cmd_sample(int n, char **args)
{
	if (look.count < 0)
		look.count = 3;
	return show(dt_data_sample, args[0]);
}

static int cmd_cat(int n, char **args)
{
	return show(dt_data_cat, args[0]);
}

static const struct dt_command commands[] = {
	{"build", "FILE...", "Tokenise files ('-': standard input) into a dataset", cmd_build, 1, -1},
	{"chat", "FILE...", "Conversations in JSONL into a dataset whose targets are what the assistant says",
	 cmd_chat, 1, -1},
	{"images", "INPUT...",
	 "Make a dataset of IDX or CIFAR files, of folders or of tar archives of images", cmd_images, 1, -1},
	{"info", "D.h5", "What a dataset holds", cmd_info, 1, 1},
	{"stats", "D.h5", "What documents or images are like: lengths, tokens, classes, duplicates",
	 cmd_stats, 1, 1},
	{"sample", "D.h5", "Samples as training would see them", cmd_sample, 1, 1},
	{"cat", "D.h5", "The tokens in order, as text; images as files", cmd_cat, 1, 1},
	{NULL},
};
static const char *const examples[] = {
	"dt-dataset build --tokenizer tok.json --split 10 --out train.h5 --out-eval eval.h5 input.txt",
	"dt-dataset sample train.h5 --count 3 --seq 64",
	"dt-dataset images --out train.h5 train-images-idx3-ubyte.gz train-labels-idx1-ubyte.gz",
	"dt-dataset chat --tokenizer model/ --seq 2048 --out sft.h5 conversations.jsonl",
	"dt-dataset build --shards 4 --out docs.h5 docs.jsonl.zst",
	NULL,
};
static const struct dt_program program = {
	.name = "dt-dataset",
	.summary = "Make datasets of text and of images, list and sample them.",
	.examples = examples,
	.opts = opts,
	.commands = commands,
};

int main(int argc, char **argv)
{
	return dt_program_main(&program, argc, argv);
}
/* SPDX-License-Identifier: Apache-2.0 */
