/* Chat templates against the texts that the families' published templates give. */
#include "data/chat.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SUA                                                                                                  \
	"[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\" U \"},"                  \
	"{\"role\":\"assistant\",\"content\":\"A\"},{\"role\":\"user\",\"content\":\"V\"}]"
#define U                                                                                                    \
	"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"U\"},{\"type\":\"text\",\"text\":"   \
	"\"2\"}]}]"

/* open: up to the end of the last message's content */
static char *text_to(const struct dt_chat *c, const char *messages, bool open, struct dt_err *err)
{
	json_t *v = json_loads(messages, 0, NULL);
	int32_t *ids;
	size_t n, len;
	char *s = NULL;
	int rc;

	assert_non_null(v);
	rc = open ? dt_chat_encode_open(c, v, NULL, &ids, &n, err)
		  : dt_chat_encode(c, v, NULL, &ids, &n, err);
	json_decref(v);
	if (rc < 0)
		return NULL;
	assert_int_equal(dt_tokenizer_decode(c->tok, ids, n, true, &s, &len, err), 0);
	free(ids);
	return s;
}

static char *text_of(const struct dt_chat *c, const char *messages, struct dt_err *err)
{
	return text_to(c, messages, false, err);
}

/* In every family a message to continue ends with its content; all before it is as in the whole prompt. */
static void test_open(void **state)
{
	static const char said[] = "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\","
				   "\"content\":\"U\"},{\"role\":\"assistant\",\"content\":\"A <b\"}]";
	struct dt_tokenizer *tok;
	struct dt_chat chat;
	struct dt_err err;

	assert_int_equal(dt_tokenizer_open("byte", &tok, NULL), 0);
	for (int kind = 0; kind < DT_CHAT_N; kind++) {
		char *whole, *open;
		size_t n;

		dt_chat_init(&chat, (enum dt_chat_kind)kind, NULL, tok);
		whole = text_of(&chat, said, &err);
		open = text_to(&chat, said, true, &err);
		assert_non_null(whole);
		assert_non_null(open);
		n = strlen(open);
		assert_true(n > 4 && n < strlen(whole));
		assert_string_equal(open + n - 4, "A <b");
		assert_memory_equal(open, whole, n);
		free(whole);
		free(open);
		assert_null(text_to(&chat, "[{\"role\":\"user\",\"content\":\"U\"}]", true, &err));
		assert_non_null(strstr(err.msg, "not the assistant's"));
	}
	dt_tokenizer_close(tok);
}

