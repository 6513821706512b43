/* Bodies to calls, calls to replies and events, over the stand-in model. */
#include "serve/api/openai.h"
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

static int setup(void **state)
{
	if (fake_open(&fake, &tok, &engine, 10) < 0)
		return -1;
	dt_chat_init(&chat, DT_CHAT_NONE, NULL, tok);
	return 0;
}

static int teardown(void **state)
{
	dt_engine_close(engine);
	dt_tokenizer_close(tok);
	free(fake.cache);
	return 0;
}

static int parse(const char *body, bool line, struct dt_completion *c, struct dt_api_error *e)
{
	struct dt_api_model m = {.engine = dt_engine_params(engine),
				 .name = "tiny",
				 .chat = &chat,
				 .defaults = defaults,
				 .seed = 9};
	json_t *v = json_loads(body, JSON_ALLOW_NUL, NULL);
	int rc;

	assert_non_null(v);
	rc = line ? dt_line_parse(v, &m, c, e) : dt_completion_parse(v, &m, c, e);
	json_decref(v);
	return rc;
}

static void test_bad_bodies(void **state)
{
	static const struct {
		const char *body;
		int status;
		const char *param, *code;
	} bad[] = {
		{"[]", 400, "", NULL},
		{"{}", 400, "prompt", NULL},
		{"{\"prompt\": []}", 400, "prompt", NULL},
		{"{\"prompt\": 5}", 400, "prompt", NULL},
		{"{\"prompt\": [5, [6]]}", 400, "prompt", NULL},
		{"{\"prompt\": [258]}", 400, "prompt", NULL},
		{"{\"prompt\": [-1]}", 400, "prompt", NULL},
		{"{\"prompt\": [[1], []]}", 400, "prompt", NULL},
		{"{\"prompt\": \"x\", \"temprature\": 1}", 400, "temprature", NULL},
		{"{\"prompt\": \"x\", \"temperature\": -1}", 400, "temperature", NULL},
		{"{\"prompt\": \"x\", \"priority\": 1.5}", 400, "priority", NULL},
		{"{\"prompt\": \"x\", \"suffix\": \"y\"}", 400, "suffix", NULL},
		{"{\"prompt\": \"x\", \"tools\": [{\"type\": \"function\"}]}", 400, "tools", NULL},
		{"{\"prompt\": \"x\", \"tool_choice\": \"required\"}", 400, "tool_choice", NULL},
		{"{\"prompt\": \"x\", \"tool_choice\": \"aut\"}", 400, "tool_choice", NULL},
		{"{\"prompt\": \"x\", \"reasoning_effort\": \"\"}", 400, "reasoning_effort", NULL},
		{"{\"prompt\": \"x\", \"store\": true}", 400, "store", NULL},
		{"{\"prompt\": \"x\", \"temperature\": \"hot\"}", 400, "temperature", NULL},
		{"{\"prompt\": \"x\", \"top_p\": 1.5}", 400, "top_p", NULL},
		{"{\"prompt\": \"x\", \"max_tokens\": -1}", 400, "max_tokens", NULL},
		{"{\"prompt\": \"x\", \"max_tokens\": 1.5}", 400, "max_tokens", NULL},
		{"{\"prompt\": \"x\", \"min_tokens\": 20}", 400, "min_tokens", NULL},
		{"{\"prompt\": \"x\", \"n\": 0}", 400, "n", NULL},
		{"{\"prompt\": \"x\", \"n\": 13}", 400, "n", NULL},
		{"{\"prompt\": \"x\", \"n\": 2, \"best_of\": 3}", 400, "best_of", NULL},
		{"{\"prompt\": \"x\", \"logprobs\": 21}", 400, "logprobs", NULL},
		{"{\"prompt\": \"x\", \"stop\": [\"\"]}", 400, "stop", NULL},
		{"{\"prompt\": \"x\", \"stop\": 5}", 400, "stop", NULL},
		{"{\"prompt\": \"x\", \"stop_token_ids\": [999]}", 400, "stop_token_ids", NULL},
		{"{\"prompt\": \"x\", \"logit_bias\": {\"300\": 1}}", 400, "logit_bias", NULL},
		{"{\"prompt\": \"x\", \"logit_bias\": {\"3\": 101}}", 400, "logit_bias", NULL},
		{"{\"prompt\": \"x\", \"stream_options\": {\"include_usage\": true}}", 400, "stream_options",
		 NULL},
		{"{\"prompt\": \"x\", \"model\": \"gpt-5\"}", 404, "model", "model_not_found"},
		{"{\"prompt\": \"x\", \"max_tokens\": 100}", 400, "prompt", "context_length_exceeded"},
		{"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"max_tokens\": 100}", 400,
		 "messages", "context_length_exceeded"},
		{"{\"prompt\": \"x\", \"messages\": []}", 400, "messages", NULL},
		{"{\"prompt\": \"x\", \"top_logprobs\": 1}", 400, "top_logprobs", NULL},
		{"{\"prompt\": \"x\", \"dimensions\": 5}", 400, "dimensions", NULL},
		{"{\"prompt\": \"x\", \"cache_salt\": 5}", 400, "cache_salt", NULL},
		{"{\"prompt\": \"x\", \"top_k\": -2}", 400, "top_k", NULL},
		/* options inside of objects, which would change nothing */
		{"{\"prompt\": \"x\", \"response_format\": {\"type\": \"json_object\", \"schemas\": {}}}",
		 400, "response_format", NULL},
		{"{\"prompt\": \"x\", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": "
		 "{\"schema\": {}, \"x\": 1}}}",
		 400, "response_format", NULL},
		{"{\"prompt\": \"x\", \"stream\": true, \"stream_options\": {\"usage\": true}}", 400,
		 "stream_options", NULL},
		{"{\"prompt\": \"x\", \"stream\": true, \"stream_options\": {\"continuous_usage_stats\": "
		 "true}}",
		 400, "stream_options", NULL},
		{"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"top_logprobs\": 1}", 400,
		 "top_logprobs", NULL},
		{"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"continue_final_message\": "
		 "true}",
		 400, "messages", NULL},
		{"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"add_generation_prompt\": "
		 "0}",
		 400, "add_generation_prompt", NULL},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct dt_completion c;
		struct dt_api_error e;
		json_t *v, *whole;

		if (parse(bad[i].body, strstr(bad[i].body, "{\"messages") == bad[i].body, &c, &e) == 0)
			fail_msg("accepted: %s", bad[i].body);
		assert_int_equal(e.status, bad[i].status);
		assert_string_equal(e.param, bad[i].param);
		whole = dt_api_error_json(&e);
		v = json_object_get(whole, "error");
		assert_true(strlen(json_string_value(json_object_get(v, "message"))) > 5);
		assert_string_equal(json_string_value(json_object_get(v, "type")), "invalid_request_error");
		if (bad[i].code)
			assert_string_equal(json_string_value(json_object_get(v, "code")), bad[i].code);
		else
			assert_true(json_is_null(json_object_get(v, "code")));
		json_decref(whole);
	}
}

