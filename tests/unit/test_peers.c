/* Keys and routes that clients of vLLM and llama.cpp use, over the stand-in model. */
#include "serve/api/messages.h"
#include "serve/api/openai.h"
#include "serve/api/responses.h"
#include "serve/api/tokenize.h"
#include "serve_fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct fake fake;
static struct dt_tokenizer *tok;
static struct dt_engine *engine;
static struct dt_chat chat;
static json_t *defaults;
static struct dt_engine_params roomy; /* used if max_len is set: for prompts that are only parsed */

static const struct dt_engine_params *params(void)
{
	return roomy.max_len > 0 ? &roomy : dt_engine_params(engine);
}

static int setup(void **state)
{
	if (fake_open(&fake, &tok, &engine, 10) < 0)
		return -1;
	dt_chat_init(&chat, DT_CHAT_CHATML, NULL, tok);
	chat.thinks = chat.switches = true; /* the byte tokenizer spells special tokens out */
	return 0;
}

static int teardown(void **state)
{
	dt_engine_close(engine);
	dt_tokenizer_close(tok);
	free(fake.cache);
	return 0;
}

static int parse(const char *body, struct dt_completion *c, struct dt_api_error *e)
{
	struct dt_api_model m = {
		.engine = params(), .name = "tiny", .chat = &chat, .defaults = defaults, .seed = 9};
	json_t *v = json_loads(body, 0, NULL);
	int rc;

	assert_non_null(v);
	rc = (json_object_get(v, "messages") ? dt_chat_parse : dt_completion_parse)(v, &m, c, e);
	json_decref(v);
	return rc;
}

#include "serve_parse.h"

/* The prompt of a body as text; every token of the byte tokenizer is a byte. */
static char *prompt_of(const char *body)
{
	struct dt_completion c = good(body);
	const struct dt_serve_req *r = &c.call->req[0];
	char *s = malloc((size_t)r->nprompt + 8);

	for (int i = 0; i < r->nprompt; i++)
		s[i] = (char)r->tokens[i];
	s[r->nprompt] = '\0';
	dt_completion_release(&c);
	return s;
}

static void assert_prompt(const char *body, const char *want)
{
	char *s = prompt_of(body);

	assert_string_equal(s, want);
	free(s);
}

/* The same for a body of another API. */
static void assert_prompt_by(int (*parse_by)(const json_t *, const struct dt_api_model *,
					     struct dt_completion *, struct dt_api_error *),
			     const char *body, const char *want)
{
	struct dt_api_model m = {.engine = params(), .name = "tiny", .chat = &chat};
	json_t *v = json_loads(body, 0, NULL);
	struct dt_completion c;
	struct dt_api_error e;

	if (parse_by(v, &m, &c, &e) < 0)
		fail_msg("%s: %s", body, e.msg);
	assert_int_equal(c.call->req[0].nprompt, strlen(want));
	for (size_t i = 0; want[i]; i++)
		assert_int_equal(c.call->req[0].tokens[i], want[i]);
	dt_completion_release(&c);
	json_decref(v);
}

/* The text that a body is answered with. */
static char *answer(const char *body)
{
	struct dt_completion c = good(body);
	struct dt_err err;
	char *s;

	assert_int_equal(dt_engine_submit(engine, c.call, &err), 0);
	dt_call_wait_done(c.call);
	assert_int_equal(c.call->req[0].finish, DT_FINISH_STOP);
	s = strndup(c.call->req[0].detok.text, c.call->req[0].detok.n);
	dt_completion_release(&c);
	return s;
}

#define U     "\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]"
#define P     "\"prompt\": \"x\""
#define ASKED "<|im_start|>user\nhi<|im_end|>\n"

