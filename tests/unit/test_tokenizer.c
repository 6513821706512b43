/* The tokenizer against Hugging Face's (golden.json), against itself, and on what it must refuse. */
#include "base/json.h"
#include "base/rng.h"
#include "data/bpe.h"
#include "data/tokenizer.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = {"byte", "gpt2", "llama3", "qwen2", "digits"};

static struct dt_tokenizer *open_named(const char *name)
{
	struct dt_tokenizer *t = NULL;
	struct dt_err err = {0};
	char path[PATH_MAX];
	const char *src = getenv("DT_SRC"), *end = strstr(__FILE__, "tests/unit/");

	if (!strcmp(name, "byte"))
		snprintf(path, sizeof(path), "byte");
	else if (src)
		snprintf(path, sizeof(path), "%s/tests/data/tokenizer/%s.json", src, name);
	else
		snprintf(path, sizeof(path), "%.*stests/data/tokenizer/%s.json", (int)(end - __FILE__),
			 __FILE__, name);
	if (dt_tokenizer_open(path, &t, &err) < 0)
		fail_msg("%s", err.msg);
	return t;
}

static json_t *load_golden(void)
{
	char path[PATH_MAX];
	const char *src = getenv("DT_SRC"), *end = strstr(__FILE__, "tests/unit/");
	struct dt_err err = {0};
	json_t *v;

	if (src)
		snprintf(path, sizeof(path), "%s/tests/data/tokenizer/golden.json", src);
	else
		snprintf(path, sizeof(path), "%.*stests/data/tokenizer/golden.json", (int)(end - __FILE__),
			 __FILE__);
	if (dt_json_load(path, 16 << 20, &v, &err) < 0)
		fail_msg("%s", err.msg);
	return v;
}

static void check_ids(const struct dt_tokenizer *t, const char *name, const json_t *text, const json_t *want,
		      bool special)
{
	const char *s = json_string_value(text);
	size_t n = json_string_length(text), len;
	int32_t *ids;
	struct dt_err err = {0};

	if (dt_tokenizer_encode(t, s, n, special, &ids, &len, &err) < 0)
		fail_msg("%s: '%s': %s", name, s, err.msg);
	if (len != json_array_size(want))
		fail_msg("%s: '%s': %zu ids, not %zu", name, s, len, json_array_size(want));
	for (size_t i = 0; i < len; i++)
		if (ids[i] != json_integer_value(json_array_get(want, i)))
			fail_msg("%s: '%s': id %zu is %d, not %d", name, s, i, ids[i],
				 (int)json_integer_value(json_array_get(want, i)));
	free(ids);
}

static void test_golden(void **state)
{
	json_t *g = load_golden(), *texts = json_object_get(g, "texts");

	assert_true(json_array_size(texts) > 200);
	for (int k = 1; k < 5; k++) {
		struct dt_tokenizer *t = open_named(names[k]);
		json_t *o = json_object_get(json_object_get(g, "tokenizers"), names[k]);

		for (size_t i = 0; i < json_array_size(texts); i++) {
			json_t *text = json_array_get(texts, i);

			check_ids(t, names[k], text, json_array_get(json_object_get(o, "special"), i), true);
			check_ids(t, names[k], text, json_array_get(json_object_get(o, "plain"), i), false);
		}
		dt_tokenizer_close(t);
	}
	json_decref(g);
}

static void check_round_trip(const struct dt_tokenizer *t, const char *s, size_t n, const char *name)
{
	struct dt_err err = {0};
	int32_t *ids;
	size_t len, back_n;
	char *back;

	if (dt_tokenizer_encode(t, s, n, false, &ids, &len, &err) < 0)
		fail_msg("%s: %s", name, err.msg);
	for (size_t i = 0; i < len; i++)
		assert_in_range(ids[i], 0, dt_tokenizer_vocab(t) - 1);
	assert_int_equal(dt_tokenizer_decode(t, ids, len, true, &back, &back_n, &err), 0);
	if (back_n != n || memcmp(back, s, n))
		fail_msg("%s: %zu bytes came back as %zu, or changed", name, n, back_n);
	free(ids);
	free(back);
}

