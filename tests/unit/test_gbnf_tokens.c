/*
 * Tokens in GBNF grammars: a token matches as a whole where the grammar names it, by its text elsewhere, and
 * a mask allows exactly the tokens that can be pushed.
 */
#include "grammar/grammar.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* 7 to 9 are special: they have no text of their own; 9 ends an answer. */
static const char *const words[] = {"a", "b", "ab", "<", "think", ">", "/", "", "", "", "<think>x", "ba"};

enum { VOCAB = sizeof(words) / sizeof(*words), THINK = 7, END_THINK, EOS };

static const char *word_of(const void *arg, int32_t id, size_t *ret_n)
{
	*ret_n = strlen(words[id]);
	return words[id];
}

static int32_t find(const void *arg, const char *s, size_t n)
{
	static const char *const special[] = {"<think>", "</think>", "<eos>"};

	for (int i = 0; i < 3; i++)
		if (n == strlen(special[i]) && !memcmp(s, special[i], n))
			return THINK + i;
	return -1;
}

static bool fits(const void *arg, int32_t id)
{
	return id != EOS;
}

static const struct dt_grammar_tokens tokens = {VOCAB, find, fits, NULL};
static struct dt_vocab_order order;

static int setup(void **state)
{
	return dt_vocab_order_init(&order, VOCAB, word_of, NULL);
}

static int teardown(void **state)
{
	dt_vocab_order_release(&order);
	return 0;
}

static struct dt_grammar *grammar_of(const char *text)
{
	struct dt_grammar *g = NULL;
	struct dt_err err;

	if (dt_grammar_gbnf(text, strlen(text), &tokens, &g, &err) < 0)
		fail_msg("%s\n%s", err.msg, text);
	return g;
}

static bool push(struct dt_matcher *m, int32_t id)
{
	return dt_matcher_push_token(m, id, words[id], strlen(words[id]));
}

/* Whether these tokens fit from the start, checked against the mask of each state; *complete: may end. */
static bool accepts(struct dt_grammar *g, const int32_t *id, int n, bool *complete)
{
	struct dt_matcher *m = dt_matcher_new(g);
	bool ok = true;

	for (int i = 0; i < n && ok; i++) {
		uint32_t mask = 0;

		assert_true(dt_matcher_copy_mask(m, &order, &mask));
		for (int32_t t = 0; t < VOCAB; t++) {
			struct dt_matcher *one = dt_matcher_new(g);
			bool good = true;

			for (int k = 0; k < i; k++)
				good = good && push(one, id[k]);
			assert_true(good);
			if (push(one, t) != (mask >> t & 1))
				fail_msg("token %d of place %d: mask %x", t, i, mask);
			dt_matcher_free(one);
		}
		ok = push(m, id[i]);
	}
	*complete = ok && dt_matcher_complete(m);
	dt_matcher_free(m);
	return ok;
}

static void test_match(void **state)
{
	static const struct {
		const char *grammar;
		int n;
		int32_t id[8];
		int want; /* 2: a whole text, 1: its beginning, 0: neither */
	} t[] = {
		{"root ::= <think> !</think>* </think> [ab]+", 6, {THINK, 0, 4, THINK, END_THINK, 2}, 2},
		{"root ::= <think> !</think>* </think> [ab]+", 3, {THINK, END_THINK, END_THINK}, 0},
		{"root ::= <think> !</think>* </think> [ab]+", 2, {THINK, END_THINK}, 1},
		{"root ::= <think> [ab]*", 3, {3, 4, 5}, 0},		/* the text is not the token */
		{"root ::= \"<think>\" [ab]* <think>?", 1, {THINK}, 0}, /* nor the token the text */
		{"root ::= \"<think>\" [ab]* <think>?", 4, {3, 4, 5, 2}, 2},
		{"root ::= <[2]> \"a\"", 2, {2, 0}, 2},	      /* ab as a token */
		{"root ::= <[2]> \"a\"", 2, {0, 1}, 0},	      /* not a, b */
		{"root ::= <[2]> | \"ab\" \"a\"", 1, {2}, 2}, /* both readings go on */
		{"root ::= <[2]> | \"ab\" \"a\"", 2, {2, 0}, 2},
		{"root ::= \"a\" <[1]>", 1, {2}, 0}, /* a token begins where one ends */
		{"root ::= \"a\" <[1]>", 2, {0, 1}, 2},
		{"root ::= !<[0]>{2}", 2, {1, THINK}, 2},
		{"root ::= !<[0]>{2}", 2, {1, 0}, 0},
		{"root ::= !<[0]>{2}", 1, {EOS}, 0}, /* ends an answer */
		{"root ::= (<[0]> | <[1]>)+ \"/\"", 4, {0, 1, 1, 6}, 2},
		{"root ::= !<think>+", 1, {10}, 2}, /* a text that begins like it */
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		struct dt_grammar *g = grammar_of(t[i].grammar);
		bool complete;
		int got = accepts(g, t[i].id, t[i].n, &complete);

		got += complete;
		if (got != t[i].want)
			fail_msg("%zu: %s: %d", i, t[i].grammar, got);
		dt_grammar_drop(g);
	}
}