/* enable_thinking false puts an empty thought before the answer, as Qwen3's template does. */
static void test_thinking(void **state)
{
	static const char open[] = ASKED "<|im_start|>assistant\n";
	static const char quiet[] = ASKED "<|im_start|>assistant\n<think>\n\n</think>\n\n";

	assert_prompt("{" U "}", open);
	assert_prompt("{" U ", \"chat_template_kwargs\": {}}", open);
	assert_prompt("{" U ", \"chat_template_kwargs\": {\"enable_thinking\": true}}", open);
	assert_prompt("{" U ", \"chat_template_kwargs\": {\"enable_thinking\": false}}", quiet);
	assert_prompt("{" U ", \"reasoning_effort\": \"none\"}", quiet);
	assert_prompt("{" U ", \"reasoning_effort\": null}", open);
	refused("{" U ", \"reasoning_effort\": \"high\"}", "only supported if it is none");
	refused("{" U ", \"chat_template_kwargs\": {\"enable_thinkin\": false}}",
		"unknown key 'enable_thinkin'");
	refused("{" U ", \"chat_template_kwargs\": {\"enable_thinking\": 0}}", "not true or false");
	refused("{" U ", \"chat_template_kwargs\": []}", "not an object");
	refused("{" P ", \"chat_template_kwargs\": {}}", "is a key of /v1/chat/completions");
	assert_prompt_by(dt_messages_parse, "{" U ", \"max_tokens\": 5}", open);
	assert_prompt_by(dt_messages_parse,
			 "{" U ", \"max_tokens\": 5, \"thinking\": {\"type\": \"disabled\"}}", quiet);
	assert_prompt_by(dt_responses_parse, "{\"input\": \"hi\"}", open);
	assert_prompt_by(dt_responses_parse, "{\"input\": \"hi\", \"reasoning\": {\"effort\": \"none\"}}",
			 quiet);
	chat.switches = false;
	assert_prompt_by(dt_messages_parse,
			 "{" U ", \"max_tokens\": 5, \"thinking\": {\"type\": \"disabled\"}}", open);
	refused("{" U ", \"chat_template_kwargs\": {\"enable_thinking\": false}}", "cannot turn off");
	assert_prompt("{" U ", \"chat_template_kwargs\": {\"enable_thinking\": true}}", open);
	/* a model that does not reason has nothing to turn off */
	chat.thinks = false;
	assert_prompt("{" U ", \"chat_template_kwargs\": {\"enable_thinking\": false}}", open);
	chat.switches = chat.thinks = true;
}

#define SCHEMA "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"string\"}}}"
#define RESULT "<|start|>functions.f to=assistant<|channel|>commentary<|message|>\"R\"<|end|>"

/* harmony: reasoning before a call goes back to the model, in each API's form, until it has answered. */
static void test_thought_of_calls(void **state)
{
	static const char chats[] =
		"{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", "
		"\"reasoning_content\": \"Hm.\", \"tool_calls\": [{\"id\": \"c\", \"type\": \"function\", "
		"\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"b\\\"}\"}}]}, {\"role\": "
		"\"tool\", \"tool_call_id\": \"c\", \"content\": \"R\"}], \"reasoning_effort\": \"low\", "
		"\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": "
		"\"F\", "
		"\"parameters\": " SCHEMA "}}]}";
	static const char responses[] =
		"{\"input\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"type\": \"reasoning\", "
		"\"summary\": "
		"[], \"content\": [{\"type\": \"reasoning_text\", \"text\": \"H\"}, {\"type\": "
		"\"reasoning_text\", \"text\": \"m.\"}]}, {\"type\": \"function_call\", \"call_id\": \"c\", "
		"\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"b\\\"}\"}, {\"type\": "
		"\"function_call_output\", \"call_id\": \"c\", \"output\": \"R\"}], \"reasoning\": "
		"{\"effort\": "
		"\"low\"}, \"tools\": [{\"type\": \"function\", \"name\": \"f\", \"description\": \"F\", "
		"\"parameters\": " SCHEMA "}]}";
	static const char messages[] =
		"{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", "
		"\"content\": [{\"type\": \"thinking\", \"thinking\": \"Hm.\", \"signature\": \"\"}, "
		"{\"type\": "
		"\"tool_use\", \"id\": \"c\", \"name\": \"f\", \"input\": {\"a\": \"b\"}}]}, {\"role\": "
		"\"user\", "
		"\"content\": [{\"type\": \"tool_result\", \"tool_use_id\": \"c\", \"content\": \"R\"}]}], "
		"\"max_tokens\": 5, \"tools\": [{\"name\": \"f\", \"description\": \"F\", "
		"\"input_schema\": " SCHEMA "}]}";
	char *s, *low;

	roomy = *dt_engine_params(engine);
	roomy.max_len = 4096;
	dt_chat_init(&chat, DT_CHAT_HARMONY, NULL, tok);
	s = prompt_of(chats);
	assert_non_null(strstr(s,
			       "<|start|>user<|message|>hi<|end|><|start|>assistant<|channel|>analysis"
			       "<|message|>Hm.<|end|><|start|>assistant to=functions.f<|channel|>commentary "
			       "json<|message|>{\"a\": \"b\"}<|call|>" RESULT "<|start|>assistant"));
	assert_prompt_by(dt_responses_parse, responses, s);
	low = strstr(s, "Reasoning: low");
	assert_non_null(low);
	memmove(low + 17, low + 14, strlen(low + 14) + 1); /* /v1/messages has no effort */
	memcpy(low, "Reasoning: medium", 17);
	assert_prompt_by(dt_messages_parse, messages, s);
	free(s);
	refused("{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"tool\", "
		"\"content\": "
		"\"R\"}]}",
		"message 1 is a tool's result, but no call precedes it");
	dt_chat_init(&chat, DT_CHAT_CHATML, NULL, tok);
	chat.thinks = chat.switches = true;
	roomy.max_len = 0;
}

