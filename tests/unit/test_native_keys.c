/* Keys of llama.cpp's /completion: mixed prompts, samplers, probabilities after them, fields of the reply. */
#include "serve_native.h"

/* One prompt of token ids and texts, and several prompts of every kind. */
static void test_mixed_prompts(void **state)
{
	static const char *const mixed[] = {"[97, \"bc\", 100]", "[\"a\", 98, \"c\", 100]",
					    "[[97, \"bcd\"]]"};
	char body[100];
	json_t *v;

	for (int i = 0; i < 3; i++) {
		snprintf(body, sizeof(body), "{\"prompt\": %s, \"n_predict\": 1}", mixed[i]);
		v = answer(body);
		assert_string_equal(text_of(v, "prompt"), "abcd");
		assert_int_equal(int_of(v, "tokens_evaluated"), 4);
		json_decref(v);
	}
	v = answer("{\"prompt\": [\"ab\", [97, \"c\"], [98]], \"n_predict\": 1}");
	assert_int_equal(json_array_size(v), 3);
	assert_string_equal(text_of(json_array_get(v, 1), "prompt"), "ac");
	assert_string_equal(text_of(json_array_get(v, 2), "prompt"), "b");
	json_decref(v);
	refused("{\"prompt\": [97, [98]]}", "not a token id below");
	refused("{\"prompt\": [\"a\", 1.5]}", "not a token id below");
	refused("{\"prompt\": [97, \"b\", null]}", "not a token id below");
	refused("{\"prompt\": [[\"a\", 123456789]]}", "not a token id below");
	refused("{\"prompt\": [null]}", "must be a string, an array of token ids and strings");
	refused("{\"prompt\": {}}", "must be a string, an array of token ids and strings");
}

static void test_response_fields(void **state)
{
	json_t *v =
		answer("{\"prompt\": \"ab\", \"n_predict\": 2, \"ignore_eos\": true, \"response_fields\": "
		       "[\"content\", \"generation_settings/n_predict\", \"timings\", \"none\", "
		       "\"content/x\", \"timings/\", \"\"]}");

	assert_int_equal(json_object_size(v), 3);
	assert_non_null(text_of(v, "content"));
	assert_int_equal(int_of(v, "generation_settings/n_predict"), 2);
	assert_int_equal(int_of(json_object_get(v, "timings"), "predicted_n"), 2);
	json_decref(v);
	v = answer("{\"prompt\": \"ab\", \"n_predict\": 2, \"response_fields\": []}");
	assert_true(is_true(v, "stop"));
	json_decref(v);
	v = answer("{\"prompt\": [\"a\", \"b\"], \"n_predict\": 1, \"response_fields\": [\"index\"]}");
	assert_int_equal(json_array_size(v), 2);
	assert_int_equal(int_of(json_array_get(v, 1), "index"), 1);
	assert_int_equal(json_object_size(json_array_get(v, 1)), 1);
	json_decref(v);
	refused("{\"prompt\": \"x\", \"response_fields\": \"content\"}", "not an array of at most");
	refused("{\"prompt\": \"x\", \"response_fields\": [7]}", "not a string of at most");
}

/* Which samplers are left, in which order. */
static void test_samplers(void **state)
{
	static const struct {
		const char *keys;
		int norder;
		uint8_t order[4];
	} t[] = {
		{"\"samplers\": [\"top_k\", \"top_p\", \"min_p\", \"xtc\", \"temperature\"]",
		 4,
		 {DT_SAMPLER_TOP_K, DT_SAMPLER_TOP_P, DT_SAMPLER_MIN_P, DT_SAMPLER_TEMPERATURE}},
		{"\"samplers\": \"edskypmxt\"",
		 4,
		 {DT_SAMPLER_TOP_K, DT_SAMPLER_TOP_P, DT_SAMPLER_MIN_P, DT_SAMPLER_TEMPERATURE}},
		{"\"samplers\": [\"temperature\", \"typ_p\", \"min_p\", \"top_k\"]", -1, {0}},
		{"\"samplers\": [\"top_p\", \"top_k\"], \"top_p\": 1", -1, {0}},
		{"\"samplers\": []", -1, {0}},
		{"\"samplers\": null", -1, {0}},
		{"\"samplers\": \"kt\", \"mirostat\": 2", -1, {0}},
		{"\"samplers\": \"edkk\", \"repeat_penalty\": 1.1, \"dry_multiplier\": 0",
		 2,
		 {DT_SAMPLER_TOP_K, DT_SAMPLER_TOP_K}},
	};
	char body[300];

	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		const struct dt_sampling *s;
		struct dt_completion c;

		snprintf(body, sizeof(body), "{\"prompt\": \"x\", %s}", t[i].keys);
		c = good(body);
		s = &c.call->ask.sampling;
		if (s->norder != t[i].norder ||
		    (s->norder > 0 && memcmp(s->order, t[i].order, (size_t)s->norder)))
			fail_msg("%s: %d samplers", t[i].keys, s->norder);
		dt_completion_release(&c);
	}
}

