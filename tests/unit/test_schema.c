/*
 * JSON Schema by constrained sampling: every keyword of draft 2020-12 is enforced or refused by name; texts
 * that the PyPI package jsonschema has judged; numbers against arithmetic; schemas that mean harm.
 */
#include "base/rng.h"
#include "grammar/automaton.h"
#include "grammar/grammar.h"
#include "small_stack.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static bool accepts(struct dt_grammar *g, const char *s)
{
	struct dt_matcher *m = dt_matcher_new(g);
	bool ok = dt_matcher_push(m, s, strlen(s)) && dt_matcher_complete(m);

	dt_matcher_free(m);
	return ok;
}

static int compile(const char *text, struct dt_grammar **ret, struct dt_err *err)
{
	json_error_t e;
	json_t *v = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
	int rc;

	if (!v)
		fail_msg("%s: %s", text, e.text);
	rc = dt_grammar_schema(v, ret, err);
	json_decref(v);
	return rc;
}

/*
 * All keywords of the vocabularies of draft 2020-12: core, applicator, unevaluated, validation, meta-data,
 * format, content. A schema in which it matters, with a text that is then right and one that is wrong; wrong
 * NULL: the keyword only describes, or its meaning is that of others; both NULL: it is refused by its name.
 */
static const struct {
	const char *keyword, *schema, *right, *wrong;
} all[] = {
	{"$schema", "{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"type\":\"null\"}",
	 "null", NULL},
	{"$vocabulary", "{\"$vocabulary\":{\"a\":true},\"type\":\"null\"}", "null", NULL},
	{"$id", "{\"$id\":\"https://example.org/a\",\"type\":\"null\"}", "null", NULL},
	{"$id", "{\"items\":{\"$id\":\"https://example.org/a\"}}", NULL, NULL}, /* it moves $ref */
	{"$anchor", "{\"$anchor\":\"a\",\"type\":\"null\"}", "null", NULL},
	{"$dynamicAnchor", "{\"$dynamicAnchor\":\"a\",\"type\":\"null\"}", "null", NULL},
	{"$ref", "{\"items\":{\"$ref\":\"#/$defs/a~1b%25\"},\"$defs\":{\"a/b%\":{\"type\":\"null\"}}}",
	 "[null]", "[1]"},
	{"$dynamicRef", "{\"$dynamicRef\":\"#a\"}", NULL, NULL},
	{"$defs", "{\"$defs\":{\"a\":{\"type\":\"null\"}},\"type\":\"null\"}", "null", NULL},
	{"$comment", "{\"$comment\":\"a\",\"type\":\"null\"}", "null", NULL},
	{"prefixItems", "{\"prefixItems\":[{\"type\":\"null\"},{\"const\":2}],\"items\":{\"const\":3}}",
	 "[null,2,3,3]", "[2,null]"},
	{"prefixItems", "{\"prefixItems\":[{\"const\":1}],\"items\":false}", "[1]", "[1,1]"},
	{"items", "{\"items\":{\"type\":\"null\"}}", "[null]", "[1]"},
	{"contains", "{\"contains\":{\"type\":\"null\"}}", NULL, NULL},
	{"additionalProperties", "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"null\"}}",
	 "{\"a\":null}", "{\"a\":1}"},
	{"additionalProperties",
	 "{\"properties\":{\"a\":{\"const\":1}},\"additionalProperties\":{\"type\":\"null\"}}",
	 "{\"a\":1,\"b\":null}", "{\"a\":1,\"a\":null}"},
	{"additionalProperties", "{\"properties\":{\"a\":{\"const\":1}},\"additionalProperties\":false}",
	 "{\"a\":1}", "{\"b\":1}"},
	{"properties", "{\"properties\":{\"a\":{\"type\":\"null\"}}}", "{\"a\":null}", "{\"a\":1}"},
	{"patternProperties", "{\"patternProperties\":{\"^a\":{\"const\":1},\"b$\":{\"type\":\"number\"}}}",
	 "{\"ab\":1,\"bb\":2}", "{\"ab\":2}"},
	{"patternProperties",
	 "{\"properties\":{\"ax\":{\"type\":\"number\"}},\"patternProperties\":{\"^a\":{\"minimum\":5}},"
	 "\"additionalProperties\":false}",
	 "{\"ax\":5,\"ay\":6}", "{\"ax\":4}"},
	{"dependentSchemas",
	 "{\"properties\":{\"a\":{},\"b\":{}},\"dependentSchemas\":{\"a\":{\"properties\":{\"b\":{\"const\":"
	 "1}}}}}",
	 "{\"a\":0,\"b\":1}", "{\"a\":0,\"b\":2}"},
	{"propertyNames", "{\"type\":\"object\",\"propertyNames\":{\"maxLength\":2}}", "{\"ab\":0}",
	 "{\"abc\":0}"},
	{"propertyNames", "{\"propertyNames\":{\"anyOf\":[{\"const\":\"x\"},{\"pattern\":\"^y+$\"}]}}",
	 "{\"x\":0,\"yyy\":1}", "{\"z\":0}"},
	{"if", "{\"if\":{\"const\":1},\"then\":true}", NULL, NULL},
	{"then", "{\"then\":{\"const\":1}}", NULL, NULL},
	{"else", "{\"else\":{\"const\":1}}", NULL, NULL},
	{"allOf",
	 "{\"allOf\":[{\"properties\":{\"a\":{\"minimum\":2}}},{\"properties\":{\"a\":{\"maximum\":4},\"b\":{"
	 "\"const\":1}"
	 "},\"required\":[\"b\"]}],\"type\":\"object\"}",
	 "{\"a\":3,\"b\":1}", "{\"a\":5,\"b\":1}"},
	{"allOf",
	 "{\"type\":\"string\",\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"},{\"maxLength\":3}]}",
	 "\"bxa\"", "\"bxxa\""},
	{"anyOf", "{\"type\":\"integer\",\"anyOf\":[{\"maximum\":2},{\"minimum\":7}]}", "8", "5"},
	{"anyOf", "{\"anyOf\":[{\"type\":\"null\"},{\"const\":2}]}", "2", "3"},
	{"oneOf",
	 "{\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"a\"},\"v\":{\"type\":\"null\"}},\"required\":["
	 "\"k\",\"v\"]},{"
	 "\"properties\":{\"k\":{\"const\":\"ab\"},\"v\":{\"type\":\"number\"}},\"required\":[\"k\",\"v\"]}]"
	 "}",
	 "{\"k\":\"ab\",\"v\":1}", "{\"k\":\"a\",\"v\":1}"},
	{"oneOf",
	 "{\"oneOf\":[{\"type\":\"string\",\"pattern\":\"^a\"},{\"type\":\"string\",\"pattern\":\"b$\"}]}",
	 "\"axx\"", "\"axb\""},
	{"oneOf", "{\"enum\":[2,3,6,7],\"oneOf\":[{\"multipleOf\":2},{\"multipleOf\":3}]}", "3", "6"},
	{"not", "{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"b\"]}}", "\"c\"", "\"a\""},
	{"not", "{\"type\":\"integer\",\"not\":{\"type\":\"string\"}}", "5", "\"5\""},
	{"not", "{\"type\":\"integer\",\"not\":{\"multipleOf\":2}}", NULL, NULL},
	{"unevaluatedItems", "{\"unevaluatedItems\":false}", NULL, NULL},
	{"unevaluatedProperties", "{\"unevaluatedProperties\":false}", NULL, NULL},
	{"type", "{\"type\":[\"null\",\"integer\"]}", "7", "7.5"},
	{"enum", "{\"enum\":[\"a\",\"ab\",{\"x\":[0.1,null]},0.1]}", "{\"x\":[0.1,null]}", "\"b\""},
	{"const", "{\"const\":{\"a\":[1,2,\"\\u00e9\\\"\"]}}", "{\"a\":[1,2,\"\xc3\xa9\\\"\"]}",
	 "{\"a\":[1,2]}"},
	{"const", "{\"const\":null}", "null", "1"},
	{"multipleOf", "{\"type\":\"integer\",\"multipleOf\":7}", "-14", "15"},
	{"multipleOf", "{\"multipleOf\":0.25}", "-1.75", "1.7"},
	{"maximum", "{\"maximum\":2.5}", "2.49", "2.51"},
	{"exclusiveMaximum", "{\"exclusiveMaximum\":2.5}", "2.49", "2.5"},
	{"minimum", "{\"minimum\":0.125}", "0.125", "0.124"},
	{"minimum", "{\"minimum\":-9223372036854775808,\"maximum\":9223372036854775807,\"type\":\"integer\"}",
	 "9223372036854775807", "9223372036854775808"},
	{"exclusiveMinimum", "{\"exclusiveMinimum\":0}", "0.001", "0"},
	{"maxLength", "{\"type\":\"string\",\"maxLength\":3,\"pattern\":\"^a+b?$\"}", "\"aab\"", "\"aaab\""},
	{"minLength", "{\"minLength\":3}", "\"abc\"", "\"ab\""},
	{"pattern", "{\"pattern\":\"^a|b$\"}", "\"xb\"", "\"xbx\""},
	{"maxItems", "{\"maxItems\":1}", "[1]", "[1,2]"},
	{"minItems", "{\"minItems\":2,\"prefixItems\":[true]}", "[1,2]", "[1]"},
	{"uniqueItems", "{\"items\":{\"enum\":[1,2,\"a\"]},\"uniqueItems\":true,\"minItems\":2}", "[\"a\",1]",
	 "[1,1]"},
	{"maxContains", "{\"maxContains\":1}", NULL, NULL},
	{"minContains", "{\"minContains\":1}", NULL, NULL},
	{"maxProperties", "{\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"maxProperties\":2}",
	 "{\"a\":1,\"c\":1}", "{\"a\":1,\"b\":1,\"c\":1}"},
	{"minProperties", "{\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"minProperties\":2}",
	 "{\"a\":1,\"c\":1}", "{\"c\":1}"},
	{"minProperties", "{\"properties\":{\"a\":{}},\"minProperties\":2}", "{\"a\":1,\"b\":1}",
	 "{\"a\":1}"},
	{"minProperties",
	 "{\"properties\":{\"a\":{},\"b\":{}},\"minProperties\":2,\"additionalProperties\":true}",
	 "{\"b\":1,\"c\":1,\"d\":1}", "{\"b\":1}"},
	{"minProperties",
	 "{\"properties\":{\"a\":{},\"b\":{}},\"minProperties\":2,\"additionalProperties\":{}}",
	 "{\"a\":1,\"b\":1}", "{\"a\":1,\"a\":1}"},
	{"minProperties", "{\"properties\":{\"a\":{},\"b\":{}},\"minProperties\":3,\"maxProperties\":3}",
	 "{\"a\":1,\"b\":1,\"c\":1}", "{\"a\":1,\"c\":1,\"d\":1}"},
	{"minProperties", "{\"properties\":{\"a\":{},\"b\":{}},\"minProperties\":3,\"maxProperties\":3}",
	 "{\"a\":1,\"b\":1,\"c\":1}", "{\"a\":1,\"b\":1,\"c\":1,\"d\":1}"},
	{"minProperties", "{\"required\":[\"a\"],\"minProperties\":3}", NULL, NULL},
	{"no value", "{\"properties\":{\"a\":{}},\"minProperties\":2,\"additionalProperties\":false}", NULL,
	 NULL},
	{"required", "{\"required\":[\"a\"]}", "{\"a\":1}", "{}"},
	{"dependentRequired", "{\"properties\":{\"a\":{},\"b\":{}},\"dependentRequired\":{\"b\":[\"a\"]}}",
	 "{\"a\":1,\"b\":1}", "{\"b\":1}"},
	{"title", "{\"title\":\"a\",\"type\":\"null\"}", "null", NULL},
	{"description", "{\"description\":\"a\",\"type\":\"null\"}", "null", NULL},
	{"default", "{\"default\":1,\"type\":\"null\"}", "null", NULL},
	{"deprecated", "{\"deprecated\":true,\"type\":\"null\"}", "null", NULL},
	{"readOnly", "{\"readOnly\":true,\"type\":\"null\"}", "null", NULL},
	{"writeOnly", "{\"writeOnly\":true,\"type\":\"null\"}", "null", NULL},
	{"examples", "{\"examples\":[1],\"type\":\"null\"}", "null", NULL},
	{"format", "{\"format\":\"date\"}", "\"2024-11-30\"", "\"2024-11-31\""},
	{"format", "{\"format\":\"time\"}", "\"23:59:00Z\"", "\"24:00:00Z\""},
	{"format", "{\"format\":\"date-time\"}", "\"2024-11-30T01:02:03.5+01:00\"",
	 "\"2024-11-30 01:02:03Z\""},
	{"format", "{\"format\":\"duration\"}", "\"P1Y2M3DT4H\"", "\"P1D2Y\""},
	{"format", "{\"format\":\"uuid\"}", "\"123e4567-e89b-12d3-a456-426614174000\"",
	 "\"123e4567-e89b-12d3-a456-42661417400\""},
	{"format", "{\"format\":\"ipv4\"}", "\"10.0.0.255\"", "\"10.0.0.256\""},
	{"format", "{\"format\":\"ipv6\"}", "\"fe80::1:10.0.0.1\"", "\"fe80::1::2\""},
	{"format", "{\"format\":\"hostname\"}", "\"a-b.org\"", "\"-a.org\""},
	{"format", "{\"format\":\"email\",\"maxLength\":6}", "\"a@b.cd\"", "\"aa@b.cd\""},
	{"format", "{\"format\":\"uri\"}", "\"https://a.org:80/b/%20c?d=e#f\"", "\"a b\""},
	{"format", "{\"format\":\"uri-reference\"}", "\"/b?c\"", "\"a b\""},
	{"format", "{\"format\":\"uri-reference\"}", "\"a/b:c\"", "\"1a:b\""},
	{"format", "{\"format\":\"uri-reference\"}", "\"/1:b\"", "\"a_b:c/d\""},
	{"format", "{\"format\":\"uri-reference\"}", "\"mailto:a@b\"", "\":b\""},
	{"format", "{\"format\":\"json-pointer\"}", "\"/a/~0b\"", "\"/a~2\""},
	{"format", "{\"format\":\"regex\"}", NULL, NULL},
	{"contentEncoding", "{\"contentEncoding\":\"base64\",\"type\":\"null\"}", "null", NULL},
	{"contentMediaType", "{\"contentMediaType\":\"a/b\",\"type\":\"null\"}", "null", NULL},
	{"contentSchema", "{\"contentSchema\":{},\"type\":\"null\"}", "null", NULL},
	{"x-unknown", "{\"x-unknown\":1}", NULL, NULL}, /* and whatever is no keyword */
	{"nullable", "{\"nullable\":true}", NULL, NULL},
	{"'pattern' contains a NUL", "{\"pattern\":\"^a\\u0000b$\"}", NULL, NULL}, /* not cut off there */
	{"'format' contains a NUL", "{\"format\":\"date\\u0000\"}", NULL, NULL},
	{"'type' contains a NUL", "{\"type\":[\"string\\u0000\"]}", NULL, NULL},
	{"'required' contains a NUL", "{\"required\":[\"a\\u0000\"]}", NULL, NULL},
	{"'$ref' contains a NUL", "{\"$ref\":\"#\\u0000\"}", NULL, NULL},
	{"with a NUL character", "{\"enum\":[\"a\\u0000b\"],\"pattern\":\"^a$\"}", NULL, NULL},
	{"title", "{\"title\":\"a\\u0000\",\"enum\":[\"a\\u0000b\"]}", "\"a\\u0000b\"", "\"a\""},
};

