/* Constrained sampling: texts against grammars, and every text that a random walk over the masks gives. */
#include "base/rng.h"
#include "data/tokenizer.h"
#include "grammar/grammar.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool accepts(struct dt_grammar *g, const char *s, size_t n)
{
	struct dt_matcher *m = dt_matcher_new(g);
	bool ok = dt_matcher_push(m, s, n) && dt_matcher_complete(m);

	dt_matcher_free(m);
	return ok;
}

static void check(struct dt_grammar *g, const char *text, bool want)
{
	if (accepts(g, text, strlen(text)) != want)
		fail_msg("%s is %s", text, want ? "refused" : "accepted");
}

static void test_json(void **state)
{
	static const char *const good[] = {
		"{}", "{ }", "{\"a\":1}",
		"{\"a\": -0.5e+10, \"b\": [true, false, null, []], \"\": {\"x\": \"\"}}",
		"{\n  \"a\": \"\\u00e9\\n\\\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"\n}"};
	static const char *const bad[] = {"",
					  "[]",
					  "{",
					  "{\"a\"}",
					  "{\"a\":1,}",
					  "{\"a\":01}",
					  "{\"a\":.5}",
					  "{\"a\":\"\n\"}",
					  "{\"a\":\"\xc3\"}",
					  "{\"a\":\"\xed\xa0\x80\"}",
					  "{\"a\":\"\\x\"}",
					  "{\"a\":\"\\ud800\"}",
					  "{}x",
					  "{a:1}",
					  "{\"a\":tru}",
					  "{\"a\":[1 2]}"};
	struct dt_grammar *g = dt_grammar_json();

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		check(g, good[i], true);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		check(g, bad[i], false);
	dt_grammar_drop(g);
}

static struct dt_grammar *schema(const char *text, int *ret_rc, struct dt_err *err)
{
	json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);
	struct dt_grammar *g = NULL;

	assert_non_null(v);
	*ret_rc = dt_grammar_schema(v, &g, err);
	json_decref(v);
	return g;
}

static void test_schemas(void **state)
{
	static const struct {
		const char *schema, *text;
		bool good;
	} c[] = {
		{"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
		 "\"string\"}},"
		 "\"required\":[\"a\"]}",
		 "{\"a\": 5}", true},
		{"", "{\"a\":5,\"b\":\"x\"}", true},
		{"", "{\"b\":\"x\"}", false},
		{"", "{\"a\":5,\"c\":1}", false},
		{"", "{\"a\":5.5}", false},
		{"", "{\"b\":\"x\",\"a\":5}", false}, /* in the schema's order */
		{"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},\"c\":{"
		 "\"const\":3}}}",
		 "{}", true},
		{"", "{\"b\":2}", true},
		{"", "{\"a\":1,\"c\":3}", true},
		{"", "{,\"c\":3}", false},
		{"", "{\"a\":1,}", false},
		{"{\"type\":\"array\",\"items\":{\"enum\":[\"red\",\"green\",7]},\"minItems\":1,\"maxItems\":"
		 "2}",
		 "[]", false},
		{"", "[\"red\"]", true},
		{"", "[\"red\", 7]", true},
		{"", "[7,7,7]", false},
		{"", "[\"blue\"]", false},
		{"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"a\"", false},
		{"", "\"\xe2\x82\xac\xe2\x82\xac\"", true},
		{"", "\"abcd\"", false},
		{"{\"type\":[\"boolean\",\"null\"]}", "null", true},
		{"", "true", true},
		{"", "0", false},
		{"{\"anyOf\":[{\"type\":\"number\"},{\"type\":\"object\",\"additionalProperties\":false}]}",
		 "-1.5", true},
		{"", "{}", true},
		{"", "{\"a\":1}", false},
		{"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"boolean\"}}",
		 "{\"k\":true,\"l\":false}", true},
		{"", "{\"k\":1}", false},
		{"{\"$ref\":\"#/$defs/"
		 "n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},"
		 "\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/"
		 "n\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"]}}}",
		 "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}", true},
		{"", "{\"v\":1,\"next\":{\"v\":2}}", false},
		{"{\"type\":\"number\",\"minimum\":-2,\"maximum\":10}", "-2.0", true},
		{"", "-1.99", true},
		{"", "-0.5", true},
		{"", "9.75", true},
		{"", "10", true},
		{"", "10.5", false},
		{"", "-2.5", false},
		{"", "1e9", false},
		{"{\"minimum\":0}", "-1", false},
		{"", "123456.5", true},
		{"{\"type\":\"string\",\"pattern\":\"^(?:ab|[c-e\\\\]]+?)\\\\d{2,3}[^x-z]?$\"}", "\"ab12\"",
		 true},
		{"", "\"cde]123q\"", true},
		{"", "\"ab12\\\"\"", true},
		{"", "\"ab12\xc3\xa9\"", true},
		{"", "\"ab12x\"", false},
		{"", "\"ab1\"", false},
		{"", "\"12\"", false},
		{"{\"pattern\":\"b.d\"}", "\"abcde\"", true},
		{"", "\"bd\"", false},
		{"{\"type\":\"string\",\"format\":\"date\"}", "\"2024-11-30\"", true},
		{"", "\"2024-11-31\"", false},
		{"", "\"2024-13-01\"", false},
		{"{\"type\":\"string\",\"format\":\"date-time\"}", "\"2024-01-31T23:59:00.5+01:00\"", true},
		{"", "\"2024-01-31 23:59:00Z\"", false},
		{"{\"type\":\"string\",\"format\":\"ipv4\"}", "\"192.168.0.255\"", true},
		{"", "\"192.168.0.256\"", false},
		{"{\"type\":\"string\",\"format\":\"email\"}", "\"a.b@c-d.org\"", true},
		{"", "\"a.b@c\"", false},
	};
	struct dt_grammar *g = NULL;
	struct dt_err err;
	int rc;

	for (size_t i = 0; i < sizeof(c) / sizeof(*c); i++) {
		if (c[i].schema[0]) {
			dt_grammar_drop(g);
			g = schema(c[i].schema, &rc, &err);
			if (rc < 0)
				fail_msg("%s: %s", c[i].schema, err.msg);
		}
		check(g, c[i].text, c[i].good);
	}
	dt_grammar_drop(g);
}

