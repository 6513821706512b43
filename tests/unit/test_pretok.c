/*
 * What a tokenizer can be read from: the pre-tokenizers of published families against Hugging Face's library
 * (golden-pre.json) and by the names GGUF has for them, SentencePiece's models against SentencePiece
 * (golden-model.json), and what is refused.
 */
#include "base/json.h"
#include "base/rng.h"
#include "base/tmpfile.h"
#include "ckpt/source_internal.h"
#include "ckpt/tokenizer_file.h"
#include "data/tok_priv.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static json_t *load(const char *name)
{
	char path[PATH_MAX];
	struct dt_err err = {0};
	json_t *v;

	snprintf(path, sizeof(path), "%s/tokenizer/%s", GOLDEN_DIR, name);
	if (dt_json_load(path, 16 << 20, &v, &err) < 0)
		fail_msg("%s", err.msg);
	return v;
}

static struct dt_tokenizer *make(const json_t *root, const char *name)
{
	char *text = json_dumps(root, JSON_COMPACT);
	struct dt_tokenizer *t = NULL;
	struct dt_err err = {0};

	if (dt_tokenizer_from_text(text, strlen(text), &t, &err) < 0)
		fail_msg("%s: %s", name, err.msg);
	free(text);
	return t;
}

struct lengths {
	const json_t *want;
	const char *name, *text;
	size_t n;
};

static int on_word(void *ctx, const char *s, size_t n, struct dt_err *err)
{
	struct lengths *l = ctx;
	json_int_t want = json_integer_value(json_array_get(l->want, l->n));

	if (l->n >= json_array_size(l->want) || want != (json_int_t)n)
		fail_msg("%s: '%s': word %zu is '%.*s' of %zu bytes, not of %lld", l->name, l->text, l->n,
			 (int)n, s, n, (long long)want);
	l->n++;
	return 0;
}

static void check_words(const json_t *root, const char *name, const json_t *texts, const json_t *words)
{
	struct dt_tokenizer *t = make(root, name);

	for (size_t i = 0; i < json_array_size(texts); i++) {
		const json_t *text = json_array_get(texts, i);
		struct lengths l = {json_array_get(words, i), name, json_string_value(text), 0};
		struct dt_err err = {0};

		if (dt_tok_words(t, l.text, json_string_length(text), on_word, &l, &err) < 0)
			fail_msg("%s: '%s': %s", name, l.text, err.msg);
		if (l.n != json_array_size(l.want))
			fail_msg("%s: '%s': %zu words, not %zu", name, l.text, l.n, json_array_size(l.want));
	}
	dt_tokenizer_close(t);
}

static void families_split_as_published(void **state)
{
	json_t *g = load("golden-pre.json"), *base = load("gpt2.json"), *f;
	const char *name;
	int families = 0;

	json_object_foreach(json_object_get(g, "families"), name, f)
	{
		const json_t *gguf = json_object_get(f, "gguf"), *words = json_object_get(f, "words");
		json_t *root = json_deep_copy(base);

		json_object_set(root, "normalizer", json_object_get(f, "normalizer"));
		json_object_set(root, "pre_tokenizer", json_object_get(f, "pre_tokenizer"));
		check_words(root, name, json_object_get(g, "texts"), words);
		json_object_set_new(json_object_get(root, "model"), "ignore_merges",
				    json_boolean(!strcmp(name, "llama 3")));
		assert_int_equal(src_pre_of(root) != NULL, json_array_size(gguf) > 0);
		if (src_pre_of(root))
			assert_string_equal(src_pre_of(root)->name,
					    json_string_value(json_array_get(gguf, 0)));
		for (size_t i = 0; i < json_array_size(gguf); i++) {
			const char *known = json_string_value(json_array_get(gguf, i));
			const struct src_pre *pre = src_pre_find(known, strlen(known));

			if (!pre)
				fail_msg("GGUF's '%s' is not known", known);
			src_pre_put(pre, root);
			check_words(root, known, json_object_get(g, "texts"), words);
		}
		json_decref(root);
		families++;
	}
	assert_int_equal(families, 15);
	assert_null(src_pre_find("poro-chat", 9));
	assert_null(src_pre_find("falco", 5));
	json_decref(g);
	json_decref(base);
}

