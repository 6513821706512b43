/* dt-tokenize: trains a byte-level BPE tokenizer, encodes text to ids and decodes ids. */
#include "base/json.h"
#include "base/program.h"
#include "base/progress.h"
#include "base/tmpfile.h"
#include "base/units.h"
#include "ckpt/tokenizer_file.h"
#include "data/bpe_train.h"
#include "data/ids.h"
#include "data/tok_print.h"
#include "data/tokenizer.h"
#include "data/unpack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *tokenizer, *out_path;
static bool lines, null_data, json, special, with_bos, with_eos, chars;
static uint64_t vocab;
static int64_t min_count;
static int binary /* enum dt_ids_form */, pattern;
static struct dt_strs special_tokens;

static const struct dt_opt opts[] = {
	{"tokenizer", 't', DT_OPT_STR, &tokenizer, "T",
	 "tokenizer: 'byte', or a tokenizer.json, folder, GGUF, SentencePiece model or checkpoint",
	 "encode,decode,info", .complete = DT_COMPLETE_TOKENIZER},
	{"lines", 'l', DT_OPT_FLAG, &lines, NULL, "treat each line as a separate record", "encode,decode"},
	{"null-data", 'z', DT_OPT_FLAG, &null_data, NULL,
	 "like --lines, but records of text end with a zero byte", "encode,decode"},
	{"special", 0, DT_OPT_FLAG, &special, NULL,
	 "encode the text of special tokens as these tokens, and print it when decoding", "encode,decode"},
	{"bos", 0, DT_OPT_FLAG, &with_bos, NULL, "start each record with the beginning-of-text token (BOS)",
	 "encode"},
	{"eos", 0, DT_OPT_FLAG, &with_eos, NULL, "end each record with the token after a text (EOS, [SEP])",
	 "encode"},
	{"binary", 0, DT_OPT_CHOICE, &binary, "none|u16|i32",
	 "write or read ids as little-endian integers, not text", "encode,decode", .def = "none",
	 .without = "json,lines,null-data"},
	{"json", 'j', DT_OPT_FLAG, &json, NULL, "print JSON", "encode,info,train"},
	DT_OPT_HEADING("Training"),
	{"out", 'o', DT_OPT_STR, &out_path, "FILE", "path of the tokenizer.json to write", "train",
	 .complete = DT_COMPLETE_FILE},
	{"vocab", 'n', DT_OPT_COUNT, &vocab, "N",
	 "vocabulary size: bytes, merges and special tokens together", "train", .def = "4096"},
	{"min-count", 0, DT_OPT_INT, &min_count, "N", "merge only pairs that occur at least N times", "train",
	 .min = 1, .max = 1e15, .def = "2"},
	{"pattern", 0, DT_OPT_CHOICE, &pattern, "gpt2|llama3|qwen2",
	 "pre-tokenization pattern, which splits text into words", "train", .def = "gpt2"},
	{"special-token", 0, DT_OPT_STRS, &special_tokens, "TEXT", "add a special token; may be repeated",
	 "train", .def_text = "<|endoftext|>"},
	{"chars", 0, DT_OPT_FLAG, &chars, NULL, "one token for each character that occurs, instead of BPE",
	 "train", .without = "vocab,min-count,pattern"},
	DT_OPT_END,
};
static const struct dt_program program;

static void show_progress(void *ctx, int64_t done, int64_t total)
{
	struct dt_progress *p = ctx;

	p->total = (uint64_t)total;
	dt_progress_set(p, (uint64_t)done);
}

static int add_files(struct dt_bpe_trainer *tr, int n, char **paths, uint64_t *ret_bytes, struct dt_err *err)
{
	struct dt_progress p;
	struct stat st;
	uint64_t total = 0, done = 0;
	int rc = 0;

	for (int i = 0; i < n; i++)
		total += stat(paths[i], &st) == 0 ? (uint64_t)st.st_size : 0;
	dt_progress_start(&p, stderr, "counting", total, true);
	for (int i = 0; i < n && rc == 0; i++) {
		char *text;
		size_t len;

		rc = unpack_whole(paths[i], SIZE_MAX / 4, &text, &len, err);
		if (rc < 0)
			break;
		rc = dt_bpe_trainer_add(tr, text, len, err);
		done += len;
		free(text);
		dt_progress_set(&p, done);
	}
	dt_progress_end(&p);
	*ret_bytes = done;
	return rc;
}

static int save(const char *text, size_t n, struct dt_err *err)
{
	struct dt_tmpfile f;
	int rc = dt_tmpfile_open(&f, out_path, err);

	if (rc < 0)
		return rc;
	errno = 0;
	if (fwrite(text, 1, n, f.f) < n || fputc('\n', f.f) == EOF || fflush(f.f) == EOF) {
		rc = dt_err_sys(err, errno ? -errno : -EIO, "cannot write '%s'", out_path);
		dt_tmpfile_abort(&f);
		return rc;
	}
	return dt_tmpfile_commit(&f, err);
}

