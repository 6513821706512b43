/* base/table.h, base/progress.h and base/arena.h: the small helpers. */
#include "base/arena.h"
#include "base/progress.h"
#include "base/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *print(const struct dt_table *t)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	dt_table_print(t, f);
	fclose(f);
	return text;
}

static void columns_align(void **state)
{
	struct dt_table *t = dt_table_new("name|>size|>share");
	char *text;

	dt_table_cell(t, "weights");
	dt_table_cell(t, "%d", 12);
	dt_table_cell(t, "%.1f%%", 99.5);
	dt_table_cell(t, "x");
	dt_table_end_row(t); /* early: the other two cells are empty */
	dt_table_end_row(t); /* a rule */
	dt_table_cell(t, "total");
	dt_table_cell(t, "12345678");
	dt_table_cell(t, "1%%");
	text = print(t);
	assert_string_equal(text, "name         size  share\n"
				  "weights        12  99.5%\n"
				  "x\n"
				  "------------------------\n"
				  "total    12345678     1%\n");
	free(text);
	dt_table_free(t);
}

static void utf8_takes_one_column_a_character(void **state)
{
	struct dt_table *t = dt_table_new("w\xc3\xb6rt|n");
	char *text;

	dt_table_cell(t, "\xce\xb1\xce\xb2\xce\xb3\xce\xb4\xce\xb5"); /* five Greek letters, ten bytes */
	dt_table_cell(t, "1");
	text = print(t);
	assert_string_equal(text, "w\xc3\xb6rt   n\n"
				  "\xce\xb1\xce\xb2\xce\xb3\xce\xb4\xce\xb5  1\n");
	free(text);
	dt_table_free(t);
}

static void empty_heading_keeps_its_column(void **state)
{
	struct dt_table *t = dt_table_new("|a|");
	char *text;

	dt_table_cell(t, "x");
	dt_table_cell(t, "y");
	dt_table_cell(t, "z");
	text = print(t);
	assert_string_equal(text, "   a\nx  y  z\n");
	free(text);
	dt_table_free(t);
}

static void a_narrow_terminal_folds_the_last_column(void **state)
{
	static const struct {
		int columns;
		const char *text;
	} cases[] = {
#define WHOLE                                                                                                \
	"layout  note\ndp2.z1  as many s\xc3\xa4tze as it holds\n---------------------------------\ntp2    " \
	" one\n"
		{0, WHOLE},
		{33, WHOLE},
		{32, "layout  note\ndp2.z1  as many s\xc3\xa4tze as it\n        holds\n"
		     "--------------------------------\ntp2     one\n"},
		{24, "layout  note\ndp2.z1  as many s\xc3\xa4tze as\n        it holds\n"
		     "------------------------\ntp2     one\n"},
		{23, "layout\n    note\ndp2.z1\n    as many s\xc3\xa4tze as it\n    holds\n"
		     "-----------------------\ntp2\n    one\n"},
		{19, WHOLE}, /* too narrow for words */
	};
	struct dt_table *t = dt_table_new("layout|note");

	dt_table_cell(t, "dp2.z1");
	dt_table_cell(t, "as many s\xc3\xa4tze as it holds");
	dt_table_end_row(t);
	dt_table_cell(t, "tp2");
	dt_table_cell(t, "one");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *text = NULL;
		size_t n = 0;
		FILE *f = open_memstream(&text, &n);

		dt_table_print_within(t, f, cases[i].columns);
		fclose(f);
		if (strcmp(text, cases[i].text))
			fail_msg("%d columns:\n%s\nnot\n%s", cases[i].columns, text, cases[i].text);
		free(text);
	}
	dt_table_free(t);
}

static void one_column(void **state)
{
	struct dt_table *t = dt_table_new("layout");
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	dt_table_cell(t, "tp2");
	dt_table_print_within(t, f, 80);
	fclose(f);
	assert_string_equal(text, "layout\ntp2\n");
	free(text);
	dt_table_free(t);
}

