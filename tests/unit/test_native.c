/* llama.cpp's /completion and /infill: bodies, replies and events, over the stand-in model. */
#include "serve_native.h"

#include "serve/api/messages.h"
#include "serve/api/responses.h"

/* Keys that a body lacks have llama.cpp's values; a seed of -1 is the server's. */
static void test_defaults(void **state)
{
	struct dt_completion c = good("{\"prompt\": \"ab\"}");
	const struct dt_sampling *s = &c.call->ask.sampling;

	assert_true(fabs(s->temperature - 0.8) < 1e-12 && fabs(s->top_p - 0.95) < 1e-12);
	assert_true(fabs(s->min_p - 0.05) < 1e-12 && s->top_k == 40);
	assert_int_equal(s->seed, 9);
	assert_int_equal(c.call->ask.logprobs, -1);
	assert_int_equal(c.call->req[0].max_tokens, 98); /* the rest of the context */
	dt_completion_release(&c);
	c = good("{\"prompt\": [97, 98], \"seed\": -1, \"temperature\": 0, \"n_predict\": 5, \"n_probs\": 3, "
		 "\"repeat_last_n\": 64, \"cache_prompt\": true, \"id_slot\": -1, \"samplers\": null, "
		 "\"n_keep\": 2}");
	assert_int_equal(c.call->ask.sampling.seed, 9);
	assert_int_equal(c.call->ask.logprobs, 3);
	assert_int_equal(c.call->req[0].max_tokens, 5);
	dt_completion_release(&c);
	refused("{\"prompt\": \"x\", \"n_predct\": 5}", "unknown key");
	refused("{\"prompt\": \"x\", \"echo\": true}", "a key of /v1/completions");
	refused("{\"prompt\": \"x\", \"repeat_last_n\": 64, \"repeat_penalty\": 1.1}",
		"only supported as -1");
	refused("{\"prompt\": \"x\", \"n_probs\": 21}", "n_probs");
	refused("{\"prompt\": \"x\", \"grammar\": \"root ::= (\"}", "the grammar, line 1, column 10");
	refused("{\"prompt\": \"x\", \"input_suffix\": \"y\"}", "a key of /infill");
	refused("{}", "'prompt' is missing");
}

/* llama.cpp's pairs of logit_bias. */
static void test_bias(void **state)
{
	struct dt_completion c =
		good("{\"prompt\": \"x\", \"logit_bias\": [[97, 1.5], [\"bc\", -2], [100, false]]}");
	const struct dt_sampling *s = &c.call->ask.sampling;
	static const struct dt_bias want[] = {{97, 1.5f}, {98, -2}, {99, -2}, {100, -INFINITY}};
	json_t *v;

	assert_int_equal(s->nbias, 4);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(s->bias[i].id, want[i].id);
		assert_true(!(s->bias[i].bias < want[i].bias) && !(s->bias[i].bias > want[i].bias));
	}
	dt_completion_release(&c);
	v = answer("{\"prompt\": \"x\", \"n_predict\": 3, \"logit_bias\": [[\"q\", 100]]}");
	assert_string_equal(text_of(v, "content"), "qqq");
	json_decref(v);
	refused("{\"prompt\": \"x\", \"logit_bias\": [[1]]}", "not a pair");
	refused("{\"prompt\": \"x\", \"logit_bias\": [[1, true]]}", "not a pair");
	refused("{\"prompt\": \"x\", \"logit_bias\": [[-1, 1]]}", "not a token id below");
	refused("{\"prompt\": \"x\", \"logit_bias\": [[1, 101]]}", "not a pair");
	refused("{\"prompt\": \"x\", \"logit_bias\": 7}", "not an object");
}