static void pre_tokenizers_are_refused_by_name(void **state)
{
	static const struct {
		const char *pre, *why;
	} bad[] = {
		{"[{'type':'Punctuation','behavior':'MergedWithNext'},{'type':'ByteLevel'}]",
		 "MergedWithNext"},
		{"[{'type':'ByteLevel'},{'type':'ByteLevel'}]", "after ByteLevel"},
		{"[{'type':'ByteLevel'},{'type':'Whitespace'}]", "Whitespace"},
		{"[{'type':'UnicodeScripts'},{'type':'ByteLevel'}]", "UnicodeScripts"},
	};
	json_t *base = load("gpt2.json");

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char text[256], *whole;
		struct dt_tokenizer *t = NULL;
		struct dt_err err = {0};

		snprintf(text, sizeof(text), "{'type':'Sequence','pretokenizers':%s}", bad[i].pre);
		for (char *c = text; *c; c++)
			*c = *c == '\'' ? '"' : *c;
		json_object_set_new(base, "pre_tokenizer", json_loads(text, 0, NULL));
		whole = json_dumps(base, 0);
		assert_int_equal(dt_tokenizer_from_text(whole, strlen(whole), &t, &err), -ENOTSUP);
		if (!strstr(err.msg, bad[i].why))
			fail_msg("'%s' does not name '%s'", err.msg, bad[i].why);
		free(whole);
	}
	json_decref(base);
}

/*
 * What Oniguruma and PCRE2 read differently. The words are those of tokenizers 0.23.3; the characters are as
 * old as Unicode 6, so that both agree on what they are.
 */
static void classes_are_those_of_oniguruma(void **state)
{
	static const char text[] = "a\xe2\x93\x90\xc2\xb2\xc2\xbd\xe0\xa7\xb4_\xe2\x80\xbf\xcc\x81 "
				   "\xe1\xa0\x8e\xc2\xa0\xe3\x80\x82\xe6\xbc\xa2\xe3\x80\x85\xe3\x83\xbc\xe5"
				   "\xad\x97x\xe2\x82\xac\xc2\xa2!\x0b\x0a\xc3\xb7\xc7\x85";
	static const struct {
		const char *pattern;
		size_t words[24]; /* bytes of each */
	} list[] = {
		{"\\w+", {8, 3, 6, 9, 13, 10, 2}},
		{"[\\w]+", {4, 7, 6, 9, 13, 10, 2}},
		{"[\\S]+", {17, 1, 3, 2, 22, 2, 4}},
		{"[[:alpha:]]+", {4, 22, 13, 10, 2}},
		{"[[:alnum:]]+", {4, 22, 13, 10, 2}},
		{"[[:punct:]]+", {1, 3, 7, 4, 8, 3, 13, 6, 2, 2, 2}},
		{"[[:space:]]+", {17, 1, 3, 2, 22, 2, 4}},
		{"[[:word:]]+", {4, 7, 6, 9, 13, 10, 2}},
		{"[[:^alpha:]]+", {4, 22, 13, 10, 2}},
		{"\\p{Han}+", {26, 6, 3, 3, 13}},
		{"\\p{^Han}+", {26, 6, 3, 3, 13}},
		{"[\\p{Latin}]+", {1, 37, 1, 10, 2}},
		{"\\v+", {45, 1, 5}},
		{"\\b\\S", {1, 7, 3, 1, 14, 3, 10, 3, 7, 2}},
		{"\\B\\S", {1, 3, 2, 2, 4, 3, 2, 1, 3, 2, 3, 3, 3, 3, 3, 1, 3, 2, 1, 2, 2, 2}},
	};
	static const char *const refused[] = {"[\\W]", "[[:^punct:]]", "[[:graph:]]", "[[:foo:]]"};
	json_t *base = load("gpt2.json");
	char form[] = "{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, {s:s, s:b, s:b, s:b}]}";

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]) + sizeof(refused) / sizeof(refused[0]); i++) {
		bool good = i < sizeof(list) / sizeof(list[0]);
		const char *p = good ? list[i].pattern : refused[i - sizeof(list) / sizeof(list[0])];
		json_t *texts = json_pack("[s]", text), *lengths = json_array(), *words;
		struct dt_tokenizer *t = NULL;
		struct dt_err err = {0};
		char *whole;

		json_object_set_new(base, "pre_tokenizer",
				    json_pack(form, "type", "Sequence", "pretokenizers", "type", "Split",
					      "pattern", "Regex", p, "behavior", "Isolated", "invert", 0,
					      "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0,
					      "use_regex", 0));
		for (size_t k = 0; good && list[i].words[k]; k++)
			json_array_append_new(lengths, json_integer((json_int_t)list[i].words[k]));
		words = json_pack("[o]", lengths);
		whole = json_dumps(base, 0);
		if (good)
			check_words(base, p, texts, words);
		else if (dt_tokenizer_from_text(whole, strlen(whole), &t, &err) != -ENOTSUP)
			fail_msg("%s is not refused", p);
		free(whole);
		json_decref(texts);
		json_decref(words);
	}
	json_decref(base);
}

