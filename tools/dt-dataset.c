/* dt-dataset: makes HDF5 datasets of text and of images, lists and samples them. */
#include "base/json.h"
#include "base/program.h"
#include "base/progress.h"
#include "base/table.h"
#include "base/tmpfile.h"
#include "base/units.h"
#include "ckpt/tokenizer_file.h"
#include "data/chat_import.h"
#include "data/dataset_look.h"
#include "data/image_import.h"
#include "data/image_look.h"
#include "data/text_import.h"
#include "data/tokenizer.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *tokenizer, *out_path, *eval_path, *field, *separator;
static int format, pack;
static double split;
static bool split_given, json, ids_only, special, verify, whole_order, count_given;
static int64_t shards, count = 3, seq, seed, first, epoch;
static int from, store;
static int64_t quality, resize, channels;
static const char *crop, *match, *class_names;
static bool skip_bad, ignore_exif;
static int template, overlong;
static bool preferences;
static int dedup;
static int64_t min_chars, max_chars;
static double max_symbols, max_repeats;
static struct dt_strs exclude;
static const char *removed_path;

static const struct dt_opt opts[] = {
	{"json", 'j', DT_OPT_FLAG, &json, NULL, "print JSON", "build,chat,images,info,sample"},
	DT_OPT_HEADING("Building"),
	{"out", 'o', DT_OPT_STR, &out_path, "D.h5", "the dataset to write", "build,chat,images"},
	{"tokenizer", 't', DT_OPT_STR, &tokenizer, "T",
	 "'byte', or what holds one: tokenizer.json, folder, GGUF, SentencePiece model, checkpoint",
	 "build,chat", .complete = DT_COMPLETE_TOKENIZER, .def = "byte"},
	{"format", 0, DT_OPT_CHOICE, &format, "auto|text|jsonl",
	 "what the files are; auto: jsonl by the name's ending, else text", "build", .def = "auto"},
	{"field", 0, DT_OPT_STR, &field, "NAME", "the member of a JSONL line that is the document", "build",
	 .def = "text"},
	{"separator", 0, DT_OPT_STR, &separator, "TEXT", "text between documents in one text file", "build",
	 .def_text = "each file is a document"},
	{"pack", 0, DT_OPT_CHOICE, &pack, "stream|documents",
	 "documents: keep where each begins, so that training does not look or predict across the border",
	 "build", .def = "stream"},
	{"split", 0, DT_OPT_PERCENT, &split, "PERCENT", "the last PERCENT of the input go to --out-eval",
	 "build,chat", .min = 1e-9, .max = 99.999999, .given = &split_given},
	{"out-eval", 0, DT_OPT_STR, &eval_path, "E.h5", "the dataset for evaluation", "build,chat"},
	{"shards", 0, DT_OPT_INT, &shards, "N", "cut --out into N files", "build,chat,images", .min = 1,
	 .max = 99999, .def = "1"},
	DT_OPT_HEADING("Leaving documents out"),
	{"dedup", 0, DT_OPT_CHOICE, &dedup, "none|exact|near",
	 "documents that came before: the same, or alike in 80% of all runs of 5 words", "build",
	 .def = "none"},
	{"min-chars", 0, DT_OPT_INT, &min_chars, "N", "shorter ones", "build", .def = "0"},
	{"max-chars", 0, DT_OPT_INT, &max_chars, "N", "longer ones; 0: none", "build", .def = "0"},
	{"max-symbols", 0, DT_OPT_SHARE, &max_symbols, "SHARE",
	 "those with a larger share of characters that are no letters, digits or spaces", "build",
	 .def = "100%"},
	{"max-repeats", 0, DT_OPT_SHARE, &max_repeats, "SHARE", "those with a larger share in repeated lines",
	 "build", .def = "100%"},
	{"exclude", 0, DT_OPT_STRS, &exclude, "FILE",
	 "those that share 13 words in a row with this text, an evaluation set say", "build",
	 .complete = DT_COMPLETE_FILE},
	{"removed", 0, DT_OPT_STR, &removed_path, "FILE", "a JSON line of each that is left out", "build",
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
	{"preferences", 0, DT_OPT_FLAG, &preferences, NULL, "lines are pairs of answers, chosen and rejected",
	 "chat"},
	DT_OPT_HEADING("Looking"),
	{"verify", 0, DT_OPT_FLAG, &verify, NULL, "read every token and compare the checksums", "info"},
	{"count", 'n', DT_OPT_INT, &count, "N", "samples, or tokens or images for cat", "sample,cat",
	 .given = &count_given, .def_text = "3; of cat, all"},
	{"seq", 0, DT_OPT_INT, &seq, "N", "tokens of a sample", "sample,chat", .min = 1, .max = 1 << 24,
	 .def_text = "64, or what they are packed into; of chat, 1024"},
	{"seed", 0, DT_OPT_INT, &seed, "N", "seed of the order", "sample", .def = "0"},
	{"epoch", 0, DT_OPT_INT, &epoch, "N", "epoch to sample", "sample", .min = 0, .max = 4294967295.0,
	 .def = "0"},
	{"in-order", 0, DT_OPT_FLAG, &whole_order, NULL, "samples in file order, not shuffled", "sample"},
	{"first", 0, DT_OPT_INT, &first, "N", "start at sample, token or image N", "sample,cat", .def = "0"},
	{"ids", 0, DT_OPT_FLAG, &ids_only, NULL, "print ids, not text", "sample,cat"},
	{"special", 0, DT_OPT_FLAG, &special, NULL, "print the text of special tokens too", "sample,cat"},
	DT_OPT_END,
};
static const struct dt_program program;

static json_t *describe(const char *path, int64_t tokens, int64_t documents)
{
	return json_pack("{s:s, s:I, s:I}", "path", path, "tokens", (json_int_t)tokens, "documents",
			 (json_int_t)documents);
}

static void bad_line(void *ctx, const char *what)
{
	static int lines;

	if (++lines <= 20)
		dt_program_say(&program, "left out: %s", what);
	else if (lines == 21)
		dt_program_say(&program, "more of them are counted, not named");
}

static int report(const struct dt_text_import *im, double seconds, struct dt_err *err)
{
	const int64_t *tokens = im->tokens, *documents = im->documents;
	const struct dt_text_source *src = &im->in;
	uint64_t bytes = src->read_bytes;
	char size[32], took[32], left[256];
	json_t *o;
	int rc;

	if (!json) {
		printf("%s: %lld tokens, %lld document%s", out_path, (long long)tokens[0],
		       (long long)documents[0], documents[0] == 1 ? "" : "s");
		if (eval_path)
			printf("; %s: %lld tokens, %lld document%s", eval_path, (long long)tokens[1],
			       (long long)documents[1], documents[1] == 1 ? "" : "s");
		dt_clean_summary(im->cleaned, left, sizeof(left));
		if (*left)
			printf("; left out: %s", left);
		if (src->bad)
			printf("; %lld line%s left out", (long long)src->bad, src->bad == 1 ? "" : "s");
		printf("; %s of text in %s, vocabulary %d\n", dt_format_size(bytes, size, sizeof(size)),
		       dt_format_duration(seconds, took, sizeof(took)), dt_tokenizer_vocab(im->tok));
		return 0;
	}
	o = json_pack("{s:i, s:o, s:i, s:s, s:I, s:I, s:f}", "schema", 1, "train",
		      describe(out_path, tokens[0], documents[0]), "vocab", dt_tokenizer_vocab(im->tok),
		      "tokenizer_hash", dt_tokenizer_hash(im->tok), "shards", (json_int_t)shards,
		      "input_bytes", (json_int_t)bytes, "build_s", seconds);
	json_object_set_new(o, "documents", dt_clean_json(im->cleaned));
	if (skip_bad)
		json_object_set_new(o, "bad_lines", json_integer((json_int_t)src->bad));
	if (eval_path)
		json_object_set_new(o, "eval", describe(eval_path, tokens[1], documents[1]));
	rc = dt_json_write_line(stdout, o, err);
	json_decref(o);
	return rc;
}

/* The tokenizer of --tokenizer and, where chat is not NULL, the template that came along, malloc'd. */
static int open_tokenizer(struct dt_tokenizer **ret, char **chat, struct dt_err *err)
{
	char *text = NULL;
	size_t len;
	int rc = dt_tokenizer_file_read(tokenizer, &text, &len, chat, err);

	if (rc == 0 && (rc = dt_tokenizer_from_text(text, len, ret, err)) < 0)
		dt_err_prefix(err, "cannot use the tokenizer '%s'", tokenizer);
	free(text);
	return rc;
}

static void bar_set(void *ctx, uint64_t done)
{
	dt_progress_set(ctx, done);
}

static int do_build(int n, char **paths, struct dt_err *err)
{
	struct dt_progress bar = {0};
	struct dt_tokenizer *tok = NULL;
	struct dt_text_import im = {.in = {.format = (enum dt_text_format)format,
					   .field = field,
					   .separator = separator,
					   .eval_percent = split_given ? split : 0,
					   .skip_bad = skip_bad,
					   .told = bad_line},
				    .clean = {.exact = dedup != 0,
					      .near = dedup == 2 ? 0.8 : 0,
					      .min_chars = min_chars,
					      .max_chars = max_chars,
					      .max_symbols = max_symbols,
					      .max_repeats = max_repeats},
				    .exclude = exclude.v,
				    .nexclude = exclude.n,
				    .removed = removed_path,
				    .source = n == 1 ? paths[0] : "several files",
				    .shards = (int)shards,
				    .apart = pack != 0,
				    .progress = bar_set,
				    .ctx = &bar};
	double t0 = dt_now();
	int rc = open_tokenizer(&tok, NULL, err);

	im.tok = tok;
	if (rc == 0)
		rc = dt_text_import_open(&im, n, (const char *const *)paths, err);
	if (rc == 0) {
		dt_progress_start(&bar, stderr, "tokenising", im.in.total_bytes, true);
		rc = dt_text_import(&im, (const char *const[2]){out_path, eval_path}, err);
		dt_progress_end(&bar);
	}
	if (rc == 0)
		rc = report(&im, dt_now() - t0, err);
	dt_text_import_release(&im);
	dt_tokenizer_close(tok);
	return rc;
}

static int do_info(struct dt_dataset *d, const char *path, struct dt_err *err)
{
	struct dt_table *t;
	int rc = verify ? dt_dataset_verify(d, err) : 0;

	if (rc < 0)
		return rc;
	if (json) {
		json_t *o = dt_dataset_json(d, path);

		rc = dt_json_write_line(stdout, o, err);
		json_decref(o);
		return rc;
	}
	t = dt_dataset_table(d);
	if (verify) {
		dt_table_cell(t, "checksums");
		dt_table_cell(t, "match");
	}
	dt_table_print(t, stdout);
	dt_table_free(t);
	return 0;
}

static int print_text(const struct dt_tokenizer *t, const int32_t *ids, size_t n, struct dt_err *err)
{
	char *s;
	size_t len;
	int rc;

	errno = 0;
	for (size_t i = 0; i < n && ids_only; i++)
		printf("%d\n", ids[i]);
	if (ids_only)
		return dt_program_check_stdout(err);
	rc = dt_tokenizer_decode(t, ids, n, special, &s, &len, err);
	if (rc < 0)
		return rc;
	errno = 0;
	fwrite(s, 1, len, stdout);
	rc = dt_program_check_stdout(err);
	free(s);
	return rc;
}

/* A sample as one line of ids, as text under a heading, or as JSON (text only where it is UTF-8). */
static int print_sample(const struct dt_tokenizer *t, int64_t number, const int32_t *ids, size_t n,
			struct dt_err *err)
{
	json_t *o, *list;
	char *s;
	size_t len;
	int rc;

	if (ids_only && !json) {
		errno = 0;
		for (size_t i = 0; i < n; i++)
			printf(i ? " %d" : "%d", ids[i]);
		putchar('\n');
		return dt_program_check_stdout(err);
	}
	if (!json) {
		printf("--- sample %lld\n", (long long)number);
		rc = print_text(t, ids, n, err);
		putchar('\n');
		return rc;
	}
	rc = dt_tokenizer_decode(t, ids, n, special, &s, &len, err);
	if (rc < 0)
		return rc;
	list = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, json_integer(ids[i]));
	o = json_pack("{s:i, s:I, s:o}", "schema", 1, "sample", (json_int_t)number, "ids", list);
	json_object_set_new(o, "text", json_stringn(s, len));
	free(s);
	rc = dt_json_write_line(stdout, o, err);
	json_decref(o);
	return rc;
}