static void run(const char *body, struct dt_completion *c)
{
	struct dt_api_error e;
	struct dt_err err;

	if (parse(body, false, c, &e) < 0)
		fail_msg("%s: %s", body, e.msg);
	if (dt_engine_submit(engine, c->call, &err) < 0)
		fail_msg("%s", err.msg);
}

static json_t *reply(const char *body)
{
	struct dt_completion c;
	struct dt_api_error e;
	json_t *v;

	run(body, &c);
	dt_call_wait_done(c.call);
	v = dt_completion_json(&c, &e);
	assert_non_null(v);
	dt_completion_release(&c);
	return v;
}

static const char *text_of(json_t *v, size_t i)
{
	return json_string_value(json_object_get(json_array_get(json_object_get(v, "choices"), i), "text"));
}

static json_int_t usage_of(json_t *v, const char *key)
{
	return json_integer_value(json_object_get(json_object_get(v, "usage"), key));
}

static void test_replies(void **state)
{
	json_t *a = reply("{\"prompt\": \"hello\", \"temperature\": 0, \"ignore_eos\": true}"), *b, *c;

	assert_string_equal(json_string_value(json_object_get(a, "object")), "text_completion");
	assert_string_equal(json_string_value(json_object_get(a, "model")), "tiny");
	assert_memory_equal(json_string_value(json_object_get(a, "id")), "cmpl-", 5);
	assert_int_equal(usage_of(a, "prompt_tokens"), 5);
	assert_int_equal(usage_of(a, "completion_tokens"), 16);
	assert_int_equal(usage_of(a, "total_tokens"), 21);
	/* The same as ids, among others, twice each. */
	b = reply("{\"prompt\": [[1, 2], [104, 101, 108, 108, 111]], \"n\": 2, \"temperature\": 0, "
		  "\"ignore_eos\": true}");
	assert_int_equal(json_array_size(json_object_get(b, "choices")), 4);
	assert_string_equal(text_of(b, 2), text_of(a, 0));
	assert_string_equal(text_of(b, 3), text_of(a, 0));
	assert_int_equal(usage_of(b, "prompt_tokens"), 7);
	assert_int_equal(usage_of(b, "completion_tokens"), 64);
	/* Choices of one seed differ, calls of one seed agree. */
	json_decref(b);
	b = reply("{\"prompt\": \"hello\", \"seed\": 3, \"n\": 2, \"ignore_eos\": true}");
	c = reply("{\"prompt\": \"hello\", \"seed\": 3, \"n\": 1, \"ignore_eos\": true}");
	assert_string_equal(text_of(b, 0), text_of(c, 0));
	assert_string_not_equal(text_of(b, 0), text_of(b, 1));
	json_decref(a);
	json_decref(b);
	json_decref(c);
}

