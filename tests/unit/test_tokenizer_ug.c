/* Unigram against Hugging Face's library: golden_ug.py makes the ids. */
#include "base/json.h"
#include "data/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = {"ug-t5", "ug-bytes"};

static struct dt_tokenizer *open_one(const char *name)
{
	struct dt_tokenizer *t;
	struct dt_err err;
	char path[1024];

	snprintf(path, sizeof(path), "%s/tokenizer/%s.json", GOLDEN_DIR, name);
	if (dt_tokenizer_open(path, &t, &err) < 0)
		fail_msg("%s", err.msg);
	return t;
}

/* Texts contain zero bytes. */
static json_t *golden(void)
{
	json_error_t why;
	json_t *g = json_load_file(GOLDEN_DIR "/tokenizer/golden-ug.json", JSON_ALLOW_NUL, &why);

	if (!g)
		fail_msg("%s", why.text);
	return g;
}

static void check(const struct dt_tokenizer *t, const json_t *text, const json_t *want, bool special)
{
	struct dt_err err = {0};
	int32_t *ids;
	size_t n;

	if (dt_tokenizer_encode(t, json_string_value(text), json_string_length(text), special, &ids, &n,
				&err) < 0)
		fail_msg("'%s': %s", json_string_value(text), err.msg);
	if (n != json_array_size(want))
		fail_msg("'%s': %zu ids, not %zu", json_string_value(text), n, json_array_size(want));
	for (size_t i = 0; i < n; i++)
		if (ids[i] != json_integer_value(json_array_get(want, i)))
			fail_msg("'%s': id %zu is %d, not %d", json_string_value(text), i, ids[i],
				 (int)json_integer_value(json_array_get(want, i)));
	free(ids);
}

static void check_decoded(const struct dt_tokenizer *t, const json_t *list, const json_t *want)
{
	size_t n = json_array_size(list), len;
	int32_t *ids = malloc((n + 1) * sizeof(*ids));
	struct dt_err err;
	char *s;

	for (size_t i = 0; i < n; i++)
		ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
	assert_int_equal(dt_tokenizer_decode(t, ids, n, true, &s, &len, &err), 0);
	if (len != json_string_length(want) || memcmp(s, json_string_value(want), len))
		fail_msg("'%.*s' is not '%s'", (int)len, s, json_string_value(want));
	free(s);
	free(ids);
}

static void test_golden(void **state)
{
	json_t *g = golden(), *texts = json_object_get(g, "texts");

	assert_true(json_array_size(texts) > 100);
	for (int k = 0; k < 2; k++) {
		json_t *o = json_object_get(g, names[k]), *plain = json_object_get(o, "plain");
		struct dt_tokenizer *t = open_one(names[k]);

		assert_non_null(plain);
		for (size_t i = 0; i < json_array_size(texts); i++) {
			const json_t *ids = json_array_get(json_object_get(o, "special"), i), *other;
			char at[24];

			snprintf(at, sizeof(at), "%zu", i);
			other = json_object_get(plain, at);
			check(t, json_array_get(texts, i), ids, true);
			check(t, json_array_get(texts, i), other ? other : ids, false);
			check_decoded(t, ids, json_array_get(json_object_get(o, "decoded"), i));
		}
		dt_tokenizer_close(t);
	}
	json_decref(g);
}

static void test_properties(void **state)
{
	struct dt_tokenizer_info info;
	struct dt_tokenizer *t = open_one("ug-t5"), *bytes = open_one("ug-bytes");
	struct dt_err err;
	int32_t *ids;
	size_t n;

	dt_tokenizer_describe(t, &info);
	assert_string_equal(info.kind, "Unigram");
	assert_string_equal(info.normalizer, "character map, stripped, single blanks");
	assert_int_equal(dt_tokenizer_bos(t), -1);
	assert_int_equal(dt_tokenizer_end(t), 1);
	assert_int_equal(dt_tokenizer_eot(t), 1);
	assert_true(dt_tokenizer_may_cut(t, false));
	assert_false(dt_tokenizer_may_cut(bytes, false)); /* blanks do not end a word */
	/* a byte that is not UTF-8 */
	assert_int_equal(dt_tokenizer_encode(t, "\xff", 1, false, &ids, &n, &err), 0);
	assert_int_equal(n, 1);
	assert_int_equal(ids[0], 2);
	free(ids);
	assert_int_equal(dt_tokenizer_encode(bytes, "\xff", 1, false, &ids, &n, &err), 0);
	assert_int_equal(n, 1);
	assert_int_equal(ids[0], 3 + 0xff);
	free(ids);
	dt_tokenizer_close(bytes);
	dt_tokenizer_close(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_properties),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
