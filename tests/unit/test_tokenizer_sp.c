/* SentencePiece's BPE against Hugging Face's library, and Llama's vocabulary against llama.cpp's own ids. */
#include "ckpt/source.h"
#include "tests/unit/tok_golden.h"

#include <unistd.h>

static json_t *load(const char *name)
{
	struct dt_err err;
	char path[1024];
	json_t *v;

	snprintf(path, sizeof(path), "%s/tokenizer/%s", GOLDEN_DIR, name);
	if (dt_json_load(path, 64 << 20, &v, &err) < 0)
		fail_msg("%s", err.msg);
	return v;
}

/* Texts among which are added tokens of all kinds, with the tokenizer of this name. */
static void check_among(const char *name, const json_t *golden, const json_t *texts)
{
	json_t *root;
	struct dt_tokenizer *t;
	struct dt_err err;
	char path[1024], *text;

	snprintf(path, sizeof(path), "%s/tokenizer/%s.json", GOLDEN_DIR, name);
	assert_int_equal(dt_json_load(path, 1 << 24, &root, &err), 0);
	json_object_set(root, "added_tokens", json_object_get(golden, "added_tokens"));
	text = json_dumps(root, JSON_COMPACT);
	if (dt_tokenizer_from_text(text, strlen(text), &t, &err) < 0)
		fail_msg("%s", err.msg);
	for (size_t i = 0; i < json_array_size(texts); i++)
		check(t, json_array_get(texts, i), json_array_get(json_object_get(golden, "among"), i), true);
	dt_tokenizer_close(t);
	free(text);
	json_decref(root);
}

static void test_golden(void **state)
{
	static const char *const names[] = {"sp-llama", "sp-first", "sp-always", "sp-gemma"};
	json_t *plain = load("golden.json"), *g = load("golden-sp.json"),
	       *texts = json_object_get(plain, "texts");

	for (int k = 0; k < 4; k++) {
		json_t *o = json_object_get(g, names[k]);
		struct dt_tokenizer *t;
		struct dt_err err;
		char path[1024];

		snprintf(path, sizeof(path), "%s/tokenizer/%s.json", GOLDEN_DIR, names[k]);
		if (dt_tokenizer_open(path, &t, &err) < 0)
			fail_msg("%s", err.msg);
		for (size_t i = 0; i < json_array_size(texts); i++) {
			const json_t *ids = json_array_get(json_object_get(o, "special"), i);

			check(t, json_array_get(texts, i), ids, true);
			check(t, json_array_get(texts, i), json_array_get(json_object_get(o, "plain"), i),
			      false);
			check_decoded(t, ids, json_array_get(json_object_get(o, "decoded"), i));
		}
		dt_tokenizer_close(t);
		check_among(names[k], o, json_object_get(g, "among"));
	}
	json_decref(plain);
	json_decref(g);
}

static char *shared(const char *name, size_t *ret_n)
{
	const char *env = getenv("DT_TEST_DATA");
	char path[1024], *s;

	if (env)
		snprintf(path, sizeof(path), "%s/%s", env, name);
	else
		snprintf(path, sizeof(path), "%s/../../../shared/data/%s", GOLDEN_DIR, name);
	if (access(path, R_OK) < 0)
		return NULL;
	if (!ret_n)
		return strdup(path);
	return dt_read_file(path, 1 << 24, &s, ret_n, NULL) < 0 ? NULL : s;
}

static void test_llama_vocabulary(void **state)
{
	static const char sep[] = "\n__ggml_vocab_test__\n";
	char *model = shared("stories260K/stories260K.bin", NULL);
	char *vocab = shared("tokenizers/ggml-vocab-llama-spm.gguf", NULL), *text, *ids;
	size_t n, ids_n, len;
	struct dt_tokenizer *t;
	struct dt_source *src;
	struct dt_err err;
	int cases = 0;

	if (!model || !vocab) {
		print_message("skipped: no DT_TEST_DATA with stories260K/ and tokenizers/\n");
		skip();
	}
	if (dt_source_open(model, DT_SOURCE_AUTO, vocab, &src, &err) < 0)
		fail_msg("%s", err.msg);
	if (!dt_source_tokenizer(src, &len))
		fail_msg("%s", dt_source_note(src));
	if (dt_tokenizer_from_text(dt_source_tokenizer(src, &len), len, &t, &err) < 0)
		fail_msg("%s", err.msg);
	text = shared("tokenizers/ggml-vocab-llama-spm.gguf.inp", &n);
	ids = shared("tokenizers/ggml-vocab-llama-spm.gguf.out", &ids_n);
	assert_true(text && ids);
	for (char *at = text, *line = ids; at < text + n; cases++) {
		char *end = memmem(at, n - (size_t)(at - text), sep, sizeof(sep) - 1), *stop;
		json_t *s, *want = json_array();

		if (!end)
			break;
		stop = strchr(line, '\n');
		while (line < stop) {
			char *next;
			long id = strtol(line, &next, 10);

			if (next == line || next > stop)
				break;
			json_array_append_new(want, json_integer(id));
			line = next;
		}
		line = stop + 1;
		s = json_stringn(at, (size_t)(end - at));
		check(t, s, want, false);
		json_decref(s);
		json_decref(want);
		at = end + sizeof(sep) - 1;
	}
	assert_true(cases > 30);
	dt_tokenizer_close(t);
	dt_source_close(src);
	free(text);
	free(ids);
	free(model);
	free(vocab);
}