static void test_every_keyword(void **state)
{
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		struct dt_grammar *g = NULL;
		struct dt_err err;
		int rc = compile(all[i].schema, &g, &err);

		if (!all[i].right) {
			if (rc >= 0 || !strstr(err.msg, all[i].keyword))
				fail_msg("%s: %s", all[i].schema, rc < 0 ? err.msg : "not refused");
			continue;
		}
		if (rc < 0)
			fail_msg("%s: %s", all[i].schema, err.msg);
		if (!accepts(g, all[i].right))
			fail_msg("%s: refuses %s", all[i].schema, all[i].right);
		if (all[i].wrong && accepts(g, all[i].wrong))
			fail_msg("%s: accepts %s", all[i].schema, all[i].wrong);
		dt_grammar_drop(g);
	}
}

/*
 * Schemas and texts with the verdict of jsonschema: what is wrong is refused, what we generated is accepted.
 */
static void test_golden(void **state)
{
	json_error_t e;
	json_t *file = json_load_file(GOLDEN_DIR "/golden-schemas.json", 0, &e), *c, *t;
	size_t i, j, wrong = 0, ours = 0;

	if (!file)
		fail_msg("%s", e.text);
	json_array_foreach(file, i, c)
	{
		char *text = json_dumps(json_object_get(c, "schema"), JSON_ENCODE_ANY);
		struct dt_grammar *g = NULL;
		struct dt_err err;

		if (compile(text, &g, &err) < 0)
			fail_msg("%s: %s", text, err.msg);
		json_array_foreach(json_object_get(c, "wrong"), j, t)
		{
			if (accepts(g, json_string_value(t)))
				fail_msg("%s: accepts %s", text, json_string_value(t));
			wrong++;
		}
		json_array_foreach(json_object_get(c, "right"), j, t)
		{
			if (!accepts(g, json_string_value(t)))
				fail_msg("%s: refuses %s", text, json_string_value(t));
			ours++;
		}
		dt_grammar_drop(g);
		free(text);
	}
	assert_true(wrong > 100 && ours > 100);
	json_decref(file);
}