static int offset_of(const json_t *v, size_t token)
{
	const json_t *lp = json_object_get(json_array_get(json_object_get(v, "choices"), 0), "logprobs");

	return (int)json_integer_value(json_array_get(json_object_get(lp, "text_offset"), token));
}

/* A token that continues a character begins in it, so it is before the character that follows. */
static void test_offsets_of_characters_of_several_tokens(void **state)
{
	static const int want[] = {0, 1, 1, 1, 2, 3, 3, 4};
	json_t *v, *p;

	v = reply("{\"prompt\": \"a\xe6\x97\xa5 \xc3\xa9!\", \"echo\": true, \"logprobs\": 1, "
		  "\"max_tokens\": 1, \"echo_logprobs_from\": 2}");
	p = json_object_get(json_array_get(json_object_get(v, "choices"), 0), "logprobs");
	p = json_object_get(p, "token_logprobs");
	for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
		assert_int_equal(offset_of(v, i), want[i]);
		assert_int_equal(json_is_null(json_array_get(p, i)), want[i] < 2);
	}
	json_decref(v);
}

static void test_echo_and_logprobs(void **state)
{
	json_t *v = reply("{\"prompt\": \"abc\", \"temperature\": 0, \"echo\": true, \"logprobs\": 2, "
			  "\"max_tokens\": 3, \"ignore_eos\": true}");
	json_t *lp = json_object_get(json_array_get(json_object_get(v, "choices"), 0), "logprobs");
	json_t *tokens = json_object_get(lp, "tokens"), *p = json_object_get(lp, "token_logprobs");
	json_t *top = json_object_get(lp, "top_logprobs");

	assert_memory_equal(text_of(v, 0), "abc", 3);
	assert_int_equal(json_array_size(tokens), 6);
	assert_string_equal(json_string_value(json_array_get(tokens, 1)), "b");
	assert_true(json_is_null(json_array_get(p, 0)));
	assert_int_equal(offset_of(v, 2), 2);
	for (size_t i = 3; i < 6; i++) { /* greedy: the token is the best alternative */
		const char *name = json_string_value(json_array_get(tokens, i));
		json_t *alt = json_array_get(top, i);

		assert_int_equal(json_object_size(alt), 2);
		assert_true(json_real_value(json_object_get(alt, name)) ==
			    json_real_value(json_array_get(p, i)));
	}
	json_decref(v);
	/* a token that is not among the best ones is listed with them, whether it was sampled or given */
	v = reply("{\"prompt\": \"a~b\", \"echo\": true, \"logprobs\": 1, \"max_tokens\": 3, \"ignore_eos\": "
		  "true, "
		  "\"temperature\": 0, \"logit_bias\": {\"35\": 100}}");
	lp = json_object_get(json_array_get(json_object_get(v, "choices"), 0), "logprobs");
	tokens = json_object_get(lp, "tokens");
	for (size_t i = 1; i < 6; i++) {
		json_t *alt = json_array_get(json_object_get(lp, "top_logprobs"), i);
		json_t *own = json_object_get(alt, json_string_value(json_array_get(tokens, i)));

		assert_non_null(own);
		assert_true(json_real_value(own) ==
			    json_real_value(json_array_get(json_object_get(lp, "token_logprobs"), i)));
		assert_true(i < 3 || json_object_size(alt) == 2);
	}
	json_decref(v);
}