/* The byte tokenizer has none of the special tokens, so that their texts can be read in the result. */
static void test_families(void **state)
{
	static const struct {
		const char *template; /* words of it by which it is known */
		enum dt_chat_kind kind;
		const char *messages, *want;
	} c[] = {
		{"{{'<|im_start|>' + message['role']}}", DT_CHAT_CHATML, SUA,
		 "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n U "
		 "<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
		 "<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n"},
		{"{{ '<|im_start|>system\\nYou are Q.<|im_end|>\\n' }}", DT_CHAT_CHATML, U,
		 "<|im_start|>system\nYou are "
		 "Q.<|im_end|>\n<|im_start|>user\nU2<|im_end|>\n<|im_start|>assistant\n"},
		{"'<|im_start|>system\nLines in it.<|im_end|>\n' }}", DT_CHAT_CHATML, U,
		 "<|im_start|>system\nLines in "
		 "it.<|im_end|>\n<|im_start|>user\nU2<|im_end|>\n<|im_start|>assistant\n"},
		{"'<|start_header_id|>' + message['role']", DT_CHAT_LLAMA3, SUA,
		 "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_"
		 "header_id|>\n\n"
		 "U<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>"
		 "<|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|><|start_header_id|>assistant<|end_"
		 "header_id|>\n\n"},
		{"<|start_header_id|> Cutting Knowledge Date: December 2023", DT_CHAT_LLAMA3, U,
		 "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday "
		 "Date: 26 Jul "
		 "2024\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU2<|eot_id|>"
		 "<|start_header_id|>assistant<|end_header_id|>\n\n"},
		{"'[INST] ' '<<SYS>>\\n'", DT_CHAT_LLAMA2, SUA,
		 "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST] A </s><s>[INST] V [/INST]"},
		{"'[INST] ' + message['content'] + ' [/INST]'", DT_CHAT_MISTRAL, SUA,
		 "[INST] S\n\n U  [/INST]A</s>[INST] V [/INST]"},
		{"'<start_of_turn>' + role", DT_CHAT_GEMMA, SUA,
		 "<start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n<start_of_"
		 "turn>user\nV"
		 "<end_of_turn>\n<start_of_turn>model\n"},
		{"'<|user|>\\n' + message['content']", DT_CHAT_ZEPHYR, SUA,
		 "<|system|>\nS</s>\n<|user|>\n U "
		 "</s>\n<|assistant|>\nA</s>\n<|user|>\nV</s>\n<|assistant|>\n"},
	};
	struct dt_tokenizer *tok;

	assert_int_equal(dt_tokenizer_open("byte", &tok, NULL), 0);
	assert_int_equal(dt_chat_recognise(NULL, tok), -1);
	assert_int_equal(dt_chat_recognise("{{ messages }}", tok), -1);
	assert_int_equal(dt_chat_recognise("{{ 'User: ' + m['content'] }}", tok), -1); /* anybody's */
	for (size_t i = 0; i < sizeof(c) / sizeof(*c); i++) {
		struct dt_chat chat;
		struct dt_err err;
		char *s;

		assert_int_equal(dt_chat_recognise(c[i].template, tok), c[i].kind);
		dt_chat_init(&chat, c[i].kind, c[i].template, tok);
		s = text_of(&chat, c[i].messages, &err);
		if (!s)
			fail_msg("%s", err.msg);
		assert_string_equal(s, c[i].want);
		free(s);
	}
	dt_tokenizer_close(tok);
}

/* Special tokens are single ids where the template puts them, and plain text where a message does. */
static void test_special_tokens(void **state)
{
	struct dt_tokenizer *tok;
	struct dt_chat chat;
	struct dt_err err;
	int32_t *ids, start;
	size_t n, turns = 0;
	json_t *v = json_loads("[{\"role\":\"user\",\"content\":\"x<|im_start|>y\"}]", 0, NULL);
	char *s;

	assert_int_equal(dt_tokenizer_open(GOLDEN_DIR "/tokenizer/qwen2.json", &tok, &err), 0);
	start = dt_tokenizer_find(tok, "<|im_start|>", 12);
	assert_true(start >= 0);
	assert_int_equal(dt_chat_recognise(NULL, tok), DT_CHAT_CHATML);
	dt_chat_init(&chat, DT_CHAT_CHATML, NULL, tok);
	assert_int_equal(dt_chat_encode(&chat, v, NULL, &ids, &n, &err), 0);
	assert_int_equal(ids[0], start);
	for (size_t i = 0; i < n; i++)
		turns += ids[i] == start;
	assert_int_equal(turns, 2); /* of the user and of the assistant */
	free(ids);
	json_decref(v);
	s = text_of(&chat, "[{\"role\":\"user\",\"content\":\"x<|im_start|>y\"}]", &err);
	assert_string_equal(s, "<|im_start|>user\nx<|im_start|>y<|im_end|>\n<|im_start|>assistant\n");
	free(s);
	dt_tokenizer_close(tok);
}

static void test_bad_messages(void **state)
{
	static const struct {
		const char *messages, *says;
	} c[] = {
		{"[]", "array"},
		{"{}", "array"},
		{"[5]", "role"},
		{"[{\"role\":\"robot\",\"content\":\"x\"}]", "role"},
		{"[{\"role\":\"user\"}]", "content"},
		{"[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}}]}]", "not text"},
		{"[{\"role\":\"user\",\"content\":\"x\",\"tool_calls\":[{}]}]", "tool_calls"},
		{"[{\"role\":\"system\",\"content\":\"x\"}]", "system message is first"},
		{"[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"system\",\"content\":\"x\"}]",
		 "system message is first"}};
	struct dt_tokenizer *tok;
	struct dt_chat chat;
	struct dt_err err;

	assert_int_equal(dt_tokenizer_open("byte", &tok, NULL), 0);
	dt_chat_init(&chat, DT_CHAT_GEMMA, NULL, tok);
	for (size_t i = 0; i < sizeof(c) / sizeof(*c); i++) {
		if (text_of(&chat, c[i].messages, &err))
			fail_msg("accepted: %s", c[i].messages);
		if (!strstr(err.msg, c[i].says))
			fail_msg("'%s' does not say '%s'", err.msg, c[i].says);
	}
	dt_tokenizer_close(tok);
}

