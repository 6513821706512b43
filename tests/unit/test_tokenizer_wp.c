/* WordPiece against Hugging Face's library: golden_wp.py makes the ids. */
#include "tests/unit/tok_golden.h"

static const char *const names[] = {"wp-uncased", "wp-cased", "wp-accents", "wp-bare"};

static void test_golden(void **state)
{
	json_t *g = golden("golden-wp.json"), *texts = json_object_get(g, "texts");

	assert_true(json_array_size(texts) > 100);
	for (int k = 0; k < 4; k++) {
		json_t *o = json_object_get(g, names[k]), *plain = json_object_get(o, "plain");
		struct dt_tokenizer *t = open_one(names[k]);

		assert_true(json_object_size(plain) > 10);
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

/* All texts as one, which is long enough for the cache of words, whole and in parts. */
static void test_long(void **state)
{
	json_t *g = golden("golden-wp.json"), *texts = json_object_get(g, "texts");
	struct dt_tokenizer *t = open_one("wp-cased");
	size_t n = 0, len, cut, head_n, tail_n;
	int32_t *ids, *head, *tail;
	struct dt_err err;
	char *all;

	for (size_t i = 0; i < json_array_size(texts); i++)
		n += json_string_length(json_array_get(texts, i)) + 1;
	all = malloc(n);
	n = 0;
	for (size_t i = 0; i < json_array_size(texts); i++) {
		const json_t *s = json_array_get(texts, i);

		memcpy(all + n, json_string_value(s), json_string_length(s));
		n += json_string_length(s);
		all[n++] = ' ';
	}
	assert_int_equal(dt_tokenizer_encode(t, all, n, false, &ids, &len, &err), 0);
	assert_true(dt_tokenizer_may_cut(t, false));
	assert_false(dt_tokenizer_may_cut(t, true)); /* [MASK] takes the blanks before it */
	cut = dt_tokenizer_cut(all, n, n / 2);
	assert_true(cut < n);
	assert_int_equal(dt_tokenizer_encode(t, all, cut, false, &head, &head_n, &err), 0);
	assert_int_equal(dt_tokenizer_encode(t, all + cut, n - cut, false, &tail, &tail_n, &err), 0);
	assert_int_equal(head_n + tail_n, len);
	assert_memory_equal(head, ids, head_n * sizeof(*ids));
	assert_memory_equal(tail, ids + head_n, tail_n * sizeof(*ids));
	free(tail);
	free(head);
	for (size_t i = 0, at = 0; i < json_array_size(texts); i++) {
		const json_t *s = json_array_get(texts, i);

		assert_int_equal(dt_tokenizer_encode(t, json_string_value(s), json_string_length(s), false,
						     &head, &head_n, &err),
				 0);
		assert_memory_equal(head, ids + at, head_n * sizeof(*ids));
		at += head_n;
		free(head);
	}
	free(ids);
	free(all);
	dt_tokenizer_close(t);
	json_decref(g);
}

static void test_properties(void **state)
{
	struct dt_tokenizer_info info;
	struct dt_tokenizer *t = open_one("wp-uncased"), *cased = open_one("wp-cased");
	struct dt_err err;
	int32_t *ids;
	size_t n;

	dt_tokenizer_describe(t, &info);
	assert_string_equal(info.kind, "WordPiece");
	assert_string_equal(info.normalizer, "BERT, clean, Chinese characters apart, no accents, lower case");
	assert_int_equal(dt_tokenizer_bos(t), 2);
	assert_int_equal(dt_tokenizer_end(t), 3);
	assert_int_equal(dt_tokenizer_eot(t), 3);
	assert_int_equal(dt_tokenizer_bos(cased), 2); /* of BertProcessing */
	assert_int_equal(dt_tokenizer_end(cased), 3);
	assert_int_equal(dt_tokenizer_find(t, "[MASK]", 6), 4);
	assert_true(strcmp(dt_tokenizer_hash(t), dt_tokenizer_hash(cased)) != 0);
	/* a byte that is not UTF-8 is an unknown word */
	assert_int_equal(dt_tokenizer_encode(t, "the\xffthe \xc3", 9, false, &ids, &n, &err), 0);
	assert_int_equal(n, 4);
	assert_int_equal(ids[0], dt_tokenizer_find(t, "the", 3));
	assert_int_equal(ids[1], 1);
	assert_int_equal(ids[2], ids[0]);
	assert_int_equal(ids[3], 1);
	free(ids);
	dt_tokenizer_close(cased);
	dt_tokenizer_close(t);
}

#define VOCAB	"\"vocab\":{\"[UNK]\":0,\"a\":1,\"##b\":2}"
#define MODEL	"\"model\":{\"type\":\"WordPiece\"," VOCAB "}"
#define BERT	"\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}"
#define WITH(x) "{" MODEL "," BERT "," x "}"

static void test_refusals(void **state)
{
	static const struct {
		const char *text, *why;
	} bad[] = {
		{"{" MODEL "}", "the pre_tokenizer 'null' is not supported"},
		{"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Whitespace\"}}", "'Whitespace' is not supported"},
		{"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}," BERT "}",
		 "'[UNK]' is not in the vocabulary"},
		{"{\"model\":{\"type\":\"WordPiece\",\"vocab\":[]}}", "model.vocab is not an object"},
		{"{\"model\":{\"type\":\"WordPiece\",\"max_input_chars_per_word\":-1," VOCAB "}," BERT "}",
		 "max_input_chars_per_word"},
		{WITH("\"normalizer\":{\"type\":\"NFC\"}"), "the normalizer 'NFC' is not supported"},
		{WITH("\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{},{}]}"), "Sequence"},
		{WITH("\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":1}"), "lowercase"},
		{WITH("\"decoder\":{\"type\":\"BPEDecoder\"}"), "the decoder 'BPEDecoder' is not supported"},
		{WITH("\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"x\",9],\"cls\":[\"a\",1]}"),
		 "'x' is not in the vocabulary"},
		{WITH("\"post_processor\":{\"type\":\"BertProcessing\"}"), "exactly one id"},
		{WITH("\"post_processor\":{\"type\":\"RobertaProcessing\"}"), "exactly one id"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct dt_tokenizer *t = NULL;
		struct dt_err err = {0};

		assert_true(dt_tokenizer_from_text(bad[i].text, strlen(bad[i].text), &t, &err) < 0);
		assert_null(t);
		if (!strstr(err.msg, bad[i].why))
			fail_msg("'%s' does not say '%s'", err.msg, bad[i].why);
	}
}

/* Without a decoder, and without a normalizer, the library joins tokens by blanks. */
static void test_plain(void **state)
{
	static const char text[] = "{" MODEL "," BERT "}";
	const int32_t ids[] = {1, 2, 0};
	struct dt_tokenizer *t;
	struct dt_err err;
	size_t n;
	char *s;

	assert_int_equal(dt_tokenizer_from_text(text, strlen(text), &t, &err), 0);
	assert_int_equal(dt_tokenizer_decode(t, ids, 3, true, &s, &n, &err), 0);
	assert_string_equal(s, "a ##b [UNK]");
	free(s);
	dt_tokenizer_close(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),	   cmocka_unit_test(test_long),
		cmocka_unit_test(test_properties), cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_plain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