/* A sampler that is not listed is off. */
static void test_samplers_off(void **state)
{
	struct dt_completion c = good("{\"prompt\": \"x\", \"samplers\": [\"min_p\"], \"repeat_penalty\": 2, "
				      "\"dry_multiplier\": 1, \"xtc_probability\": 1}");
	const struct dt_sampling *s = &c.call->ask.sampling;

	assert_true(s->min_p > 0 && s->top_k == 0 && !(s->top_p < 1) && !(s->temperature < 1));
	assert_true(!(s->repetition_penalty > 1) && !(s->dry_multiplier > 0) && !(s->xtc_probability > 0));
	dt_completion_release(&c);
}

static void test_samplers_refused(void **state)
{
	static const struct {
		const char *keys, *msg;
	} t[] = {
		{"\"samplers\": [\"top_k\", \"infill\"]", "'infill' is none of penalties"},
		{"\"samplers\": \"ki\"", "'i' is none of"},
		{"\"samplers\": [7]", "'' is none of"},
		{"\"samplers\": 7", "not an array of at most 16 names"},
		{"\"samplers\": \"kkkkkkkkkkkkkkkkk\"", "not an array of at most 16 names"},
		{"\"samplers\": \"ke\", \"repeat_penalty\": 2", "'penalties' is only supported before"},
		{"\"samplers\": \"td\", \"dry_multiplier\": 1", "'dry' is only supported before"},
		{"\"samplers\": \"ed\", \"dry_multiplier\": 1, \"repeat_penalty\": 2",
		 "only supported after 'dry'"},
	};
	char body[300];

	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		snprintf(body, sizeof(body), "{\"prompt\": \"x\", %s}", t[i].keys);
		refused(body, t[i].msg);
	}
}

/* Probabilities after the samplers add up to 1, and there are none of tokens that they drop. */
static void test_post_probs(void **state)
{
	json_t *v = answer("{\"prompt\": \"ab\", \"n_predict\": 4, \"ignore_eos\": true, \"n_probs\": 9, "
			   "\"post_sampling_probs\": true, \"samplers\": [\"top_k\", \"temperature\"], "
			   "\"top_k\": 3}");
	const json_t *list = json_object_get(v, "completion_probabilities"), *one;
	const json_t *names = json_object_get(json_object_get(v, "generation_settings"), "samplers");
	size_t i;
	json_t *p;

	assert_int_equal(json_array_size(names), 2);
	assert_string_equal(json_string_value(json_array_get(names, 0)), "top_k");
	assert_int_equal(json_array_size(list), 4);
	json_array_foreach((json_t *)list, i, p)
	{
		const double chosen = json_real_value(json_object_get(p, "prob"));
		double sum = 0, same = 0;

		one = json_object_get(p, "top_probs");
		assert_int_equal(json_array_size(one), 3);
		for (size_t k = 0; k < 3; k++) {
			const json_t *x = json_array_get(one, k);

			assert_null(json_object_get(x, "logprob"));
			sum += json_real_value(json_object_get(x, "prob"));
			if (int_of(x, "id") == int_of(p, "id"))
				same = json_real_value(json_object_get(x, "prob"));
		}
		assert_true(fabs(sum - 1) < 1e-6 && chosen > 0 && fabs(same - chosen) < 1e-9);
	}
	json_decref(v);
	v = answer("{\"prompt\": \"ab\", \"n_predict\": 2, \"ignore_eos\": true, \"n_probs\": 2, "
		   "\"temperature\": 0, \"post_sampling_probs\": true}");
	one = json_array_get(json_object_get(v, "completion_probabilities"), 0);
	assert_int_equal(json_array_size(json_object_get(one, "top_probs")), 1);
	assert_true(fabs(json_real_value(json_object_get(one, "prob")) - 1) < 1e-9);
	json_decref(v);
	v = answer("{\"prompt\": \"ab\", \"n_predict\": 2, \"post_sampling_probs\": true}");
	assert_null(json_object_get(v, "completion_probabilities"));
	json_decref(v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mixed_prompts),	 cmocka_unit_test(test_response_fields),
		cmocka_unit_test(test_samplers),	 cmocka_unit_test(test_samplers_off),
		cmocka_unit_test(test_samplers_refused), cmocka_unit_test(test_post_probs),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