static void columns_without_room_go_on_below(void **state)
{
	static const struct {
		int columns;
		const char *text;
	} cases[] = {
		{0, "layout  replicas   price  note\ntp2           11  0.1234  fits\n--------------------"
		    "----------\ntp4            5   22.75\n"},
		{30, "layout  replicas   price  note\ntp2           11  0.1234  fits\n-------------------"
		     "-----------\ntp4            5   22.75\n"},
		{29, "layout  replicas   price\ntp2           11  0.1234\n------------------------\ntp4     "
		     "       5   22.75\n\nlayout  note\ntp2     fits\n------------\ntp4\n"},
		{23,
		 "layout  replicas\ntp2           11\n----------------\ntp4            5\n\nlayout   price"
		 "  note\ntp2     0.1234  fits\n--------------------\ntp4      22.75\n"},
	};
	struct dt_table *t = dt_table_new("layout|>replicas|>price|note");

	for (const char *const *s = (const char *const[]){"tp2", "11", "0.1234", "fits", NULL}; *s; s++)
		dt_table_cell(t, "%s", *s);
	dt_table_end_row(t);
	for (const char *const *s = (const char *const[]){"tp4", "5", "22.75", "", NULL}; *s; s++)
		dt_table_cell(t, "%s", *s);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *text = NULL;
		size_t n = 0;
		FILE *f = open_memstream(&text, &n);

		dt_table_print_within(t, f, cases[i].columns);
		fclose(f);
		if (strcmp(text, cases[i].text))
			fail_msg("%d columns:\n%s\nnot\n%s", cases[i].columns, text, cases[i].text);
		free(text);
	}
	dt_table_free(t);
}

static void null_table_is_allowed(void **state)
{
	char *text = print(NULL);

	dt_table_cell(NULL, "x");
	dt_table_end_row(NULL);
	dt_table_free(NULL);
	assert_string_equal(text, "");
	free(text);
}

static void progress_is_silent_off_a_terminal(void **state)
{
	char text[64] = "";
	FILE *f = tmpfile();
	struct dt_progress p;

	assert_non_null(f);
	setenv("TERM", "xterm", 1);
	dt_progress_start(&p, f, "copying", 100, true);
	dt_progress_set(&p, 50);
	dt_progress_set(&p, 100);
	dt_progress_end(&p);
	rewind(f);
	assert_int_equal(fread(text, 1, sizeof(text), f), 0);
	fclose(f);
	dt_progress_start(&p, NULL, "copying", 0, true);
	dt_progress_set(&p, 1);
	dt_progress_end(&p);
}

static void arena_is_zero_and_aligned(void **state)
{
	struct dt_err err = {0};
	struct dt_arena a = {0};
	size_t bytes = 3 << 20;

	assert_int_equal(dt_arena_init(&a, bytes, &err), 0);
	assert_int_equal(a.bytes, bytes);
	assert_int_equal((uintptr_t)a.base % DT_ALIGN, 0);
	for (size_t i = 0; i < bytes; i += 511)
		assert_int_equal(a.base[i], 0);
	memset(a.base, 1, bytes);
	dt_arena_release(&a);
	dt_arena_release(&a); /* twice is harmless */
	assert_int_equal(dt_arena_init(&a, 0, &err), 0);
	assert_true(a.bytes > 0);
	dt_arena_release(&a);
	assert_int_equal(dt_align_up(0), 0);
	assert_int_equal(dt_align_up(1), 64);
	assert_int_equal(dt_align_up(64), 64);
	assert_int_equal(dt_align_up(65), 128);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(columns_align),
		cmocka_unit_test(utf8_takes_one_column_a_character),
		cmocka_unit_test(empty_heading_keeps_its_column),
		cmocka_unit_test(a_narrow_terminal_folds_the_last_column),
		cmocka_unit_test(one_column),
		cmocka_unit_test(columns_without_room_go_on_below),
		cmocka_unit_test(null_table_is_allowed),
		cmocka_unit_test(progress_is_silent_off_a_terminal),
		cmocka_unit_test(arena_is_zero_and_aligned),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
