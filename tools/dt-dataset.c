/* dt-dataset: builds HDF5 datasets from text and images, lists them and prints samples. */
#include "base/json.h"
#include "base/program.h"
#include "base/progress.h"
#include "base/tmpfile.h"
#include "ckpt/tokenizer_file.h"
#include "data/chat_import.h"
#include "data/image_import.h"
#include "data/label_import.h"
#include "data/script.h"
#include "tools/dataset_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct dt_program program;

/* Whether another skipped input is named on a line of its own. */
static bool still_named(void)
{
	static int lines;

	if (++lines == 21)
		dt_program_say(&program, "further skipped inputs are counted, but not reported");
	return lines <= 20;
}

static void bad_line(void *ctx, const char *what)
{
	if (still_named())
		dt_program_say(&program, "skipped: %s", what);
}

static int put_json(json_t *o, struct dt_err *err)
{
	int rc = dt_json_write_line(stdout, o, err);

	json_decref(o);
	return rc;
}

/* Opens --tokenizer and, if chat is not NULL, sets *chat to its chat template (malloc'd). */
static int open_tokenizer(struct dt_tokenizer **ret, char **chat, struct dt_err *err)
{
	char *json = NULL;
	size_t len;
	int rc = dt_tokenizer_file_read(dataset_args.tokenizer, &json, &len, chat, err);

	if (rc == 0 && (rc = dt_tokenizer_from_text(json, len, ret, err)) < 0)
		dt_err_prefix(err, "cannot use the tokenizer '%s'", dataset_args.tokenizer);
	free(json);
	return rc;
}

static void bar_set(void *ctx, uint64_t done)
{
	dt_progress_set(ctx, done);
}

static int do_build(int n, char **paths, struct dt_err *err)
{
	struct dt_text_import *text = &dataset_args.text;
	const char *const outs[2] = {dataset_args.out_path, dataset_args.eval_path};
	struct dt_tokenizer *tok = NULL;
	struct dt_progress bar = {0};
	double t0 = dt_now();
	int rc = open_tokenizer(&tok, NULL, err);

	text->in.format = (enum dt_text_format)dataset_args.format;
	text->in.eval_percent = dataset_args.split_given ? dataset_args.split : 0;
	text->in.skip_bad = dataset_args.skip_bad;
	text->in.told = bad_line;
	text->clean.exact = dataset_args.dedup != 0;
	text->clean.near = dataset_args.dedup == 2 ? 0.8 : 0;
	text->exclude = dataset_args.exclude.v;
	text->nexclude = dataset_args.exclude.n;
	text->shards = (int)dataset_args.shards;
	text->apart = dataset_args.pack != 0;
	text->tok = tok;
	text->source = n == 1 ? paths[0] : "several files";
	text->progress = bar_set;
	text->ctx = &bar;
	if (rc == 0)
		rc = dt_text_import_open(text, n, (const char *const *)paths, err);
	if (rc == 0) {
		dt_progress_start(&bar, stderr, "tokenising", text->in.total_bytes, true);
		rc = dt_text_import(text, outs, err);
		dt_progress_end(&bar);
	}
	if (rc == 0 && dataset_args.look.json)
		rc = put_json(dt_text_import_json(text, outs, dt_now() - t0), err);
	else if (rc == 0)
		dt_text_import_print(text, outs, dt_now() - t0, stdout);
	dt_text_import_release(text);
	dt_tokenizer_close(tok);
	return rc;
}

/* Maps rc to an exit status; a damaged dataset is answer "no" (3). */
static int finish_with(int rc, const struct dt_err *err)
{
	if (rc >= 0)
		return DT_EXIT_OK;
	dt_program_fail(&program, err);
	return dataset_args.look.verify && rc == -EBADMSG ? DT_EXIT_NO : DT_EXIT_FAILED;
}

/* Checks the name given to --script, before any input is read. */
static int usage_of_script(const char *text)
{
	struct dt_err err = {0};
	struct dt_script *s;

	if (!text)
		return 0;
	if (dt_script_open(&s, text, &err) < 0)
		return dt_opt_usage_of(&program, stderr, "script", &err);
	dt_script_close(s);
	return 0;
}

/* Prints what a check says, if it found something. */
static int usage_of(int rc, const struct dt_err *err)
{
	return rc < 0 ? dt_opt_usage_of(&program, stderr, NULL, err) : 0;
}