/* Log-probabilities from a character on: those of the whole prompt; no row before is computed for them. */
static void test_echo_logprobs_from(void **state)
{
	static const char *const refused[] = {
		"{\"prompt\": \"abc\", \"echo\": true, \"echo_logprobs_from\": 1}",
		"{\"prompt\": \"abc\", \"logprobs\": 1, \"echo_logprobs_from\": 1}",
		"{\"prompt\": [\"abc\", \"d\"], \"echo\": true, \"logprobs\": 1, \"echo_logprobs_from\": 1}"};
	static const struct {
		int from;
		size_t first; /* the first token with a log-probability */
	} want[] = {{0, 1}, {1, 1}, {4, 4}, {11, 11}, {12, 12}, {1000, 12}};
	json_t *whole = reply("{\"prompt\": \"hello there!\", \"echo\": true, \"logprobs\": 2, "
			      "\"max_tokens\": 1, \"temperature\": 0, \"ignore_eos\": true}");
	json_t *all = json_object_get(json_array_get(json_object_get(whole, "choices"), 0), "logprobs");
	struct dt_completion c;
	struct dt_api_error e;

	for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
		char body[300];
		json_t *v, *some;

		snprintf(body, sizeof(body),
			 "{\"prompt\": \"hello there!\", \"echo\": true, \"logprobs\": 2, \"max_tokens\": 1, "
			 "\"temperature\": 0, \"ignore_eos\": true, \"echo_logprobs_from\": %d}",
			 want[i].from);
		v = reply(body);
		some = json_object_get(json_array_get(json_object_get(v, "choices"), 0), "logprobs");
		assert_true(json_equal(json_object_get(some, "tokens"), json_object_get(all, "tokens")));
		assert_true(json_equal(json_object_get(some, "text_offset"),
				       json_object_get(all, "text_offset")));
		for (size_t k = 0; k < 13; k++) {
			const json_t *x = json_array_get(json_object_get(some, "token_logprobs"), k),
				     *top = json_array_get(json_object_get(some, "top_logprobs"), k);

			if (k < want[i].first && k < 12) {
				assert_true(json_is_null(x));
				assert_true(json_is_null(top));
				continue;
			}
			assert_true(json_equal(x, json_array_get(json_object_get(all, "token_logprobs"), k)));
			assert_true(json_equal(top, json_array_get(json_object_get(all, "top_logprobs"), k)));
		}
		/* blocks of 4 tokens that end before the first scored row come from the cache */
		assert_int_equal(
			json_integer_value(json_object_get(
				json_object_get(json_object_get(v, "usage"), "prompt_tokens_details"),
				"cached_tokens")),
			want[i].from < 2    ? 0
			: want[i].first > 8 ? 8
					    : 0);
		json_decref(v);
	}
	json_decref(whole);
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		assert_int_equal(parse(refused[i], false, &c, &e), -EINVAL);
		assert_string_equal(e.msg,
				    "'echo_logprobs_from' needs 'echo', 'logprobs' and a single prompt");
	}
}

