/*
 * Rotary angles under every scaling against transformers (tests/data/golden_rope.py), what --rope-scaling
 * makes of a model, and files that say it again.
 */
#include "model/config.h"
#include "model/same.h"
#include "nn/exec.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The head is 16 wide, the base 10000. dynamic, longrope: for 150 positions. */
static const struct {
	const char *scaling;
	int64_t positions;
	double mscale, freq[8];
} golden[] = {
	{NULL, 64, 1.0, {1, 0.316227766, 0.1, 0.0316227766, 0.01, 0.00316227766, 0.001, 0.000316227766}},
	{"{\"rope_type\": \"linear\", \"factor\": 4.0}",
	 64,
	 1.0,
	 {0.25, 0.079056941, 0.0250000004, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012,
	  7.90569466e-05}},
	{"{\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
	 "\"original_max_position_embeddings\": 64}",
	 512,
	 1.0,
	 {1, 0.244384587, 0.0130422562, 0.00395284733, 0.00124999997, 0.000395284733, 0.000125000006,
	  3.95284733e-05}},
	{"{\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 64}",
	 256,
	 1.138629436111989,
	 {1, 0.237170815, 0.049999997, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012,
	  7.90569466e-05}},
	{"{\"rope_type\": \"yarn\", \"factor\": 16.0, \"original_max_position_embeddings\": 64, "
	 "\"beta_fast\": 8.0, \"beta_slow\": 0.5, \"attention_factor\": 1.5}",
	 1024,
	 1.5,
	 {1, 0.217406571, 0.0374999978, 0.00197642366, 0.000624999986, 0.000197642366, 6.2500003e-05,
	  1.97642366e-05}},
	{"{\"rope_type\": \"yarn\", \"factor\": 40.0, \"original_max_position_embeddings\": 4096, "
	 "\"mscale\": 0.707, \"mscale_all_dim\": 1.0}",
	 163840,
	 0.9210423553163399,
	 {1, 0.316227764, 0.100000001, 0.0239147246, 0.00512499968, 0.000849862176, 2.49999994e-05,
	  7.90569447e-06}},
	{"{\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 64, \"truncate\": "
	 "false}",
	 256,
	 1.138629436111989,
	 {1, 0.198583528, 0.0255952496, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012,
	  7.90569466e-05}},
	{"{\"rope_type\": \"dynamic\", \"factor\": 4.0}",
	 64,
	 1.0,
	 {1, 0.242702499, 0.05890451, 0.0142962709, 0.00346974074, 0.000842114794, 0.000204383367,
	  4.96043576e-05}},
	{"{\"rope_type\": \"longrope\", \"original_max_position_embeddings\": 64, \"short_factor\": [1.0, "
	 "1.02, 1.05, "
	 "1.1, 1.2, 1.5, 1.75, 2.0], \"long_factor\": [1.08, 1.25, 1.7, 2.5, 4.0, 9.5, 20.25, 32.0]}",
	 256,
	 1.1547005383792517,
	 {0.92592591, 0.252982229, 0.0588235296, 0.0126491114, 0.00249999994, 0.000332871365, 4.93827174e-05,
	  9.88211832e-06}},
	{"{\"rope_type\": \"longrope\", \"original_max_position_embeddings\": 256, \"short_factor\": [1.0, "
	 "1.02, 1.05, "
	 "1.1, 1.2, 1.5, 1.75, 2.0], \"long_factor\": [1.08, 1.25, 1.7, 2.5, 4.0, 9.5, 20.25, 32.0], "
	 "\"attention_factor\": 1.125}",
	 512,
	 1.125,
	 {1, 0.310027212, 0.095238097, 0.0287479796, 0.00833333284, 0.00210818532, 0.000571428565,
	  0.000158113893}},
	{"{\"rope_type\": \"dynamic\", \"factor\": 4.0, \"original_max_position_embeddings\": 16}",
	 64,
	 1.0,
	 {1, 0.242702499, 0.05890451, 0.0142962709, 0.00346974074, 0.000842114794, 0.000204383367,
	  4.96043576e-05}},
};
#define N (int)(sizeof(golden) / sizeof(golden[0]))

