/* dt-dataset: tokenises text into packed HDF5 datasets, lists and samples them. */
#include "base/json.h"
#include "base/program.h"
#include "base/progress.h"
#include "base/table.h"
#include "base/tmpfile.h"
#include "base/units.h"
#include "ckpt/tokenizer_file.h"
#include "data/dataset.h"
#include "data/text_source.h"
#include "data/tokenizer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *tokenizer, *out_path, *eval_path, *field, *separator;
static int format, pack;
static double split;
static bool split_given, json, ids_only, special, verify, whole_order, count_given;
static int64_t shards, count = 3, seq, seed, first, epoch;

static const struct dt_opt opts[] = {
	{"json", 'j', DT_OPT_FLAG, &json, NULL, "print JSON", "build,info,sample"},
	DT_OPT_HEADING("Building"),
	{"out", 'o', DT_OPT_STR, &out_path, "D.h5", "the dataset to write", "build"},
	{"tokenizer", 't', DT_OPT_STR, &tokenizer, "T",
	 "'byte', or what holds one: tokenizer.json, folder, GGUF, SentencePiece model, checkpoint", "build",
	 .complete = DT_COMPLETE_TOKENIZER, .def = "byte"},
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
	 "build", .min = 1e-9, .max = 99.999999, .given = &split_given},
	{"out-eval", 0, DT_OPT_STR, &eval_path, "E.h5", "the dataset for evaluation", "build"},
	{"shards", 0, DT_OPT_INT, &shards, "N", "cut --out into N files", "build", .min = 1, .max = 99999,
	 .def = "1"},
	DT_OPT_HEADING("Looking"),
	{"verify", 0, DT_OPT_FLAG, &verify, NULL, "read every token and compare the checksums", "info"},
	{"count", 'n', DT_OPT_INT, &count, "N", "samples, or tokens for cat", "sample,cat",
	 .given = &count_given, .def_text = "3; of cat, all"},
	{"seq", 0, DT_OPT_INT, &seq, "N", "tokens of a sample", "sample", .min = 1, .max = 1 << 24,
	 .def = "64"},
	{"seed", 0, DT_OPT_INT, &seed, "N", "seed of the order", "sample", .def = "0"},
	{"epoch", 0, DT_OPT_INT, &epoch, "N", "epoch to sample", "sample", .min = 0, .max = 4294967295.0,
	 .def = "0"},
	{"in-order", 0, DT_OPT_FLAG, &whole_order, NULL, "samples in file order, not shuffled", "sample"},
	{"first", 0, DT_OPT_INT, &first, "N", "start at sample, or at token, N", "sample,cat", .def = "0"},
	{"ids", 0, DT_OPT_FLAG, &ids_only, NULL, "print ids, not text", "sample,cat"},
	{"special", 0, DT_OPT_FLAG, &special, NULL, "print the text of special tokens too", "sample,cat"},
	DT_OPT_END,
};
static const struct dt_program program;

struct build {
	struct dt_tokenizer *tok;
	struct dt_dataset_writer *out[2]; /* train, evaluation */
	int to;
	struct dt_progress bar;
	uint64_t before; /* bytes of input in documents behind us */
};

static int take_ids(void *ctx, const int32_t *ids, size_t n, size_t done, struct dt_err *err)
{
	struct build *b = ctx;

	dt_progress_set(&b->bar, b->before + done);
	return dt_dataset_append(b->out[b->to], ids, n, err);
}

static int add_document(void *ctx, const char *s, size_t n, bool eval, uint64_t at, struct dt_err *err)
{
	struct build *b = ctx;
	int32_t bos = dt_tokenizer_bos(b->tok);
	int rc = 0;

	b->to = eval;
	b->before = at;
	if (bos >= 0 && bos != dt_tokenizer_eot(b->tok))
		rc = dt_dataset_append(b->out[b->to], &bos, 1, err);
	if (rc == 0)
		rc = dt_tokenizer_encode_to(b->tok, s, n, false, take_ids, b, err);
	return rc < 0 ? rc : dt_dataset_end_document(b->out[b->to], err);
}

static json_t *describe(const char *path, int64_t tokens, int64_t documents)
{
	return json_pack("{s:s, s:I, s:I}", "path", path, "tokens", (json_int_t)tokens, "documents",
			 (json_int_t)documents);
}