/* Every integer around the bounds, for bounds of all lengths and signs. */
static void test_bounds_of_integers(void **state)
{
	static const int bounds[] = {-1000, -123, -100, -99, -10, -9,  -1,  0,
				     1,	    7,	  10,	19,  99,  100, 205, 1000};
	enum { N = sizeof(bounds) / sizeof(*bounds) };
	struct dt_err err;
	char text[128];
	int rc;

	for (int i = 0; i < N; i++)
		for (int j = i; j < N; j++) {
			struct dt_grammar *g;

			snprintf(text, sizeof(text),
				 "{\"type\":\"integer\",\"minimum\":%d,\"exclusiveMaximum\":%d}", bounds[i],
				 bounds[j] + 1);
			g = schema(text, &rc, &err);
			if (rc < 0)
				fail_msg("%s: %s", text, err.msg);
			for (int k = -1300; k <= 1300; k++) {
				snprintf(text, sizeof(text), "%d", k);
				if (accepts(g, text, strlen(text)) != (k >= bounds[i] && k <= bounds[j]))
					fail_msg("%d within %d and %d", k, bounds[i], bounds[j]);
			}
			check(g, "01", false);
			check(g, "", false);
			dt_grammar_drop(g);
		}
}

static void test_refused_schemas(void **state)
{
	static const struct {
		const char *schema, *says;
	} c[] = {{"{\"type\":\"string\",\"pattern\":\"(?=a)b\"}", "look"},
		 {"{\"type\":\"string\",\"pattern\":\"(a)\\\\1\"}", "the escape \\1"},
		 {"{\"type\":\"string\",\"pattern\":\"(a\"}", "a parenthesis is not closed"},
		 {"{\"type\":\"string\",\"pattern\":\"[a\"}", "a [ is not closed"},
		 {"{\"type\":\"string\",\"pattern\":\"a)\"}", "a parenthesis is closed"},
		 {"{\"type\":\"string\",\"pattern\":\"(?P<n>a)\"}", "begins with (?"},
		 {"{\"type\":\"string\",\"pattern\":\"\\\\bc\"}", "the escape \\b"},
		 {"{\"type\":\"string\",\"pattern\":\"a\\\\\"}", "ends with a backslash"},
		 {"{\"type\":\"string\",\"pattern\":\"a{1, 2}\"}", "braces"},
		 {"{\"type\":\"string\",\"pattern\":\"a{ 1}\"}", "braces"},
		 {"{\"type\":\"string\",\"pattern\":\"a{3,2}\"}", "braces"},
		 {"{\"type\":\"string\",\"pattern\":\"a(b|^c)\"}", "^"},
		 {"{\"type\":\"string\",\"pattern\":5}", "'pattern' is not text"},
		 {"{\"type\":\"string\",\"format\":\"iri\"}", "iri"},
		 {"{\"type\":\"integer\",\"multipleOf\":0}", "multipleOf"},
		 {"{\"type\":\"integer\",\"minimum\":3,\"exclusiveMaximum\":3}", "no value"},
		 {"{\"type\":\"strange\"}", "strange"},
		 {"{\"$ref\":\"#/nowhere\"}", "nowhere"},
		 {"{\"$ref\":\"http://example.org/s\"}", "example.org"},
		 {"{\"$ref\":\"#\"}", "without end"},
		 {"{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}", "without end"},
		 {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
		  "no value"},
		 {"{\"enum\":[]}", "enum"},
		 {"{\"type\":\"array\",\"minItems\":3,\"maxItems\":2}", "no value"},
		 {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "oneOf"},
		 {"{\"type\":\"array\",\"uniqueItems\":true}", "uniqueItems"},
		 {"{\"type\":\"object\",\"minProperties\":2}", "minProperties"},
		 {"{\"type\":\"object\",\"properties\":{\"a\":false},\"required\":[\"a\"]}", "no value"},
		 {"5", "object"}};
	struct dt_err err;
	int rc;

	for (size_t i = 0; i < sizeof(c) / sizeof(*c); i++) {
		struct dt_grammar *g = schema(c[i].schema, &rc, &err);

		if (rc >= 0 || g)
			fail_msg("accepted: %s", c[i].schema);
		if (!strstr(err.msg, c[i].says))
			fail_msg("'%s' does not say '%s'", err.msg, c[i].says);
	}
}