static void test_prompts(void **state)
{
	assert_prompt("{" U ", \"add_generation_prompt\": false}", ASKED);
	assert_prompt("{\"prompt\": \"0123456789\", \"truncate_prompt_tokens\": 4}", "6789");
	assert_prompt("{\"prompt\": \"0123456789\", \"truncate_prompt_tokens\": 40}", "0123456789");
	assert_prompt("{\"prompt\": [49, 50, 51], \"truncate_prompt_tokens\": 1}", "3");
	assert_prompt("{" U ", \"truncate_prompt_tokens\": 6}", "stant\n");
	refused("{" P ", \"truncate_prompt_tokens\": -2}", "truncate_prompt_tokens");
	refused("{" P ", \"truncate_prompt_tokens\": 1, \"echo\": true}", "cannot be combined with 'echo'");
	refused("{" U ", \"add_special_tokens\": true}", "not supported");
}

/* -1: as many as leave room in the context of 100. */
static void test_truncation_to_the_context(void **state)
{
	char body[400];
	struct dt_completion c;

	snprintf(body, sizeof(body),
		 "{\"prompt\": \"%0150d\", \"max_tokens\": 30, \"truncate_prompt_tokens\": -1}", 7);
	c = good(body);
	assert_int_equal(c.call->req[0].nprompt, 70);
	assert_int_equal(c.call->req[0].tokens[69], '7');
	dt_completion_release(&c);
	snprintf(body, sizeof(body), "{\"prompt\": \"%0150d\", \"truncate_prompt_tokens\": -1}", 7);
	c = good(body);
	assert_int_equal(c.call->req[0].nprompt, 99);
	dt_completion_release(&c);
}

