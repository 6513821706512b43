/*
 * Tools: calls found in texts of each form while they come, and arguments held to their schema against a
 * model that would write something else. Their prompts: test_tool_prompts.c.
 */
#include "serve/api/openai.h"
#include "serve/api/tools.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TWO                                                                                                  \
	"[{\"type\":\"function\",\"function\":{\"name\":\"get\",\"parameters\":{\"type\":\"object\","        \
	"\"properties\":"                                                                                    \
	"{\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":9}},\"required\":[\"days\"],"             \
	"\"additionalProperties\":false}}},"                                                                 \
	"{\"type\":\"function\",\"function\":{\"name\":\"put\",\"parameters\":{\"type\":\"object\","         \
	"\"properties\":"                                                                                    \
	"{\"x\":{\"enum\":[1,2]}},\"required\":[\"x\"],\"additionalProperties\":false}}}"
#define TOOLS TWO "]"

#define CALLS  "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>"
#define CALLED "<｜tool▁call▁end｜>"

/* ---- calls in texts ---- */

/*
 * What is found in the beginnings of s only grows, and is in the end as wanted:
 * content|name|args|name|args.
 */
static void finds(enum dt_tool_form form, bool inside, const char *s, const char *want)
{
	size_t n = strlen(s), content = 0, args[DT_CALLS_MAX] = {0};
	struct dt_tool_calls c;
	char got[512];
	int calls = 0, k;

	for (size_t i = 0; i <= n; i++) {
		dt_tools_scan(form, inside, s, i, false, &c);
		if (c.content < content || c.n < calls)
			fail_msg("'%s' at %zu: takes back what it said", s, i);
		for (int j = 0; j < c.n; j++) {
			if (c.call[j].nargs < args[j])
				fail_msg("'%s' at %zu: takes back arguments", s, i);
			args[j] = c.call[j].nargs;
		}
		content = c.content;
		calls = c.n;
	}
	dt_tools_scan(form, inside, s, n, true, &c);
	assert_true(c.content >= content && c.n == calls);
	k = snprintf(got, sizeof(got), "%.*s", (int)(c.content - c.from), s + c.from);
	for (int j = 0; j < c.n; j++)
		k += snprintf(got + k, sizeof(got) - (size_t)k, "|%.*s|%.*s", (int)c.call[j].nname,
			      c.call[j].name, (int)c.call[j].nargs, c.call[j].args);
	assert_string_equal(got, want);
}

static void test_scan(void **state)
{
	finds(DT_TOOLS_HERMES, false, "No call <here.", "No call <here.");
	finds(DT_TOOLS_HERMES, false,
	      "Text.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"}<\\\"\"}}\n</tool_call>",
	      "Text.|f|{\"a\": \"}<\\\"\"}");
	finds(DT_TOOLS_HERMES, false,
	      "<tool_call>{\"name\":\"f\",\"arguments\":{}}</"
	      "tool_call>\n<tool_call>\n{\"name\":\"g\",\"arguments\":{\"x\":[1,{}]}}",
	      "|f|{}|g|{\"x\":[1,{}]}");
	finds(DT_TOOLS_HERMES, true, "{\"name\": \"f\", \"arguments\": {\"a\": 1}}", "|f|{\"a\": 1}");
	finds(DT_TOOLS_HERMES, false, "<tool_call>nonsense", "<tool_call>nonsense");
	finds(DT_TOOLS_HERMES, false, "ends in <tool_c", "ends in <tool_c");
	finds(DT_TOOLS_LLAMA3, false, " {\"name\": \"f\", \"parameters\": {\"a\": 1}}", "|f|{\"a\": 1}");
	finds(DT_TOOLS_LLAMA3, false, "Hello {\"name\": 1}", "Hello {\"name\": 1}");
	finds(DT_TOOLS_MISTRAL, false,
	      "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {\"b\": "
	      "2}}]",
	      "|f|{}|g|{\"b\": 2}");
	finds(DT_TOOLS_DEEPSEEK, false, "Say <｜tool", "Say <｜tool");
	finds(DT_TOOLS_DEEPSEEK, false, "Say <｜tool▁calls▁begin｜> no more",
	      "Say <｜tool▁calls▁begin｜> no more");
	finds(DT_TOOLS_DEEPSEEK, false,
	      "Let me see.\n" CALLS "f\n```json\n{\"a\": \"```\"}\n```" CALLED
	      "\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g.h\n```json\n{\"b\": {}}\n```" CALLED
	      "<｜tool▁calls▁end｜>",
	      "Let me see.|f|{\"a\": \"```\"}|g.h|{\"b\": {}}");
	finds(DT_TOOLS_DEEPSEEK, false, CALLS "f\n{\"a\": 1}", CALLS "f\n{\"a\": 1}");
	finds(DT_TOOLS_DEEPSEEK, true, "f\n```json\n{\"a\": \"cut of", "|f|{\"a\": \"cut of");
	finds(DT_TOOLS_MISTRAL, true, "[{\"name\": \"f\", \"arguments\": {\"a\": \"cut of",
	      "|f|{\"a\": \"cut of");
}

