/*
 * Damaged tokenizer.json files: whatever a few changed bytes make of them, reading ends in an error with a
 * message or in a tokenizer whose ids are in its vocabulary. Runs under the sanitizers as well.
 */
#include "base/json.h"
#include "base/rng.h"
#include "data/tokenizer.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROUNDS 1500
#define NAMES  6

static const char text[] =
	"The fox's 1234 \xc3\xa9\xcc\x81 <|im_start|><mask>\t\t\xff\xe6\x97\xa5 <|endoftext|>";

static char *load(const char *name, size_t *ret_n)
{
	const char *src = getenv("DT_SRC"), *end = strstr(__FILE__, "tests/unit/");
	struct dt_err err = {0};
	char path[PATH_MAX], *s;

	snprintf(path, sizeof(path), "%.*s%s%stests/data/tokenizer/%s.json", src ? 0 : (int)(end - __FILE__),
		 __FILE__, src ? src : "", src ? "/" : "", name);
	if (dt_read_file(path, 1 << 20, &s, ret_n, &err) < 0)
		fail_msg("%s", err.msg);
	return s;
}

/* What is not vocabulary or merges is little text with much meaning: half of the changes go there. */
static size_t place(const struct dt_rng *r, uint64_t *at, const char *s, size_t n)
{
	const char *vocab = strstr(s, "\"vocab\"");
	size_t head = vocab ? (size_t)(vocab - s) + 40 : n;

	if (dt_rng_below(r, (*at)++, 2) || head > n)
		head = n;
	return dt_rng_below(r, (*at)++, head);
}

static void mutate(const struct dt_rng *r, uint64_t *at, char *s, size_t *n)
{
	static const char bytes[] = "{}[]\",:0-9\\u\xff\xc3 tfn\x01(?*+|^$p";
	int changes = 1 + (int)dt_rng_below(r, (*at)++, 4);

	for (int i = 0; i < changes; i++) {
		size_t p = place(r, at, s, *n), len = 1 + dt_rng_below(r, (*at)++, 8), q;

		switch (dt_rng_below(r, (*at)++, 5)) {
		case 0:
			s[p] = (char)dt_rng_below(r, (*at)++, 256);
			break;
		case 1:
			s[p] = bytes[dt_rng_below(r, (*at)++, sizeof(bytes) - 1)];
			break;
		case 2: /* cut some out */
			if (p + len < *n) {
				memmove(s + p, s + p + len, *n - p - len);
				*n -= len;
			}
			break;
		case 3: /* copy some over others */
			q = place(r, at, s, *n);
			if (p + len < *n && q + len < *n)
				memmove(s + p, s + q, len);
			break;
		case 4: /* a digit more or another */
			while (p < *n && (s[p] < '0' || s[p] > '9'))
				p++;
			if (p < *n)
				s[p] = (char)('0' + dt_rng_below(r, (*at)++, 10));
			break;
		}
	}
}

static bool try_one(const char *s, size_t n)
{
	struct dt_tokenizer *t = NULL;
	struct dt_err err = {0};
	int32_t *ids;
	size_t len;

	if (dt_tokenizer_from_text(s, n, &t, &err) < 0) {
		assert_null(t);
		assert_true(err.code < 0 && *err.msg);
		return false;
	}
	if (dt_tokenizer_encode(t, text, strlen(text), true, &ids, &len, &err) < 0) {
		assert_true(*err.msg);
	} else {
		char *back;
		size_t back_n;

		for (size_t i = 0; i < len; i++)
			assert_in_range(ids[i], 0, dt_tokenizer_vocab(t) - 1);
		assert_int_equal(dt_tokenizer_decode(t, ids, len, true, &back, &back_n, &err), 0);
		free(back);
		free(ids);
	}
	dt_tokenizer_close(t);
	return true;
}

static void test_damaged(void **state)
{
	static const char *const names[NAMES] = {"gpt2", "llama3", "qwen2", "digits", "wp-uncased", "ug-t5"};
	int accepted = 0;

	for (uint32_t k = 0; k < NAMES; k++) {
		struct dt_rng r = dt_rng_make(20240607, DT_RNG_TEST, k);
		uint64_t at = 0;
		size_t n;
		char *whole = load(names[k], &n), *copy = malloc(n + 1);

		assert_true(try_one(whole, n));
		for (int i = 0; i < ROUNDS; i++) {
			size_t len = n;

			memcpy(copy, whole, n + 1);
			mutate(&r, &at, copy, &len);
			accepted += try_one(copy, len);
		}
		free(whole);
		free(copy);
	}
	/* both ends of the reader were reached */
	assert_in_range(accepted, 50, NAMES * ROUNDS - 50);
}

static void test_truncated(void **state)
{
	size_t n;
	char *s = load("digits", &n);

	while (n && strchr(" \n}", s[n - 1]))
		n--;
	for (size_t len = 0; len < n; len += 1 + n / 300)
		assert_false(try_one(s, len));
	free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_truncated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