/* The limit of Anthropic's API replaces a default, and is reduced to the context; counting needs none. */
static void assert_messages_limit(int asked, int want)
{
	struct dt_api_model m = {
		.engine = dt_engine_params(engine), .name = "tiny", .chat = &chat, .defaults = defaults};
	json_t *v = json_loads("{" U "}", 0, NULL), *count = NULL;
	struct dt_completion c;
	struct dt_api_error e;

	if (dt_messages_count(v, &m, &count, &e) < 0)
		fail_msg("%s", e.msg);
	json_object_set_new(v, "max_tokens", json_integer(asked));
	if (dt_messages_parse(v, &m, &c, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(c.call->req[0].max_tokens, want < 0 ? c.max_len - c.call->req[0].nprompt : want);
	assert_int_equal(json_integer_value(json_object_get(count, "input_tokens")), c.call->req[0].nprompt);
	dt_completion_release(&c);
	json_decref(count);
	json_decref(v);
}

static void test_limits(void **state)
{
	static const struct {
		const char *body;
		int max;
	} want[] = {{"{" P "}", 16},
		    {"{" P ", \"n_predict\": 5}", 5},
		    {"{" P ", \"n_predict\": -1}", 99},
		    {"{" P ", \"n_predict\": 5, \"max_tokens\": 6}", 6},
		    {"{" P ", \"n_predict\": -1, \"max_tokens\": 6}", 6}};
	struct dt_completion c;

	for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
		c = good(want[i].body);
		assert_int_equal(c.call->req[0].max_tokens, want[i].max);
		dt_completion_release(&c);
	}
	refused("{" P ", \"n_predict\": -2}", "n_predict");
	/* the body's name of the limit replaces the default's */
	defaults = json_pack("{s:i}", "max_tokens", 3);
	c = good("{" P ", \"n_predict\": 5}");
	assert_int_equal(c.call->req[0].max_tokens, 5);
	dt_completion_release(&c);
	c = good("{" P "}");
	assert_int_equal(c.call->req[0].max_tokens, 3);
	dt_completion_release(&c);
	assert_messages_limit(7, 7);
	json_decref(defaults);
	defaults = json_pack("{s:i}", "max_completion_tokens", 1000); /* more than the context */
	assert_messages_limit(7, 7);
	json_decref(defaults);
	defaults = NULL;
	assert_messages_limit(7, 7);
	assert_messages_limit(1000, -1);
	c = good("{" P ", \"repeat_penalty\": 1.25}");
	assert_true(c.call->ask.sampling.repetition_penalty == 1.25);
	dt_completion_release(&c);
}

/* Values that change no answer are accepted, others are refused by name. */
static void test_hints(void **state)
{
	static const char *const idle[] = {
		"\"cache_prompt\": false", "\"id_slot\": 3",	    "\"use_beam_search\": false",
		"\"length_penalty\": 1.0", "\"request_id\": \"r\"", "\"spaces_between_special_tokens\": true",
		"\"bad_words\": []",	   "\"n_probs\": 0",	    "\"grammar\": \"\""};
	static const char *const not_idle[] = {"\"use_beam_search\": true",  "\"length_penalty\": 2",
					       "\"bad_words\": [\"a\"]",     "\"n_probs\": 3",
					       "\"allowed_token_ids\": [1]", "\"repeat_last_n\": 64"};
	char body[300];

	for (size_t i = 0; i < sizeof(idle) / sizeof(*idle); i++) {
		struct dt_completion c;

		snprintf(body, sizeof(body), "{" P ", %s}", idle[i]);
		c = good(body);
		dt_completion_release(&c);
	}
	for (size_t i = 0; i < sizeof(not_idle) / sizeof(*not_idle); i++) {
		snprintf(body, sizeof(body), "{" P ", %s}", not_idle[i]);
		refused(body, "not supported");
	}
}

/* Every kind of constraint, under each of its names: what is answered conforms, for several seeds. */
static void test_constraints(void **state)
{
	static const struct {
		const char *key;
		const char *in[3];	 /* one of these, */
		const char *begin, *end; /* or this before and after some letters */
	} want[] = {
		{"\"guided_choice\": [\"yes\", \"no\", \"a \\\"b\\\"\\n\u00e9\"]",
		 {"yes", "no", "a \"b\"\n\u00e9"}},
		{"\"structured_outputs\": {\"choice\": [\"yes\", \"no\"]}", {"yes", "no"}},
		{"\"guided_regex\": \"<[a-c]{2,4}>\\\\\\\\\"", {NULL}, "<", ">\\"},
		{"\"structured_outputs\": {\"regex\": \"^x[a-c]+y$\"}", {NULL}, "x", "y"},
		{"\"guided_json\": {\"enum\": [\"u\", 7]}", {"\"u\"", "7"}},
		{"\"guided_json\": \"{\\\"enum\\\": [\\\"u\\\", 7]}\"", {"\"u\"", "7"}},
		{"\"response_format\": {\"type\": \"json_object\", \"value\": {\"enum\": [\"u\", 7]}}",
		 {"\"u\"", "7"}},
		{"\"json_schema\": {\"const\": true}", {"true"}},
		{"\"grammar\": \"root ::= a \\\"s\\\" | [n] \\\"o\\\"\\na ::= \\\"ye\\\"\"", {"yes", "no"}},
		{"\"guided_grammar\": \"root ::= \\\"<\\\" [a-c]+ \\\">\\\"\"", {NULL}, "<", ">"},
		{"\"structured_outputs\": {\"grammar\": \"root ::= \\\"\\u00e9\\\"{2}\"}", {"\u00e9\u00e9"}},
		{"\"guided_choice\": [\"x\"], \"grammar\": \"\"", {"x"}},
		{"\"structured_outputs\": {\"json\": {\"const\": null}}", {"null"}},
		{"\"response_format\": {\"type\": \"json_object\", \"schema\": {\"const\": 12}}", {"12"}},
	};

	for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++)
		for (int seed = 0; seed < 20; seed++) {
			char body[400], *s;
			bool fits = false;

			snprintf(body, sizeof(body), "{" P ", \"max_tokens\": 90, \"seed\": %d, %s}", seed,
				 want[i].key);
			s = answer(body);
			for (int k = 0; k < 3 && want[i].in[k]; k++)
				fits |= !strcmp(s, want[i].in[k]);
			if (want[i].begin) {
				const size_t a = strlen(want[i].begin), z = strlen(want[i].end),
					     n = strlen(s);

				fits = n > a + z && !strncmp(s, want[i].begin, a) &&
				       !strcmp(s + n - z, want[i].end) && a + strspn(s + a, "abc") == n - z;
			}
			if (!fits)
				fail_msg("%s: '%s'", want[i].key, s);
			free(s);
		}
	refused("{" P ", \"guided_choice\": []}", "not an array of 1 to");
	refused("{" P ", \"guided_choice\": [\"a\", 1]}", "not a text");
	refused("{" P ", \"guided_regex\": \"(\"}", "");
	refused("{" P ", \"guided_regex\": \"a(?=b)\"}", "not supported");
	refused("{" P ", \"guided_json\": \"{\"}", "not a JSON schema");
	refused("{" P ", \"guided_json\": {\"const\": 1}, \"guided_regex\": \"a\"}", "cannot be combined");
	refused("{" P ", \"structured_outputs\": {\"grammar\": \"root ::= x\"}}",
		"the grammar, line 1, column 10: the rule 'x' is not defined");
	refused("{" P ", \"grammar\": [\"root\"]}", "'grammar' is not the text of a grammar");
	refused("{" P ", \"guided_grammar\": \"\"}", "no rule 'root'");
	refused("{" P ", \"grammar\": \"root ::= root\", \"guided_regex\": \"a\"}", "cannot be combined");
	refused("{" P ", \"structured_outputs\": {\"json\": {}, \"choice\": [\"a\"]}}", "cannot be combined");
	refused("{" P ", \"structured_outputs\": {\"json_object\": true}, \"response_format\": {\"type\": "
		"\"json_object\"}}",
		"cannot be combined");
}