/* The events of a stream carry the text of the whole reply, each a line of JSON, and end as they should. */
static void test_stream(void **state)
{
	const char *common =
		"\"prompt\": [\"one\", \"two\"], \"temperature\": 0, \"max_tokens\": 30, \"echo\": "
		"true, \"ignore_eos\": true";
	char body[400], text[2][800], *ev;
	size_t len[2] = {0, 0};
	int ends[2] = {0, 0}, usages = 0, dones = 0;
	struct dt_completion c;
	struct dt_sse sse;
	json_t *whole;
	size_t n;

	snprintf(body, sizeof(body), "{%s}", common);
	whole = reply(body);
	snprintf(body, sizeof(body), "{%s, \"stream\": true, \"stream_options\": {\"include_usage\": true}}",
		 common);
	fake.sleep_us = 500;
	run(body, &c);
	assert_true(c.stream);
	assert_int_equal(dt_sse_init(&sse, &c), 0);
	while (dt_sse_next(&sse, 5, &ev, &n) > 0) {
		char *at = ev, *end;

		assert_int_equal(strlen(ev), n);
		assert_int_equal(dones, 0);
		for (; (end = strstr(at, "\n\n")); at = end + 2) {
			json_t *v, *ch;

			*end = '\0';
			assert_memory_equal(at, "data: ", 6);
			assert_null(strchr(at, '\n'));
			if (!strcmp(at, "data: [DONE]")) {
				dones++;
				continue;
			}
			v = json_loads(at + 6, JSON_ALLOW_NUL, NULL);
			assert_non_null(v);
			ch = json_array_get(json_object_get(v, "choices"), 0);
			if (ch) {
				int i = (int)json_integer_value(json_object_get(ch, "index"));

				assert_int_equal(ends[i], 0);
				memcpy(text[i] + len[i], json_string_value(json_object_get(ch, "text")),
				       json_string_length(json_object_get(ch, "text")));
				len[i] += json_string_length(json_object_get(ch, "text"));
				ends[i] = json_is_string(json_object_get(ch, "finish_reason"));
				assert_true(json_is_null(json_object_get(v, "usage")));
			} else {
				assert_int_equal(ends[0] + ends[1], 2);
				assert_int_equal(usage_of(v, "completion_tokens"), 60);
				usages++;
			}
			json_decref(v);
		}
		assert_int_equal(*at, '\0'); /* whole events only */
		free(ev);
	}
	fake.sleep_us = 0;
	assert_int_equal(dones, 1);
	assert_int_equal(usages, 1);
	for (size_t i = 0; i < 2; i++) {
		json_t *ch = json_array_get(json_object_get(whole, "choices"), i);

		assert_int_equal(len[i], json_string_length(json_object_get(ch, "text")));
		assert_memory_equal(text[i], text_of(whole, i), len[i]);
	}
	json_decref(whole);
	dt_sse_release(&sse);
	dt_completion_release(&c);
}

/* What clients send by themselves and asks for nothing. */
static void test_idle_keys(void **state)
{
	json_t *v = reply(
		"{\"prompt\": \"x\", \"max_tokens\": 1, \"suffix\": null, \"tools\": [], \"tool_choice\": "
		"\"auto\", \"parallel_tool_calls\": true, \"store\": false, \"metadata\": {\"a\": \"b\"}, "
		"\"service_tier\": \"default\", \"audio\": null, \"modalities\": [\"text\"], \"priority\": "
		"-3, "
		"\"suffix\": \"\", \"prompt_cache_key\": \"k\"}");

	assert_int_equal(usage_of(v, "completion_tokens"), 1);
	json_decref(v);
}

static void test_stream_ping_and_error(void **state)
{
	struct dt_completion c;
	struct dt_sse sse;
	char *ev;
	size_t n;

	fake.sleep_us = 1000000;
	fake.fail = 1;
	run("{\"prompt\": \"x\", \"stream\": true}", &c);
	dt_sse_init(&sse, &c);
	assert_int_equal(dt_sse_next(&sse, 0.01, &ev, &n), 1);
	assert_int_equal(ev[0], ':');
	assert_string_equal(ev + n - 2, "\n\n");
	free(ev);
	assert_int_equal(dt_sse_next(&sse, 60, &ev, &n), 1);
	assert_memory_equal(ev, "data: {\"error\":", 15);
	free(ev);
	assert_int_equal(dt_sse_next(&sse, 60, &ev, &n), 0);
	fake.sleep_us = fake.fail = 0;
	dt_sse_release(&sse);
	dt_completion_release(&c);
}