static int report(const struct build *b, const int64_t tokens[2], const int64_t documents[2], uint64_t bytes,
		  double seconds, struct dt_err *err)
{
	char size[32], took[32];
	json_t *o;
	int rc;

	if (!json) {
		printf("%s: %lld tokens, %lld document%s", out_path, (long long)tokens[0],
		       (long long)documents[0], documents[0] == 1 ? "" : "s");
		if (eval_path)
			printf("; %s: %lld tokens, %lld document%s", eval_path, (long long)tokens[1],
			       (long long)documents[1], documents[1] == 1 ? "" : "s");
		printf("; %s of text in %s, vocabulary %d\n", dt_format_size(bytes, size, sizeof(size)),
		       dt_format_duration(seconds, took, sizeof(took)), dt_tokenizer_vocab(b->tok));
		return 0;
	}
	o = json_pack("{s:i, s:o, s:i, s:s, s:I, s:I, s:f}", "schema", 1, "train",
		      describe(out_path, tokens[0], documents[0]), "vocab", dt_tokenizer_vocab(b->tok),
		      "tokenizer_hash", dt_tokenizer_hash(b->tok), "shards", (json_int_t)shards,
		      "input_bytes", (json_int_t)bytes, "build_s", seconds);
	if (eval_path)
		json_object_set_new(o, "eval", describe(eval_path, tokens[1], documents[1]));
	rc = dt_json_write_line(stdout, o, err);
	json_decref(o);
	return rc;
}

static int create(struct build *b, int n, char **paths, struct dt_err *err)
{
	const char *source = n == 1 ? paths[0] : "several files";
	char *text = NULL;
	size_t len;
	int rc = dt_tokenizer_file_text(tokenizer, &text, &len, err);

	if (rc == 0 && (rc = dt_tokenizer_from_text(text, len, &b->tok, err)) < 0)
		dt_err_prefix(err, "cannot use the tokenizer '%s'", tokenizer);
	free(text);

	if (rc == 0)
		rc = dt_dataset_create(out_path, b->tok, 0, source, &b->out[0], err);
	if (rc == 0 && eval_path)
		rc = dt_dataset_create(eval_path, b->tok, 0, source, &b->out[1], err);
	if (rc == 0)
		dt_dataset_set_shards(b->out[0], (int)shards);
	for (int i = 0; i < 2 && rc == 0 && pack; i++)
		if (b->out[i])
			dt_dataset_keep_apart(b->out[i]);
	return rc;
}

/* The evaluation set first: a train.h5 that is there has its eval.h5. */
static int finish(struct build *b, int64_t tokens[2], int64_t documents[2], struct dt_err *err)
{
	int rc = 0;

	for (int i = 1; i >= 0 && rc == 0; i--) {
		struct dt_dataset_writer *w = b->out[i];

		if (!w)
			continue;
		tokens[i] = dt_dataset_written(w, &documents[i]);
		b->out[i] = NULL;
		rc = dt_dataset_finish(w, err);
	}
	return rc;
}

static int do_build(int n, char **paths, struct dt_err *err)
{
	struct dt_text_source src = {.format = (enum dt_text_format)format,
				     .field = field,
				     .separator = separator,
				     .eval_percent = split_given ? split : 0};
	struct build b = {0};
	int64_t tokens[2] = {0}, documents[2] = {0};
	double t0 = dt_now();
	uint64_t total = 0;
	int rc = create(&b, n, paths, err);

	if (rc == 0)
		rc = dt_text_source_open(&src, n, (const char *const *)paths, err);
	if (rc == 0) {
		dt_progress_start(&b.bar, stderr, "tokenising", src.total_bytes, true);
		rc = dt_text_source_read(&src, add_document, &b, err);
		dt_progress_end(&b.bar);
		total = src.read_bytes;
	}
	dt_text_source_close(&src);
	if (rc == 0)
		rc = finish(&b, tokens, documents, err);
	if (rc == 0)
		rc = report(&b, tokens, documents, total, dt_now() - t0, err);
	dt_dataset_abandon(b.out[0]);
	dt_dataset_abandon(b.out[1]);
	dt_tokenizer_close(b.tok);
	return rc;
}

static json_t *info_json(const struct dt_dataset_info *i, const char *path)
{
	return json_pack("{s:i, s:s, s:I, s:I, s:s, s:i, s:i, s:i, s:s, s:I, s:s}", "schema", 1, "path", path,
			 "tokens", (json_int_t)i->tokens, "documents", (json_int_t)i->documents, "pack",
			 i->apart ? "documents" : "stream", "vocab", i->vocab, "token_bytes", i->token_bytes,
			 "shards", i->shards, "tokenizer_hash", i->tokenizer_hash, "tokenizer_bytes",
			 (json_int_t)i->tokenizer_bytes, "source", i->source);
}