static int do_sample(struct dt_dataset *d, const struct dt_tokenizer *t, struct dt_err *err)
{
	struct dt_dataset_info info;
	struct dt_sampler s;
	int32_t *ids = NULL;
	int rc;

	dt_dataset_info(d, &info);
	if (!seq)
		seq = info.row ? info.row : 64;
	rc = dt_sampler_init(&s, d, seq, (uint64_t)seed, !whole_order, err);

	if (rc < 0)
		return rc;
	ids = malloc((size_t)(seq + 1) * sizeof(*ids));
	if (!ids)
		return dt_err_sys(err, -ENOMEM, "cannot sample");
	if (first >= s.samples)
		rc = dt_err_set(err, -ERANGE, "an epoch has %lld samples of %lld tokens",
				(long long)s.samples, (long long)seq);
	for (int64_t i = 0; i < count && first + i < s.samples && rc == 0; i++) {
		rc = dt_sampler_get(&s, epoch * s.samples + first + i, ids, err);
		if (rc == 0)
			rc = print_sample(t, first + i, ids, (size_t)seq, err);
	}
	free(ids);
	return rc;
}

static int do_cat(struct dt_dataset *d, const struct dt_tokenizer *t, struct dt_err *err)
{
	struct dt_dataset_info i;
	int32_t ids[16384];
	int64_t end;
	int rc = 0;

	dt_dataset_info(d, &i);
	if (first > i.tokens)
		return dt_err_set(err, -ERANGE, "the dataset has %lld tokens", (long long)i.tokens);
	end = count_given && count < i.tokens - first ? first + count : i.tokens;
	for (int64_t at = first; at < end && rc == 0;) {
		int64_t n = end - at < 16384 ? end - at : 16384;

		rc = dt_dataset_read(d, at, n, ids, err);
		if (rc == 0)
			rc = print_text(t, ids, (size_t)n, err);
		at += n;
	}
	return rc;
}

