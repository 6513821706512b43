/* Reads the pre-tokenizers of tokenizer.json. */
#include "data/bpe_train.h"
#include "data/tok_json.h"

#include <errno.h>
#include <string.h>

int tok_json_unsupported(struct dt_err *err, const char *what, const char *value)
{
	int rc = dt_err_set(err, -ENOTSUP, "%s '%.80s' is not supported", what, value ? value : "null");

	dt_err_hint(err,
		    "supported are byte-level BPE (GPT-2, Llama 3, Qwen), SentencePiece's BPE, Unigram and "
		    "BERT's WordPiece");
	return rc;
}

const char *tok_json_type(const json_t *o)
{
	const char *s = json_string_value(json_object_get(o, "type"));

	return s ? s : "";
}

static int add_step(struct dt_tokenizer *t, const char *pattern, bool literal, struct dt_tok_step s,
		    struct dt_err *err)
{
	char run[DT_TOK_RUN_CLASS];
	int rc;

	if (t->steps == DT_TOK_MAX_STEPS)
		return dt_err_set(err, -ENOTSUP, "more than %d pre-tokenizers are not supported",
				  DT_TOK_MAX_STEPS);
	if (pattern) {
		s.every = literal ? 0 : dt_tok_runs(pattern, run);
		rc = dt_tok_compile(s.every ? run : pattern, literal, &s.re, err);
		if (rc < 0)
			return rc;
		s.pattern = strdup(pattern);
		if (!s.pattern) {
			pcre2_code_free(s.re);
			return dt_err_sys(err, -ENOMEM, "cannot read a pattern");
		}
	}
	t->step[t->steps++] = s;
	return 0;
}

static int read_split(struct dt_tokenizer *t, const json_t *o, struct dt_err *err)
{
	const json_t *p = json_object_get(o, "pattern");
	const char *regex = json_string_value(json_object_get(p, "Regex"));
	const char *literal = json_string_value(json_object_get(p, "String"));
	const char *behavior = "Isolated";
	bool invert = false, removed;
	int rc = dt_json_str(o, "behavior", true, &behavior, err);

	if (rc >= 0)
		rc = dt_json_bool(o, "invert", false, &invert, err);
	if (rc < 0)
		return dt_err_prefix(err, "pre_tokenizer Split");
	if (!regex == !literal)
		return dt_err_set(err, -EINVAL, "pre_tokenizer Split has no pattern");
	removed = !strcmp(behavior, "Removed");
	if (!removed && strcmp(behavior, "Isolated"))
		return tok_json_unsupported(err, "pre_tokenizer Split with behavior", behavior);
	return add_step(t, regex ? regex : literal, !regex,
			(struct dt_tok_step){.drop_match = removed && !invert, .drop_gap = removed && invert},
			err);
}

/* ASCII and Unicode punctuation, as in Hugging Face's Punctuation. */
#define PUNCTUATION "[\\p{P}!-/:-@\\[-`{-~]"

static int read_punctuation(struct dt_tokenizer *t, const json_t *o, struct dt_err *err)
{
	const char *behavior = "Isolated";
	int rc = dt_json_str(o, "behavior", false, &behavior, err);

	if (rc < 0)
		return dt_err_prefix(err, "pre_tokenizer Punctuation");
	if (strcmp(behavior, "Isolated") && strcmp(behavior, "Contiguous") && strcmp(behavior, "Removed"))
		return tok_json_unsupported(err, "pre_tokenizer Punctuation with behavior", behavior);
	return add_step(t, strcmp(behavior, "Contiguous") ? PUNCTUATION : PUNCTUATION "+", false,
			(struct dt_tok_step){.drop_match = !strcmp(behavior, "Removed")}, err);
}

static bool in_alphabet(const struct dt_tokenizer *t)
{
	for (int i = 0; i < t->steps; i++)
		if (t->step[i].to_alphabet)
			return true;
	return false;
}

int tok_json_pre_tokenizer(struct dt_tokenizer *t, const json_t *o, int depth, bool *ret_byte_level,
			   struct dt_err *err)
{
	const char *type = tok_json_type(o);
	const json_t *list;
	bool prefix = true, regex = true, each = false;
	int rc = 0;

	if (*ret_byte_level && !strcmp(type, "ByteLevel"))
		return tok_json_unsupported(err, "a pre_tokenizer after ByteLevel", type);
	if (*ret_byte_level && strcmp(type, "Sequence") && !in_alphabet(t)) {
		rc = add_step(t, NULL, false, (struct dt_tok_step){.to_alphabet = true}, err);
		if (rc < 0)
			return rc;
	}
	if (!strcmp(type, "Sequence")) {
		list = json_object_get(o, "pretokenizers");
		if (!json_is_array(list) || depth > 4)
			return dt_err_set(err, -EINVAL, "pre_tokenizer Sequence has no list");
		for (size_t i = 0; i < json_array_size(list) && rc == 0; i++)
			rc = tok_json_pre_tokenizer(t, json_array_get(list, i), depth + 1, ret_byte_level,
						    err);
		return rc;
	}
	if (!strcmp(type, "Split"))
		return read_split(t, o, err);
	if (!strcmp(type, "Punctuation"))
		return read_punctuation(t, o, err);
	if (!strcmp(type, "Digits")) {
		rc = dt_json_bool(o, "individual_digits", false, &each, err);
		if (rc < 0)
			return rc;
		return add_step(t, each ? "\\p{N}" : "\\p{N}+", false, (struct dt_tok_step){0}, err);
	}
	if (strcmp(type, "ByteLevel"))
		return tok_json_unsupported(err, "pre_tokenizer", *type ? type : NULL);
	*ret_byte_level = true;
	rc = dt_json_bool(o, "add_prefix_space", false, &prefix, err);
	if (rc >= 0)
		rc = dt_json_bool(o, "use_regex", false, &regex, err);
	if (rc < 0)
		return dt_err_prefix(err, "pre_tokenizer ByteLevel");
	return add_step(t, regex ? dt_tok_pattern[DT_BPE_GPT2] : NULL, false,
			(struct dt_tok_step){.prefix_space = prefix}, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
