/* Masks that matchers of one grammar share, against matchers of a grammar of their own; and kept grammars. */
#include "base/rng.h"
#include "grammar/matcher_priv.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { VOCAB = 9000, LONGEST = 30 };

static char words[VOCAB][LONGEST + 1];

static const char *word_of(const void *arg, int32_t id, size_t *ret_n)
{
	*ret_n = strlen(words[id]);
	return words[id];
}

static const char *next_word_of(const void *arg, int32_t id, size_t *ret_n)
{
	return word_of(arg, id + 1, ret_n);
}

static const char *letter_of(const void *arg, int32_t id, size_t *ret_n)
{
	return id < 'a' ? NULL : word_of(arg, id, ret_n);
}

/* Words of 1 to LONGEST bytes: letters, and now and then what has a meaning in JSON. */
static void make_words(struct dt_vocab_order *o)
{
	static const char *const other[] = {"\"", "\\", "\\n", ",", ":", "{", "}", " ", "\xc3\xa9", "0"};
	const struct dt_rng rng = dt_rng_make(7, DT_RNG_TEST, 0);
	uint64_t k = 0;

	for (int i = 0; i < VOCAB; i++) {
		const size_t n = i < 128 ? 1 : 1 + dt_rng_below(&rng, k++, LONGEST);
		size_t at = 0;

		if (i < 128)
			words[i][at++] = (char)(i ? i : 1);
		while (at < n) {
			const char *s = other[dt_rng_below(&rng, k++, 10)];

			if (dt_rng_below(&rng, k++, 12) > 0)
				words[i][at++] = (char)('a' + dt_rng_below(&rng, k++, 3));
			else if (at + strlen(s) <= n)
				at = (size_t)(stpcpy(words[i] + at, s) - words[i]);
		}
	}
	assert_int_equal(dt_vocab_order_init(o, VOCAB, word_of, NULL), 0);
}

static struct dt_grammar *grammar_of(const char *text)
{
	json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);
	struct dt_grammar *g = NULL;
	struct dt_err err;

	assert_non_null(v);
	if (dt_grammar_schema(v, &g, &err) < 0)
		fail_msg("%s: %s", text, err.msg);
	json_decref(v);
	return g;
}

/* The mask after a text, from a grammar that has seen nothing else. */
static void check_mask(const char *schema, const char *text, const uint32_t *mask,
		       const struct dt_vocab_order *o)
{
	struct dt_grammar *g = grammar_of(schema);
	struct dt_matcher *m = dt_matcher_new(g);
	const uint32_t *want;

	assert_true(dt_matcher_push(m, text, strlen(text)));
	want = dt_matcher_mask(m, o);
	assert_non_null(mask);
	assert_non_null(want);
	for (int i = 0; i < VOCAB; i++)
		if ((mask[i / 32] ^ want[i / 32]) >> i % 32 & 1)
			fail_msg("'%s' after %s", words[i], text);
	dt_matcher_free(m);
	dt_grammar_drop(g);
}

/* A counted string: its masks begin with those of other counts; whatever comes first, all are the same. */
static void test_counted(void **state)
{
	static const char schema[] = "{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"string\","
				     "\"maxLength\":60,\"minLength\":9},\"l\":{\"type\":\"string\"}}}";
	struct dt_grammar *g = grammar_of(schema);
	struct dt_vocab_order o;

	make_words(&o);
	for (int pass = 0; pass < 2; pass++)
		for (int n = 0; n <= 60; n++) {
			struct dt_matcher *m = dt_matcher_new(g);
			char text[80] = "{\"k\":\"";

			memset(text + 6, 'a', (size_t)(n * 37 % 61));
			text[6 + n * 37 % 61] = 0;
			assert_true(dt_matcher_push(m, text, strlen(text)));
			check_mask(schema, text, dt_matcher_mask(m, &o), &o);
			dt_matcher_free(m);
		}
	dt_grammar_drop(g);
	dt_vocab_order_release(&o);
}

/*
 * Behind the two strings, where no token leads, more properties could come next than a state can hold. The
 * strings' states are compared, which must not fail the mask of the second one.
 */