/* No file is written that another option names too, or that is read. */
static int usage_of_files(int n, char **args)
{
	const struct dt_strs *exclude = &dataset_args.exclude;
	const struct {
		const char *option, *path;
	} out[] = {{"--out", dataset_args.out_path},
		   {"--out-eval", dataset_args.eval_path},
		   {"--removed", dataset_args.text.removed}};
	const char *tokenizer = strcmp(dataset_args.tokenizer, "byte") ? dataset_args.tokenizer : NULL;

	for (size_t k = 0; k < sizeof(out) / sizeof(*out); k++) {
		if (!out[k].path)
			continue;
		for (size_t i = 0; i < k; i++)
			if (out[i].path && dt_out_is(out[k].path, out[i].path))
				return dt_opt_usage_error(&program, stderr, "%s and %s are the same file",
							  out[i].option, out[k].option);
		for (int i = -1; i < n + exclude->n; i++) {
			const char *in = i < 0 ? tokenizer : i < n ? args[i] : exclude->v[i - n];

			if (in && dt_out_is(out[k].path, in))
				return dt_opt_usage_error(&program, stderr,
							  "%s would overwrite the input '%s'", out[k].option,
							  in);
		}
	}
	return 0;
}

static int usage_of_build(const char *command, int n, char **args)
{
	if (!dataset_args.out_path)
		return dt_opt_usage_error(&program, stderr, "%s needs --out", command);
	if (dataset_args.split_given != (dataset_args.eval_path != NULL))
		return dt_opt_usage_error(&program, stderr, "--split and --out-eval go together");
	return usage_of_files(n, args) ? DT_EXIT_USAGE : usage_of_script(dataset_args.text.clean.script);
}

static int make(const char *command, int (*fn)(int, char **, struct dt_err *), int n, char **args)
{
	struct dt_err err = {0};
	int status = usage_of_build(command, n, args);

	return status ? status : finish_with(fn(n, args, &err), &err);
}

static int cmd_build(int n, char **args)
{
	struct dt_err err = {0};
	int status = usage_of(dataset_check_build(n, args, &err), &err);

	return status ? status : make("build", do_build, n, args);
}