static int report(const char *text, size_t n, uint64_t bytes, struct dt_err *err)
{
	struct dt_tokenizer_info info;
	struct dt_tokenizer *t;
	int rc = dt_tokenizer_from_text(text, n, &t, err);

	if (rc < 0)
		return rc;
	dt_tokenizer_describe(t, &info);
	if (json) {
		json_t *o = json_pack("{s:i, s:s, s:i, s:I, s:s, s:I}", "schema", 1, "path", out_path,
				      "vocab", dt_tokenizer_vocab(t), "merges", (json_int_t)info.merges,
				      "hash", dt_tokenizer_hash(t), "input_bytes", (json_int_t)bytes);

		rc = dt_json_write_line(stdout, o, err);
		json_decref(o);
	} else {
		printf("%s: %d tokens, %lld merges, hash %s\n", out_path, dt_tokenizer_vocab(t),
		       (long long)info.merges, dt_tokenizer_hash(t));
	}
	dt_tokenizer_close(t);
	return rc;
}

static int do_train(int n, char **paths, struct dt_err *err)
{
	static const char *const eot[] = {"<|endoftext|>", NULL};
	const char *mine[DT_STRS_MAX + 1] = {0};
	struct dt_bpe_train_options o = {.min_count = min_count, .pattern = (enum dt_bpe_pattern)pattern};
	struct dt_bpe_trainer *tr = NULL;
	struct dt_progress p;
	char *text = NULL;
	uint64_t bytes = 0;
	size_t len;
	int rc;

	memcpy(mine, special_tokens.v, (size_t)special_tokens.n * sizeof(*mine));
	o.vocab = (int32_t)vocab;
	o.chars = chars;
	o.special = special_tokens.n ? mine : chars ? NULL : eot;
	rc = dt_bpe_trainer_new(&o, &tr, err);
	if (rc == 0)
		rc = add_files(tr, n, paths, &bytes, err);
	if (rc == 0) {
		dt_progress_start(&p, stderr, "merging", vocab, false);
		rc = dt_bpe_trainer_run(tr, show_progress, &p, &text, &len, err);
		dt_progress_end(&p);
	}
	if (rc == 0)
		rc = save(text, len, err);
	if (rc == 0)
		rc = report(text, len, bytes, err);
	free(text);
	dt_bpe_trainer_free(tr);
	return rc;
}

static int put_ids(const int32_t *ids, size_t n, size_t bytes, struct dt_err *err)
{
	if (json) {
		json_t *list = json_array(), *o;
		int rc;

		for (size_t i = 0; i < n; i++)
			json_array_append_new(list, json_integer(ids[i]));
		o = json_pack("{s:i, s:I, s:I, s:o}", "schema", 1, "tokens", (json_int_t)n, "text_bytes",
			      (json_int_t)bytes, "ids", list);
		rc = dt_json_write_line(stdout, o, err);
		json_decref(o);
		return rc;
	}
	errno = 0;
	dt_ids_write((enum dt_ids_form)binary, ids, n, stdout);
	return dt_program_check_stdout(err);
}

static int encode_one(const struct dt_tokenizer *t, const char *s, size_t n, struct dt_err *err)
{
	int32_t *ids, *p;
	size_t len;
	int rc = dt_tokenizer_encode(t, s, n, special, &ids, &len, err);

	if (rc < 0)
		return rc;
	p = realloc(ids, (len + 2) * sizeof(*ids));
	if (!p) {
		free(ids);
		return dt_err_sys(err, -ENOMEM, "cannot encode");
	}
	ids = p;
	if (with_bos) {
		memmove(ids + 1, ids, len++ * sizeof(*ids));
		ids[0] = dt_tokenizer_bos(t);
	}
	if (with_eos)
		ids[len++] = dt_tokenizer_end(t);
	rc = put_ids(ids, len, n, err);
	free(ids);
	return rc;
}

/* Calls fn with each record of standard input, without its terminator. */
static int each_record(const struct dt_tokenizer *t, bool whole, int end,
		       int (*fn)(const struct dt_tokenizer *t, const char *s, size_t n, struct dt_err *err),
		       struct dt_err *err)
{
	char *s = NULL;
	size_t cap = 0, number = 0;
	ssize_t n;
	int rc = 0;

	if (whole) {
		rc = dt_read_file("-", SIZE_MAX / 4, &s, &cap, err);
		if (rc < 0)
			return rc;
		rc = fn(t, s, cap, err);
		free(s);
		return rc;
	}
	while (rc == 0 && (errno = 0, n = getdelim(&s, &cap, end, stdin)) >= 0) {
		number++;
		if (n && s[n - 1] == end)
			n--;
		rc = fn(t, s, (size_t)n, err);
		if (rc < 0)
			dt_err_prefix(err, "record %zu", number);
	}
	free(s);
	if (rc == 0 && ferror(stdin))
		rc = dt_err_sys(err, errno ? -errno : -EIO, "cannot read standard input");
	return rc;
}

