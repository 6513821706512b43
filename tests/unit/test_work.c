/*
 * The work on long inputs: bytes searched and strings compared grow with the input, not with its square, and
 * parallel regions are few. The linker passes calls of memchr, strcmp and libgomp through the counters below.
 */
#include "base/curves.h"
#include "data/text_lines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SHORT = 64000 };

static size_t searched, compared, regions;

void *__real_memchr(const void *s, int c, size_t n);
void *__wrap_memchr(const void *s, int c, size_t n);
__attribute__((weak)) /* other runtimes lack it */
void __real_GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags);
void __wrap_GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags);
int __real_strcmp(const char *a, const char *b);
int __wrap_strcmp(const char *a, const char *b);

void *__wrap_memchr(const void *s, int c, size_t n)
{
	void *at = __real_memchr(s, c, n);

	searched += at ? (size_t)((char *)at - (const char *)s) + 1 : n;
	return at;
}

void __wrap_GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags)
{
	regions++;
	__real_GOMP_parallel(fn, data, threads, flags);
}

int __wrap_strcmp(const char *a, const char *b)
{
	compared++;
	return __real_strcmp(a, b);
}

/* ---- lines of JSON ---- */

struct input {
	char *text;
	size_t n, at, piece;
	size_t lines, bytes, strings;
};

static int more(void *ctx, void *buf, int n, struct dt_err *err)
{
	struct input *in = ctx;
	size_t k = in->n - in->at;

	k = k < in->piece ? k : in->piece;
	assert_true((int)k <= n);
	memcpy(buf, in->text + in->at, k);
	in->at += k;
	return (int)k;
}

static int take(void *ctx, const struct text_line *l, struct dt_err *err)
{
	struct input *in = ctx;

	in->lines++;
	in->bytes += l->bytes;
	in->strings += json_string_length(json_object_get(l->value, "text"));
	return 0;
}

static size_t add_line(char *to, size_t letters)
{
	size_t n = (size_t)sprintf(to, "{\"text\": \"");

	memset(to + n, 'a', letters);
	return n + letters + (size_t)sprintf(to + n + letters, "\"}\n");
}

/* Short lines around one of 40 MB, which arrives in the pieces of a pipe. */
static void a_long_line_is_searched_once(void **state)
{
	const size_t letters[] = {3, 40000000, 7, 20000000, 0, 11};
	struct input in = {.piece = 65536, .text = malloc(61000000)};
	const struct text_lines lines = {.more = more, .take = take, .ctx = &in};
	struct dt_err err = {0};
	size_t all = 0;

	assert_non_null(in.text);
	for (size_t i = 0; i < sizeof(letters) / sizeof(*letters); i++) {
		in.n += add_line(in.text + in.n, letters[i]);
		all += letters[i];
	}
	searched = 0;
	assert_int_equal(text_lines_read(&lines, &err), 0);
	assert_int_equal(in.lines, 6);
	assert_int_equal(in.bytes, in.n);
	assert_int_equal(in.strings, all);
	assert_in_range(searched, in.n, 2 * in.n);
	free(in.text);
}

/* Threads that wait for the next parallel region spin, so a region has work for many short lines. */
static void short_lines_share_a_region(void **state)
{
	struct input in = {.piece = 65536, .text = malloc(SHORT * 24)};
	const struct text_lines lines = {.more = more, .take = take, .ctx = &in};
	struct dt_err err = {0};

	assert_non_null(in.text);
	for (int i = 0; i < SHORT; i++)
		in.n += add_line(in.text + in.n, (size_t)i % 10);
	regions = 0;
	assert_int_equal(text_lines_read(&lines, &err), 0);
	assert_int_equal(in.lines, SHORT);
	assert_in_range(regions, 0, SHORT / 8000); /* 0: a compiler with another runtime */
	free(in.text);
}

/* ---- bars ---- */

enum { BARS = 20000 };

/* Draws BARS bars, each twice; names: by a key, or by line number. */
static void take_bars(const char *by, int want)
{
	const char *const file = "f.jsonl";
	struct dt_curves c = {.o = {.file = &file, .nfile = 1, .by = by, .bars = "v"}};
	struct dt_err err = {0};

	compared = 0;
	for (int i = 0; i < 2 * BARS; i++) {
		json_t *o = json_pack("{s:i, s:i}", "id", i % BARS, "v", i);

		assert_int_equal(dt_curves_take(&c, o, 0, (size_t)i + 1, &err), 0);
		json_decref(o);
	}
	assert_int_equal(c.nbar, want);
	assert_string_equal(c.bar[BARS - 1].name, by ? "19999" : "20000");
	assert_true(c.bar[BARS - 1].value == (by ? 2 * BARS - 1 : BARS - 1));
	assert_true(c.bar[0].value == (by ? BARS : 0));
	assert_true(compared < 100 * BARS);
	dt_curves_release(&c);
}

static void a_bar_is_not_compared_with_all_others(void **state)
{
	take_bars("id", BARS);
	take_bars(NULL, 2 * BARS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_long_line_is_searched_once),
		cmocka_unit_test(short_lines_share_a_region),
		cmocka_unit_test(a_bar_is_not_compared_with_all_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