/* gpt2 and llama3 change nothing in a text; every byte must come back, UTF-8 or not. */
static void test_any_bytes_round_trip(void **state)
{
	struct dt_rng r = dt_rng_make(7, DT_RNG_TEST, 0);
	uint64_t at = 0;

	for (int k = 0; k < 3; k++) {
		struct dt_tokenizer *t = open_named(names[k]);

		for (int round = 0; round < 400; round++) {
			char s[600];
			size_t n = dt_rng_below(&r, at++, sizeof(s));

			for (size_t i = 0; i < n; i++) {
				uint64_t kind = dt_rng_below(&r, at++, 4);

				s[i] = (char)(kind == 0	  ? dt_rng_below(&r, at++, 256)
					      : kind == 1 ? ' '
							  : 'a' + dt_rng_below(&r, at++, 4));
			}
			check_round_trip(t, s, n, names[k]);
		}
		dt_tokenizer_close(t);
	}
}

static void test_large_words(void **state)
{
	size_t n = 1 << 20;
	char *s = malloc(n);

	for (int k = 0; k < 3; k++) {
		struct dt_tokenizer *t = open_named(names[k]);

		memset(s, 'a', n);
		check_round_trip(t, s, n, names[k]);
		memset(s, ' ', n);
		check_round_trip(t, s, n, names[k]);
		for (size_t i = 0; i < n; i++)
			s[i] = "\xf0\x9f\xa6\x99"[i % 4];
		check_round_trip(t, s, n, names[k]);
		memset(s, 0xff, n);
		check_round_trip(t, s, n, names[k]);
		dt_tokenizer_close(t);
	}
	free(s);
}

/* The heap and the array must merge alike: random merges, words at the border between them. */
static void test_short_and_long_agree(void **state)
{
	struct dt_rng r = dt_rng_make(11, DT_RNG_TEST, 1);
	uint64_t at = 0;

	for (int round = 0; round < 300; round++) {
		struct dt_bpe b;
		int32_t next = 4;

		assert_int_equal(dt_bpe_init(&b, 40, NULL), 0);
		for (uint32_t rank = 0; rank < 40; rank++) {
			int32_t left = (int32_t)dt_rng_below(&r, at++, (uint64_t)next);
			int32_t right = (int32_t)dt_rng_below(&r, at++, (uint64_t)next);

			dt_bpe_add(&b, left, right, rank, next++);
		}
		for (int word = 0; word < 20; word++) {
			int32_t x[DT_BPE_SHORT], y[DT_BPE_SHORT];
			size_t n = 1 + dt_rng_below(&r, at++, DT_BPE_SHORT), a;
			int64_t c;

			for (size_t i = 0; i < n; i++)
				x[i] = y[i] = (int32_t)dt_rng_below(&r, at++, 4);
			a = dt_bpe_short(&b, x, n);
			c = dt_bpe_long(&b, y, n);
			assert_int_equal(a, c);
			assert_memory_equal(x, y, a * sizeof(*x));
		}
		dt_bpe_release(&b);
	}
}

/* A cache must not change ids: a text encoded whole equals its lines, which are words' borders in gpt2. */
static void test_cached_equals_uncached(void **state)
{
	static const char *const line = "The tokenizer\xe2\x80\x99s cache, 12345 caches; int x = 0;";
	struct dt_tokenizer *t = open_named("gpt2");
	int32_t *one, *many;
	size_t n, m, len = strlen(line);
	char *text = malloc(len * 200);

	for (int i = 0; i < 200; i++)
		memcpy(text + (size_t)i * len, line, len);
	assert_int_equal(dt_tokenizer_encode(t, line, len, false, &one, &n, NULL), 0);
	assert_int_equal(dt_tokenizer_encode(t, text, len * 200, false, &many, &m, NULL), 0);
	/* "T" of each line follows ";", with which it makes no word */
	assert_int_equal(m, 200 * n);
	for (size_t i = 0; i < m; i++)
		assert_int_equal(many[i], one[i % n]);
	free(one);
	free(many);
	free(text);
	dt_tokenizer_close(t);
}