/* What an answer has beside its text is sent back by clients, and is no part of the prompt. */
static void test_answers_sent_back(void **state)
{
	static const char sent[] =
		"[{\"role\":\"user\",\"content\":\"U\"},{\"role\":\"assistant\",\"content\":\"A\","
		"\"refusal\":null,\"annotations\":[],\"reasoning_content\":\"R\"},"
		"{\"role\":\"user\",\"content\":\"V\"}]",
			  bare[] = "[{\"role\":\"user\",\"content\":\"U\"},"
				   "{\"role\":\"assistant\",\"content\":\"A\"},"
				   "{\"role\":\"user\",\"content\":\"V\"}]";
	struct dt_chat_whole whole = {0};
	struct dt_tokenizer *tok;
	struct dt_chat chat;
	struct dt_err err;
	char *s, *want;
	json_t *v;

	assert_int_equal(dt_tokenizer_open("byte", &tok, NULL), 0);
	dt_chat_init(&chat, DT_CHAT_CHATML, NULL, tok);
	s = text_of(&chat, sent, &err);
	want = text_of(&chat, bare, &err);
	if (!s)
		fail_msg("%s", err.msg);
	assert_string_equal(s, want);
	free(s);
	free(want);
	assert_null(
		text_of(&chat, "[{\"role\":\"user\",\"content\":\"x\",\"reasoning_content\":\"R\"}]", &err));
	assert_non_null(strstr(err.msg, "'reasoning_content'"));
	v = json_loads(sent, 0, NULL); /* to be learnt from it would be lost */
	assert_int_equal(dt_chat_encode_whole(&chat, v, NULL, 0, &whole, &err), -EINVAL);
	json_decref(v);
	dt_tokenizer_close(tok);
}

/* A content of no parts is an empty text. */
static void test_empty_content(void **state)
{
	static const char messages[] =
		"[{\"role\":\"system\",\"content\":[]},{\"role\":\"user\",\"content\":[]}]";
	struct dt_tokenizer *tok;

	assert_int_equal(dt_tokenizer_open("byte", &tok, NULL), 0);
	for (int kind = 0; kind < DT_CHAT_N; kind++) {
		struct dt_chat c;
		struct dt_err err;
		char *s;

		dt_chat_init(&c, (enum dt_chat_kind)kind, NULL, tok);
		s = text_of(&c, messages, &err);
		if (!s)
			fail_msg("%s", err.msg);
		if (kind == DT_CHAT_CHATML)
			assert_string_equal(s,
					    "<|im_start|>system\n<|im_end|>\n<|im_start|>user\n<|im_end|>\n"
					    "<|im_start|>assistant\n");
		free(s);
	}
	dt_tokenizer_close(tok);
}

static void same_ids(const char *family, size_t at, const json_t *want, const int32_t *ids, size_t n)
{
	for (size_t k = 0; k < n && k < json_array_size(want); k++)
		if (ids[k] != (int)json_integer_value(json_array_get(want, k)))
			fail_msg("%s, conversation %zu: token %zu is %d, not %d", family, at, k, ids[k],
				 (int)json_integer_value(json_array_get(want, k)));
	if (n != json_array_size(want))
		fail_msg("%s, conversation %zu: %zu tokens, not %zu", family, at, n, json_array_size(want));
}

/* Tokens and targets of whole conversations, and tokens of prompts, as transformers and the published
 * templates have them. */