/* continuous_usage_stats: every chunk has the usage so far. */
static void test_usage_of_chunks(void **state)
{
	for (int each = 0; each < 2; each++) {
		char body[300], *ev;
		struct dt_completion c;
		struct dt_err err;
		struct dt_sse s;
		int counted = 0, nulls = 0;
		size_t n;

		snprintf(body, sizeof(body),
			 "{" P
			 ", \"max_tokens\": 6, \"ignore_eos\": true, \"stream\": true, \"stream_options\": "
			 "{\"include_usage\": true, \"continuous_usage_stats\": %s}}",
			 each ? "true" : "false");
		c = good(body);
		assert_int_equal(dt_engine_submit(engine, c.call, &err), 0);
		assert_int_equal(dt_sse_init(&s, &c), 0);
		while (dt_sse_next(&s, 5, &ev, &n) > 0) {
			for (const char *at = ev; (at = strstr(at, "\"usage\":")); at++) {
				counted += !strncmp(at, "\"usage\":{", 9);
				nulls += !strncmp(at, "\"usage\":null", 12);
			}
			free(ev);
		}
		assert_int_equal(nulls > 0, !each);
		assert_true(each ? counted > 1 : counted == 1);
		dt_sse_release(&s);
		dt_completion_release(&c);
	}
	refused("{" P ", \"stream\": true, \"stream_options\": {\"include_obfuscation\": true}}",
		"not supported");
}