static void told(void *ctx, bool bad, const char *name, const char *why)
{
	int *lines = ctx;

	if (++*lines <= 20)
		dt_program_say(&program, "%s'%s': %s", bad ? "" : "passed over ", name, why);
	else if (*lines == 21)
		dt_program_say(&program, "more of them are counted, not named");
}

static struct dt_progress image_bar;

static void image_progress(void *ctx, int64_t images)
{
	dt_progress_set(&image_bar, (uint64_t)images);
}

static int report_images(const struct dt_image_import *im, double seconds, struct dt_err *err)
{
	char text[512], took[32];
	json_t *o;
	int rc;

	if (!json) {
		dt_image_import_summary(im, text, sizeof(text));
		printf("%s: %s; in %s\n", out_path, text, dt_format_duration(seconds, took, sizeof(took)));
		return 0;
	}
	o = dt_image_import_json(im, out_path);
	json_object_set_new(o, "build_s", json_real(seconds));
	rc = dt_json_write_line(stdout, o, err);
	json_decref(o);
	return rc;
}

static int do_images(int n, char **paths, struct dt_image_import *im, struct dt_err *err)
{
	int rc = im->format ? 0 : dt_image_format_of(paths[0], &im->format, err);
	double t0 = dt_now();

	if (rc < 0)
		return rc;
	im->jpeg = store == 2 || (!store && !im->crop[0] && im->format > DT_FROM_CIFAR100);
	dt_progress_start(&image_bar, stderr, "images", 0, false);
	rc = dt_image_import(im, n, (const char *const *)paths, out_path, err);
	dt_progress_end(&image_bar);
	if (rc < 0)
		return rc;
	if (im->empty_classes)
		dt_program_say(&program, "%d of %d classes have no images; the first is '%s'",
			       im->empty_classes, im->classes, im->empty);
	return report_images(im, dt_now() - t0, err);
}