static void test_batch_bodies(void **state)
{
	struct dt_completion c;
	struct dt_api_error e;

	assert_int_equal(parse("{\"prompt\": \"x\", \"id\": {\"any\": 1}}", true, &c, &e), 0);
	assert_int_equal(c.call->ask.sampling.seed, 9);
	assert_int_equal(c.call->req[0].max_tokens, 16);
	dt_completion_release(&c);
	assert_int_equal(parse("{\"prompt\": \"x\", \"stream\": true}", true, &c, &e), -EINVAL);
	assert_int_equal(parse("{\"prompt\": [\"x\", \"y\"]}", true, &c, &e), -EINVAL);
	assert_int_equal(parse("{\"prompt\": \"\"}", true, &c, &e), 0); /* the start of a document */
	assert_int_equal(c.call->req[0].tokens[0], 256);
	dt_completion_release(&c);
	assert_int_equal(
		parse("{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"logprobs\": true}", true,
		      &c, &e),
		0);
	assert_true(c.chat);
	assert_int_equal(c.call->ask.logprobs, 0);
	assert_int_equal(c.call->req[0].tokens[0], 'h');
	dt_completion_release(&c);
	assert_int_equal(parse("{\"messages\": [], \"prompt\": \"x\"}", true, &c, &e), -EINVAL);
	assert_int_equal(parse("{\"prompt\": \"x\", \"echo\": true}", true, &c, &e), 0);
	assert_true(c.echo);
	dt_completion_release(&c);
}

/* Keys of another route are named with it. */
static void test_misplaced_keys(void **state)
{
	struct dt_completion c;
	struct dt_api_error e;

	assert_int_equal(parse("{\"prompt\": \"x\", \"messages\": []}", false, &c, &e), -EINVAL);
	assert_string_equal(e.msg, "'messages' is a key of /v1/chat/completions, not of this request");
	assert_int_equal(parse("{\"prompt\": \"x\", \"mesages\": []}", false, &c, &e), -EINVAL);
	assert_string_equal(e.msg, "unknown key 'mesages'");
}

/* A model may have more ids than its tokenizer; they have no bytes, and are prompts like any other. */
static void test_ids_without_bytes(void **state)
{
	json_t *v = reply("{\"prompt\": [104, 257, 105], \"echo\": true, \"max_tokens\": 0}");

	assert_int_equal(usage_of(v, "prompt_tokens"), 3);
	assert_string_equal(text_of(v, 0), "hi");
	json_decref(v);
}

/* Every byte of a salt counts, those behind a NUL too. */
static void test_salts(void **state)
{
	static const char *const salt[] = {"", "a", "a\\u0000", "a\\u0000b", "a\\u0000c"};
	uint64_t word[5];

	for (int i = 0; i < 5; i++) {
		struct dt_completion c;
		struct dt_api_error e;
		char body[100];

		snprintf(body, sizeof(body), "{\"prompt\": \"x\", \"cache_salt\": \"%s\"}", salt[i]);
		assert_int_equal(parse(body, false, &c, &e), 0);
		word[i] = c.call->salt;
		for (int k = 0; k < i; k++)
			assert_true(word[k] != word[i]);
		dt_completion_release(&c);
	}
}

/* Defaults stand in for keys that a body does not have. */
static void test_defaults(void **state)
{
	static const char *const wrong[] = {"[]", "{\"prompt\": \"x\"}", "{\"n\": 2}", "{\"temprature\": 1}",
					    "{\"top_p\": 2}"};
	struct dt_completion c;
	struct dt_api_error e;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		json_t *v = json_loads(wrong[i], 0, NULL);

		assert_int_equal(dt_api_check_defaults(v, NULL), -EINVAL);
		json_decref(v);
	}
	defaults = json_loads("{\"max_tokens\": 5, \"temperature\": 0.5, \"stop\": [\"q\"]}", 0, NULL);
	assert_int_equal(dt_api_check_defaults(defaults, NULL), 0);
	assert_int_equal(parse("{\"prompt\": \"x\"}", true, &c, &e), 0);
	assert_int_equal(c.call->req[0].max_tokens, 5);
	assert_true(c.call->ask.sampling.temperature == 0.5);
	assert_int_equal(c.call->ask.nstop, 1);
	dt_completion_release(&c);
	assert_int_equal(
		parse("{\"prompt\": \"x\", \"max_completion_tokens\": 7, \"stop\": null}", true, &c, &e), 0);
	assert_int_equal(c.call->req[0].max_tokens, 7);
	assert_int_equal(c.call->ask.nstop, 0);
	dt_completion_release(&c);
	json_decref(defaults);
	/* of two limits the newer name counts; the body's own, whatever its name, before a default */
	defaults = json_loads("{\"max_completion_tokens\": 5}", 0, NULL);
	assert_int_equal(parse("{\"prompt\": \"x\", \"max_tokens\": 7}", true, &c, &e), 0);
	assert_int_equal(c.call->req[0].max_tokens, 7);
	dt_completion_release(&c);
	json_decref(defaults);
	defaults = NULL;
	assert_int_equal(
		parse("{\"prompt\": \"x\", \"max_tokens\": 7, \"max_completion_tokens\": 3}", true, &c, &e),
		0);
	assert_int_equal(c.call->req[0].max_tokens, 3);
	dt_completion_release(&c);
}