static void test_byte(void **state)
{
	struct dt_tokenizer *t = open_named("byte");
	int32_t *ids;
	size_t n, len;
	const char *text = "a<|endoftext|>", *s;
	char *back;

	assert_int_equal(dt_tokenizer_vocab(t), 257);
	assert_int_equal(dt_tokenizer_eot(t), 256);
	assert_int_equal(dt_tokenizer_bos(t), -1);
	assert_int_equal(dt_tokenizer_encode(t, text, strlen(text), false, &ids, &n, NULL), 0);
	assert_int_equal(n, strlen(text));
	free(ids);
	assert_int_equal(dt_tokenizer_encode(t, text, strlen(text), true, &ids, &n, NULL), 0);
	assert_int_equal(n, 2);
	assert_int_equal(ids[1], 256);
	assert_int_equal(dt_tokenizer_decode(t, ids, n, false, &back, &len, NULL), 0);
	assert_string_equal(back, "a");
	free(back);
	assert_int_equal(dt_tokenizer_decode(t, ids, n, true, &back, &len, NULL), 0);
	assert_string_equal(back, text);
	free(back);
	free(ids);
	assert_null(dt_tokenizer_piece(t, 257, true, &n));
	assert_null(dt_tokenizer_piece(t, -1, true, &n));
	s = dt_tokenizer_piece(t, 0, false, &n);
	assert_int_equal(n, 1);
	assert_int_equal(*s, 0);
	dt_tokenizer_close(t);
}

static void test_special_ids(void **state)
{
	struct dt_tokenizer *t = open_named("llama3");

	assert_int_equal(dt_tokenizer_eot(t), dt_tokenizer_find(t, "<|end_of_text|>", 15));
	assert_int_equal(dt_tokenizer_bos(t), dt_tokenizer_find(t, "<|begin_of_text|>", 17));
	assert_true(dt_tokenizer_bos(t) > 0);
	dt_tokenizer_close(t);
	t = open_named("gpt2");
	assert_int_equal(dt_tokenizer_bos(t), -1);
	assert_int_equal(dt_tokenizer_eot(t), 511);
	dt_tokenizer_close(t);
}

/* The hash follows what determines the ids, not how the file is written. */
static void test_hash(void **state)
{
	struct dt_tokenizer *t = open_named("qwen2"), *u;
	size_t n;
	const char *text = dt_tokenizer_text(t, &n);
	json_t *root = json_loadb(text, n, 0, NULL), *merges;
	char *again = json_dumps(root, JSON_INDENT(3) | JSON_SORT_KEYS);

	assert_int_equal(dt_tokenizer_from_text(again, strlen(again), &u, NULL), 0);
	assert_string_equal(dt_tokenizer_hash(t), dt_tokenizer_hash(u));
	assert_int_equal(strlen(dt_tokenizer_hash(t)), 16);
	dt_tokenizer_close(u);
	free(again);
	merges = json_object_get(json_object_get(root, "model"), "merges");
	json_array_remove(merges, json_array_size(merges) - 1);
	again = json_dumps(root, 0);
	assert_int_equal(dt_tokenizer_from_text(again, strlen(again), &u, NULL), 0);
	assert_string_not_equal(dt_tokenizer_hash(t), dt_tokenizer_hash(u));
	dt_tokenizer_close(u);
	free(again);
	json_decref(root);
	dt_tokenizer_close(t);
}

#define MODEL(extra)                                                                                         \
	"\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]" extra "}"
#define BYTELEVEL "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}"