static int info_of_images(const struct dt_images *d, const char *path, struct dt_err *err)
{
	struct dt_table *facts, *classes;
	json_t *o = NULL;
	int rc = verify ? dt_images_verify(d, err) : 0;

	if (rc == 0 && json) {
		rc = dt_images_json(d, path, &o, err);
		if (rc == 0)
			rc = dt_json_write_line(stdout, o, err);
		json_decref(o);
	} else if (rc == 0) {
		rc = dt_images_tables(d, &facts, &classes, err);
		if (rc < 0)
			return rc;
		if (verify) {
			dt_table_cell(facts, "checksums");
			dt_table_cell(facts, "match");
		}
		dt_table_print(facts, stdout);
		putchar('\n');
		dt_table_print(classes, stdout);
		dt_table_free(facts);
		dt_table_free(classes);
	}
	return rc;
}

/* Which images an epoch begins with. */
static int sample_images(const struct dt_images *d, struct dt_err *err)
{
	struct dt_images_info i;
	struct dt_table *t = json ? NULL : dt_table_new("sample|image|label|class");
	int rc = 0;

	dt_images_info(d, &i);
	if (first >= i.images)
		rc = dt_err_set(err, -ERANGE, "an epoch has %lld samples", (long long)i.images);
	for (int64_t k = first; rc == 0 && k < i.images && k - first < count; k++) {
		int64_t image = dt_sample_at((uint64_t)seed, !whole_order, epoch * i.images + k, i.images);
		int label = dt_images_label(d, image);

		if (json) {
			json_t *o = json_pack("{s:i, s:I, s:I, s:i, s:s}", "schema", 1, "sample",
					      (json_int_t)k, "image", (json_int_t)image, "label", label,
					      "class", i.class_name[label]);

			rc = dt_json_write_line(stdout, o, err);
			json_decref(o);
			continue;
		}
		dt_table_cell(t, "%lld", (long long)k);
		dt_table_cell(t, "%lld", (long long)image);
		dt_table_cell(t, "%d", label);
		dt_table_cell(t, "%s", i.class_name[label]);
	}
	if (t && rc == 0)
		dt_table_print(t, stdout);
	dt_table_free(t);
	return rc;
}