static void test_reply(void **state)
{
	json_t *v = answer(
		"{\"prompt\": \"ab\", \"n_predict\": 6, \"seed\": 4, \"n_probs\": 2, \"return_tokens\": "
		"true, \"ignore_eos\": true}");
	const json_t *times = json_object_get(v, "timings"),
		     *p = json_object_get(v, "completion_probabilities");
	const json_t *one = json_array_get(p, 3), *tokens = json_object_get(v, "tokens");

	assert_true(is_true(v, "stop"));
	assert_false(is_true(v, "truncated"));
	assert_string_equal(text_of(v, "stop_type"), "limit");
	assert_string_equal(text_of(v, "stopping_word"), "");
	assert_string_equal(text_of(v, "prompt"), "ab");
	assert_string_equal(text_of(v, "model"), "tiny");
	assert_int_equal(int_of(v, "tokens_predicted"), 6);
	assert_int_equal(int_of(v, "tokens_evaluated"), 2);
	assert_int_equal(json_array_size(tokens), 6);
	assert_int_equal(int_of(times, "predicted_n"), 6);
	assert_int_equal(int_of(times, "prompt_n") + int_of(times, "cache_n"), 2);
	assert_true(json_number_value(json_object_get(times, "predicted_per_second")) > 0);
	assert_int_equal(int_of(json_object_get(v, "generation_settings"), "top_k"), 40);
	assert_int_equal(json_array_size(p), 6);
	assert_int_equal(int_of(one, "id"), json_integer_value(json_array_get(tokens, 3)));
	assert_int_equal(json_array_size(json_object_get(one, "bytes")), 1);
	assert_int_equal(json_array_size(json_object_get(one, "top_logprobs")), 2);
	assert_true(json_real_value(json_object_get(one, "logprob")) < 0);
	json_decref(v);
	v = answer("{\"prompt\": \"ab\", \"n_predict\": 0}");
	assert_string_equal(text_of(v, "content"), "");
	assert_int_equal(json_array_size(json_object_get(v, "tokens")), 0);
	json_decref(v);
	v = answer("{\"prompt\": \"ab\", \"ignore_eos\": true}");
	assert_true(is_true(v, "truncated")); /* the context is full */
	json_decref(v);
	v = answer("{\"prompt\": [\"ab\", [97, 99]], \"n_predict\": 2, \"n_cmpl\": 2}");
	assert_int_equal(json_array_size(v), 4);
	assert_int_equal(int_of(json_array_get(v, 3), "index"), 3);
	assert_string_equal(text_of(json_array_get(v, 2), "prompt"), "ac");
	json_decref(v);
}

/* Why answers end: a grammar or end of text, a stop string. */
static void test_stops(void **state)
{
	json_t *v = answer("{\"prompt\": \"x\", \"grammar\": \"root ::= \\\"yes\\\" [!]{2}\"}");

	assert_string_equal(text_of(v, "content"), "yes!!");
	assert_string_equal(text_of(v, "stop_type"), "eos");
	json_decref(v);
	v = answer("{\"prompt\": \"x\", \"json_schema\": {\"const\": \"a b\"}, \"stop\": [\"zz\", \" b\"]}");
	assert_string_equal(text_of(v, "content"), "\"a");
	assert_string_equal(text_of(v, "stop_type"), "word");
	assert_string_equal(text_of(v, "stopping_word"), " b");
	json_decref(v);
}

/* The events of a stream contain the text and the tokens once; only the last one says stop. */
static void test_stream(void **state)
{
	static const char body[] = "{\"prompt\": \"ab\", \"n_predict\": 9, \"seed\": 4, \"stream\": true, "
				   "\"n_probs\": 1, \"grammar\": \"root ::= [a-z]+\"}";
	struct dt_completion c = good(body);
	char text[100] = "", *s;
	int tokens = 0, scored = 0, stops = 0, events = 0;
	struct dt_sse sse;
	struct dt_err err;
	size_t n;

	assert_int_equal(dt_sse_init(&sse, &c), 0);
	assert_int_equal(dt_engine_submit(engine, c.call, &err), 0);
	while (dt_sse_next(&sse, 10, &s, &n) == 1) {
		for (char *at = s; (at = strstr(at, "data: ")); at++) {
			json_t *v = json_loads(at + 6, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL);

			assert_non_null(v);
			strcat(text, text_of(v, "content"));
			tokens += (int)json_array_size(json_object_get(v, "tokens"));
			scored += (int)json_array_size(json_object_get(v, "completion_probabilities"));
			assert_int_equal(stops, 0);
			stops += is_true(v, "stop");
			assert_int_equal(json_is_object(json_object_get(v, "timings")), stops);
			events++;
			json_decref(v);
		}
		assert_null(strstr(s, "[DONE]"));
		free(s);
	}
	assert_int_equal(stops, 1);
	assert_true(events >= 1);
	assert_int_equal(tokens, c.call->req[0].nout);
	assert_int_equal(scored, c.call->req[0].nout);
	assert_int_equal(strlen(text), c.call->req[0].detok.n);
	assert_memory_equal(text, c.call->req[0].detok.text, strlen(text));
	dt_sse_release(&sse);
	dt_completion_release(&c);
}