enum { MANY = 8000 };

static const char *many_word(const void *arg, int32_t id, size_t *ret_n)
{
	static char text[MANY][5];

	for (int i = 0, left = id; i < 4; i++, left /= 20)
		text[id][i] = (char)(id == 0 ? '1' : 'a' + left % 20);
	*ret_n = id == 0 ? 1 : 4;
	return text[id];
}

static bool any(const void *arg, int32_t id)
{
	return true;
}

/* States that agree on texts but not on tokens: the mask of one does not begin with that of the other. */
static void test_unlike_masks(void **state)
{
	static const struct dt_grammar_tokens all = {MANY, find, any, NULL};
	static const char text[] = "root ::= (<[0]> | [a-z]) [a-z]*";
	struct dt_grammar *g = NULL;
	struct dt_matcher *m;
	struct dt_vocab_order o;

	assert_int_equal(dt_vocab_order_init(&o, MANY, many_word, NULL), 0);
	assert_int_equal(dt_grammar_gbnf(text, strlen(text), &all, &g, NULL), 0);
	m = dt_matcher_new(g);
	assert_int_equal(dt_matcher_mask(m, &o)[0], UINT32_MAX);
	assert_true(dt_matcher_push_token(m, 1, "baaa", 4));
	assert_int_equal(dt_matcher_mask(m, &o)[0], UINT32_MAX - 1);
	dt_matcher_free(m);
	dt_grammar_drop(g);
	dt_vocab_order_release(&o);
}

/* A thread that must not wait computes nothing: where a token leads is not remembered. */
static void test_now(void **state)
{
	struct dt_grammar *g = grammar_of("root ::= <think> [ab]+");
	struct dt_matcher *m = dt_matcher_new(g);

	assert_int_equal(dt_matcher_push_now(m, THINK, "", 0), -EAGAIN);
	assert_true(push(m, THINK) && push(m, 0));
	dt_matcher_free(m);
	dt_grammar_drop(g);
}

static void test_refused(void **state)
{
	static const struct {
		const char *text, *msg;
	} t[] = {
		{"root ::= <thinking>", "line 1, column 10: '<thinking>' is not one token of this model"},
		{"root ::= \"a\" <[12]>", "line 1, column 14: '<[12]>' is not one token"},
		{"root ::= <[-1]>", "'<[-1]>' is not one token"},
		{"root ::= <[99999999999999999999]>", "is not one token"},
		{"root ::= <[]>", "'<[]>' is not one token"},
		{"root ::= <[1>", "'<[1>' is not one token"},
		{"root ::= <eos>", "token 9 ends an answer"},
		{"root ::= <think", "line 1, column 10: the token has no closing bracket"},
		{"root ::= !\"a\"", "line 1, column 10: '!' is not followed by a token"},
		{"root ::= !", "'!' is not followed by a token"},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		struct dt_grammar *g = NULL;
		struct dt_err err = {0};

		if (dt_grammar_gbnf(t[i].text, strlen(t[i].text), &tokens, &g, &err) != -EINVAL ||
		    !strstr(err.msg, t[i].msg))
			fail_msg("%s: %s", t[i].text, err.msg);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_match),
		cmocka_unit_test(test_unlike_masks),
		cmocka_unit_test(test_now),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