/* Images as files, one behind the other: JPEG as stored, pixels as PNM. */
static int cat_images(const struct dt_images *d, struct dt_err *err)
{
	struct dt_images_info i;
	struct dt_image x = {0};
	uint8_t *bytes;
	size_t n;
	int rc = 0;

	dt_images_info(d, &i);
	if (first >= i.images)
		return dt_err_set(err, -ERANGE, "the dataset has %lld images", (long long)i.images);
	for (int64_t k = first; rc == 0 && k < i.images && (!count_given || k - first < count); k++) {
		rc = i.jpeg ? dt_images_bytes(d, k, &bytes, &n, err) : dt_images_read(d, k, &x, err);
		if (rc < 0)
			break;
		if (!i.jpeg) {
			rc = dt_image_write_pnm(&x, stdout, err);
			continue;
		}
		errno = 0;
		fwrite(bytes, 1, n, stdout);
		free(bytes);
		rc = dt_program_check_stdout(err);
	}
	dt_image_release(&x);
	return rc;
}

/* A damaged dataset is an answer (3) to who asks for it. */
static int finish_with(int rc, const struct dt_err *err)
{
	if (rc >= 0)
		return DT_EXIT_OK;
	dt_program_fail(&program, err);
	return verify && rc == -EBADMSG ? DT_EXIT_NO : DT_EXIT_FAILED;
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

		if (removed_path && dt_out_is(removed_path, in))
			return dt_opt_usage_error(&program, stderr,
						  "--removed would overwrite the input '%s'", in);
		if (dt_out_is(out_path, in) || (eval_path && dt_out_is(eval_path, in)))
			return dt_opt_usage_error(&program, stderr, "%s would overwrite the input '%s'",
						  dt_out_is(out_path, in) ? "--out" : "--out-eval", in);
	}
	if (separator && !*separator)
		return dt_opt_usage_error(&program, stderr, "--separator is empty");
	return 0;
}

