/* Masks that matchers of one grammar share, against matchers of a grammar of their own; and kept grammars. */
#include "masks_words.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *next_word_of(const void *arg, int32_t id, size_t *ret_n)
{
	return word_of(arg, id + 1, ret_n);
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
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counted),	     cmocka_unit_test(test_too_much_ahead),

		cmocka_unit_test(test_vocabularies), cmocka_unit_test(test_forgetting),
		cmocka_unit_test(test_masks_stay),   cmocka_unit_test(test_threads),
		cmocka_unit_test(test_kept)};

	return cmocka_run_group_tests_name("masks", tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
