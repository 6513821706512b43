#include "base/units.h"
#include "data/text_import.h"

static void print_set(const char *path, int64_t tokens, int64_t documents, FILE *f)
{
	fprintf(f, "%s: %lld tokens, %lld document%s", path, (long long)tokens, (long long)documents,
		documents == 1 ? "" : "s");
}

void dt_text_import_print(const struct dt_text_import *im, const char *const out[2], double seconds, FILE *f)
{
	char size[32], took[32], left[256];
	struct dt_clean_counts n;

	print_set(out[0], im->tokens[0], im->documents[0], f);
	if (out[1]) {
		fputs("; ", f);
		print_set(out[1], im->tokens[1], im->documents[1], f);
	}
	dt_clean_summary(im->cleaned, left, sizeof(left));
	if (*left)
		fprintf(f, "; dropped: %s", left);
	if (im->resumed)
		fprintf(f, "; %lld documents taken from the journal", (long long)im->resumed);
	if (im->in.bad)
		fprintf(f, "; %lld invalid line%s skipped", (long long)im->in.bad,
			im->in.bad == 1 ? "" : "s");
	if (im->in.empty)
		fprintf(f, "; %lld empty document%s skipped", (long long)im->in.empty,
			im->in.empty == 1 ? "" : "s");
	dt_clean_counts(im->cleaned, &n);
	fprintf(f, "; %s of text in %s, vocabulary %d\n",
		dt_format_size((uint64_t)n.bytes[DT_CLEAN_KEPT], size, sizeof(size)),
		dt_format_duration(seconds, took, sizeof(took)), dt_tokenizer_vocab(im->tok));
}

static json_t *set_json(const char *path, int64_t tokens, int64_t documents)
{
	return json_pack("{s:s, s:I, s:I}", "path", path, "tokens", (json_int_t)tokens, "documents",
			 (json_int_t)documents);
}

json_t *dt_text_import_json(const struct dt_text_import *im, const char *const out[2], double seconds)
{
	json_t *o = json_pack("{s:i, s:o, s:i, s:s, s:I, s:I, s:f}", "schema", 1, "train",
			      set_json(out[0], im->tokens[0], im->documents[0]), "vocab",
			      dt_tokenizer_vocab(im->tok), "tokenizer_hash", dt_tokenizer_hash(im->tok),
			      "shards", (json_int_t)im->shards, "input_bytes", (json_int_t)im->in.read_bytes,
			      "build_s", seconds);

	json_object_set_new(o, "documents", dt_clean_json(im->cleaned));
	json_object_set_new(o, "empty_documents", json_integer((json_int_t)im->in.empty));
	if (im->work)
		json_object_set_new(o, "resumed_documents", json_integer((json_int_t)im->resumed));
	if (im->in.skip_bad)
		json_object_set_new(o, "bad_lines", json_integer((json_int_t)im->in.bad));
	if (out[1])
		json_object_set_new(o, "eval", set_json(out[1], im->tokens[1], im->documents[1]));
	return o;
}
/* SPDX-License-Identifier: Apache-2.0 */