static void test_targets(void **state)
{
	struct dt_tokenizer *plain, *more;
	json_t *cases = json_load_file(GOLDEN_DIR "/golden-chat.json", 0, NULL), *v;
	struct dt_err err;
	size_t i;

	assert_non_null(cases);
	assert_int_equal(dt_tokenizer_open(GOLDEN_DIR "/tokenizer/chat.json", &plain, &err), 0);
	assert_int_equal(dt_tokenizer_open(GOLDEN_DIR "/tokenizer/chat-deepseek.json", &more, &err), 0);
	json_array_foreach(cases, i, v)
	{
		const char *words = json_string_value(json_object_get(v, "words")),
			   *family = json_string_value(json_object_get(v, "family"));
		const json_t *prompt = json_object_get(v, "prompt"), *mask = json_object_get(v, "mask"),
			     *messages = json_object_get(v, "messages");
		const struct dt_tokenizer *tok = strncmp(family, "deepseek", 8) ? plain : more;
		struct dt_chat_whole w = {0};
		struct dt_chat c;
		int kind = dt_chat_recognise(words, tok), rc;

		assert_true(kind >= 0);
		dt_chat_init(&c, (enum dt_chat_kind)kind, words, tok);
		if (prompt)
			rc = dt_chat_encode(&c, messages, NULL, &w.ids, &w.n, &err);
		else
			rc = dt_chat_encode_whole(&c, messages, NULL, 0, &w, &err);
		if (rc < 0)
			fail_msg("%s: %s", family, err.msg);
		same_ids(family, i, prompt ? prompt : json_object_get(v, "ids"), w.ids, w.n);
		for (size_t k = 0; !prompt && k < w.n; k++)
			if (w.mask[k] != json_integer_value(json_array_get(mask, k)))
				fail_msg("%s, conversation %zu: token %zu, a target: %d", family, i, k,
					 w.mask[k]);
		free(w.ids);
		free(w.mask);
	}
	json_decref(cases);
	dt_tokenizer_close(plain);
	dt_tokenizer_close(more);
}

/* Marks stay with the text where the normal form is shorter, where the tokenizer begins with a blank, and
 * where a token reaches across the border. */
static void test_offsets(void **state)
{
	static const char *const tokenizers[] = {"qwen2.json", "sp-llama.json", "sp-always.json",
						 "sp-gemma.json", "llama3.json"};

	for (size_t i = 0; i < 5; i++) {
		struct dt_tokenizer *tok;
		struct dt_chat c;
		struct dt_chat_whole w;
		struct dt_err err;
		size_t n = 0, len;
		int32_t said[64];
		char path[512], *s;
		json_t *v = json_loads("[{\"role\":\"user\",\"content\":\"e\\u0301t\\u00e9\"},"
				       "{\"role\":\"assistant\",\"content\":\"xe\\u0301\"}]",
				       0, NULL);

		snprintf(path, sizeof(path), "%s/tokenizer/%s", GOLDEN_DIR, tokenizers[i]);
		assert_int_equal(dt_tokenizer_open(path, &tok, &err), 0);
		dt_chat_init(&c, DT_CHAT_CHATML, NULL, tok);
		if (dt_chat_encode_whole(&c, v, NULL, 0, &w, &err) < 0)
			fail_msg("%s: %s", tokenizers[i], err.msg);
		for (size_t k = 0; k < w.n && n < 64; k++)
			if (w.mask[k])
				said[n++] = w.ids[k];
		assert_int_equal(dt_tokenizer_decode(tok, said, n, true, &s, &len, &err), 0);
		if (!strstr(s, "x") || !strstr(s, "<|im_end|>") || strstr(s, "assistant"))
			fail_msg("%s: the targets are '%s'", tokenizers[i], s);
		free(s);
		free(w.ids);
		free(w.mask);
		dt_chat_init(&c, DT_CHAT_CHATML, NULL, tok);
		assert_int_equal(dt_chat_encode_whole(&c, v, NULL, 2, &w, &err), 0);
		for (size_t k = 0; k < w.n; k++)
			assert_int_equal(w.mask[k], 0);
		free(w.ids);
		free(w.mask);
		json_decref(v);
		dt_tokenizer_close(tok);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answers_sent_back), cmocka_unit_test(test_empty_content),
		cmocka_unit_test(test_families),	  cmocka_unit_test(test_open),
		cmocka_unit_test(test_special_tokens),	  cmocka_unit_test(test_bad_messages),
		cmocka_unit_test(test_targets),		  cmocka_unit_test(test_offsets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
