/* Prompts with tools: what published templates give. */
#include "data/chat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static char *prompt(enum dt_chat_kind kind, const char *template, const char *messages, const char *tools,
		    bool open)
{
	json_t *v = json_loads(messages, 0, NULL), *list = tools ? json_loads(tools, 0, NULL) : NULL;
	struct dt_chat_tools t = {.list = list, .open = open};
	struct dt_tokenizer *tok;
	struct dt_chat c;
	struct dt_err err;
	int32_t *ids;
	size_t n, len;
	char *s = NULL;

	assert_non_null(v);
	assert_int_equal(dt_tokenizer_open("byte", &tok, NULL), 0);
	dt_chat_init(&c, kind, template, tok);
	if (dt_chat_encode(&c, v, list ? &t : NULL, &ids, &n, &err) < 0)
		s = strdup(err.msg);
	else if (dt_tokenizer_decode(tok, ids, n, true, &s, &len, &err) == 0)
		free(ids);
	json_decref(v);
	json_decref(list);
	dt_tokenizer_close(tok);
	return s;
}

static void is_prompt(enum dt_chat_kind kind, const char *messages, const char *tools, bool open,
		      const char *want)
{
	char *s = prompt(kind, NULL, messages, tools, open);

	assert_string_equal(s, want);
	free(s);
}

#define ONE "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]"
#define TURNS                                                                                                \
	"[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"U\"},{\"role\":"          \
	"\"assistant\","                                                                                     \
	"\"content\":null,\"tool_calls\":[{\"id\":\"abc\",\"type\":\"function\",\"function\":{\"name\":"     \
	"\"f\","                                                                                             \
	"\"arguments\":\"{\\\"a\\\":1}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"abc\",\"content\":\"R\"}" \
	","                                                                                                  \
	"{\"role\":\"tool\",\"tool_call_id\":\"abd\",\"content\":\"Q\"}]"
#define CALLS  "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>"
#define CALLED "<｜tool▁call▁end｜>"
#define HERMES_TOOLS                                                                                         \
	"# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided "  \
	"with function "                                                                                     \
	"signatures within <tools></tools> XML tags:\n<tools>\n{\"type\": \"function\", \"function\": "      \
	"{\"name\": "                                                                                        \
	"\"f\"}}\n</tools>\n\nFor each function call, return a json object with function name and "          \
	"arguments within "                                                                                  \
	"<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "        \
	"<args-json-object>}\n</tool_call>"

#define DEEPSEEK_TOOLS                                                                                       \
	"# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided "  \
	"with function signatures within <tools></tools> XML tags:\n<tools>\n{\"type\": \"function\", "      \
	"\"function\": {\"name\": \"f\"}}\n</tools>\n\nFor function call returns, you should first print "   \
	"<｜tool▁calls▁begin｜>\nFor each function call, you should return object like:\n"             \
	"<｜tool▁call▁begin｜>function<｜tool▁sep｜><function_name>\n```json\n"                    \
	"<function_arguments_in_json_format>\n```<｜tool▁call▁end｜>\nAt the end of function call "    \
	"returns, you should print <｜tool▁calls▁end｜><｜end▁of▁sentence｜>"