static struct dt_tokenizer *open_file(const char *path)
{
	struct dt_tokenizer *t = NULL;
	struct dt_err err = {0};
	char *text;
	size_t n;

	if (dt_tokenizer_file_text(path, &text, &n, &err) < 0 ||
	    dt_tokenizer_from_text(text, n, &t, &err) < 0)
		fail_msg("%s: %s", path, err.msg);
	free(text);
	return t;
}

static void sentencepiece_models(void **state)
{
	static const char *const names[] = {"model-llama", "model-gemma"};
	json_t *g = load("golden-model.json"), *texts = json_object_get(g, "texts");

	assert_true(json_array_size(texts) > 200);
	for (int k = 0; k < 2; k++) {
		char path[PATH_MAX];
		struct dt_tokenizer *t;

		snprintf(path, sizeof(path), "%s/tokenizer/%s.model", GOLDEN_DIR, names[k]);
		t = open_file(path);
		assert_int_equal(dt_tokenizer_bos(t), 1);
		for (size_t i = 0; i < json_array_size(texts); i++) {
			const json_t *text = json_array_get(texts, i);
			const json_t *want = json_array_get(json_object_get(g, names[k]), i);
			struct dt_err err = {0};
			int32_t *ids;
			size_t n;

			if (dt_tokenizer_encode(t, json_string_value(text), json_string_length(text), false,
						&ids, &n, &err) < 0)
				fail_msg("%s: '%s': %s", names[k], json_string_value(text), err.msg);
			for (size_t j = 0; j < n || j < json_array_size(want); j++)
				if (j >= n || j >= json_array_size(want) ||
				    ids[j] != json_integer_value(json_array_get(want, j)))
					fail_msg("%s: '%s': id %zu is %d, not %d (%zu of %zu)", names[k],
						 json_string_value(text), j, j < n ? ids[j] : -1,
						 (int)json_integer_value(json_array_get(want, j)), n,
						 json_array_size(want));
			free(ids);
		}
		dt_tokenizer_close(t);
	}
	json_decref(g);
}

/* What dt_tokenizer_file_text says of these bytes. */
static int read_bytes(const char *bytes, size_t n, struct dt_err *err)
{
	char path[] = "/tmp/dt-pretok-XXXXXX", *text = NULL;
	int fd = mkstemp(path), rc;
	size_t len;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, n), (ssize_t)n);
	close(fd);
	rc = dt_tokenizer_file_text(path, &text, &len, err);
	if (rc == 0)
		free(text);
	unlink(path);
	return rc;
}

#define BYTES(s) s, sizeof(s) - 1

static void models_are_refused_by_what_they_have(void **state)
{
/* a piece "a", then trainer_spec and normalizer_spec */
#define PIECE "\x0a\x03\x0a\x01\x61"
	static const struct {
		const char *s;
		size_t n;
		int code;
		const char *why;
	} bad[] = {
		{BYTES(PIECE), -ENOTSUP, "Unigram"},
		{BYTES(PIECE "\x12\x02\x18\x03"), -ENOTSUP, "Word"},
		{BYTES(PIECE "\x12\x02\x18\x02"), -ENOTSUP, "no byte fallback"},
		{BYTES(PIECE "\x12\x05\x18\x02\x98\x02\x01"), -ENOTSUP, "extra whitespace"},
		{BYTES(PIECE "\x12\x05\x18\x02\x98\x02\x01\x1a\x07\x0a\x02nf\x12\x01x"), -ENOTSUP,
		 "character map: 'nf'"},
		{BYTES(PIECE "\x12\x05\x18\x02\x98\x02\x01\x1a\x04\x20\x00\x28\x00"), -ENOTSUP,
		 "not mark whitespace"},
		{BYTES("\x0a\x05\x0a\x01\x61\x18\x09"), -EBADMSG, "damaged"},
		{BYTES("\x0a\x03\x0a\x05\x61"), -EBADMSG, "damaged"},
		{BYTES("no tokenizer at all"), -EBADMSG, "llama2.c"},
	};

	static const char llmc[1100] = "\xc8\xd7\x34\x01";
	struct dt_err none = {0};

	assert_int_equal(read_bytes(llmc, sizeof(llmc), &none), -ENOTSUP);
	assert_non_null(strstr(none.msg, "no merges"));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct dt_err err = {0};
		int rc = read_bytes(bad[i].s, bad[i].n, &err);

		if (rc != bad[i].code || !strstr(err.msg, bad[i].why))
			fail_msg("case %zu: %d, '%s', expected '%s'", i, rc, err.msg, bad[i].why);
	}
}