static void load(struct dt_config *c, const char *scaling, int64_t positions)
{
	struct dt_err err = {0};
	char text[1024];
	json_t *o;

	snprintf(text, sizeof(text),
		 "{\"model_type\":\"llama\",\"vocab_size\":100,\"hidden_size\":64,\"intermediate_size\":96,"
		 "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"head_dim\":16,\"rope_scaling\":%s,"
		 "\"max_position_embeddings\":%lld}",
		 scaling ? scaling : "null", (long long)positions);
	o = json_loads(text, 0, NULL);
	assert_non_null(o);
	if (dt_config_from_hf(o, c, &err) < 0)
		fail_msg("%s: %s", text, err.msg);
	json_decref(o);
}

static void angles_are_those_of_transformers(void **state)
{
	for (int k = 0; k < N; k++) {
		struct dt_config c, at;

		load(&c, golden[k].scaling, golden[k].positions);
		at = c;
		dt_rope_for_length(&at, 150);
		for (int i = 0; i < 8; i++)
			if (fabs(dt_rope_frequency(&at, i) / golden[k].freq[i] - 1) > 1e-6)
				fail_msg("%s, pair %d: %.9g, transformers has %.9g", golden[k].scaling, i,
					 dt_rope_frequency(&at, i), golden[k].freq[i]);
		if (fabs(dt_rope_mscale(&at) - golden[k].mscale) > 1e-9)
			fail_msg("%s: cos times %.12g, transformers has %.12g", golden[k].scaling,
				 dt_rope_mscale(&at), golden[k].mscale);
	}
}

/* What is written to config.json, and to a manifest, reads as the same. */
static void files_say_it_again(void **state)
{
	static const char *const spec[] = {"linear:2", "ntk:4", "dynamic:2", "yarn:4", "llama3:8"};

	for (int k = 0; k < N + 5; k++) {
		struct dt_config c, back;
		struct dt_err err = {0};
		const char *what = NULL;
		json_t *o;

		load(&c, k < N ? golden[k].scaling : NULL, k < N ? golden[k].positions : 64);
		if (k >= N)
			assert_int_equal(dt_config_scale_rope(&c, spec[k - N], &err), 0);
		assert_int_equal(dt_config_to_hf(&c, "float32", &o, &err), 0);
		if (dt_config_from_hf(o, &back, &err) < 0 || !dt_config_same(&c, &back, &what))
			fail_msg("%s: %s%s", k < N ? golden[k].scaling : spec[k - N], err.msg,
				 what ? what : "");
		for (int i = 0; i < 8; i++)
			assert_true(fabs(dt_rope_frequency(&c, i) / dt_rope_frequency(&back, i) - 1) < 1e-9);
		json_decref(o);
		o = dt_config_to_json(&c);
		assert_int_equal(dt_config_from_json(o, &back, &err), 0);
		assert_true(dt_config_same(&c, &back, &what) && back.rope_mscale == c.rope_mscale);
		json_decref(o);
	}
}

static void table_has_the_factor(void **state)
{
	float cos_of[8 * 300], sin_of[8 * 300];
	struct dt_config c;

	load(&c, golden[4].scaling, golden[4].positions);
	dt_rope_table(&c, 300, cos_of, sin_of);
	assert_true(cos_of[0] == 1.5f &&
		    fabs(hypot((double)cos_of[2399], (double)sin_of[2399]) - 1.5) < 1e-6);
	load(&c, golden[7].scaling, golden[7].positions); /* dynamic: as the table is long */
	dt_rope_table(&c, 150, cos_of, sin_of);
	assert_true(fabs((double)sin_of[8 + 3] - sin(golden[7].freq[3])) < 1e-7);
	dt_rope_table(&c, 64, cos_of, sin_of);
	assert_true(fabs((double)sin_of[8 + 3] - sin(golden[0].freq[3])) < 1e-7);
}