static void test_prompts(void **state)
{
	char *s;

	is_prompt(DT_CHAT_CHATML, TURNS, ONE, false,
		  "<|im_start|>system\nS\n\n" HERMES_TOOLS "<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
		  "<|im_start|>assistant\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "
		  "1}}\n</tool_call>"
		  "<|im_end|>\n<|im_start|>user\n<tool_response>\nR\n</tool_response>\n<tool_response>\nQ\n"
		  "</tool_response><|im_end|>\n<|im_start|>assistant\n");
	is_prompt(DT_CHAT_CHATML, "[{\"role\":\"user\",\"content\":\"U\"}]", ONE, true,
		  "<|im_start|>system\n" HERMES_TOOLS
		  "<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n<tool_call>\n");
	is_prompt(DT_CHAT_MISTRAL, TURNS, ONE, false,
		  "[AVAILABLE_TOOLS] [{\"type\": \"function\", \"function\": {\"name\": "
		  "\"f\"}}][/AVAILABLE_TOOLS]"
		  "[INST] S\n\nU [/INST][TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": "
		  "\"abc\"}]</s>"
		  "[TOOL_RESULTS] {\"content\": \"R\", \"call_id\": \"abc\"}[/TOOL_RESULTS]"
		  "[TOOL_RESULTS] {\"content\": \"Q\", \"call_id\": \"abd\"}[/TOOL_RESULTS]");
	is_prompt(
		DT_CHAT_DEEPSEEK3, TURNS, ONE, false,
		"S\n\n" DEEPSEEK_TOOLS "<｜User｜>U<｜Assistant｜>" CALLS "f\n```json\n{\"a\": 1}\n```" CALLED
		"<｜tool▁calls▁end｜><｜end▁of▁sentence｜><｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>R"
		"<｜tool▁output▁end｜>\n<｜tool▁output▁begin｜>Q<｜tool▁output▁end｜><｜tool▁outputs▁end｜>");
	is_prompt(DT_CHAT_DEEPSEEK3, "[{\"role\":\"user\",\"content\":\"U\"}]", ONE, true,
		  DEEPSEEK_TOOLS "<｜User｜>U<｜Assistant｜>" CALLS);
	s = prompt(DT_CHAT_LLAMA3, NULL, TURNS, ONE, false);
	assert_non_null(strstr(s, "system<|end_header_id|>\n\nEnvironment: ipython\nS<|eot_id|>"));
	assert_non_null(strstr(s, "Given the following functions, please respond with a JSON"));
	assert_non_null(strstr(s, "    \"type\": \"function\",\n"));
	assert_non_null(strstr(s, "\n\nU<|eot_id|>"));
	assert_non_null(strstr(s, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}<|eot_id|>"));
	assert_non_null(strstr(s, "<|start_header_id|>ipython<|end_header_id|>\n\n\"R\"<|eot_id|>"));
	free(s);
	s = prompt(DT_CHAT_GEMMA, NULL, "[{\"role\":\"user\",\"content\":\"U\"}]", ONE, false);
	assert_string_equal(s, "the chat template of this model does not support tools");
	free(s);
}

/* gpt-oss: the template's own system message has the date, and the user's is the developer's. */
static void test_harmony(void **state)
{
	const time_t now = time(NULL);
	char want[600], date[16];
	struct tm day;
	char *s = prompt(DT_CHAT_HARMONY, NULL,
			 "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"U\"},"
			 "{\"role\":\"assistant\",\"content\":\"A\"},{\"role\":\"user\",\"content\":\"V\"}]",
			 NULL, false);

	assert_non_null(localtime_r(&now, &day));
	strftime(date, sizeof(date), "%Y-%m-%d", &day);
	snprintf(want, sizeof(want),
		 "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
		 "Knowledge cutoff: 2024-06\nCurrent date: %s\n\nReasoning: medium\n\n"
		 "# Valid channels: analysis, commentary, final. Channel must be included for every message."
		 "<|end|><|start|>developer<|message|># "
		 "Instructions\n\nS\n\n<|end|><|start|>user<|message|>U<|end|>"
		 "<|start|>assistant<|channel|>final<|message|>A<|end|><|start|>user<|message|>V<|end|>"
		 "<|start|>assistant",
		 date);
	assert_string_equal(s, want);
	free(s);
}

/* The date of today in a prompt of harmony becomes the word DATE. */
static void hide_date(char *s)
{
	char *at = strstr(s, "Current date: ");

	assert_non_null(at);
	at += strlen("Current date: ");
	assert_int_equal(strcspn(at, "\n"), 10);
	memcpy(at, "DATE", 4);
	memmove(at + 4, at + 10, strlen(at + 10) + 1);
}

/* What transformers makes of the published templates (tests/data/golden_tools.py). */
static void test_prompts_of_transformers(void **state)
{
	json_t *cases = json_load_file(GOLDEN_DIR "/golden-tools.json", 0, NULL), *v;
	size_t i;

	assert_true(json_array_size(cases) >= 29);
	json_array_foreach(cases, i, v)
	{
		const char *form = json_string_value(json_object_get(v, "form"));
		char *messages = json_dumps(json_object_get(v, "messages"), 0);
		char *tools = json_dumps(json_object_get(v, "tools"), 0); /* NULL: none */
		char *s = prompt(!strcmp(form, "hermes")     ? DT_CHAT_CHATML
				 : !strcmp(form, "mistral")  ? DT_CHAT_MISTRAL
				 : !strcmp(form, "deepseek") ? DT_CHAT_DEEPSEEK3
				 : !strcmp(form, "harmony")  ? DT_CHAT_HARMONY
							     : DT_CHAT_LLAMA3,
				 json_string_value(json_object_get(v, "words")), messages, tools, false);

		if (!strcmp(form, "harmony"))
			hide_date(s);
		assert_string_equal(s, json_string_value(json_object_get(v, "text")));
		free(s);
		free(tools);
		free(messages);
	}
	json_decref(cases);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_prompts),
		cmocka_unit_test(test_prompts_of_transformers),
		cmocka_unit_test(test_harmony),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