/* Prefix, suffix and prompt between and behind the model's marks. */
static void test_infill(void **state)
{
	static const char json[] =
		"{\"version\":\"1.0\",\"added_tokens\":[{\"id\":4,\"content\":\"<fim_prefix>\",\"special\":"
		"true},"
		"{\"id\":5,\"content\":\"<fim_suffix>\",\"special\":true},"
		"{\"id\":6,\"content\":\"<fim_middle>\",\"special\":true}],\"normalizer\":null,"
		"\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"post_processor\":"
		"null,"
		"\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,"
		"\"c\":2,\"<\":3,\"m\":7},\"merges\":[]}}";
	static const struct {
		const char *body;
		int n;
		int32_t want[8];
	} t[] = {{"{\"input_prefix\": \"ab\", \"input_suffix\": \"c<\", \"prompt\": \"m\"}",
		  8,
		  {4, 0, 1, 5, 2, 3, 6, 7}},
		 {"{\"input_prefix\": \"\", \"input_extra\": []}", 3, {4, 5, 6}}};
	struct dt_engine_params p = *dt_engine_params(engine);
	struct dt_api_model m = {.engine = &p, .name = "tiny"};
	struct dt_tokenizer *fim;
	struct dt_err err;

	if (dt_tokenizer_from_text(json, sizeof(json) - 1, &fim, &err) < 0)
		fail_msg("%s", err.msg);
	p.tok = fim;
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		json_t *body = json_loads(t[i].body, 0, NULL);
		struct dt_completion c;
		struct dt_api_error e;

		if (dt_infill_parse(body, &m, &c, &e) < 0)
			fail_msg("%s", e.msg);
		assert_int_equal(c.call->req[0].nprompt, t[i].n);
		assert_memory_equal(c.call->req[0].tokens, t[i].want, (size_t)t[i].n * sizeof(int32_t));
		dt_completion_release(&c);
		json_decref(body);
	}
	dt_tokenizer_close(fim);
	refused("{\"input_prefix\": \"x\"}", "no tokens to fill in text");
	refused("{\"input_prefix\": 1}", "not a string");
	refused("{\"input_prefix\": \"x\", \"input_extra\": [{\"text\": \"y\"}]}",
		"only supported as an empty");
}

static size_t charged, limit; /* bytes of events */

static bool take(void *arg, size_t n)
{
	charged += n;
	return charged <= limit;
}

/* A finished call of two answers with 20 alternatives a token, which nobody has read yet. */
static struct dt_completion unread(bool native)
{
	struct dt_api_model m = {.engine = dt_engine_params(engine), .name = "tiny", .seed = 9};
	json_t *v =
		json_pack("{s:s, s:i, s:b, s:b, s:i, s:i}", "prompt", "x", "max_tokens", 90, "ignore_eos", 1,
			  "stream", 1, native ? "n_probs" : "logprobs", 20, native ? "n_cmpl" : "n", 2);
	struct dt_completion c;
	struct dt_api_error e;
	struct dt_err err;

	if ((native ? dt_native_parse : dt_completion_parse)(v, &m, &c, &e) < 0)
		fail_msg("%s", e.msg);
	json_decref(v);
	assert_int_equal(dt_completion_kept_cost(&c), 2 * 90 * 21 * sizeof(struct dt_logprob));
	assert_int_equal(dt_engine_submit(engine, c.call, &err), 0);
	dt_call_wait_done(c.call);
	return c;
}

/* Counts the tokens of one event, and whether it is the last of its answer. */
static int count(const json_t *v, bool native, int *ret_answer, bool *ret_last)
{
	const json_t *choice = json_array_get(json_object_get(v, "choices"), 0);

	*ret_answer = int_of(native ? v : choice, "index");
	*ret_last = native ? is_true(v, "stop") : json_is_string(json_object_get(choice, "finish_reason"));
	return (int)json_array_size(native ? json_object_get(v, "completion_probabilities")
					   : json_object_get(json_object_get(choice, "logprobs"), "tokens"));
}

/*
 * What waits for a slow reader is sent in parts of bounded size, each charged before it is built; nothing is
 * sent twice or left out.
 */