static int cmd_build(int n, char **args)
{
	struct dt_err err = {0};
	int status = usage_of_build("build", n, args);

	return status ? status : finish_with(do_build(n, args, &err), &err);
}

static int report_chat(const struct dt_chat_import *im, struct dt_err *err)
{
	const char *const out[2] = {out_path, eval_path};
	json_t *o;
	int rc;

	if (!json) {
		dt_chat_import_print(im, out, stdout);
		return 0;
	}
	o = dt_chat_import_json(im, out);
	rc = dt_json_write_line(stdout, o, err);
	json_decref(o);
	return rc;
}

/* The template asked for, or the one that came along. */
static int open_chat(struct dt_chat *c, const struct dt_tokenizer *tok, const char *text, struct dt_err *err)
{
	int kind = template - 1;

	if (kind < 0 && text)
		kind = dt_chat_recognise(text, tok);
	if (kind < 0)
		kind = dt_chat_recognise(NULL, tok);
	if (kind < 0) {
		dt_err_set(err, -EINVAL, "no chat template that is known came with '%s'", tokenizer);
		dt_err_hint(err, "--chat-template says which one: " DT_CHAT_NAMES);
		return -EINVAL;
	}
	dt_chat_init(c, (enum dt_chat_kind)kind, text, tok);
	if (c->end < 0 && kind != DT_CHAT_NONE)
		dt_program_say(&program, "'%s' has no token that ends a turn: the template's is spelt out",
			       tokenizer);
	return 0;
}

static int do_chat(int n, char **paths, struct dt_err *err)
{
	struct dt_tokenizer *tok = NULL;
	struct dt_chat chat;
	struct dt_chat_import im = {.seq = seq ? seq : 1024,
				    .preferences = preferences,
				    .skip_bad = skip_bad,
				    .drop_long = overlong == 1,
				    .eval_percent = split_given ? split : 0,
				    .source = n == 1 ? paths[0] : "several files",
				    .shards = (int)shards,
				    .told = bad_line};
	char *text = NULL;
	int rc = open_tokenizer(&tok, &text, err);

	if (rc == 0)
		rc = open_chat(&chat, tok, text, err);
	im.tok = tok;
	im.chat = &chat;
	if (rc == 0 && text && dt_chat_recognise(text, tok) == (int)chat.kind)
		im.template = text;
	if (rc == 0)
		rc = dt_chat_import(&im, n, (const char *const *)paths,
				    (const char *const[2]){out_path, eval_path}, err);
	if (rc == 0)
		rc = report_chat(&im, err);
	dt_chat_import_release(&im);
	dt_tokenizer_close(tok);
	free(text);
	return rc;
}

static int cmd_chat(int n, char **args)
{
	struct dt_err err = {0};
	int status = usage_of_build("chat", n, args);

	return status ? status : finish_with(do_chat(n, args, &err), &err);
}

/* "N" or "HxW". */
static bool read_crop(int to[2])
{
	char *end;
	long h = strtol(crop, &end, 10), w = h;

	if (end != crop && *end == 'x') {
		const char *second = end + 1;

		w = strtol(second, &end, 10);
		if (end == second)
			return false;
	}
	to[0] = (int)h;
	to[1] = (int)w;
	return end != crop && !*end && h >= 1 && w >= 1 && h <= DT_IMAGE_SIDE_MAX && w <= DT_IMAGE_SIDE_MAX;
}