/* Bounds and steps in thousandths, every decimal around them. */
static void test_numbers(void **state)
{
	static const int bound[] = {-12340, -10000, -1001, -500, -1, 0, 1, 250, 999, 1000, 1500, 10000};
	static const int step[] = {0, 1, 5, 30, 250, 1000, 3000, 1250};
	enum { N = sizeof(bound) / sizeof(*bound), S = sizeof(step) / sizeof(*step) };
	const __int128 unit = 1000000000000; /* a thousandth */

	for (int c = 0; c < N * N * S * 2; c++) {
		int lo = bound[c % N], hi = bound[c / N % N], by = step[c / N / N % S];
		bool integer = c / N / N / S;
		struct dt_numbers n = {.lo = lo * unit,
				       .hi = hi * unit,
				       .step = by * unit,
				       .has_lo = true,
				       .has_hi = true,
				       .integer = integer};
		struct dt_auto_budget work = {100000000};
		struct dt_auto *a;

		assert_int_equal(dt_auto_numbers(&n, &work, &a), 0);
		for (int x = -13000; x <= 13000; x += c % 7 ? 50 : 1) {
			bool want = x >= lo && x <= hi && (!by || x % by == 0);
			char text[32];

			snprintf(text, sizeof(text), "%s%d.%03d", x < 0 ? "-" : "", abs(x) / 1000,
				 abs(x) % 1000);
			if (x % 1000 == 0) {
				*strchr(text, '.') = '\0';
			} else { /* a step's decimals, no more */
				while (text[strlen(text) - 1] == '0')
					text[strlen(text) - 1] = '\0';
				want &= !integer;
			}
			if (dt_auto_accepts(a, text) != want)
				fail_msg("%s between %d and %d thousandths by %d%s", text, lo, hi, by,
					 integer ? ", whole" : "");
		}
		dt_auto_free(a);
	}
}

