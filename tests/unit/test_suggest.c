/* base/suggest.h: distances between words, and when one is near enough to be offered. */
#include "base/suggest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void distances(void **state)
{
	static const struct {
		const char *a, *b;
		int d;
	} known[] = {{"", "", 0},	    {"", "abc", 3},	   {"abc", "", 3},   {"kitten", "sitting", 3},
		     {"steps", "setps", 1}, {"Llama", "llama", 0}, {"ca", "abc", 3}, {"verify", "verfiy", 1}};
	char a[100], b[100];

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (dt_edit_distance(known[i].a, known[i].b) != known[i].d)
			fail_msg("'%s' to '%s': %d, not %d", known[i].a, known[i].b,
				 dt_edit_distance(known[i].a, known[i].b), known[i].d);
	memset(a, 'a', 99);
	memset(b, 'b', 99);
	a[99] = b[99] = 0;
	assert_int_equal(dt_edit_distance(a, b), 63); /* no more than that is looked at */
}

static const char *nearest(const char *word, const char *const *known)
{
	static struct dt_suggest s;

	s = dt_suggest(word);
	for (; *known; known++)
		dt_suggest_offer(&s, *known);
	return s.best;
}

static void offers(void **state)
{
	static const char *const models[] = {"gpt2-124m", "llama-2-7b", "llama-2-70b", "llama-3-8b", NULL};
	static const char *const options[] = {"seq", "sequence-parallel", "microbatch", "lr", NULL};
	static const char *const commands[] = {"ls", "verify", "diff", "reshard", NULL};
	char text[128];
	struct dt_suggest s = dt_suggest("verfy");

	assert_string_equal(nearest("lama-3-8b", models), "llama-3-8b");
	assert_string_equal(nearest("Llama-2-7B", models), "llama-2-7b");
	assert_string_equal(nearest("llama2-7b", models), "llama-2-7b");
	assert_string_equal(nearest("gpt2", models), "gpt2-124m"); /* a beginning */
	assert_string_equal(nearest("mistral", models), "");
	assert_string_equal(nearest("re", commands), "reshard");
	assert_string_equal(nearest("rm", commands), "");
	assert_string_equal(nearest("", commands), "");
	assert_string_equal(nearest("batch", options), "microbatch"); /* a part */
	assert_string_equal(nearest("seq-len", options), "seq");
	assert_string_equal(nearest("llama-3-8b-instruct", models), "llama-3-8b");
	assert_string_equal(nearest("bat", options), "");
	assert_string_equal(nearest("lr-min", options), "");
	dt_suggest_offer(&s, "diff");
	assert_string_equal(dt_suggest_text(&s, "", text, sizeof(text)), "");
	dt_suggest_offer(&s, "verify");
	assert_string_equal(dt_suggest_text(&s, "--", text, sizeof(text)), "; did you mean '--verify'?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(distances), cmocka_unit_test(offers)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