/* Cut anywhere and changed anywhere, a model is read or refused. */
static void damaged_models(void **state)
{
	char path[PATH_MAX], *text, *copy;
	size_t n;

	snprintf(path, sizeof(path), "%s/tokenizer/model-llama.model", GOLDEN_DIR);
	assert_int_equal(dt_read_file(path, 1 << 20, &text, &n, NULL), 0);
	copy = malloc(n);
	for (size_t i = 0; i < n; i += 97) {
		struct dt_err err = {0};
		int rc;

		if (i)
			read_bytes(text, i, &err);
		memcpy(copy, text, n);
		copy[i] = (char)(copy[i] ^ 0x5a);
		rc = read_bytes(copy, n, &err);
		if (rc < 0 && rc != -EBADMSG && rc != -ENOTSUP && rc != -EINVAL)
			fail_msg("byte %zu: %d: %s", i, rc, err.msg);
	}
	free(copy);
	free(text);
}

/* A tokenizer of words that this pattern cuts. */
static struct dt_tokenizer *cutting(json_t *base, const char *pattern)
{
	json_object_set_new(base, "pre_tokenizer",
			    json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, {s:s, s:b, s:b, s:b}]}", "type",
				      "Sequence", "pretokenizers", "type", "Split", "pattern", "Regex",
				      pattern, "behavior", "Isolated", "invert", 0, "type", "ByteLevel",
				      "add_prefix_space", 0, "trim_offsets", 0, "use_regex", 0));
	return make(base, pattern);
}

static int add_length(void *ctx, const char *s, size_t n, struct dt_err *err)
{
	json_array_append_new(ctx, json_integer((json_int_t)n));
	return 0;
}

/* Numbers in groups from the right: the words of PCRE2, which reads a pattern in brackets; in linear time. */
static void groups_from_the_right(void **state)
{
	static const char *const patterns[][2] = {
		{"(?=(\\d{3})+(?!\\d))", "(?:(?=(\\d{3})+(?!\\d)))"},
		{"(?=(?:\\d{1})+(?!\\d))", "(?:(?=(?:\\d{1})+(?!\\d)))"},
		{"(?=(?:\\p{N}{2})+(?!\\p{N}))", "(?:(?=(?:\\p{N}{2})+(?!\\p{N})))"},
		{"(?=([^ a]{4})+(?![^ a]))", "(?:(?=([^ a]{4})+(?![^ a])))"},
		{"(?=(\\d{3})+(?!\\p{N}))", "(?:(?=(\\d{3})+(?!\\p{N})))"},
	};
	static const char *const some[] = {"1", "2", "34", "\xd9\xa3", "\xc2\xbd", "a", " ", "567", "89012"};
	enum { LONG = 1000000, RANDOM = 300 };
	struct dt_rng r = dt_rng_make(1, DT_RNG_TEST, 0);
	json_t *base = load("gpt2.json");
	char *text = malloc(LONG);

	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		struct dt_tokenizer *t[2] = {cutting(base, patterns[i][0]), cutting(base, patterns[i][1])};

		for (uint64_t k = 0; k < RANDOM; k++) {
			json_t *words[2] = {json_array(), json_array()};

			text[0] = '\0';
			for (uint64_t n = dt_rng_below(&r, 50 * k, 40), j = 1; j <= n; j++)
				strcat(text, some[dt_rng_below(&r, 50 * k + j, k % 2 ? 9 : 5)]);
			for (int j = 0; j < 2; j++)
				assert_int_equal(
					dt_tok_words(t[j], text, strlen(text), add_length, words[j], NULL),
					0);
			if (!json_equal(words[0], words[1]))
				fail_msg("%s on '%s'", patterns[i][0], text);
			json_decref(words[0]);
			json_decref(words[1]);
		}
		if (i == 0) {
			json_t *words = json_array();

			memset(text, '7', LONG);
			assert_int_equal(dt_tok_words(t[0], text, LONG, add_length, words, NULL), 0);
			assert_int_equal(json_array_size(words), (LONG + 2) / 3);
			assert_int_equal(json_integer_value(json_array_get(words, 0)), 1);
			json_decref(words);
		}
		dt_tokenizer_close(t[0]);
		dt_tokenizer_close(t[1]);
	}
	free(text);
	json_decref(base);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(families_split_as_published),
		cmocka_unit_test(pre_tokenizers_are_refused_by_name),
		cmocka_unit_test(groups_from_the_right),
		cmocka_unit_test(classes_are_those_of_oniguruma),
		cmocka_unit_test(sentencepiece_models),
		cmocka_unit_test(models_are_refused_by_what_they_have),
		cmocka_unit_test(damaged_models),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