static void test_refusals(void **state)
{
	static const struct {
		const char *text, *why;
	} bad[] = {
		{"", "tokenizer.json"},
		{"[]", "not a tokenizer.json"},
		{"{}", "model"},
		{"{\"model\":{\"type\":\"WordLevel\"}}", "WordLevel"},
		{"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "Unigram"},
		{"{\"model\":{\"type\":\"Unigram\",\"vocab\":{}}}", "not an array"},
		{"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", "a token and a score"},
		{"{" MODEL("") "}", "ByteLevel"},
		{"{" MODEL(",\"byte_fallback\":true") "," BYTELEVEL "}", "byte_fallback"},
		{"{" MODEL(",\"byte_fallback\":true") "}", "replaces blanks"},
		{"{" MODEL(",\"dropout\":0.1") "," BYTELEVEL "}", "dropout"},
		{"{" MODEL(",\"end_of_word_suffix\":\"</w>\"") "," BYTELEVEL "}", "end_of_word_suffix"},
		{"{" MODEL(",\"unk_token\":\"a\"") "," BYTELEVEL "}", "unk_token"},
		{"{" MODEL("") ",\"pre_tokenizer\":{\"type\":\"Metaspace\"}}", "Metaspace"},
		{"{" MODEL("") "," BYTELEVEL ",\"decoder\":{\"type\":\"WordPiece\"}}", "decoder"},
		{"{" MODEL("") "," BYTELEVEL ",\"normalizer\":{\"type\":\"Lowercase\"}}", "Lowercase"},
		{"{" MODEL("") "," BYTELEVEL ",\"post_processor\":{\"type\":\"BertProcessing\"}}",
		 "exactly one id"},
		{"{" MODEL("") "," BYTELEVEL
			       ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
			       "{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"a\"}}]}}",
		 "exactly one id"},
		{"{" MODEL("") "," BYTELEVEL
			       ",\"added_tokens\":[{\"id\":9,\"content\":\"x\",\"single_word\":true}]}",
		 "single_word"},
		{"{" MODEL("") "," BYTELEVEL ",\"added_tokens\":[{\"id\":1,\"content\":\"x\"}]}",
		 "contradicts"},
		{"{" MODEL("") "," BYTELEVEL ",\"added_tokens\":[{\"id\":99999999,\"content\":\"x\"}]}",
		 "range"},
		{"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}," BYTELEVEL "}",
		 "not in the vocabulary"},
		{"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"ab\"]}," BYTELEVEL "}",
		 "not a pair"},
		{"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}," BYTELEVEL "}",
		 "of another"},
		{"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}," BYTELEVEL "}",
		 "id of token"},
		{"{" MODEL("") ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},"
			       "\"behavior\":\"Isolated\"}}",
		 "parenthesis"},
		{"{" MODEL("") ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&b]\"},"
			       "\"behavior\":\"Isolated\"}}",
		 "&&"},
		{"{" MODEL("") ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},"
			       "\"behavior\":\"MergedWithNext\"}}",
		 "MergedWithNext"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct dt_tokenizer *t = NULL;
		struct dt_err err = {0};
		int rc = dt_tokenizer_from_text(bad[i].text, strlen(bad[i].text), &t, &err);

		if (rc >= 0 || t || !strstr(err.msg, bad[i].why))
			fail_msg("case %zu: result %d, message '%s', expected '%s'", i, rc, err.msg,
				 bad[i].why);
	}
}

static void test_unknown_byte_is_named(void **state)
{
	static const char text[] = "{" MODEL("") "," BYTELEVEL "}";
	struct dt_tokenizer *t;
	struct dt_err err = {0};
	int32_t *ids;
	size_t n;

	assert_int_equal(dt_tokenizer_from_text(text, strlen(text), &t, &err), 0);
	assert_int_equal(dt_tokenizer_encode(t, "abba", 4, false, &ids, &n, &err), 0);
	assert_int_equal(n, 3);
	assert_int_equal(ids[0], 2);
	free(ids);
	assert_int_equal(dt_tokenizer_encode(t, "abcab", 5, false, &ids, &n, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "0x63 ('c')"));
	dt_tokenizer_close(t);
}

struct stop {
	size_t seen, done;
};

static int stop_sink(void *ctx, const int32_t *ids, size_t n, size_t done, struct dt_err *err)
{
	struct stop *s = ctx;

	assert_true(done >= s->done);
	s->done = done;
	s->seen += n;
	return s->seen > 100000 ? dt_err_set(err, -ECANCELED, "enough") : 0;
}

static void test_sink_ends_the_encoding(void **state)
{
	for (int k = 0; k < 2; k++) {
		struct dt_tokenizer *t = open_named(names[k]);
		struct stop s = {0};
		struct dt_err err = {0};
		size_t n = 4 << 20;
		char *text = malloc(n);

		memset(text, '.', n);
		for (size_t i = 0; i < n; i += 3)
			text[i] = ' ';
		assert_int_equal(dt_tokenizer_encode_to(t, text, n, false, stop_sink, &s, &err), -ECANCELED);
		assert_string_equal(err.msg, "enough");
		assert_in_range(s.done, 1, n / 2);
		free(text);
		dt_tokenizer_close(t);
	}
}

struct share {
	const struct dt_tokenizer *t;
	const json_t *texts;
	uint64_t sum;
};