static void test_too_much_ahead(void **state)
{
	struct dt_vocab_order o;
	struct dt_grammar *g;
	struct dt_matcher *m;
	char *schema = NULL;
	size_t n;
	FILE *f = open_memstream(&schema, &n);

	fputs("{\"type\":\"array\",\"maxItems\":3,\"items\":{\"anyOf\":[{\"type\":\"string\"}", f);
	for (int i = 0; i < 300; i++)
		fprintf(f, "%s\"p%d\":{\"const\":1}%s",
			i % 100 ? "," : ",{\"type\":\"object\",\"properties\":{", i,
			i % 100 == 99 ? "}}" : "");
	fputs("]}}", f);
	fclose(f);
	make_words(&o);
	g = grammar_of(schema);
	m = dt_matcher_new(g);
	assert_true(dt_matcher_push(m, "[\"", 2));
	assert_non_null(dt_matcher_mask(m, &o));
	assert_true(dt_matcher_push(m, "a\",\"", 4));
	check_mask(schema, "[\"a\",\"", dt_matcher_mask(m, &o), &o);
	assert_false(dt_matcher_push(m, "\",{", 3)); /* too much is still told where the text leads there */
	assert_null(dt_matcher_mask(m, &o));
	dt_matcher_free(m);
	dt_grammar_drop(g);
	dt_vocab_order_release(&o);
	free(schema);
}

/* The same right behind a closing quote, which no token has: inside the string, that is no error. */
static void test_too_much_behind(void **state)
{
	struct dt_vocab_order o;
	struct dt_grammar *g;
	struct dt_matcher *m;
	char *schema = NULL;
	size_t n;
	FILE *f = open_memstream(&schema, &n);

	fputs("{\"required\":[\"r\"],\"type\":\"object\",\"properties\":{\"r\":{\"type\":\"string\"}", f);
	for (int i = 0; i < 100; i++)
		fprintf(f, ",\"p%d\":{\"const\":1}", i);
	fputs("}}", f);
	fclose(f);
	g = grammar_of(schema);
	m = dt_matcher_new(g);
	make_words(&o);
	dt_vocab_order_release(&o);
	assert_int_equal(dt_vocab_order_init(&o, 'b', letter_of, NULL), 0);
	assert_true(dt_matcher_push(m, "{\"r\":\"", 6));
	assert_non_null(dt_matcher_mask(m, &o));
	assert_int_equal(dt_matcher_mask(m, &o)['a' / 32], 1u << 'a' % 32);
	assert_false(dt_matcher_push(m, "\"", 1));
	dt_matcher_free(m);
	dt_grammar_drop(g);
	dt_vocab_order_release(&o);
	free(schema);
}

/* Another vocabulary gets masks of its own; a grammar may outlive a vocabulary, and still knows its size. */
static void test_vocabularies(void **state)
{
	static const char schema[] = "{\"type\":\"string\"}";
	struct dt_grammar *g = grammar_of(schema);
	struct dt_matcher *m = dt_matcher_new(g);
	struct dt_vocab_order o, few;
	size_t bytes;

	make_words(&o);
	assert_true(dt_matcher_push(m, "\"", 1));
	check_mask(schema, "\"", dt_matcher_mask(m, &o), &o);
	dt_matcher_free(dt_matcher_new(g));
	bytes = dt_grammar_bytes(g);
	dt_vocab_order_release(&o);
	dt_matcher_free(dt_matcher_new(g));
	assert_int_equal(dt_grammar_bytes(g), bytes);
	/* at the same address; word 31 is now the space, which a string may have */
	assert_int_equal(dt_vocab_order_init(&o, 100, next_word_of, NULL), 0);
	assert_int_equal(dt_matcher_mask(m, &o)[0], 1u << 31);
	assert_int_equal(dt_vocab_order_init(&few, 'a' + 1, word_of, NULL), 0);
	assert_true(dt_matcher_mask(m, &few)['a' / 32] >> 'a' % 32 & 1);
	dt_vocab_order_release(&few);
	dt_vocab_order_release(&o);
	dt_matcher_free(m);
	dt_grammar_drop(g);
}

/* One text is so long that states are forgotten; those of the others are not. */
static void test_forgetting(void **state)
{
	static const char schema[] = "{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"string\","
				     "\"maxLength\":60000}},\"required\":[\"k\"]}";
	enum { OTHERS = 50, LONG = 59000 };
	struct dt_grammar *g = grammar_of(schema);
	struct dt_matcher *m = dt_matcher_new(g), *other[OTHERS];
	char *text = malloc(LONG), prefix[OTHERS][80] = {0};
	struct dt_vocab_order o;

	make_words(&o);
	memset(text, 'a', LONG);
	memcpy(text, "{\"k\":\"", 6);
	for (int i = 0; i < OTHERS; i++) {
		memcpy(prefix[i], text, (size_t)i);
		other[i] = dt_matcher_new(g);
		assert_true(dt_matcher_push(other[i], text, (size_t)i));
	}
	assert_true(dt_matcher_push(m, text, LONG));
	for (int i = 0; i < OTHERS; i++) {
		check_mask(schema, prefix[i], dt_matcher_mask(other[i], &o), &o);
		dt_matcher_free(other[i]);
	}
	assert_true(dt_matcher_push(m, text + 6, 60000 - (LONG - 6)));
	assert_false(dt_matcher_push(m, "a", 1));
	assert_true(dt_matcher_push(m, "\"}", 2));
	assert_true(dt_matcher_done(m));
	dt_matcher_free(m);
	dt_grammar_drop(g);
	dt_vocab_order_release(&o);
	free(text);
}