#define NEXT	 "<|end|><|start|>assistant"
#define ANALYSIS "<|channel|>analysis<|message|>Hm, to=functions.f." NEXT
#define CALL(x)	 "<|channel|>commentary to=functions." x

static void test_scan_harmony(void **state)
{
	static const char *const texts[][2] = {
		{ANALYSIS CALL("f <|constrain|>json<|message|>{\"a\": \"}<|call|>\"}"),
		 "|f|{\"a\": \"}<|call|>\"}"},
		{CALL("f.g-h<|constrain|>json<|message|> {\"a\": [{}]}<|call|>"), "|f.g-h|{\"a\": [{}]}"},
		{CALL("f<|message|>{}"), "|f|{}"},
		{CALL("f json<|message|>{\"a\": \"cut of"), "|f|{\"a\": \"cut of"},
		{"<|channel|>analysis to=functions.f code<|message|>{}", "|f|{}"},
		{"<|channel|>commentary to=f<|message|>{}", "|f|{}"},
		{" to=functions.f<|channel|>commentary json<|message|>{\"a\": 1}", "|f|{\"a\": 1}"},
		{" to = functions.f<|message|>{\"a\": 1}", "|f|{\"a\": 1}"},
		{ANALYSIS " to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}", "|f|{}"},
		{ANALYSIS "<|channel|>commentary<|message|>I <plan>." NEXT CALL("f<|message|>{}"),
		 "I <plan>.|f|{}"},
		{CALL("f<|message|>{\"a\":1}<|call|><|start|>assistant") CALL("g<|message|>{}"),
		 "|f|{\"a\":1}|g|{}"},
		{CALL("f<|message|>{}<|call|>and <|more"), "|f|{}"},
		{ANALYSIS "<|channel|>final<|message|>No call <|here.", "No call <|here."},
		{"<|channel|>final<|message|>It is " CALL("f"), "It is " CALL("f")},
		{"<|channel|>commentary<|message|>Plan." NEXT "<|channel|>final<|message|>A.",
		 "Plan." NEXT "<|channel|>final<|message|>A."},
		{ANALYSIS "<|channel|>fin", ""},
		{ANALYSIS, ""},
		{"", ""},
		/* garbage */
		{ANALYSIS CALL("f <|constrain|>json<|message|>nonsense"),
		 CALL("f <|constrain|>json<|message|>nonsense")},
		{ANALYSIS CALL("f <|const"), CALL("f <|const")},
		{CALL("f<|message|>"), CALL("f<|message|>")},
		{CALL("<|message|>{}<|call|>"), "||{}"},
		{"Only words to=functions.f", "Only words to=functions.f"},
		{" to be", " to be"},
		{" to", " to"},
		{"<|start|>assistan", "<|start|>assistan"},
		{ANALYSIS "Words.", "Words."},
		{"Words." NEXT CALL("f<|message|>{}"), "Words.|f|{}"},
		{"<|message|>{}", "<|message|>{}"},
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		finds(DT_TOOLS_HARMONY, false, texts[i][0], texts[i][1]);
	finds(DT_TOOLS_HARMONY, true, "=functions.f <|constrain|>json<|message|>{\"a\": 1}", "|f|{\"a\": 1}");
	finds(DT_TOOLS_HARMONY, true, " = functions.f<|channel|>commentary json<|message|>{\"a", "|f|{\"a");
	finds(DT_TOOLS_HARMONY, true, "=functions.f <|cons", "=functions.f <|cons");
	finds(DT_TOOLS_HARMONY, true, "", "");
}

/* ---- a model that writes what it likes ---- */

static struct script {
	int32_t ids[512];
	size_t n, at;
	int32_t end, five, brace;
	int vocab;
} script;

/* Wants the script's next token, else }, else 5; the end behind the script. */
static int forward(void *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err)
{
	for (int i = 0; i < b->nwant; i++) {
		float *row = logits + (size_t)i * (size_t)script.vocab;

		if (script.at < script.n && b->ids[b->want[i]] == script.ids[script.at])
			script.at++;
		for (int k = 0; k < script.vocab; k++)
			row[k] = 0;
		row[script.five] = 1;
		row[script.brace] = 2;
		row[script.at < script.n ? script.ids[script.at] : script.end] = 9;
	}
	return 0;
}

/* The bytes, or (special) a vocabulary in which harmony's marks are tokens. */
static struct dt_tokenizer *open_tokens(bool special)
{
	static const char *const marks[] = {"<|start|>",     "<|message|>", "<|channel|>",
					    "<|constrain|>", "<|return|>",  "<|call|>"};
	char path[] = "/tmp/test_tools.XXXXXX.json";
	struct dt_tokenizer *tok;
	json_t *o, *added;
	struct dt_err err;
	int fd;

	if (!special) {
		assert_int_equal(dt_tokenizer_open("byte", &tok, NULL), 0);
		return tok;
	}
	o = json_load_file(GOLDEN_DIR "/tokenizer/chat.json", 0, NULL);
	added = json_object_get(o, "added_tokens");
	assert_non_null(added);
	for (size_t i = 0; i < sizeof(marks) / sizeof(*marks); i++) {
		json_t *v = json_deep_copy(json_array_get(added, json_array_size(added) - 1));
		json_int_t id = json_integer_value(json_object_get(v, "id"));

		json_object_set_new(v, "content", json_string(marks[i]));
		json_object_set_new(v, "id", json_integer(id + 1));
		json_array_append_new(added, v);
	}
	fd = mkstemps(path, 5);
	assert_true(fd >= 0);
	assert_int_equal(json_dumpfd(o, fd, 0), 0);
	close(fd);
	json_decref(o);
	if (dt_tokenizer_open(path, &tok, &err) < 0)
		fail_msg("%s", err.msg);
	unlink(path);
	return tok;
}

static void set_script(const struct dt_tokenizer *tok, bool special, const char *text)
{
	struct dt_err err;
	int32_t *ids;

	script = (struct script){.vocab = dt_tokenizer_vocab(tok),
				 .five = dt_tokenizer_find(tok, "5", 1),
				 .brace = dt_tokenizer_find(tok, "}", 1),
				 .end = special ? dt_tokenizer_find(tok, "<|return|>", 10) : 256};
	assert_true(script.five >= 0 && script.brace >= 0 && script.end >= 0);
	assert_int_equal(dt_tokenizer_encode(tok, text, strlen(text), special, &ids, &script.n, &err), 0);
	assert_true(script.n < sizeof(script.ids) / sizeof(*script.ids));
	memcpy(script.ids, ids, script.n * sizeof(*ids));
	free(ids);
}

static bool special; /* tokens of answer() */
static bool thinks;

static json_t *answer(enum dt_chat_kind kind, const char *text, const char *more, bool stream)
{
	struct dt_engine_params p = {.model = {.forward = forward, .neos = 1},
				     .max_seqs = 1,
				     .max_tokens = 64,
				     .max_len = 4096,
				     .blocks = 300,
				     .block_size = 16,
				     .queue = 1,
				     .stuck_after = 10};
	struct dt_api_model m = {.name = "tiny"};
	struct dt_completion c = {0};
	struct dt_tokenizer *tok;
	struct dt_engine *engine;
	struct dt_api_error e;
	struct dt_chat chat;
	char body[4096];
	json_t *v;

	/*
	 * the first byte is drawn behind the prompt's last, a line end or a bracket, which no script
	 * begins with
	 */
	tok = open_tokens(special);
	set_script(tok, special, text);
	p.model.vocab = script.vocab;
	p.model.eos[0] = script.end;
	p.tok = tok;
	dt_chat_init(&chat, kind, NULL, tok);
	chat.thinks = thinks;
	assert_int_equal(dt_engine_open(&engine, &p, NULL), 0);
	m.engine = dt_engine_params(engine);
	m.chat = &chat;
	snprintf(body, sizeof(body),
		 "{\"messages\":[{\"role\":\"user\",\"content\":\"U\"}],\"temperature\":0,\"tools\":" TWO
		 ",{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]"
		 ",\"max_tokens\":300,\"stream\":%s%s}",
		 stream ? "true" : "false", more);
	v = json_loads(body, 0, NULL);
	assert_non_null(v);
	if (dt_chat_parse(v, &m, &c, &e) < 0)
		fail_msg("%s", e.msg);
	json_decref(v);
	assert_int_equal(dt_engine_submit(engine, c.call, NULL), 0);
	if (stream) {
		struct dt_sse s;
		char *piece;
		size_t n;

		v = json_array();
		assert_int_equal(dt_sse_init(&s, &c), 0);
		while (dt_sse_next(&s, 5, &piece, &n) == 1) {
			for (char *at = piece;
			     at < piece + n && (at = memmem(at, (size_t)(piece + n - at), "data: {", 7));
			     at++)
				json_array_append_new(v, json_loads(at + 6, JSON_DISABLE_EOF_CHECK, NULL));
			free(piece);
		}
		dt_sse_release(&s);
	} else {
		dt_call_wait_done(c.call);
		v = dt_completion_json(&c, &e);
	}
	assert_non_null(v);
	dt_completion_release(&c);
	dt_engine_close(engine);
	dt_tokenizer_close(tok);
	return v;
}

static const char *args_of(const json_t *v, size_t k, const char *name)
{
	const json_t *choice = json_array_get(json_object_get(v, "choices"), 0);
	const json_t *call =
		json_array_get(json_object_get(json_object_get(choice, "message"), "tool_calls"), k);
	const json_t *f = json_object_get(call, "function");

	assert_string_equal(json_string_value(json_object_get(choice, "finish_reason")), "tool_calls");
	assert_non_null(json_string_value(json_object_get(call, "id")));
	assert_string_equal(json_string_value(json_object_get(f, "name")), name);
	return json_string_value(json_object_get(f, "arguments"));
}

#define SAID                                                                                                 \
	"Let me see.\n<tool_call>\n{\"name\": \"get\", \"arguments\": {\"days\": "                           \
	"\"no\"}}\n</tool_call>\n<tool_call>\n{\"name\": "                                                   \
	"\"put\", \"arguments\": {\"x\": 2}}\n</tool_call>"

static void test_auto(void **state)
{
	json_t *v = answer(DT_CHAT_CHATML, SAID, "", false);
	const json_t *message = json_object_get(json_array_get(json_object_get(v, "choices"), 0), "message");

	assert_string_equal(json_string_value(json_object_get(message, "content")), "Let me see.");
	assert_int_equal(json_array_size(json_object_get(message, "tool_calls")), 2);
	assert_string_equal(args_of(v, 0, "get"), "{\"days\": 5}"); /* not "no" */
	assert_string_equal(args_of(v, 1, "put"), "{\"x\": 2}");
	json_decref(v);
	v = answer(DT_CHAT_LLAMA3, "{\"name\": \"put\", \"parameters\": {\"x\": 9}}", "", false);
	assert_int_equal(strtol(strchr(args_of(v, 0, "put"), ':') + 1, NULL, 10) <= 2, 1);
	json_decref(v);
	v = answer(DT_CHAT_MISTRAL, "[TOOL_CALLS] [{\"name\": \"put\", \"arguments\": {\"x\": 1}}]", "",
		   false);
	assert_string_equal(args_of(v, 0, "put"), "{\"x\": 1}");
	json_decref(v);
	v = answer(DT_CHAT_DEEPSEEK3,
		   "Let me see.\n" CALLS "get\n```json\n{\"days\": \"no\"}\n```" CALLED
		   "\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>put\n```json\n{\"x\": 2}\n```" CALLED
		   "<｜tool▁calls▁end｜>",
		   "", false);
	message = json_object_get(json_array_get(json_object_get(v, "choices"), 0), "message");
	assert_string_equal(json_string_value(json_object_get(message, "content")), "Let me see.");
	assert_string_equal(args_of(v, 0, "get"), "{\"days\": 5}"); /* not "no" */
	assert_string_equal(args_of(v, 1, "put"), "{\"x\": 2}");
	json_decref(v);
	v = answer(DT_CHAT_CHATML, "Only words.", "", false);
	message = json_object_get(json_array_get(json_object_get(v, "choices"), 0), "message");
	assert_string_equal(json_string_value(json_object_get(message, "content")), "Only words.");
	assert_null(json_object_get(message, "tool_calls"));
	json_decref(v);
}

static void test_forced(void **state)
{
	json_t *v = answer(DT_CHAT_CHATML, "{\"name\": \"put\", \"arguments\": {\"x\": 2}} and more",
			   ",\"tool_choice\":\"required\"", false);

	assert_string_equal(args_of(v, 0, "put"), "{\"x\": 2}");
	json_decref(v);
	/* without parameters there are no arguments */
	v = answer(DT_CHAT_CHATML, "{\"name\": \"now\", \"arguments\": {\"x\": 2}}",
		   ",\"tool_choice\":\"required\"", false);
	assert_string_equal(args_of(v, 0, "now"), "{}");
	json_decref(v);
	v = answer(DT_CHAT_CHATML, "{\"name\": \"put\"",
		   ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"put\"}}", false);
	args_of(v, 0, "put");
	json_decref(v);
	v = answer(DT_CHAT_DEEPSEEK3, "put\n```json\n{\"x\": 2}\n``` and more",
		   ",\"tool_choice\":\"required\"", false);
	assert_string_equal(args_of(v, 0, "put"), "{\"x\": 2}");
	json_decref(v);
	v = answer(DT_CHAT_CHATML, "<tool_call>", ",\"tool_choice\":\"none\"", false);
	assert_null(json_object_get(
		json_object_get(json_array_get(json_object_get(v, "choices"), 0), "message"), "tool_calls"));
	json_decref(v);
}

/* The pieces of a stream, put together, are the whole answer. */
static void test_stream(void **state)
{
	json_t *whole = answer(DT_CHAT_CHATML, SAID, "", false),
	       *parts = answer(DT_CHAT_CHATML, SAID, "", true), *v;
	char content[100] = "", args[2][100] = {"", ""};
	const char *finish = NULL;
	int ids = 0;
	size_t i;

	json_array_foreach(parts, i, v)
	{
		const json_t *choice = json_array_get(json_object_get(v, "choices"), 0),
			     *delta = json_object_get(choice, "delta");
		const json_t *call = json_array_get(json_object_get(delta, "tool_calls"), 0);
		const char *text = json_string_value(json_object_get(delta, "content"));
		json_int_t k = json_integer_value(json_object_get(call, "index"));

		finish = json_string_value(json_object_get(choice, "finish_reason"));
		strcat(content, text ? text : "");
		ids += json_object_get(call, "id") != NULL;
		if (call)
			strcat(args[k], json_string_value(json_object_get(json_object_get(call, "function"),
									  "arguments")));
	}
	assert_string_equal(content, "Let me see.");
	assert_string_equal(finish, "tool_calls");
	assert_int_equal(ids, 2);
	assert_string_equal(args[0], args_of(whole, 0, "get"));
	assert_string_equal(args[1], args_of(whole, 1, "put"));
	json_decref(whole);
	json_decref(parts);
}

/* What was thought comes apart, whole and streamed, with and without a call behind it. */
static void test_thought(void **state)
{
	static const struct {
		const char *text, *thought, *content;
		int calls;
	} c[] = {
		{"<think>\nHm, <thin\n</think>\n\nYes.", "Hm, <thin", "Yes.", 0},
		{"<think></think>Yes.", "", "Yes.", 0},
		{"<think>no end", "no end", "", 0},
		{"<thing> No.", NULL, "<thing> No.", 0},
		{"<|channel|>analysis<|message|>Hm, "
		 "<|e\n<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
		 "Hm, <|e", "Yes.", 0},
		{"<|channel|>final<|message|>Yes.", NULL, "Yes.", 0},
		{"<|channel|>analysis<|message|>no end", "no end", "", 0},
		{"<|chan No.", NULL, "<|chan No.", 0},
		{"<think>a</think>\n<tool_call>\n{\"name\": \"put\", \"arguments\": {\"x\": "
		 "2}}\n</tool_call>",
		 "a", NULL, 1},
	};

	thinks = true;
	for (size_t i = 0; i < sizeof(c) / sizeof(*c); i++) {
		json_t *whole = answer(DT_CHAT_CHATML, c[i].text, "", false),
		       *parts = answer(DT_CHAT_CHATML, c[i].text, "", true), *v;
		const json_t *m =
			json_object_get(json_array_get(json_object_get(whole, "choices"), 0), "message");
		const char *thought = json_string_value(json_object_get(m, "reasoning_content"));
		const char *content = json_string_value(json_object_get(m, "content"));
		char both[2][100] = {"", ""};
		size_t k;

		assert_string_equal(thought ? thought : "none", c[i].thought ? c[i].thought : "none");
		assert_string_equal(content ? content : "none", c[i].content ? c[i].content : "none");
		assert_int_equal(json_array_size(json_object_get(m, "tool_calls")), c[i].calls);
		json_array_foreach(parts, k, v)
		{
			const json_t *d =
				json_object_get(json_array_get(json_object_get(v, "choices"), 0), "delta");
			const char *a = json_string_value(json_object_get(d, "reasoning_content"));
			const char *b = json_string_value(json_object_get(d, "content"));

			strcat(both[0], a ? a : "");
			strcat(both[1], b ? b : "");
		}
		assert_string_equal(both[0], c[i].thought ? c[i].thought : "");
		assert_string_equal(both[1], c[i].content ? c[i].content : "");
		json_decref(whole);
		json_decref(parts);
	}
	thinks = false;
}

/* What the parts of a stream have under `key`; arguments: of the call. */
static void join(const json_t *parts, const char *key, char *to)
{
	const json_t *v;
	size_t i;

	*to = 0;
	json_array_foreach((json_t *)parts, i, v)
	{
		const json_t *delta =
			json_object_get(json_array_get(json_object_get(v, "choices"), 0), "delta");
		const json_t *call = json_array_get(json_object_get(delta, "tool_calls"), 0);
		const json_t *from = strcmp(key, "arguments") ? delta : json_object_get(call, "function");
		const char *s = json_string_value(json_object_get(from, key));

		strcat(to, s ? s : "");
	}
}

/*
 * Marks are tokens where the template writes them, and text inside of texts. In training the assistant's
 * parts are targets: from behind its name to its marks of the end.
 */
static void test_tokens_of_harmony(void **state)
{
	json_t *v = json_loads(
		"[{\"role\":\"user\",\"content\":\"<|call|>\"},{\"role\":\"assistant\",\"content\":"
		"\"W\",\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":"
		"\"{\\\"a\\\":\\\"<|call|>\\\"}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"a\","
		"\"content\":\"<|call|>\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":"
		"[{\"id\":\"b\",\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]}]",
		0, NULL);
	json_t *list = json_loads("[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":"
				  "\"<|call|>\"}}]",
				  0, NULL);
	struct dt_chat_tools t = {.list = list};
	struct dt_tokenizer *tok = open_tokens(true);
	struct dt_chat_whole w;
	struct dt_chat c;
	struct dt_err err;
	int32_t *said;
	size_t n = 0, calls = 0, len;
	char *s;

	dt_chat_init(&c, DT_CHAT_HARMONY, NULL, tok);
	assert_true(c.call >= 0 && c.call == dt_tokenizer_find(tok, "<|call|>", 8));
	assert_int_equal(dt_chat_encode_whole(&c, v, &t, 0, &w, &err), 0);
	said = calloc(w.n, sizeof(*said));
	assert_non_null(said);
	for (size_t i = 0; i < w.n; i++) {
		calls += w.ids[i] == c.call;
		if (w.mask[i])
			said[n++] = w.ids[i];
	}
	assert_int_equal(calls, 2);
	assert_int_equal(dt_tokenizer_decode(tok, said, n, true, &s, &len, &err), 0);
	assert_string_equal(
		s, "<|channel|>analysis<|message|>W<|end|><|start|>assistant to=functions.f<|channel|>"
		   "commentary json<|message|>{\"a\": \"<|call|>\"}<|call|> to=functions.g<|channel|>"
		   "commentary json<|message|>{}<|call|>");
	free(s);
	free(said);
	free(w.ids);
	free(w.mask);
	json_decref(list);
	json_decref(v);
	dt_tokenizer_close(tok);
}

/* a second key overrides the first */
#define CONTINUED                                                                                            \
	",\"continue_final_message\":true,\"messages\":[{\"role\":\"user\",\"content\":\"U\"},{\"role\":"    \
	"\"assistant\",\"content\":\"Up\"}]"
#define NAMED(x) ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"" x "\"}}"
#define REQUIRED ",\"tool_choice\":\"required\""
#define NONE	 ",\"tool_choice\":\"none\""

static const struct answer_case {
	const char *text, *more, *thought, *content, *name, *args; /* NULL: none; of args: any */
} answers[] = {
	{ANALYSIS CALL("get <|constrain|>json<|message|>{\"days\":\"no\"}<|call|>"), "",
	 "Hm, to=functions.f.", NULL, "get", "{\"days\":5}"},
	{CALL("get<|message|>{\"days\": 4} and more"), "", NULL, NULL, "get", "{\"days\": 4}"},
	{"<|channel|>analysis to=functions.get json<|message|>{\"days\": 4}", "", NULL, NULL, "get",
	 "{\"days\": 4}"},
	{" to=functions.put<|channel|>commentary json<|message|>{\"x\": 2}", "", NULL, NULL, "put",
	 "{\"x\": 2}"},
	{ANALYSIS " to=functions.put<|channel|>commentary json<|message|>{\"x\": 1}", "",
	 "Hm, to=functions.f.", NULL, "put", "{\"x\": 1}"},
	{"<|channel|>commentary<|message|>Plan." NEXT CALL("get<|message|>{\"days\": 4}"), "", NULL, "Plan.",
	 "get", "{\"days\": 4}"},
	{CALL("nope<|message|>{\"x\": 1}"), "", NULL, NULL, "now", "{}"}, /* no other begins so */
	{ANALYSIS "<|channel|>final<|message|>Only words.", "", "Hm, to=functions.f.", "Only words.", NULL,
	 NULL},
	{"<|channel|>commentary ", "", NULL, "", NULL, NULL},
	{"=functions.put <|constrain|>json<|message|>{\"x\": 2} and more", REQUIRED, NULL, NULL, "put",
	 "{\"x\": 2}"},
	{"=functions.now<|message|>{\"x\": 2}", REQUIRED, NULL, NULL, "now", "{}"},
	{"=functions.put<|message|>{\"days\": 2}", NAMED("get"), NULL, NULL, "get", NULL},
	{CALL("get<|message|>{\"days\":\"no\"}"), NONE, "{\"days\":\"no\"}", "", NULL, NULL},
};

/* The same answers whole and streamed. */
static void check_answer(const struct answer_case *a)
{
	json_t *whole = answer(DT_CHAT_HARMONY, a->text, a->more, false),
	       *parts = answer(DT_CHAT_HARMONY, a->text, a->more, true);
	const json_t *choice = json_array_get(json_object_get(whole, "choices"), 0),
		     *m = json_object_get(choice, "message");
	const char *thought = json_string_value(json_object_get(m, "reasoning_content"));
	const char *content = json_string_value(json_object_get(m, "content"));
	char text[300];

	assert_string_equal(thought ? thought : "none", a->thought ? a->thought : "none");
	assert_string_equal(content ? content : "none", a->content ? a->content : "none");
	assert_int_equal(json_array_size(json_object_get(m, "tool_calls")), a->name != NULL);
	if (a->name && a->args)
		assert_string_equal(args_of(whole, 0, a->name), a->args);
	else if (a->name)
		assert_non_null(strchr(args_of(whole, 0, a->name), '}'));
	else
		assert_string_equal(json_string_value(json_object_get(choice, "finish_reason")), "stop");
	join(parts, "reasoning_content", text);
	assert_string_equal(text, a->thought ? a->thought : "");
	join(parts, "content", text);
	assert_string_equal(text, a->content ? a->content : "");
	join(parts, "arguments", text);
	if (!a->name || a->args)
		assert_string_equal(text, a->name ? a->args : "");
	choice = json_array_get(json_object_get(json_array_get(parts, json_array_size(parts) - 1), "choices"),
				0);
	assert_string_equal(json_string_value(json_object_get(choice, "finish_reason")),
			    a->name ? "tool_calls" : "stop");
	json_decref(whole);
	json_decref(parts);
}

static void test_answers_of_harmony(void **state)
{
	thinks = true;
	for (int k = 0; k < 2; k++) { /* as text, as tokens */
		special = k;
		for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++)
			check_answer(&answers[i]);
	}
	check_answer(&(struct answer_case){" to the end" NEXT CALL("get<|message|>{\"days\":4}"), CONTINUED,
					   NULL, " to the end", "get", "{\"days\":4}"});
	check_answer(&(struct answer_case){"<|channel|>analysis<|message|>Hm.<|call|> more", NONE, "Hm.", "",
					   NULL, NULL});
	special = thinks = false;
}

static void test_refused(void **state)
{
	static const char *const bad[] = {
		"[]",
		"[5]",
		"[{\"type\":\"function\"}]",
		"[{\"type\":\"web\",\"function\":{\"name\":\"f\"}}]",
		"[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]",
		"[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},{\"type\":\"function\",\"function\":{"
		"\"name\":\"f\"}}]",
		"[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":5}}]",
		"[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
		"\"nonsense\":1}}}]",
	};
	struct dt_grammar *g;
	struct dt_err err;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		json_t *v = json_loads(bad[i], 0, NULL);

		if (dt_tools_grammar(DT_TOOLS_HERMES, v, NULL, true, NULL, &g, &err) >= 0)
			fail_msg("taken: %s", bad[i]);
		json_decref(v);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scan),
		cmocka_unit_test(test_scan_harmony),
		cmocka_unit_test(test_auto),
		cmocka_unit_test(test_forced),
		cmocka_unit_test(test_stream),
		cmocka_unit_test(test_thought),
		cmocka_unit_test(test_tokens_of_harmony),
		cmocka_unit_test(test_answers_of_harmony),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