/* Words may not be told apart at a blank where a token spells both sides of it. */
static void test_token_over_a_blank(void **state)
{
	static const char text[] =
		"{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":"
		"{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"never\",\"split\":"
		"false},"
		"\"post_processor\":null,\"decoder\":null,\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,"
		"\"fuse_unk\":true,\"vocab\":{\"a\":0,\"b\":1,\"\u2581\":2,\"a\u2581\":3,\"a\u2581b\":4},"
		"\"merges\":[\"a \u2581\",\"a\u2581 b\"]}}";
	struct dt_tokenizer *t;
	struct dt_err err;
	int32_t *ids;
	size_t n;

	if (dt_tokenizer_from_text(text, sizeof(text) - 1, &t, &err) < 0)
		fail_msg("%s", err.msg);
	assert_false(dt_tokenizer_may_cut(t, false));
	assert_int_equal(dt_tokenizer_encode(t, "a b", 3, false, &ids, &n, NULL), 0);
	assert_int_equal(n, 1);
	assert_int_equal(ids[0], 4);
	free(ids);
	dt_tokenizer_close(t);
}

/*
 * Added tokens go through the decoder too: Gemma's files have runs of marks among them, and files made by the
 * tokenizers library the 256 bytes. The blank that is taken away is the first thing printed, or none.
 */
static void test_added_tokens_are_decoded(void **state)
{
	static const char text[] =
		"{\"version\":\"1.0\",\"added_tokens\":["
		"{\"id\":0,\"content\":\"<0xC3>\",\"special\":true},{\"id\":1,\"content\":\"<0xA9>\","
		"\"special\":true},"
		"{\"id\":5,\"content\":\"\u2581\u2581\",\"special\":false,\"normalized\":false},"
		"{\"id\":6,\"content\":\"a\u2581b\",\"special\":false,\"normalized\":true},"
		"{\"id\":7,\"content\":\"<s>\",\"special\":true}],"
		"\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"},"
		"\"pre_tokenizer\":null,\"post_processor\":null,\"decoder\":{\"type\":\"Sequence\","
		"\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\u2581\"},\"content\":\" \"},"
		"{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
		"{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},"
		"\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"fuse_unk\":true,\"vocab\":{\"<0xC3>\":"
		"0,"
		"\"<0xA9>\":1,\"\u2581\":2,\"a\":3,\"b\":4,\"\u2581\u2581\":5},\"merges\":[\"\u2581 "
		"\u2581\"]}}";
	static const struct {
		const char *want;
		int32_t ids[5];
		size_t n;
	} cases[] = {
		{"a  b", {2, 3, 5, 4}, 4}, {"\xc3\xa9", {0, 1}, 2}, {"a b", {6}, 1},
		{"<s> a", {7, 2, 3}, 3},   {"a", {2, 3}, 2},
	};
	struct dt_tokenizer *t;
	struct dt_err err;
	int32_t *ids;
	size_t n;

	if (dt_tokenizer_from_text(text, sizeof(text) - 1, &t, &err) < 0)
		fail_msg("%s", err.msg);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *s;

		assert_int_equal(dt_tokenizer_decode(t, cases[i].ids, cases[i].n, true, &s, &n, &err), 0);
		if (strcmp(s, cases[i].want))
			fail_msg("case %zu: '%s', not '%s'", i, s, cases[i].want);
		free(s);
	}
	assert_int_equal(dt_tokenizer_encode(t, "a b", 3, false, &ids, &n, &err), 0);
	assert_int_equal(n, 1);
	assert_int_equal(ids[0], 6);
	free(ids);
	dt_tokenizer_close(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_llama_vocabulary),
		cmocka_unit_test(test_token_over_a_blank),
		cmocka_unit_test(test_added_tokens_are_decoded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
