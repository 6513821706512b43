/* Unigram against Hugging Face's library: golden_ug.py makes the ids. */
#include "tests/unit/tok_golden.h"

static const char *const names[] = {"ug-t5", "ug-bytes"};

static void test_golden(void **state)
{
	json_t *g = golden("golden-ug.json"), *texts = json_object_get(g, "texts");

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