/* The masks used last are still there after states were forgotten, and are right. */
static void test_masks_stay(void **state)
{
	static const char schema[] = "{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"string\","
				     "\"maxLength\":60000}},\"required\":[\"k\"]}";
	enum { USED = 30, LONG = 59000 };
	struct dt_grammar *g = grammar_of(schema);
	struct dt_matcher *m;
	char *text = malloc(LONG);
	struct dt_vocab_order o;

	make_words(&o);
	memset(text, 'a', LONG);
	memcpy(text, "{\"k\":\"", 6);
	for (size_t i = 0; i < USED; i++) {
		m = dt_matcher_new(g);
		assert_true(dt_matcher_push(m, text, i));
		assert_non_null(dt_matcher_mask(m, &o));
		dt_matcher_free(m);
	}
	m = dt_matcher_new(g);
	assert_true(dt_matcher_push(m, text, LONG));
	dt_matcher_free(m);
	assert_true(g->parser->nknown < LONG); /* some were forgotten */
	for (size_t i = 0; i < USED; i++) {
		char prefix[80] = {0};

		memcpy(prefix, text, i);
		m = dt_matcher_new(g);
		assert_true(dt_matcher_push(m, text, i));
		assert_true(g->parser->known[m->now].mask >= 0);
		check_mask(schema, prefix, dt_matcher_mask(m, &o), &o);
		dt_matcher_free(m);
	}
	dt_grammar_drop(g);
	dt_vocab_order_release(&o);
	free(text);
}

/* The mask after a text, against each word read after it. */
static void check_words(struct dt_grammar *g, const char *text, size_t n, const struct dt_vocab_order *o)
{
	static uint32_t mask[(VOCAB + 31) / 32];
	struct dt_matcher *m = dt_matcher_new(g), *one = dt_matcher_new(g);

	assert_true(dt_matcher_push(m, text, n));
	assert_true(dt_matcher_copy_mask(m, o, mask));
	for (int i = 0; i < VOCAB; i++) {
		bool fits;

		dt_matcher_restart(one);
		assert_true(dt_matcher_push(one, text, n));
		fits = dt_matcher_push(one, words[i], strlen(words[i]));
		if (fits != (mask[i / 32] >> i % 32 & 1))
			fail_msg("'%s' after %.*s", words[i], (int)n, text);
	}
	dt_matcher_free(one);
	dt_matcher_free(m);
}

static bool in_string(struct dt_grammar *g, const char *text, size_t n, struct dt_in_string *ret)
{
	struct dt_matcher *m = dt_matcher_new(g);
	bool in;

	assert_true(dt_matcher_push(m, text, n));
	g->parser->failed = false;
	in = dt_state_in_string(g->parser, m->now, ret);
	dt_matcher_free(m);
	return in;
}

/*
 * Inside strings, the masks of all grammars come from one description of the vocabulary: grammars that live at
 * the same time, words with more characters than the string may have, several readings at a time.
 */