static int cmd_images(int n, char **args)
{
	int lines = 0;
	struct dt_err err = {0};
	struct dt_image_import im = {.format = (enum dt_image_format)from,
				     .channels = (int)channels,
				     .quality = (int)quality,
				     .resize = (int)resize,
				     .orientation = !ignore_exif,
				     .match = match,
				     .names = class_names,
				     .skip_bad = skip_bad,
				     .shards = (int)shards,
				     .source = n == 1 ? args[0] : "several files",
				     .progress = image_progress,
				     .told = told,
				     .ctx = &lines};

	if (!out_path)
		return dt_opt_usage_error(&program, stderr, "images needs --out");
	if (crop && !read_crop(im.crop))
		return dt_opt_usage_error(&program, stderr, "--crop '%s' is neither N nor HxW", crop);
	if (channels == 2)
		return dt_opt_usage_error(&program, stderr, "--channels is 1 or 3");
	for (int i = 0; i < n; i++)
		if (dt_out_is(out_path, args[i]))
			return dt_opt_usage_error(&program, stderr, "--out would overwrite the input '%s'",
						  args[i]);
	return finish_with(do_images(n, args, &im, &err), &err);
}

/* The function for a set of images on the one at path; 1: it is a set of tokens. */
static int on_images(const char *path, int (*fn)(const struct dt_images *d, struct dt_err *err),
		     struct dt_err *err)
{
	struct dt_images *d;
	int rc = dt_images_is(path, err);

	if (rc <= 0)
		return rc < 0 ? rc : 1;
	rc = dt_images_open(path, &d, err);
	if (rc == 0) {
		rc = fn ? fn(d, err) : info_of_images(d, path, err);
		dt_images_close(d);
	}
	return rc;
}

static int cmd_info(int n, char **args)
{
	struct dt_err err = {0};
	struct dt_dataset *d;
	int rc = on_images(args[0], NULL, &err);

	if (rc <= 0)
		return finish_with(rc, &err);
	rc = dt_dataset_open(args[0], &d, &err);
	if (rc == 0) {
		rc = do_info(d, args[0], &err);
		dt_dataset_close(d);
	}
	return finish_with(rc, &err);
}

static int look(const char *path,
		int (*fn)(struct dt_dataset *d, const struct dt_tokenizer *t, struct dt_err *err),
		int (*images)(const struct dt_images *d, struct dt_err *err))
{
	struct dt_err err = {0};
	struct dt_dataset_info i;
	struct dt_tokenizer *t = NULL;
	struct dt_dataset *d;
	int rc = on_images(path, images, &err);

	if (rc > 0)
		rc = dt_dataset_open(path, &d, &err);
	else
		return finish_with(rc, &err);
	if (rc < 0)
		return finish_with(rc, &err);
	dt_dataset_info(d, &i);
	rc = dt_tokenizer_from_text(i.tokenizer_text, i.tokenizer_bytes, &t, &err);
	if (rc < 0)
		dt_err_prefix(&err, "cannot use the tokenizer of '%s'", path);
	else
		rc = fn(d, t, &err);
	dt_tokenizer_close(t);
	dt_dataset_close(d);
	return finish_with(rc, &err);
}

static int cmd_sample(int n, char **args)
{
	return look(args[0], do_sample, sample_images);
}

static int cmd_cat(int n, char **args)
{
	return look(args[0], do_cat, cat_images);
}

static const struct dt_command commands[] = {
	{"build", "FILE...", "Tokenise files ('-': standard input) into a dataset", cmd_build, 1, -1},
	{"chat", "FILE...", "Conversations in JSONL into a dataset whose targets are what the assistant says",
	 cmd_chat, 1, -1},
	{"images", "INPUT...",
	 "Make a dataset of IDX or CIFAR files, of folders or of tar archives of images", cmd_images, 1, -1},
	{"info", "D.h5", "What a dataset holds", cmd_info, 1, 1},
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