/* Values without effect are accepted, as clients send them. */
static void test_idle_values(void **state)
{
	static const char *const good[] = {
		"{\"prompt\": \"x\", \"stream\": true, \"stream_options\": {\"include_obfuscation\": false, "
		"\"continuous_usage_stats\": false}}",
		"{\"prompt\": \"x\", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": "
		"{\"name\": "
		"\"n\", \"description\": \"d\", \"strict\": true, \"schema\": {}}}}",
		"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"top_logprobs\": 0, "
		"\"add_generation_prompt\": true}",
	};

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		struct dt_completion c;
		struct dt_api_error e;

		if (parse(good[i], good[i][2] == 'm', &c, &e) < 0)
			fail_msg("%s: %s", good[i], e.msg);
		dt_completion_release(&c);
	}
}

/* Bodies with bytes changed at random are refused or run; under the sanitizers neither may do harm. */
static void test_mutated_bodies(void **state)
{
	static const char good[] =
		"{\"prompt\": [\"ab\", [1, 2, 3]], \"model\": \"tiny\", \"max_tokens\": 2, \"n\": 2, "
		"\"stop\": "
		"[\"x\", \"yz\"], \"stop_token_ids\": [5], \"logit_bias\": {\"7\": -3.5}, \"logprobs\": 2, "
		"\"echo\": true, \"seed\": 4, \"top_p\": 0.9, \"stream\": true, \"stream_options\": "
		"{\"include_usage\": true}, \"user\": \"me\"}";
	static const char bytes[] = "0123456789-.eE[]{}\",: truefalsn\\u\xff";
	struct dt_api_model m = {.engine = dt_engine_params(engine), .name = "tiny"};
	struct dt_rng rng = dt_rng_make(1, DT_RNG_TEST, 3);
	int json = 0, accepted = 0;
	uint64_t k = 0;

	for (int round = 0; round < 20000; round++) {
		size_t n = sizeof(good) - 1;
		struct dt_completion c;
		struct dt_api_error e;
		char body[sizeof(good)];
		json_t *v;

		memcpy(body, good, sizeof(good));
		for (uint64_t i = dt_rng_below(&rng, k++, 3); i < 3; i++)
			body[dt_rng_below(&rng, k + 2 * i, n)] =
				bytes[dt_rng_below(&rng, k + 2 * i + 1, sizeof(bytes) - 1)];
		k += 8;
		v = json_loadb(body, n, JSON_ALLOW_NUL, NULL);
		json += v != NULL;
		if (v && dt_completion_parse(v, &m, &c, &e) == 0) {
			accepted++;
			if (accepted % 16 == 0 && dt_engine_submit(engine, c.call, NULL) == 0)
				dt_call_wait_done(c.call);
			dt_completion_release(&c);
		} else if (v) {
			assert_true(e.status == 400 || e.status == 404);
		}
		json_decref(v);
	}
	assert_in_range(json, 1000, 19999);
	assert_in_range(accepted, 400, json - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_bodies),
		cmocka_unit_test(test_replies),
		cmocka_unit_test(test_offsets_of_characters_of_several_tokens),
		cmocka_unit_test(test_echo_and_logprobs),
		cmocka_unit_test(test_echo_logprobs_from),
		cmocka_unit_test(test_stream),
		cmocka_unit_test(test_stream_ping_and_error),
		cmocka_unit_test(test_idle_keys),
		cmocka_unit_test(test_batch_bodies),
		cmocka_unit_test(test_misplaced_keys),
		cmocka_unit_test(test_ids_without_bytes),
		cmocka_unit_test(test_salts),
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_mutated_bodies),
		cmocka_unit_test(test_idle_values),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