static int do_chat(int n, char **paths, struct dt_err *err)
{
	struct dt_tokenizer *tok = NULL;
	struct dt_chat chat;
	struct dt_chat_import im = {.seq = dataset_args.look.seq ? dataset_args.look.seq : 1024,
				    .preferences = dataset_args.preferences,
				    .skip_bad = dataset_args.skip_bad,
				    .drop_long = dataset_args.overlong == 1,
				    .eval_percent = dataset_args.split_given ? dataset_args.split : 0,
				    .source = n == 1 ? paths[0] : "several files",
				    .shards = (int)dataset_args.shards,
				    .told = bad_line};
	const char *const outs[2] = {dataset_args.out_path, dataset_args.eval_path};
	char *template_text = NULL;
	int rc = open_tokenizer(&tok, &template_text, err);

	if (rc == 0)
		rc = dt_chat_open(&chat, dataset_args.template - 1, template_text, tok,
				  dataset_args.tokenizer, err);
	if (rc == 0 && chat.end < 0 && chat.kind != DT_CHAT_NONE)
		dt_program_say(
			&program,
			"'%s' has no end-of-turn token of this template: its text is encoded as plain text",
			dataset_args.tokenizer);
	im.tok = tok;
	im.chat = &chat;
	if (rc == 0 && template_text && dt_chat_recognise(template_text, tok) == (int)chat.kind)
		im.template = template_text;
	if (rc == 0)
		rc = dt_chat_import(&im, n, (const char *const *)paths, outs, err);
	if (rc == 0 && dataset_args.look.json)
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

static int do_labels(int n, char **paths, struct dt_err *err)
{
	struct dt_tokenizer *tok = NULL;
	struct dt_label_import im = {.seq = dataset_args.look.seq ? dataset_args.look.seq : 512,
				     .scores = dataset_args.scores,
				     .skip_bad = dataset_args.skip_bad,
				     .eval_percent = dataset_args.split_given ? dataset_args.split : 0,
				     .names = dataset_args.class_names,
				     .source = n == 1 ? paths[0] : "several files",
				     .shards = (int)dataset_args.shards,
				     .told = bad_line};
	const char *const outs[2] = {dataset_args.out_path, dataset_args.eval_path};
	int rc = open_tokenizer(&tok, NULL, err);

	im.tok = tok;
	if (rc == 0)
		rc = dt_label_import(&im, n, (const char *const *)paths, outs, err);
	if (rc == 0 && dataset_args.look.json)
		rc = put_json(dt_label_import_json(&im, outs), err);
	else if (rc == 0)
		dt_label_import_print(&im, outs, stdout);
	dt_label_import_release(&im);
	dt_tokenizer_close(tok);
	return rc;
}

static int cmd_labels(int n, char **args)
{
	return make("labels", do_labels, n, args);
}

static void told(void *ctx, bool bad, const char *name, const char *why)
{
	if (still_named())
		dt_program_say(&program, "%s'%s': %s", bad ? "" : "skipped ", name, why);
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
	struct dt_image_import im = {.format = (enum dt_image_format)dataset_args.from,
				     .store = (enum dt_image_store)dataset_args.store,
				     .channels = (int)dataset_args.channels,
				     .quality = (int)dataset_args.quality,
				     .resize = (int)dataset_args.resize,
				     .crop = {dataset_args.crop_to[0], dataset_args.crop_to[1]},
				     .orientation = !dataset_args.ignore_exif,
				     .match = dataset_args.match,
				     .names = dataset_args.class_names,
				     .skip_bad = dataset_args.skip_bad,
				     .eval_percent = dataset_args.split_given ? dataset_args.split : 0,
				     .shards = (int)dataset_args.shards,
				     .source = n == 1 ? paths[0] : "several files",
				     .progress = bar_set,
				     .told = told,
				     .ctx = &bar};
	const char *const outs[2] = {dataset_args.out_path, dataset_args.eval_path};
	double t0 = dt_now();
	int rc;

	dt_progress_start(&bar, stderr, "images", 0, false);
	rc = dt_image_import(&im, n, (const char *const *)paths, outs, err);
	dt_progress_end(&bar);
	if (rc < 0)
		return rc;
	say_empty(&im, outs);
	if (dataset_args.look.json)
		return put_json(dt_image_import_json(&im, outs, dt_now() - t0), err);
	dt_image_import_print(&im, outs, dt_now() - t0, stdout);
	return 0;
}

static int cmd_images(int n, char **args)
{
	struct dt_err err = {0};
	int status;

	if (dataset_args.crop && dt_image_size_parse(dataset_args.crop, dataset_args.crop_to) < 0)
		return dt_opt_usage_error(&program, stderr, "--crop '%s' is neither N nor HxW",
					  dataset_args.crop);
	if (dataset_args.channels == 2)
		return dt_opt_usage_error(&program, stderr, "--channels is 1 or 3");
	status = usage_of(dataset_check_images(args, &err), &err);
	return status ? status : make("images", do_images, n, args);
}

static int show(int (*fn)(const char *, const struct dt_data_look *, FILE *, struct dt_err *),
		const char *path)
{
	struct dt_err err = {0};
	int status = usage_of(dataset_check_look(path, &err), &err);

	return status ? status : finish_with(fn(path, &dataset_args.look, stdout, &err), &err);
}

static int cmd_info(int n, char **args)
{
	return show(dt_data_info, args[0]);
}

static int cmd_stats(int n, char **args)
{
	if (dataset_args.look.svg && dt_out_is(dataset_args.look.svg, args[0]))
		return dt_opt_usage_error(&program, stderr, "--svg would overwrite '%s'", args[0]);
	return show(dt_data_stats, args[0]);
}

static int cmd_sample(int n, char **args)
{
	if (dataset_args.look.count < 0)
		dataset_args.look.count = 3;
	return show(dt_data_sample, args[0]);
}

static int cmd_cat(int n, char **args)
{
	return show(dt_data_cat, args[0]);
}

static const struct dt_command commands[] = {
	{"build", "FILE...", "Tokenise text files ('-': standard input) into a dataset", cmd_build, 1, -1},
	{"chat", "FILE...",
	 "Build a dataset of conversations in JSONL, with the assistant's tokens as targets", cmd_chat, 1,
	 -1},
	{"labels", "FILE...", "Build a dataset of texts with a class or a score each, in JSONL", cmd_labels,
	 1, -1},
	{"images", "INPUT...", "Build a dataset of images from IDX or CIFAR files, folders or tar archives",
	 cmd_images, 1, -1},
	{"info", "D.h5", "Print what a dataset holds", cmd_info, 1, 1},
	{"stats", "D.h5", "Print statistics: document lengths, tokens, classes, duplicates", cmd_stats, 1, 1},
	{"sample", "D.h5", "Print samples in the order of training", cmd_sample, 1, 1},
	{"cat", "D.h5", "Print the tokens in order as text, or write the images as files", cmd_cat, 1, 1},
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
	.summary = "Build, inspect and sample datasets of text and images.",
	.examples = examples,
	.opts = dataset_opts,
	.commands = commands,
};

int main(int argc, char **argv)
{
	return dt_program_main(&program, argc, argv);
}
/* SPDX-License-Identifier: Apache-2.0 */