static void asked_for(void **state)
{
	static const char *const bad[] = {"yarn",   "yarn:", "yarn:0.5", "cubic:4",
					  "yarn:x", ":4",    "linear:4x"};
	struct dt_config c, same;
	struct dt_err err = {0};

	load(&c, NULL, 64);
	assert_int_equal(dt_config_scale_rope(&c, NULL, &err), 0);
	assert_int_equal(dt_config_positions(&c), 64);
	assert_int_equal(dt_config_scale_rope(&c, "yarn:4", &err), 0);
	assert_int_equal(dt_config_positions(&c), 256);
	for (int i = 0; i < 8; i++) /* as the golden one of the same factor and length */
		assert_true(fabs(dt_rope_frequency(&c, i) / golden[3].freq[i] - 1) < 1e-6);
	same = c;
	assert_int_equal(dt_config_scale_rope(&c, "yarn:4", &err), 0);
	assert_memory_equal(&same, &c, sizeof(c));
	assert_int_equal(dt_config_scale_rope(&c, "linear:2", &err), -EINVAL);
	assert_non_null(strstr(err.msg, "scaled already (yarn:4)"));
	load(&c, NULL, 64);
	assert_int_equal(dt_config_scale_rope(&c, "linear:2", &err), 0);
	assert_int_equal(dt_config_positions(&c), 128);
	/* NTK: the fastest pair stays, the slowest is 1 / factor as fast (two decimals: d / (d - 2)) */
	load(&c, NULL, 64);
	assert_int_equal(dt_config_scale_rope(&c, "ntk:4", &err), 0);
	assert_true(dt_rope_frequency(&c, 0) == 1 &&
		    fabs(dt_rope_frequency(&c, 7) / (golden[0].freq[7] / 4) - 1) < 1e-6);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		load(&c, NULL, 64);
		if (dt_config_scale_rope(&c, bad[i], &err) != -EINVAL)
			fail_msg("'%s' is taken", bad[i]);
	}
	assert_int_equal(dt_config_find_preset("gpt2-tiny", &c), 0);
	assert_int_equal(dt_config_scale_rope(&c, "yarn:4", &err), -EINVAL);
}

static void lists_of_divisors_are_checked(void **state)
{
	static const char *const bad[] = {
		"{\"type\": \"longrope\", \"long_factor\": [1, 1, 1, 1, 1, 1, 1, 1]}",
		"{\"type\": \"longrope\", \"short_factor\": [1, 1], \"long_factor\": [1, 1]}",
		"{\"type\": \"longrope\", \"short_factor\": [1, 1, 1, 1, 1, 1, 1, 0], \"long_factor\": [1, "
		"1, 1, 1, 1, "
		"1, 1, 1]}",
		"{\"type\": \"longrope\", \"short_factor\": 1, \"long_factor\": 2}"};
	struct dt_config c;
	struct dt_err err = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		json_t *o =
			json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:o}", "model_type", "phi3",
				  "vocab_size", 100, "hidden_size", 64, "intermediate_size", 96,
				  "num_hidden_layers", 2, "num_attention_heads", 4, "max_position_embeddings",
				  64, "rope_scaling", json_loads(bad[i], 0, NULL));

		if (dt_config_from_hf(o, &c, &err) != -EINVAL || !strstr(err.msg, "_factor'"))
			fail_msg("%s: %s", bad[i], err.msg);
		json_decref(o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(angles_are_those_of_transformers),
		cmocka_unit_test(files_say_it_again),
		cmocka_unit_test(table_has_the_factor),
		cmocka_unit_test(asked_for),
		cmocka_unit_test(lists_of_divisors_are_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