static void test_slow_reader(void **state)
{
	for (int native = 0; native < 2; native++) {
		struct dt_completion c = unread(native);
		int tokens[2] = {0}, events = 0, answer;
		bool last[2] = {false}, end;
		struct dt_sse s;
		size_t n, most = 0;
		char *text;

		assert_int_equal(dt_sse_init(&s, &c), 0);
		s.take = take;
		limit = SIZE_MAX;
		for (charged = 0; dt_sse_next(&s, 10, &text, &n) == 1; charged = 0) {
			assert_true(n < charged + 100); /* [DONE] */
			most = charged > most ? charged : most;
			for (char *at = text; (at = strstr(at, "data: {")); at++, events++) {
				json_t *v = json_loads(at + 6, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL);
				int k = count(v, native, &answer, &end);

				assert_false(last[answer]);
				tokens[answer] += k;
				last[answer] = end;
				json_decref(v);
			}
			free(text);
		}
		for (int i = 0; i < 2; i++) {
			assert_int_equal(tokens[i], 90);
			assert_true(last[i]);
		}
		assert_true(events >= 4 && most < 2 << 20);
		dt_sse_release(&s);
		/* refused: the stream ends with an error, and the call is dropped */
		assert_int_equal(dt_sse_init(&s, &c), 0);
		s.take = take;
		limit = 1000;
		charged = 0;
		assert_int_equal(dt_sse_next(&s, 10, &text, &n), 1);
		assert_memory_equal(text, "data: {\"error\":", 15);
		assert_non_null(strstr(text, "server_busy"));
		free(text);
		assert_true(c.call->cancelled);
		assert_int_equal(dt_sse_next(&s, 10, &text, &n), 0);
		dt_sse_release(&s);
		dt_completion_release(&c);
	}
}

/* Control characters, of which each takes six bytes in an event. */
static json_t *long_text(size_t n)
{
	char *s = malloc(n);
	json_t *v;

	memset(s, 1, n);
	v = json_stringn_nocheck(s, n);
	free(s);
	return v;
}

/* What events repeat is charged too: the prompt, texts at their end, the parameters of the request, usage. */
static void test_repeated(void **state)
{
	struct dt_chat chat;
	struct dt_api_model m = {
		.engine = dt_engine_params(engine), .name = "tiny", .seed = 9, .chat = &chat};
	const struct {
		int (*parse)(const json_t *body, const struct dt_api_model *m, struct dt_completion *c,
			     struct dt_api_error *e);
		json_t *body;
	} t[] = {
		{dt_completion_parse,
		 json_pack("{s:o, s:i, s:b, s:b, s:b, s:{s:b}}", "prompt", long_text(40), "max_tokens", 60,
			   "ignore_eos", 1, "stream", 1, "echo", 1, "stream_options", "include_usage", 1)},
		{dt_responses_parse,
		 json_pack("{s:s, s:i, s:b}", "input", "x", "max_output_tokens", 30, "stream", 1)},
		{dt_responses_parse, json_pack("{s:s, s:{s:o}, s:i, s:b}", "input", "x", "metadata", "k",
					       long_text(500), "max_output_tokens", 30, "stream", 1)},
		{dt_messages_parse, json_pack("{s:[{s:s, s:s}], s:i, s:b}", "messages", "role", "user",
					      "content", "x", "max_tokens", 30, "stream", 1)},
	};

	dt_chat_init(&chat, DT_CHAT_CHATML, NULL, tok);
	limit = SIZE_MAX;
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++)
		for (int late = 0; late < 2; late++) { /* all events at once, or as they come */
			struct dt_completion c;
			struct dt_api_error e;
			struct dt_err err;
			struct dt_sse s;
			char *text;
			size_t n;

			if (t[i].parse(t[i].body, &m, &c, &e) < 0)
				fail_msg("%zu: %s", i, e.msg);
			assert_int_equal(dt_engine_submit(engine, c.call, &err), 0);
			if (late)
				dt_call_wait_done(c.call);
			assert_int_equal(dt_sse_init(&s, &c), 0);
			s.take = take;
			for (charged = 0; dt_sse_next(&s, 10, &text, &n) == 1; charged = 0) {
				if (n > charged)
					fail_msg("%zu: %zu bytes, %zu charged: %s", i, n, charged, text);
				free(text);
			}
			dt_sse_release(&s);
			dt_completion_release(&c);
		}
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++)
		json_decref(t[i].body);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),    cmocka_unit_test(test_bias),
		cmocka_unit_test(test_reply),	    cmocka_unit_test(test_stops),
		cmocka_unit_test(test_stream),	    cmocka_unit_test(test_infill),
		cmocka_unit_test(test_slow_reader), cmocka_unit_test(test_repeated),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