/* A suffix: the texts between the model's marks, which are text within them. */
static void test_suffix(void **state)
{
	static const char json[] =
		"{\"version\":\"1.0\",\"added_tokens\":[{\"id\":4,\"content\":\"<fim_prefix>\",\"special\":"
		"true},"
		"{\"id\":5,\"content\":\"<fim_suffix>\",\"special\":true},{\"id\":6,\"content\":\"<fim_"
		"middle>\","
		"\"special\":true}],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_"
		"prefix_space\":false},\"post_processor\":null,"
		"\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,"
		"\"b\":1,"
		"\"c\":2,\"<\":3,\"m\":7},\"merges\":[]}}";
	static const int32_t want[] = {4, 0, 1, 5, 2, 3, 6};
	struct dt_engine_params p = *dt_engine_params(engine);
	struct dt_api_model m = {.engine = &p, .name = "tiny"};
	json_t *body = json_loads("{\"prompt\": [\"ab\"], \"suffix\": \"c<\"}", 0, NULL);
	struct dt_tokenizer *fim;
	struct dt_completion c;
	struct dt_api_error e;
	struct dt_err err;

	if (dt_tokenizer_from_text(json, sizeof(json) - 1, &fim, &err) < 0)
		fail_msg("%s", err.msg);
	p.tok = fim;
	if (dt_completion_parse(body, &m, &c, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(c.call->req[0].nprompt, 7);
	assert_memory_equal(c.call->req[0].tokens, want, sizeof(want));
	dt_completion_release(&c);
	json_decref(body);
	dt_tokenizer_close(fim);
	refused("{" P ", \"suffix\": \"y\"}", "no tokens to fill in text");
	refused("{" P ", \"suffix\": 1}", "not a string");
	refused("{" P ", \"suffix\": \"y\", \"echo\": true}", "cannot be combined with 'echo'");
	refused("{\"prompt\": [1, 2], \"suffix\": \"y\"}", "that is a text");
	refused("{" U ", \"suffix\": \"y\"}", "not supported");
}

static void test_apply_template(void **state)
{
	struct dt_api_model m = {.engine = dt_engine_params(engine), .name = "tiny", .chat = &chat};
	static const struct {
		const char *body, *want;
	} c[] = {{"{" U "}", ASKED "<|im_start|>assistant\n"},
		 {"{" U ", \"add_generation_prompt\": false}", ASKED},
		 {"{" U ", \"chat_template_kwargs\": {\"enable_thinking\": false}}",
		  ASKED "<|im_start|>assistant\n<think>\n\n</think>\n\n"},
		 {"{\"prompt\": \"x\"}", NULL},
		 {"{\"messages\": []}", NULL},
		 {"{" U ", \"mesages\": 1}", NULL}};

	for (size_t i = 0; i < sizeof(c) / sizeof(*c); i++) {
		json_t *body = json_loads(c[i].body, 0, NULL), *v = NULL;
		struct dt_api_error e;
		int rc = dt_api_apply_template(body, &m, &v, &e);

		assert_int_equal(rc < 0, !c[i].want);
		if (rc == 0)
			assert_string_equal(json_string_value(json_object_get(v, "prompt")), c[i].want);
		json_decref(v);
		json_decref(body);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_thinking),
		cmocka_unit_test(test_thought_of_calls),
		cmocka_unit_test(test_prompts),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_truncation_to_the_context),
		cmocka_unit_test(test_hints),
		cmocka_unit_test(test_constraints),
		cmocka_unit_test(test_usage_of_chunks),
		cmocka_unit_test(test_apply_template),
		cmocka_unit_test(test_suffix),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
