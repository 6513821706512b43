/* Masks inside JSON strings, against the words of a vocabulary read one by one. */
#include "masks_words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *letter_of(const void *arg, int32_t id, size_t *ret_n)
{
	return id < 'a' ? NULL : word_of(arg, id, ret_n);
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
 * Inside strings, the masks of all grammars come from one description of the vocabulary: grammars that live
 * at the same time, words with more characters than the string may have, several readings at a time.
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

/* More could come next behind the closing quote than a state can hold, but no token has a quote. */
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

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_strings),
					   cmocka_unit_test(test_too_much_behind)};

	return cmocka_run_group_tests_name("masks_string", tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