static void *encode_texts(void *ctx)
{
	struct share *s = ctx;

	for (size_t i = 0; i < json_array_size(s->texts); i++) {
		json_t *text = json_array_get(s->texts, i);
		int32_t *ids;
		size_t n;

		if (dt_tokenizer_encode(s->t, json_string_value(text), json_string_length(text), true, &ids,
					&n, NULL) < 0)
			return NULL;
		for (size_t k = 0; k < n; k++)
			s->sum = s->sum * 1000003 + (uint64_t)ids[k];
		free(ids);
	}
	return s;
}

static void test_threads_share_a_tokenizer(void **state)
{
	json_t *g = load_golden();
	struct dt_tokenizer *t = open_named("qwen2");
	struct share s[4];
	pthread_t id[4];
	void *done;

	for (int i = 0; i < 4; i++) {
		s[i] = (struct share){.t = t, .texts = json_object_get(g, "texts")};
		assert_int_equal(pthread_create(&id[i], NULL, encode_texts, &s[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(id[i], &done);
		assert_non_null(done);
		assert_int_equal(s[i].sum, s[0].sum);
	}
	assert_int_not_equal(s[0].sum, 0);
	dt_tokenizer_close(t);
	json_decref(g);
}

/* Parts of random lengths, each encoded by itself, against the whole. */
static void check_parts(const struct dt_tokenizer *t, const char *text, size_t n, uint64_t seed, bool special)
{
	const struct dt_rng r = dt_rng_make(seed, DT_RNG_SAMPLE, 0);
	int32_t *whole, *part;
	size_t want, got, have = 0, parts = 0;

	assert_int_equal(dt_tokenizer_encode(t, text, n, special, &whole, &want, NULL), 0);
	for (size_t at = 0, end; at < n; at = end, parts++) {
		end = dt_tokenizer_cut(text, n, at + 1 + dt_rng_u32(&r, parts) % 100);
		assert_true(end > at && end <= n);
		if (end < n) /* found from behind, too */
			assert_int_equal(dt_tokenizer_last_cut(text + at, end + 2 - at), end - at);
		assert_int_equal(dt_tokenizer_encode(t, text + at, end - at, special, &part, &got, NULL), 0);
		assert_true(have + got <= want);
		if (got)
			assert_memory_equal(whole + have, part, got * sizeof(*part));
		have += got;
		free(part);
	}
	assert_int_equal(have, want);
	assert_true(parts > 1);
	free(whole);
}

static void test_parts_have_the_ids_of_the_whole(void **state)
{
	static const struct {
		const char *name;
		bool cuts[2]; /* without and with special tokens */
	} cases[] = {{"gpt2", {true, true}},	  {"llama3", {true, false}}, /* one absorbs spaces */
		     {"qwen2", {true, true}},	  {"digits", {false, false}},  {"sp-first", {true, true}},
		     {"sp-always", {true, true}}, {"sp-llama", {false, false}}};
	char path[1024], *text;
	size_t n;

	snprintf(path, sizeof(path), "%s/tokenizer/corpus.txt", GOLDEN_DIR);
	assert_int_equal(dt_read_file(path, 1 << 24, &text, &n, NULL), 0);
	n = n < 100000 ? n : 100000;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct dt_tokenizer *t = open_named(cases[i].name);

		for (int special = 0; special < 2; special++) {
			if (dt_tokenizer_may_cut(t, special) != cases[i].cuts[special])
				fail_msg("%s may%s be cut", cases[i].name,
					 cases[i].cuts[special] ? " not" : "");
			if (cases[i].cuts[special])
				check_parts(t, text, n, i, special);
		}
		dt_tokenizer_close(t);
	}
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_any_bytes_round_trip),
		cmocka_unit_test(test_large_words),
		cmocka_unit_test(test_short_and_long_agree),
		cmocka_unit_test(test_cached_equals_uncached),
		cmocka_unit_test(test_byte),
		cmocka_unit_test(test_special_ids),
		cmocka_unit_test(test_hash),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_unknown_byte_is_named),
		cmocka_unit_test(test_sink_ends_the_encoding),
		cmocka_unit_test(test_threads_share_a_tokenizer),
		cmocka_unit_test(test_parts_have_the_ids_of_the_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
