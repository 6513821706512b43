/*
 * Mixes of formats: layer by layer the types that llama-quantize of llama.cpp 0.3.36 gave the tensors of a
 * Llama of 18 layers and a Mixtral of 6 (8 experts), as the digit in the type's name.
 */
#include "model/mix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct known {
	const char *mix;
	int64_t experts;
	const char *k, *v, *o, *down;
} known[] = {
	{"q3_k_m", 0, "333333333333333333", "554444444444444444", "444444444444444444", "544444444444444444"},
	{"q3_k_l", 0, "333333333333333333", "555555555555555555", "555555555555555555", "555555555555555555"},
	{"q4_k_s", 0, "444444444444444444", "555544444444444444", "444444444444444444", "554444444444444444"},
	{"q4_k_m", 0, "444444444444444444", "664464464464464666", "444444444444444444", "664464464464464666"},
	{"q5_k_m", 0, "555555555555555555", "665565565565565666", "555555555555555555", "665565565565565666"},
	{"q3_k_m", 8, "888888", "888888", "555555", "444444"},
	{"q3_k_l", 8, "888888", "888888", "333333", "555555"},
	{"q4_k_s", 8, "888888", "888888", "555555", "444444"},
	{"q4_k_m", 8, "888888", "888888", "555555", "446446"},
	{"q5_k_m", 8, "888888", "888888", "555555", "556556"},
};

static void check(const struct known *w, enum dt_role role, bool joined, const char *want)
{
	const struct dt_config c = {
		.layers = (int64_t)strlen(want), .heads = 4, .kv_heads = 2, .experts = w->experts};
	const enum dt_format_mix m = dt_format_mix_parse(w->mix);

	for (int l = 0; l < c.layers; l++) {
		const struct dt_param p = {.role = role, .layer = l, .ndim = 2};
		const char *name = dt_format_info(dt_format_mix_of(m, &c, &p, joined))->name;

		if (name[1] != want[l])
			fail_msg("%s, role %d of layer %d: %s, not q%c", w->mix, (int)role, l, name, want[l]);
	}
}

static void types_are_llama_quantizes(void **state)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		const struct known *w = &known[i];

		check(w, DT_W_K, false, w->k);
		check(w, DT_W_V, false, w->v);
		check(w, DT_W_Q, true, w->v); /* in one tensor with k and v */
		check(w, DT_W_K, true, w->v);
		check(w, DT_W_O, false, w->o);
		check(w, w->experts ? DT_W_EXPERT_DOWN : DT_W_DOWN, false, w->down);
	}
}

/* Eight queries to a value head, 80 layers: llama.cpp's 70B. */
static void values_of_70b(void **state)
{
	const struct dt_config c = {.layers = 80, .heads = 64, .kv_heads = 8};
	const struct dt_param v = {.role = DT_W_V, .layer = 11, .ndim = 2}, q = {.role = DT_W_Q, .layer = 11};

	assert_int_equal(dt_format_mix_of(DT_FORMAT_MIX_Q4_K_M, &c, &v, false), DT_FMT_Q5_K);
	assert_int_equal(dt_format_mix_of(DT_FORMAT_MIX_Q3_K_M, &c, &v, false), DT_FMT_Q5_K);
	assert_int_equal(dt_format_mix_of(DT_FORMAT_MIX_Q4_K_M, &c, &q, false), DT_FMT_Q4_K);
}

static void names(void **state)
{
	assert_int_equal(dt_format_mix_parse("q4_k"), DT_FORMAT_MIX_NONE);
	assert_int_equal(dt_format_mix_parse("q4_k_m"), DT_FORMAT_MIX_Q4_K_M);
	assert_int_equal(dt_format_mix_base(DT_FORMAT_MIX_Q3_K_L), DT_FMT_Q3_K);
	assert_int_equal(dt_format_mix_file_type(DT_FORMAT_MIX_Q5_K_M), 17);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(types_are_llama_quantizes),
		cmocka_unit_test(values_of_70b),
		cmocka_unit_test(names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
