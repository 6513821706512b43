/* Held-back text: every way to cut a byte string into tokens must release the same text and stop alike. */
#include "base/rng.h"
#include "base/utf8.h"
#include "serve/engine/detok.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct dt_detok begin(const struct dt_stop *stop, int n)
{
	struct dt_detok d;

	dt_detok_init(&d, NULL, stop, n);
	return d;
}

static void assert_text(const struct dt_detok *d, const char *want)
{
	assert_int_equal(d->ready, strlen(want));
	assert_memory_equal(d->text ? d->text : "", want, strlen(want));
}

static void test_stop_across_tokens(void **state)
{
	struct dt_stop stop[] = {{(char *)"END", 3}, {(char *)"\n\n", 2}};
	struct dt_detok d = begin(stop, 2);

	assert_int_equal(dt_detok_push_bytes(&d, "one E", 5), 0);
	assert_text(&d, "one ");
	assert_int_equal(dt_detok_push_bytes(&d, "N", 1), 0);
	assert_text(&d, "one ");
	assert_int_equal(dt_detok_push_bytes(&d, "ormal E", 7), 0); /* not the stop after all */
	assert_text(&d, "one ENormal ");
	assert_int_equal(dt_detok_push_bytes(&d, "NDtail", 6), 1);
	assert_text(&d, "one ENormal ");
	assert_int_equal(d.stopped, 0);
	dt_detok_release(&d);
}

static void test_first_stop_wins_and_is_kept_on_request(void **state)
{
	struct dt_stop stop[] = {{(char *)"b c", 3}, {(char *)"b", 1}};
	struct dt_detok d = begin(stop, 2);

	d.include_stop = true;
	assert_int_equal(dt_detok_push_bytes(&d, "a b c", 5), 1);
	assert_text(&d, "a b");
	assert_int_equal(d.stopped, 1);
	dt_detok_release(&d);
}

static void test_unfinished_stop_is_shown_at_the_end(void **state)
{
	struct dt_stop stop[] = {{(char *)"aab", 3}};
	struct dt_detok d = begin(stop, 1);

	dt_detok_push_bytes(&d, "xaaa", 4);
	assert_text(&d, "xa");
	dt_detok_finish(&d);
	assert_text(&d, "xaaa");
	dt_detok_release(&d);
}

static void test_characters_in_pieces(void **state)
{
	struct dt_detok d = begin(NULL, 0);

	dt_detok_push_bytes(&d, "\xe2", 1);
	assert_text(&d, "");
	dt_detok_push_bytes(&d, "\x82", 1);
	assert_text(&d, "");
	dt_detok_push_bytes(&d, "\xac!", 2);
	assert_text(&d, "\xe2\x82\xac!");
	dt_detok_push_bytes(&d, "\xff", 1); /* never a character: shown (as U+FFFD) at once */
	assert_int_equal(d.ready, 5);
	dt_detok_release(&d);
}

/* All bytes that can begin a character or not; the expected values are Unicode's own examples (3.9, U+FFFD
 * substitution of maximal subparts). */
static void test_clean(void **state)
{
	static const char *const cases[][2] = {
		{"plain", "plain"},
		{"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
							 "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
							 "A"},
		{"\xed\xa0\x80\x41", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
				     "A"},
		{"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
							 "A"},
		{"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
		{"\xf4\x90", "\xef\xbf\xbd\xef\xbf\xbd"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		size_t n;
		char *s = dt_utf8_clean(cases[i][0], strlen(cases[i][0]), &n);

		assert_string_equal(s, cases[i][1]);
		assert_int_equal(n, strlen(s));
		free(s);
	}
	assert_int_equal(dt_utf8_tail("a\xf0\x9f\x98", 4), 3);
	assert_int_equal(dt_utf8_tail("a\xf0\x9f\x98\x80", 5), 0);
	assert_int_equal(dt_utf8_tail("\x80\x80", 2), 0);
	assert_int_equal(dt_utf8_tail("\xed\xa0", 2), 0);
	assert_int_equal(dt_utf8_tail("", 0), 0);
	assert_int_equal(dt_utf8_count("a\xe2\x82\xac!", 5), 3);
}

static void test_random_cuts(void **state)
{
	static const char alphabet[] = "ab\xe2\x82\xac\xf0\x9f\x98\x80\xff";
	struct dt_stop stop[] = {{(char *)"abab", 4},
				 {(char *)"\xe2\x82\xac"
					  "b",
				  4}};
	struct dt_rng rng = dt_rng_make(3, DT_RNG_TEST, 2);
	uint64_t k = 0;

	for (int round = 0; round < 3000; round++) {
		size_t n = 1 + dt_rng_below(&rng, k++, 40), end = n, at, shown = 0, whole_n, o = 0;
		char text[41], joined[200], *whole;
		struct dt_detok d = begin(stop, 2);
		size_t hit_end = SIZE_MAX;

		for (size_t i = 0; i < n; i++)
			text[i] = alphabet[dt_rng_below(&rng, k++, sizeof(alphabet) - 1)];
		for (int s = 0; s < 2; s++) { /* the expected cut, by plain search over the whole */
			char *hit = memmem(text, n, stop[s].s, stop[s].n);

			if (hit && (size_t)(hit - text) + 4 < hit_end) {
				hit_end = (size_t)(hit - text) + 4;
				end = (size_t)(hit - text);
			}
		}
		for (at = 0; at < n;) {
			size_t piece = 1 + dt_rng_below(&rng, k++, 5), len;
			int rc;
			char *c;

			piece = piece < n - at ? piece : n - at;
			rc = dt_detok_push_bytes(&d, text + at, piece);
			at += piece;
			if (rc == 0 && at == n)
				dt_detok_finish(&d);
			assert_true(d.ready >= shown);
			c = dt_utf8_clean(d.text + shown, d.ready - shown, &len);
			memcpy(joined + o, c, len);
			o += len;
			free(c);
			shown = d.ready;
			if (rc > 0)
				break;
		}
		whole = dt_utf8_clean(text, end, &whole_n);
		assert_int_equal(o, whole_n);
		assert_memory_equal(joined, whole, o);
		assert_int_equal(d.stopped >= 0, hit_end != SIZE_MAX);
		free(whole);
		dt_detok_release(&d);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stop_across_tokens),
		cmocka_unit_test(test_first_stop_wins_and_is_kept_on_request),
		cmocka_unit_test(test_unfinished_stop_is_shown_at_the_end),
		cmocka_unit_test(test_characters_in_pieces),
		cmocka_unit_test(test_clean),
		cmocka_unit_test(test_random_cuts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