static void test_strings(void **state)
{
	static const struct {
		const char *schema, *text;
		size_t in; /* bytes of text after which it is inside a string; 0: that has other readings */
		uint32_t least, most; /* characters that may come there */
	} c[] = {{"{\"type\":\"object\"}", "{\"a\":[\"b\",{\"c\":\"d\\n\\\\\"}]}", 8, 0, DT_GR_ANY},
		 {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":3},"
		  "\"b\":{\"type\":\"string\"}}}",
		  "{\"a\":\"\xc3\xa9\\\"0\",\"b\":\"\"}", 8, 0, 2},
		 {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":30}",
		  "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"", 2, 2, 29},
		 {"{\"type\":\"string\",\"minLength\":27,\"maxLength\":27}", "\"aaaaaaaaaaaaa", 1, 27, 27},
		 {"{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":1}}",
		  "[\"\xc3\xa9\",\"b\"]", 2, 1, DT_GR_ANY},
		 {"{\"type\":\"array\",\"maxItems\":2,\"items\":{\"type\":\"string\",\"maxLength\":2000}}",
		  "[\"aa\",\"\"]", 3, 0, 1999},
		 {"{\"type\":\"string\",\"maxLength\":70000}", "\"aa\"", 0, 0, 0},
		 {"{\"anyOf\":[{\"type\":\"string\",\"maxLength\":3},{\"type\":\"string\",\"minLength\":9}]}",
		  "\"aaaaaaaaaa", 11, 0, DT_GR_ANY},
		 {"{\"anyOf\":[{\"type\":\"string\",\"maxLength\":3},{\"enum\":[\"aaaa\",\"abcabc\"]}]}",
		  "\"ab", 0, 0, 0},
		 {"{\"type\":\"string\",\"pattern\":\"^[a-c ]*$\"}", "\"ab\"", 0, 0, 0}};
	enum { N = sizeof(c) / sizeof(*c) };
	struct dt_grammar *g[N];
	struct dt_vocab_order o;
	struct dt_in_string s;

	make_words(&o);
	for (size_t i = 0; i < N; i++)
		g[i] = grammar_of(c[i].schema);
	for (size_t n = 0, left = N; left > 0; n++)
		for (size_t i = left = 0; i < N; i++)
			if (n <= strlen(c[i].text)) {
				check_words(g[i], c[i].text, n, &o);
				left++;
			}
	for (size_t i = 0; i < N; i++) {
		assert_int_equal(in_string(g[i], c[i].text, c[i].in ? c[i].in : 2, &s), c[i].in > 0);
		if (c[i].in > 0) {
			assert_int_equal(s.least, c[i].least);
			assert_int_equal(s.most, c[i].most);
		}
		assert_false(in_string(g[i], c[i].text, 0, &s));
	}
	for (size_t i = 0; i < N; i++)
		dt_grammar_drop(g[i * 7 % N]);
	dt_vocab_order_release(&o);
}

/* Comes and goes as requests do in threads of their own. */
static void *come_and_go(void *arg)
{
	for (int i = 0; i < 3000; i++) {
		struct dt_matcher *m = dt_matcher_new(arg);

		if (!m)
			return arg;
		dt_matcher_complete(m);
		dt_matcher_free(m);
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct dt_grammar *g = dt_grammar_json();
	struct dt_vocab_order o;
	pthread_t thread[2];
	void *failed;

	make_words(&o);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, come_and_go, g), 0);
	for (int i = 0; i < 200; i++) {
		struct dt_matcher *m = dt_matcher_new(g);

		assert_true(dt_matcher_push(m, "{\"aaaa", 2 + (size_t)i % 5));
		assert_non_null(dt_matcher_mask(m, &o));
		dt_matcher_free(m);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(thread[i], &failed);
		assert_null(failed);
	}
	dt_grammar_drop(g);
	dt_vocab_order_release(&o);
}

static void test_kept(void **state)
{
	struct dt_grammar *g = grammar_of("{\"type\":\"string\",\"maxLength\":500}"), *found;
	struct dt_grammars *c;
	char key[16];

	c = dt_grammars_new(10 * dt_grammar_bytes(g));
	assert_non_null(c);
	assert_null(dt_grammars_find(c, "key"));
	for (int i = 0; i < 100; i++) {
		snprintf(key, sizeof(key), "key %d", i);
		dt_grammars_add(c, key, g);
		found = dt_grammars_find(c, "key 0"); /* in use: stays */
		assert_ptr_equal(found, g);
		dt_grammar_drop(found);
	}
	assert_null(dt_grammars_find(c, "key 50"));
	found = dt_grammars_find(c, "key 99");
	assert_ptr_equal(found, g);
	dt_grammar_drop(found);
	dt_grammars_free(c);
	assert_null(dt_grammars_find(NULL, "key"));
	dt_grammars_add(NULL, "key", g);
	dt_grammars_free(NULL);
	dt_grammar_drop(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_counted),
					   cmocka_unit_test(test_too_much_ahead),
					   cmocka_unit_test(test_too_much_behind),
					   cmocka_unit_test(test_vocabularies),
					   cmocka_unit_test(test_forgetting),
					   cmocka_unit_test(test_masks_stay),
					   cmocka_unit_test(test_strings),
					   cmocka_unit_test(test_threads),
					   cmocka_unit_test(test_kept)};

	return cmocka_run_group_tests_name("masks", tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