static const char *token_bytes(const void *tok, int32_t id, size_t *ret_n)
{
	return dt_tokenizer_piece(tok, id, false, ret_n);
}

/* A token is in the mask exactly when it can be pushed; and what a walk ends with is JSON. */
static void walk(struct dt_grammar *g, const struct dt_tokenizer *tok, uint64_t seed, bool whole)
{
	struct dt_rng rng = dt_rng_make(seed, DT_RNG_TEST, 0);
	int vocab = dt_tokenizer_vocab(tok);
	struct dt_matcher *m = dt_matcher_new(g);
	struct dt_vocab_order o;
	char text[4096];
	size_t n = 0;
	uint64_t k = 0;

	assert_int_equal(dt_vocab_order_init(&o, vocab, token_bytes, tok), 0);
	for (int step = 0; step < 60 && !dt_matcher_done(m) && n < sizeof(text) - 200; step++) {
		const uint32_t *mask = dt_matcher_mask(m, &o);
		int id = -1, seen = 0;
		const char *s;
		size_t len;

		assert_non_null(mask);
		for (int i = 0; i < vocab; i++) {
			bool in = mask[i / 32] >> i % 32 & 1;

			s = dt_tokenizer_piece(tok, i, false, &len);
			if (step % 7 == 0 && s && len) {
				struct dt_matcher *probe = dt_matcher_new(g);

				assert_true(dt_matcher_push(probe, text, n));
				if (dt_matcher_push(probe, s, len) != in)
					fail_msg("token %d ('%.*s') after '%.*s': mask %d", i, (int)len, s,
						 (int)n, text, in);
				dt_matcher_free(probe);
			}
			if (in && dt_rng_below(&rng, k++, (uint64_t)++seen) == 0)
				id = i;
		}
		assert_true(id >= 0);
		s = dt_tokenizer_piece(tok, id, false, &len);
		memcpy(text + n, s, len);
		n += len;
		assert_true(dt_matcher_push(m, s, len));
	}
	if (whole)
		assert_true(dt_matcher_done(m));
	if (dt_matcher_done(m)) {
		json_t *v = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);

		if (!v)
			fail_msg("not JSON: %.*s", (int)n, text);
		json_decref(v);
	}
	dt_vocab_order_release(&o);
	dt_matcher_free(m);
}

static void test_masks(void **state)
{
	struct dt_grammar *g = dt_grammar_json();
	struct dt_tokenizer *tok;
	struct dt_err err;
	int rc;

	assert_int_equal(dt_tokenizer_open(GOLDEN_DIR "/tokenizer/llama3.json", &tok, &err), 0);
	for (uint64_t seed = 0; seed < 10; seed++)
		walk(g, tok, seed, false);
	dt_grammar_drop(g);
	g = schema("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":5},\"b\":{"
		   "\"type\":"
		   "\"array\",\"items\":{\"type\":\"boolean\"},\"maxItems\":3},\"c\":{\"type\":\"integer\"}},"
		   "\"required\":[\"a\",\"b\",\"c\"]}",
		   &rc, &err);
	assert_int_equal(rc, 0);
	for (uint64_t seed = 0; seed < 10; seed++)
		walk(g, tok, seed, false);
	dt_grammar_drop(g);
	g = schema("{\"enum\":[\"one\",\"two\",{\"a\":[1,2]}]}", &rc, &err);
	for (uint64_t seed = 0; seed < 5; seed++)
		walk(g, tok, seed, true);
	dt_grammar_drop(g);
	dt_tokenizer_close(tok);
}

/* A deep text keeps a stack, a long one does not grow it: neither is a problem. */
static void test_large_texts(void **state)
{
	struct dt_grammar *g = dt_grammar_json();
	struct dt_matcher *m = dt_matcher_new(g);

	assert_true(dt_matcher_push(m, "{\"a\":", 5));
	for (int i = 0; i < 5000; i++)
		assert_true(dt_matcher_push(m, "[", 1));
	for (int i = 0; i < 5000; i++)
		assert_true(dt_matcher_push(m, "]", 1));
	for (int i = 0; i < 50000; i++)
		assert_true(dt_matcher_push(m, ",\"b\":[1,2]", 10));
	assert_false(dt_matcher_push(m, "]", 1));
	assert_true(dt_matcher_push(m, "}", 1));
	assert_true(dt_matcher_done(m));
	dt_matcher_free(m);
	dt_grammar_drop(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_schemas),
		cmocka_unit_test(test_bounds_of_integers),
		cmocka_unit_test(test_refused_schemas),
		cmocka_unit_test(test_masks),
		cmocka_unit_test(test_large_texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