/* Every byte sequence of a walk leads to an end: nothing that is begun is stuck. */
static void test_no_dead_ends(void **state)
{
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		struct dt_grammar *g = NULL;
		struct dt_err err;

		if (!all[i].right || compile(all[i].schema, &g, &err) < 0)
			continue;
		for (uint64_t seed = 0; seed < 20; seed++) {
			struct dt_rng rng = dt_rng_make(seed, DT_RNG_TEST, (uint64_t)i);
			struct dt_matcher *m = dt_matcher_new(g);
			uint64_t k = 0;

			for (int at = 0; at < 300 && !dt_matcher_done(m); at++) {
				unsigned char c = 0;
				int tries = 0;

				do /* a byte that fits; all of them in turn once luck is out */
					c = (unsigned char)(tries < 400 ? (int)dt_rng_below(&rng, k++, 256)
									: tries - 400);
				while (!dt_matcher_push(m, (char *)&c, 1) && ++tries < 656);
				if (tries == 656 && !dt_matcher_complete(m))
					fail_msg("%s: stuck after %d bytes, seed %d", all[i].schema, at,
						 (int)seed);
				if (tries == 656)
					break;
			}
			dt_matcher_free(m);
		}
		dt_grammar_drop(g);
	}
}

/* `times` times a, between head and tail. */
static char *repeated(const char *head, const char *a, int times, const char *tail)
{
	size_t n = strlen(a), h = strlen(head), t = strlen(tail);
	char *s = malloc(h + n * (size_t)times + t + 1);

	memcpy(s, head, h);
	for (int i = 0; i < times; i++)
		memcpy(s + h + n * (size_t)i, a, n);
	memcpy(s + h + n * (size_t)times, tail, t + 1);
	return s;
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Schemas that would take for ever, or all memory: refused with a reason, or small after all. */
static void test_hostile(void **state)
{
	char *big[] = {
		repeated("{\"pattern\":\"^(a|b)*a", "(a|b)", 40, "$\"}"),
		repeated("{\"pattern\":\"^((a{60000}){60000}){60000}", "", 1, "$\"}"),
		repeated("{\"pattern\":\"^", "(a?){100}", 100, "$\"}"),
		repeated("{\"allOf\":[", "{\"anyOf\":[{\"minimum\":1},{\"minimum\":2}]},", 15,
			 "{\"anyOf\":[{\"minimum\":1},{\"minimum\":2}]}]}"),
		repeated("", "{\"items\":{\"anyOf\":[{\"maxLength\":60000},", 300, "true"),
		repeated("", "{\"allOf\":[", 200, "true"),
		repeated("{\"enum\":[\"", "x", 30000, "\",\"y\"]}"),
		repeated("{\"maxItems\":65535,\"minItems\":65000,\"items\":{\"type\":\"null\"}}", "", 1, ""),
		repeated("{\"maxLength\":16777217}", "", 1, ""),
		repeated("{\"type\":\"integer\",\"multipleOf\":123456789}", "", 1, ""),
		repeated("{\"type\":\"string\",\"allOf\":[",
			 "{\"pattern\":\"^(ab|c){0,200}(ab|d){0,200}$\"},", 20, "{\"maxLength\":60000}]}"),
	};
	const char *close[] = {"", "", "", "", "]}}", "]}", "", "", "", "", ""};
	double begin = seconds();

	for (size_t i = 0; i < sizeof(big) / sizeof(*big); i++) {
		int deep = i == 4 ? 300 : i == 5 ? 200 : 0;
		char *tail = repeated("", close[i], deep, ""), *s = repeated(big[i], tail, 1, "");
		struct dt_grammar *g = NULL;
		struct dt_err err = {0};
		int rc = compile(s, &g, &err);

		if (rc < 0 && strlen(err.msg) < 10)
			fail_msg("%.60s: no reason", s);
		if (rc >= 0 && i != 4 && i != 6 && i != 7)
			fail_msg("%.60s: accepted", s);
		dt_grammar_drop(g);
		free(tail);
		free(s);
		free(big[i]);
	}
	print_message("%.2f s of processor time for %zu hostile schemas\n", seconds() - begin,
		      sizeof(big) / sizeof(*big));
}

/* A schema or a regular expression, read on a small stack. */
struct reading {
	const json_t *schema;
	const char *pattern;
	struct dt_grammar *g;
	int rc;
};

/* Thousands of values, one of them in two notations. They are not compared pair by pair, which is refused. */
static void test_many_values(void **state)
{
	json_t *list = json_pack("[f,i,s]", 1.0, 1, "z"),
	       *schema = json_pack("{s:o,s:o}", "enum", list, "allOf", json_pack("[{s:O}]", "enum", list));
	struct dt_grammar *g = NULL;
	struct dt_err err;

	for (int i = 0; i < 20000; i++)
		json_array_append_new(list, json_sprintf("value %d", i));
	if (dt_grammar_schema(schema, &g, &err) < 0)
		fail_msg("%s", err.msg);
	assert_true(accepts(g, "\"value 0\"") && accepts(g, "\"value 19999\"") && accepts(g, "\"z\""));
	assert_true(accepts(g, "1") != accepts(g, "1.0"));
	assert_false(accepts(g, "\"value 20000\""));
	dt_grammar_drop(g);
	json_decref(schema);
}

static void *read_it(void *arg)
{
	struct reading *r = arg;
	struct dt_err err = {0};

	r->rc = r->schema ? dt_grammar_schema(r->schema, &r->g, &err)
			  : dt_grammar_regex(r->pattern, &r->g, &err);
	return NULL;
}

/* Listed texts that are long and begin alike, or that are many and each begin with the one before. */
static void test_deep_texts(void **state)
{
	char *x = repeated("", "x", 16000, ""), *y = repeated(x, "y", 1, ""), *z = repeated(x, "z", 1, "");
	char *quoted = repeated("\"", x, 1, "y\"");
	json_t *list = json_array();
	struct reading two = {.schema = json_pack("{s:[s,s,s]}", "enum", y, z, x), .rc = -EIO};
	struct reading many = {.schema = json_pack("{s:o}", "enum", list), .rc = -EIO};

	for (int n = 1; n <= 2000; n++)
		json_array_append_new(list, json_stringn(x, (size_t)n));
	on_small_stack(read_it, &two);
	on_small_stack(read_it, &many);
	assert_int_equal(two.rc, 0);
	assert_int_equal(many.rc, 0);
	assert_true(accepts(two.g, quoted));
	quoted[16000] = '"'; /* all but the last x */
	quoted[16001] = '\0';
	assert_false(accepts(two.g, quoted));
	quoted[2001] = '"';
	quoted[2002] = '\0';
	assert_true(accepts(many.g, quoted));
	quoted[2001] = 'x';
	quoted[2002] = '"';
	quoted[2003] = '\0';
	assert_false(accepts(many.g, quoted));
	dt_grammar_drop(two.g);
	dt_grammar_drop(many.g);
	json_decref((json_t *)two.schema);
	json_decref((json_t *)many.schema);
	free(quoted);
	free(x);
	free(y);
	free(z);
}

/* Regular expressions of many characters or alternatives. */
static void test_long_patterns(void **state)
{
	char *pattern[] = {repeated("", "a", 4000, ""), repeated("a", "|a", 8000, "|b"),
			   repeated("a", "|", 16000, "b")};
	const char *fits[] = {pattern[0], "b", "b"};

	for (size_t i = 0; i < sizeof(pattern) / sizeof(*pattern); i++) {
		struct reading r = {.pattern = pattern[i], .rc = -EIO};

		on_small_stack(read_it, &r);
		assert_int_equal(r.rc, 0);
		assert_true(accepts(r.g, fits[i]));
		dt_grammar_drop(r.g);
		free(pattern[i]);
	}
}

/* Whether a text of n times `one`, with `between` between them, is complete under the schema. */
static bool fits(const char *schema, const char *open, const char *one, const char *between, int n,
		 const char *end)
{
	struct dt_grammar *g = NULL;
	struct dt_matcher *m;
	struct dt_err err;
	bool good;

	if (compile(schema, &g, &err) < 0)
		fail_msg("%s: %s", schema, err.msg);
	m = dt_matcher_new(g);
	good = dt_matcher_push(m, open, strlen(open));
	for (int i = 0; i < n && good; i++)
		good = (i == 0 || dt_matcher_push(m, between, strlen(between))) &&
		       dt_matcher_push(m, one, strlen(one));
	good = good && dt_matcher_push(m, end, strlen(end)) && dt_matcher_complete(m);
	dt_matcher_free(m);
	dt_grammar_drop(g);
	return good;
}

/* Counts above 65535, at their bounds and at the ends of blocks of 4096. */
static void test_large_counts(void **state)
{
	static const struct {
		int min, max; /* -1: no limit */
		int bad[3], good[5];
	} c[] = {{0, 70000, {70001, 73000, 140000}, {0, 4095, 4096, 69999, 70000}},
		 {65540, 69636, {65539, 69637, 0}, {65540, 65541, 69631, 69635, 69636}},
		 {69632, -1, {0, 69631, 65536}, {69632, 69633, 73728, 73727, 80000}},
		 {65536, 65536, {65535, 65537, 61440}, {65536, 65536, 65536, 65536, 65536}},
		 {3, 16777216, {0, 1, 2}, {3, 4, 5000, 65536, 100000}}};

	for (size_t i = 0; i < sizeof(c) / sizeof(*c); i++)
		for (int items = 0; items < 3; items++) { /* 2: with another item before */
			const char *open = items == 2 ? "[7" : items ? "[" : "\"";
			const char *one = items == 2 ? ",0" : items ? "0" : "\xc3\xa9";
			const char *between = items == 1 ? "," : "", *end = items ? "]" : "\"";
			const int more = items == 2;
			char schema[300], max[60] = "";

			if (c[i].max >= 0)
				snprintf(max, sizeof(max), ",\"max%s\":%d", items ? "Items" : "Length",
					 c[i].max < 16777216 ? c[i].max + more : c[i].max);
			snprintf(schema, sizeof(schema),
				 items ? "{\"items\":{\"const\":0}%s,\"type\":\"array\",\"minItems\":%d%s}"
				       : "{%s\"type\":\"string\",\"minLength\":%d%s}",
				 more ? ",\"prefixItems\":[{\"const\":7}]" : "", c[i].min + more, max);
			for (int k = 0; k < 3; k++)
				if ((!more || c[i].bad[k] + more >= 0) &&
				    fits(schema, open, one, between, c[i].bad[k], end))
					fail_msg("%s accepts %d", schema, c[i].bad[k]);
			for (int k = 0; k < 5; k++)
				if (!fits(schema, open, one, between, c[i].good[k], end))
					fail_msg("%s refuses %d", schema, c[i].good[k]);
		}
}

/* What keeps the bound of 65535 says so. */
static void test_small_counts(void **state)
{
	static const char *const schema[] = {
		"{\"type\":\"string\",\"maxLength\":65536,\"pattern\":\"a\"}",
		"{\"type\":\"object\",\"propertyNames\":{\"maxLength\":65536},\"minProperties\":1}",
		"{\"type\":\"object\",\"maxProperties\":65536}"};

	for (size_t i = 0; i < sizeof(schema) / sizeof(*schema); i++) {
		struct dt_grammar *g = NULL;
		struct dt_err err;

		assert_true(compile(schema[i], &g, &err) < 0);
		assert_non_null(strstr(err.msg, "65535"));
	}
}

static const char *word_of(const void *words, int32_t id, size_t *ret_n)
{
	const char(*w)[12] = words;

	*ret_n = strlen(w[id]);
	return w[id];
}

/*
 * Arrays of strings in `ways` ways that only their ends tell apart, so that a word's letters of two kinds are
 * remembered for each: whether a mask is made of them.
 */
static bool has_mask(int ways, const struct dt_vocab_order *order)
{
	struct dt_grammar *g;
	struct dt_matcher *m;
	struct dt_err err;
	char *s = NULL;
	size_t n = 0;
	bool made;
	FILE *f = open_memstream(&s, &n);

	fprintf(f, "{\"anyOf\":[");
	for (int i = 0; i < ways; i++)
		fprintf(f,
			"%s{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^[a-z]*[%c%c][a-"
			"z]{7}$\"}}",
			i ? "," : "", 'a' + i % 26, 'a' + (i * 7 + i / 26) % 26);
	fprintf(f, "]}");
	fclose(f);
	if (compile(s, &g, &err) < 0)
		fail_msg("%s", err.msg);
	m = dt_matcher_new(g);
	assert_non_null(m);
	assert_true(dt_matcher_push(m, "[\"", 2));
	made = dt_matcher_mask(m, order) != NULL;
	dt_matcher_free(m);
	dt_grammar_drop(g);
	free(s);
	return made;
}

/* A mask that takes too many steps is given up. */
static void test_hostile_masks(void **state)
{
	enum { VOCAB = 100000 };
	char(*words)[12] = calloc(VOCAB, sizeof(*words));
	struct dt_rng rng = dt_rng_make(3, DT_RNG_TEST, 7);
	struct dt_vocab_order order;

	for (int i = 0; i < VOCAB; i++)
		for (int k = 0; k < 11; k++)
			words[i][k] = (char)('a' + dt_rng_below(&rng, (uint64_t)(11 * i + k), 26));
	assert_int_equal(dt_vocab_order_init(&order, VOCAB, word_of, words), 0);
	assert_true(has_mask(1, &order));
	assert_true(has_mask(2, &order));
	assert_false(has_mask(35, &order));
	dt_vocab_order_release(&order);
	free(words);
}

/* A long text takes no more memory than a short one: nodes that no stack needs are dropped. */
static void test_long_texts(void **state)
{
	struct dt_grammar *g;
	struct dt_matcher *m;
	struct dt_err err;

	if (compile("{\"type\":\"array\",\"maxItems\":60000,\"items\":{\"type\":\"array\"}}", &g, &err) < 0)
		fail_msg("%s", err.msg);
	m = dt_matcher_new(g);
	assert_non_null(m);
	assert_true(dt_matcher_push(m, "[", 1));
	for (int i = 0; i < 60000; i++) {
		if (i > 0 && !dt_matcher_push(m, ",", 1))
			fail_msg("item %d: no comma", i);
		if (!dt_matcher_push(m, "[{\"a\":[1]}]", 11))
			fail_msg("item %d is refused", i);
	}
	assert_false(dt_matcher_push(m, ",", 1));
	assert_true(dt_matcher_push(m, "]", 1));
	assert_true(dt_matcher_done(m));
	dt_matcher_free(m);
	dt_grammar_drop(g);
}

/* Patterns against PCRE2-like expectations of texts that are searched. */
static void test_patterns(void **state)
{
	static const struct {
		const char *pattern, *text;
		bool found;
	} c[] = {
		{"a+b", "xaab", true},
		{"^a+b$", "xaab", false},
		{"^(?:ab|cd)*$", "abcdab", true},
		{"^(ab|cd)*$", "abc", false},
		{"^\\d{2,3}$", "123", true},
		{"^\\d{2,3}$", "1234", false},
		{"^[^a-c]$", "\xc3\xa9", true},
		{"^[\\u00e0-\\u00ff]$", "\xc3\xa9", true},
		{"^[\xc3\xa9x]+$", "x\xc3\xa9", true},
		{"^.$", "\xf0\x9f\x98\x80", true},
		{"^.$", "\n", false},
		{"^(a*)*$", "aaa", true},
		{"^(|a)+$", "", true},
		{"", "anything", true},
		{"^$", "", true},
		{"^$", "a", false},
		{"^\\W\\S\\D$", "-ab", true},
		{"^a{0}$", "", true},
		{"^x*?y$", "xxy", true},
		{"^(?<name>a)$", "a", true},
		{"^[]a", "a", false},
		{"a|^b|c$", "xc", true},
		{"a|^b|c$", "xb", false},
		{"^\\x41\\.$", "A.", true},
	};

	for (size_t i = 0; i < sizeof(c) / sizeof(*c); i++) {
		struct dt_auto_budget work = {1000000};
		struct dt_auto *a = NULL;
		struct dt_err err;

		if (dt_auto_regex(c[i].pattern, &work, &a, &err) < 0)
			fail_msg("%s: %s", c[i].pattern, err.msg);
		if (dt_auto_accepts(a, c[i].text) != c[i].found)
			fail_msg("%s in '%s': not %d", c[i].pattern, c[i].text, c[i].found);
		dt_auto_free(a);
	}
}

/* Regular expressions that match whole texts: anchors add nothing, and parentheses are paired. */
static void test_whole_texts(void **state)
{
	static const struct {
		const char *pattern, *yes, *no, *says; /* says: it is refused */
	} c[] = {
		{"a|b", "b", "ab", NULL},
		{"^a$|^b$", "b", "ab", NULL},
		{"^a|b$", "a", "ax", NULL},
		{"a|^", "", "b", NULL},
		{"", "", "a", NULL},
		{"a\\$", "a$", "a", NULL},
		{"a\\\\$", "a\\", "a$", NULL},
		{"a)|(b", NULL, NULL, "the regular expression is malformed: a parenthesis is closed"},
		{"a)(b", NULL, NULL, "a parenthesis is closed"},
		{"a(", NULL, NULL, "a parenthesis is not closed"},
		{"a(b|$)", NULL, NULL, "^ or $ within an alternative"},
	};

	for (size_t i = 0; i < sizeof(c) / sizeof(*c); i++) {
		struct dt_grammar *g = NULL;
		struct dt_err err = {0};
		int rc = dt_grammar_regex(c[i].pattern, &g, &err);

		if ((rc < 0) != !!c[i].says || (rc < 0 && !strstr(err.msg, c[i].says)))
			fail_msg("%s: %d %s", c[i].pattern, rc, err.msg);
		if (rc == 0 && (!accepts(g, c[i].yes) || accepts(g, c[i].no)))
			fail_msg("%s: '%s' or '%s'", c[i].pattern, c[i].yes, c[i].no);
		dt_grammar_drop(g);
	}
}

/* A number inside an exclusive bound is inside when it is read as a double. */
static void test_exclusive_bounds_as_doubles(void **state)
{
	static const struct {
		const char *schema, *text;
		bool ok;
	} c[] = {
		{"{\"type\":\"number\",\"exclusiveMaximum\":100}", "99.99999999999999", true},
		{"{\"type\":\"number\",\"exclusiveMaximum\":100}", "99.999999999999999", false},
		{"{\"type\":\"number\",\"exclusiveMinimum\":100}", "100.000000000000001", false},
		{"{\"type\":\"number\",\"exclusiveMinimum\":100}", "100.00000000000002", true},
		{"{\"type\":\"number\",\"exclusiveMinimum\":-100}", "-99.999999999999999", false},
		{"{\"type\":\"number\",\"exclusiveMaximum\":-100}", "-100.000000000000001", false},
		{"{\"type\":\"number\",\"exclusiveMaximum\":1000000000000000}", "999999999999999.99", false},
		{"{\"type\":\"number\",\"exclusiveMaximum\":1000000000000000}", "999999999999999.8", true},
		{"{\"type\":\"number\",\"exclusiveMinimum\":0}", "0.000000000000001", true},
		{"{\"type\":\"number\",\"exclusiveMinimum\":0}", "0", false},
		{"{\"type\":\"number\",\"exclusiveMaximum\":0.5}", "0.499999999999999", true},
		{"{\"type\":\"integer\",\"exclusiveMaximum\":9007199254740993}", "9007199254740992", true},
	};

	for (size_t i = 0; i < sizeof(c) / sizeof(*c); i++) {
		struct dt_grammar *g;
		struct dt_err err;

		if (compile(c[i].schema, &g, &err) < 0)
			fail_msg("%s: %s", c[i].schema, err.msg);
		if (accepts(g, c[i].text) != c[i].ok)
			fail_msg("%s: %s is %s", c[i].schema, c[i].text, c[i].ok ? "refused" : "accepted");
		dt_grammar_drop(g);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exclusive_bounds_as_doubles),
		cmocka_unit_test(test_patterns),
		cmocka_unit_test(test_whole_texts),
		cmocka_unit_test(test_hostile_masks),
		cmocka_unit_test(test_long_texts),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_every_keyword),
		cmocka_unit_test(test_no_dead_ends),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_many_values),
		cmocka_unit_test(test_deep_texts),
		cmocka_unit_test(test_long_patterns),
		cmocka_unit_test(test_large_counts),
		cmocka_unit_test(test_small_counts),
		cmocka_unit_test(test_golden),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