static int do_encode(const struct dt_tokenizer *t, struct dt_err *err)
{
	if (binary == DT_IDS_U16 && dt_tokenizer_vocab(t) > 65536)
		return dt_err_set(err, -ERANGE,
				  "a vocabulary of %d tokens does not fit u16: use --binary i32",
				  dt_tokenizer_vocab(t));
	if (with_bos && dt_tokenizer_bos(t) < 0)
		return dt_err_set(err, -EINVAL, "'%s' has no beginning-of-text token", tokenizer);
	if (with_eos && dt_tokenizer_end(t) < 0)
		return dt_err_set(err, -EINVAL, "'%s' has no token after a text", tokenizer);
	return each_record(t, !lines && !null_data, null_data ? '\0' : '\n', encode_one, err);
}

static int decode_one(const struct dt_tokenizer *t, const char *s, size_t n, struct dt_err *err)
{
	int32_t *ids;
	char *text;
	size_t len;
	int rc = dt_ids_parse((enum dt_ids_form)binary, s, n, &ids, &len, err);

	if (rc < 0)
		return rc;
	rc = dt_tokenizer_decode(t, ids, len, special, &text, &len, err);
	free(ids);
	if (rc < 0)
		return rc;
	errno = 0;
	fwrite(text, 1, len, stdout);
	if (null_data || lines)
		putchar(null_data ? '\0' : '\n');
	free(text);
	return dt_program_check_stdout(err);
}

static int do_decode(const struct dt_tokenizer *t, struct dt_err *err)
{
	return each_record(t, !lines && !null_data, '\n', decode_one, err);
}

static int show_info(const struct dt_tokenizer *t, struct dt_err *err)
{
	return dt_tokenizer_print(t, json, stdout, err);
}

static int usage_of_train(int n, char **args)
{
	if (!out_path)
		return dt_opt_usage_error(&program, stderr, "train needs --out");
	if (vocab > 1 << 22)
		return dt_opt_usage_error(&program, stderr, "a vocabulary has at most %d tokens", 1 << 22);
	for (int i = 0; i < n; i++)
		if (dt_out_is(out_path, args[i]))
			return dt_opt_usage_error(&program, stderr, "--out would overwrite the input '%s'",
						  args[i]);
	return 0;
}

static int cmd_train(int n, char **args)
{
	struct dt_err err = {0};
	int status = usage_of_train(n, args);

	if (status)
		return status;
	return dt_out_check(out_path, &err) < 0 || do_train(n, args, &err) < 0
		       ? dt_program_fail(&program, &err)
		       : DT_EXIT_OK;
}

/* Calls fn with the tokenizer. */
static int with_tokenizer(int (*fn)(const struct dt_tokenizer *t, struct dt_err *err))
{
	struct dt_err err = {0};
	struct dt_tokenizer *t;
	char *text;
	size_t n;
	int rc;

	if (!tokenizer)
		return dt_opt_usage_error(&program, stderr, "the command needs --tokenizer");
	rc = dt_tokenizer_file_text(tokenizer, &text, &n, &err);
	if (rc == 0) {
		rc = dt_tokenizer_from_text(text, n, &t, &err);
		if (rc < 0)
			dt_err_prefix(&err, "cannot use the tokenizer '%s'", tokenizer);
		free(text);
	}
	if (rc < 0)
		return dt_program_fail(&program, &err);
	rc = fn(t, &err);
	dt_tokenizer_close(t);
	return rc < 0 ? dt_program_fail(&program, &err) : DT_EXIT_OK;
}

static int cmd_encode(int n, char **args)
{
	return with_tokenizer(do_encode);
}

static int cmd_decode(int n, char **args)
{
	return with_tokenizer(do_decode);
}

static int cmd_info(int n, char **args)
{
	return with_tokenizer(show_info);
}

static const struct dt_command commands[] = {
	{"train", "FILE...", "Train a byte-level BPE tokenizer on texts", cmd_train, 1, -1},
	{"encode", "", "Encode text on standard input to ids", cmd_encode, 0, 0},
	{"decode", "", "Decode ids on standard input to text", cmd_decode, 0, 0},
	{"info", "", "Print what a tokenizer is", cmd_info, 0, 0},
	{NULL},
};
static const char *const examples[] = {
	"dt-tokenize train --vocab 4096 --out tok.json corpus.txt",
	"echo 'Hello world' | dt-tokenize encode --tokenizer tok.json",
	"dt-tokenize encode -t tok.json <a.txt | dt-tokenize decode -t tok.json",
	NULL,
};
static const struct dt_program program = {
	.name = "dt-tokenize",
	.summary = "Train a tokenizer, encode text to token ids, decode ids to text.",
	.examples = examples,
	.opts = opts,
	.commands = commands,
};

int main(int argc, char **argv)
{
	return dt_program_main(&program, argc, argv);
}
/* SPDX-License-Identifier: Apache-2.0 */