static int do_info(struct dt_dataset *d, const char *path, struct dt_err *err)
{
	struct dt_dataset_info i;
	struct dt_table *t;
	int rc = verify ? dt_dataset_verify(d, err) : 0;

	if (rc < 0)
		return rc;
	dt_dataset_info(d, &i);
	if (json) {
		json_t *o = info_json(&i, path);

		rc = dt_json_write_line(stdout, o, err);
		json_decref(o);
		return rc;
	}
	t = dt_table_new("property|value");
	dt_table_cell(t, "tokens");
	dt_table_cell(t, "%lld of %d bytes", (long long)i.tokens, i.token_bytes);
	dt_table_cell(t, "documents");
	dt_table_cell(t, "%lld%s", (long long)i.documents, i.apart ? ", kept apart" : "");
	dt_table_cell(t, "vocabulary");
	dt_table_cell(t, "%d", i.vocab);
	dt_table_cell(t, "shards");
	dt_table_cell(t, "%d", i.shards);
	dt_table_cell(t, "tokenizer");
	dt_table_cell(t, "%s", i.tokenizer_hash);
	dt_table_cell(t, "source");
	dt_table_cell(t, "%s", i.source);
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
	struct dt_sampler s;
	int32_t *ids = NULL;
	int rc = dt_sampler_init(&s, d, seq, (uint64_t)seed, !whole_order, err);

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

/* A damaged dataset is an answer (3) to who asks for it. */
static int finish_with(int rc, const struct dt_err *err)
{
	if (rc >= 0)
		return DT_EXIT_OK;
	dt_program_fail(&program, err);
	return verify && rc == -EBADMSG ? DT_EXIT_NO : DT_EXIT_FAILED;
}

static int usage_of_build(int n, char **args)
{
	if (!out_path)
		return dt_opt_usage_error(&program, stderr, "build needs --out");
	if (split_given != (eval_path != NULL))
		return dt_opt_usage_error(&program, stderr, "--split and --out-eval go together");
	if (eval_path && dt_out_is(out_path, eval_path))
		return dt_opt_usage_error(&program, stderr, "--out and --out-eval are the same file");
	for (int i = strcmp(tokenizer, "byte") ? -1 : 0; i < n; i++) { /* the tokenizer first */
		const char *in = i < 0 ? tokenizer : args[i];

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
	int status = usage_of_build(n, args);

	return status ? status : finish_with(do_build(n, args, &err), &err);
}

static int cmd_info(int n, char **args)
{
	struct dt_err err = {0};
	struct dt_dataset *d;
	int rc = dt_dataset_open(args[0], &d, &err);

	if (rc == 0) {
		rc = do_info(d, args[0], &err);
		dt_dataset_close(d);
	}
	return finish_with(rc, &err);
}

static int look(const char *path,
		int (*fn)(struct dt_dataset *d, const struct dt_tokenizer *t, struct dt_err *err))
{
	struct dt_err err = {0};
	struct dt_dataset_info i;
	struct dt_tokenizer *t = NULL;
	struct dt_dataset *d;
	int rc = dt_dataset_open(path, &d, &err);

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
	return look(args[0], do_sample);
}

static int cmd_cat(int n, char **args)
{
	return look(args[0], do_cat);
}

static const struct dt_command commands[] = {
	{"build", "FILE...", "Tokenise files ('-': standard input) into a dataset", cmd_build, 1, -1},
	{"info", "D.h5", "What a dataset holds", cmd_info, 1, 1},
	{"sample", "D.h5", "Samples as training would see them, as text", cmd_sample, 1, 1},
	{"cat", "D.h5", "The tokens in order, as text", cmd_cat, 1, 1},
	{NULL},
};
static const char *const examples[] = {
	"dt-dataset build --tokenizer tok.json --split 10 --out train.h5 --out-eval eval.h5 input.txt",
	"dt-dataset sample train.h5 --count 3 --seq 64",
	"zcat docs.jsonl.gz | dt-dataset build --format jsonl --shards 4 --out docs.h5 -",
	NULL,
};
static const struct dt_program program = {
	.name = "dt-dataset",
	.summary = "Tokenise text into packed datasets, list and sample them.",
	.examples = examples,
	.opts = opts,
	.commands = commands,
};

int main(int argc, char **argv)
{
	return dt_program_main(&program, argc, argv);
}
/* SPDX-License-Identifier: Apache-2.0 */
