/* base/json.h and base/jsonl.h: reading with one-line errors, typed members, lines in and out. */
#include "base/json.h"
#include "base/jsonl.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static json_t *parse(const char *text)
{
	struct dt_err err = {0};
	json_t *v = NULL;

	if (dt_json_parse(text, strlen(text), "t", &v, &err) < 0)
		fail_msg("'%s': %s", text, err.msg);
	return v;
}

static void nul_in_texts(void **state)
{
	static const char text[] = "{\"a\": \"x\\u0000y\\u0000\"}";
	struct dt_err err = {0};
	const char *s = "none";
	json_t *v = NULL, *a;
	char *copy;

	assert_int_equal(dt_json_parse(text, strlen(text), "t", &v, &err), -EINVAL);
	assert_int_equal(dt_json_parse_texts(text, strlen(text), "t", &v, &err), 0);
	assert_int_equal(dt_json_str(v, "a", true, &s, &err), -EINVAL); /* not cut off */
	assert_string_equal(err.msg, "'a' contains a NUL character");
	assert_string_equal(s, "none");
	a = json_object_get(v, "a");
	copy = dt_json_text(json_string_value(a), json_string_length(a));
	assert_string_equal(copy, "x\xef\xbf\xbd"
				  "y\xef\xbf\xbd");
	free(copy);
	copy = dt_json_text(NULL, 0);
	assert_string_equal(copy, "");
	free(copy);
	json_decref(v);
}

/* In files alone, outside strings, and nothing that only begins so. */
static void infinity_of_files(void **state)
{
	char path[] = "/tmp/dt-json-XXXXXX";
	const int fd = mkstemp(path);
	FILE *f = fdopen(fd, "w");
	struct dt_err err = {0};
	json_t *v = NULL;

	fprintf(f, "{\"limit\": [0.0, Infinity], \"s\": \"\\\"Infinity\", \"n\": -Infinity}");
	fclose(f);
	assert_int_equal(dt_json_load(path, 1000, &v, &err), 0);
	assert_true(json_real_value(json_array_get(json_object_get(v, "limit"), 1)) == 1e308);
	assert_true(json_real_value(json_object_get(v, "n")) == -1e308);
	assert_string_equal(json_string_value(json_object_get(v, "s")), "\"Infinity");
	json_decref(v);
	f = fopen(path, "w");
	fprintf(f, "[Infinit]");
	fclose(f);
	assert_int_equal(dt_json_load(path, 1000, &v, &err), -EINVAL);
	assert_int_equal(dt_json_parse("[Infinity]", 10, "name", &v, &err), -EINVAL);
	unlink(path);
}

static void long_integers_are_reals(void **state)
{
	static const char text[] =
		"{\"model_max_length\": 1000000000000000019884624838656, \"n\": "
		"-9223372036854775807,\n"
		" \"s\": \"\\\"1000000000000000019884624838656\", \"e\": [1234567890123456789012e3]}";
	struct dt_err err = {0};
	json_t *v = NULL;

	assert_int_equal(dt_json_parse(text, strlen(text), "name", &v, &err), 0);
	assert_true(json_is_real(json_object_get(v, "model_max_length")));
	assert_true(json_real_value(json_object_get(v, "model_max_length")) == 1e30);
	/* in such a text every integer of more than 18 digits is one */
	assert_true(json_number_value(json_object_get(v, "n")) == -9223372036854775807.0);
	assert_string_equal(json_string_value(json_object_get(v, "s")), "\"1000000000000000019884624838656");
	assert_true(json_real_value(json_array_get(json_object_get(v, "e"), 0)) == 1234567890123456789012e3);
	json_decref(v);
	assert_int_equal(dt_json_parse("-9223372036854775807", 20, "name", &v, &err), 0);
	assert_true(json_integer_value(v) == -9223372036854775807LL);
	json_decref(v);
	assert_int_equal(dt_json_parse("\n[1e999]", 8, "name", &v, &err), -EINVAL);
	assert_memory_equal(err.msg, "name: line 2", 12);
}

static void garbage_is_refused_with_its_line(void **state)
{
	static const char *const bad[] = {"{",	 "{\"a\":1,}", "{\"a\":1}x", "{\"a\":NaN}",
					  "nul", "[1,2",       "\xff"};
	struct dt_err err = {0};
	json_t *v = (json_t *)0x1;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (dt_json_parse(bad[i], strlen(bad[i]), "name", &v, &err) != -EINVAL)
			fail_msg("accepted '%s'", bad[i]);
		assert_ptr_equal(v, (json_t *)0x1);
		assert_memory_equal(err.msg, "name: line ", 11);
	}
	assert_int_equal(dt_json_parse("", 0, "name", &v, &err), -EINVAL);
	assert_string_equal(err.msg, "name: empty, not JSON");
	assert_int_equal(dt_json_parse(" \n", 2, "name", &v, &err), -EINVAL);
	assert_string_equal(err.msg, "name: empty, not JSON");
	assert_int_equal(dt_json_parse("{\"a\":1,\n\"a\":2}", 14, "dup", &v, &err), -EINVAL);
	assert_memory_equal(err.msg, "dup: line 2", 11);
}

static void deep_nesting_is_refused(void **state)
{
	size_t n = 1000000;
	char *deep = malloc(n);
	struct dt_err err = {0};
	json_t *v = NULL;

	memset(deep, '[', n);
	assert_int_equal(dt_json_parse(deep, n, "deep", &v, &err), -EINVAL);
	free(deep);
}

static void members(void **state)
{
	json_t *o = parse("{\"i\":7,\"r\":1.5,\"b\":true,\"s\":\"x\",\"n\":null}");
	struct dt_err err = {0};
	const char *s = "untouched";
	int64_t i = -1;
	double r = -1;
	bool b = false;

	assert_int_equal(dt_json_int(o, "i", true, 0, 10, &i, &err), 1);
	assert_int_equal(i, 7);
	assert_int_equal(dt_json_int(o, "i", true, 8, 10, &i, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "(8 to 10)"));
	assert_int_equal(dt_json_int(o, "i", true, 8, INT64_MAX, &i, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "(at least 8)"));
	assert_non_null(strstr(err.msg, "'i'"));
	assert_int_equal(dt_json_int(o, "r", true, 0, 10, &i, &err), -EINVAL);
	assert_int_equal(dt_json_int(o, "none", false, 0, 10, &i, &err), 0);
	assert_int_equal(dt_json_int(o, "n", false, 0, 10, &i, &err), 0);
	assert_int_equal(dt_json_int(o, "none", true, 0, 10, &i, &err), -EINVAL);
	assert_string_equal(err.msg, "key 'none' is missing");
	assert_int_equal(i, 7);

	assert_int_equal(dt_json_real(o, "r", true, &r, &err), 1);
	assert_true(r == 1.5);
	assert_int_equal(dt_json_real(o, "i", true, &r, &err), 1); /* a whole number is a number */
	assert_true(r == 7);
	assert_int_equal(dt_json_real(o, "s", true, &r, &err), -EINVAL);

	assert_int_equal(dt_json_bool(o, "b", true, &b, &err), 1);
	assert_true(b);
	assert_int_equal(dt_json_bool(o, "i", true, &b, &err), -EINVAL);

	assert_int_equal(dt_json_str(o, "b", false, &s, &err), -EINVAL);
	assert_string_equal(s, "untouched");
	assert_int_equal(dt_json_str(o, "s", false, &s, &err), 1);
	assert_string_equal(s, "x");
	json_decref(o);
}

static void files(void **state)
{
	char path[] = "/tmp/dt-test-json-XXXXXX";
	int fd = mkstemp(path);
	struct dt_err err = {0};
	json_t *v = NULL;
	char *text = NULL;
	size_t n = 0;

	assert_true(fd >= 0 && write(fd, "{\"k\":\"v\"}\n", 10) == 10);
	close(fd);
	assert_int_equal(dt_json_load(path, 100, &v, &err), 0);
	assert_string_equal(json_string_value(json_object_get(v, "k")), "v");
	json_decref(v);
	assert_int_equal(dt_read_file(path, 10, &text, &n, &err), 0); /* just fits */
	assert_int_equal(n, 10);
	assert_string_equal(text, "{\"k\":\"v\"}\n");
	free(text);
	assert_int_equal(dt_read_file(path, 9, &text, &n, &err), -EFBIG);
	assert_int_equal(dt_json_load("/nonexistent/x", 9, &v, &err), -ENOENT);
	assert_non_null(strstr(err.msg, "'/nonexistent/x'"));
	assert_int_equal(dt_read_file("/tmp", 9, &text, &n, &err), -EISDIR);
	unlink(path);
}

static void large_file_is_read_whole(void **state)
{
	char path[] = "/tmp/dt-test-json-XXXXXX";
	size_t want = 65536 * 3 + 17, n = 0;
	char *data = malloc(want), *text = NULL;
	int fd = mkstemp(path);
	struct dt_err err = {0};

	for (size_t i = 0; i < want; i++)
		data[i] = (char)(i * 31 + i / 256);
	assert_int_equal(write(fd, data, want), want);
	close(fd);
	assert_int_equal(dt_read_file(path, want, &text, &n, &err), 0);
	assert_int_equal(n, want);
	assert_memory_equal(text, data, want);
	free(text);
	free(data);
	unlink(path);
}

static void writing(void **state)
{
	json_t *o = parse("{\"a\":[1,2.5],\"b\":\"\\n\"}");
	FILE *full = fopen("/dev/full", "w"), *f;
	struct dt_err err = {0};
	char *text = NULL;
	size_t n = 0;

	f = open_memstream(&text, &n);
	assert_int_equal(dt_json_write_line(f, o, &err), 0);
	fclose(f);
	assert_string_equal(text, "{\"a\":[1,2.5],\"b\":\"\\n\"}\n");
	free(text);
	assert_non_null(full);
	assert_int_equal(dt_json_write_line(full, o, &err), -ENOSPC);
	fclose(full);
	json_decref(o);
}

/* A reader of the other end of a pipe that holds text. */
static void open_pipe(struct dt_jsonl *j, const char *text, size_t n)
{
	int p[2];

	assert_int_equal(pipe(p), 0);
	assert_int_equal(write(p[1], text, n), n);
	close(p[1]);
	*j = (struct dt_jsonl){.name = "pipe", .fd = p[0]};
}

static void lines_one_by_one(void **state)
{
	static const char text[] = "{\"a\":1}\n\n \t\r\n{\"a\":2}\r\n{\"a\":3}";
	struct dt_err err = {0};
	struct dt_jsonl j;
	json_t *o = NULL;

	open_pipe(&j, text, sizeof(text) - 1);
	for (int i = 1; i <= 3; i++) {
		assert_true(dt_jsonl_ready(&j, 0));
		assert_int_equal(dt_jsonl_next(&j, &o, &err), 1);
		assert_int_equal(json_integer_value(json_object_get(o, "a")), i);
		json_decref(o);
	}
	assert_int_equal(j.line, 5);
	assert_int_equal(dt_jsonl_next(&j, &o, &err), 0);
	assert_int_equal(dt_jsonl_next(&j, &o, &err), 0);
	dt_jsonl_close(&j);
	assert_int_equal(dt_jsonl_open(&j, "/nonexistent/x", &err), -ENOENT);
}

static void bad_lines_are_named_or_counted(void **state)
{
	static const char text[] = "{\"a\":1}\n[1]\n{\"a\":\0}\nx\n{\"a\":2}\n";
	struct dt_err err = {0};
	struct dt_jsonl j;
	json_t *o = NULL;

	open_pipe(&j, text, sizeof(text) - 1);
	assert_int_equal(dt_jsonl_next(&j, &o, &err), 1);
	json_decref(o);
	assert_int_equal(dt_jsonl_next(&j, &o, &err), -EINVAL);
	assert_string_equal(err.msg, "pipe:2: not a JSON object: '[1]'");
	dt_jsonl_close(&j);
	open_pipe(&j, "\033[2J\x7f x \xc3\xa4", 10); /* nothing that steers a terminal */
	assert_int_equal(dt_jsonl_next(&j, &o, &err), -EINVAL);
	assert_string_equal(err.msg, "pipe:1: not a JSON object: '?[2J? x \xc3\xa4'");
	dt_jsonl_close(&j);
	/* cut at 44 bytes, before the character that would not be whole */
	open_pipe(&j, "0123456789012345678901234567890123456789abc\xc3\xa4\xc3\xa4\xc3\xa4", 49);
	assert_int_equal(dt_jsonl_next(&j, &o, &err), -EINVAL);
	assert_string_equal(err.msg,
			    "pipe:1: not a JSON object: '0123456789012345678901234567890123456789abc...'");
	dt_jsonl_close(&j);

	open_pipe(&j, text, sizeof(text) - 1);
	j.skip_bad = true;
	assert_int_equal(dt_jsonl_next(&j, &o, &err), 1);
	json_decref(o);
	assert_int_equal(dt_jsonl_next(&j, &o, &err), 1);
	assert_int_equal(json_integer_value(json_object_get(o, "a")), 2);
	json_decref(o);
	assert_int_equal(j.bad, 3);
	dt_jsonl_close(&j);
}

static void cut_last_line_is_skipped(void **state)
{
	static const struct {
		const char *text;
		int want; /* of the second call */
	} cases[] = {
		{"{\"a\":1}\n{\"a\":{\"b\":2},\"c\"", 0},
		{"{\"a\":1}\n {\"a\":\"\\\"}", 0},
		{"{\"a\":1}\n{", 0},
		{"{\"a\":1}\n{\"a\":NaN}", -EINVAL}, /* whole, and wrong */
		{"{\"a\":1}\nnot json", -EINVAL},
		{"{\"a\":1}\n{\"a\":\n", -EINVAL}, /* not the last: more was written after it */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct dt_err err = {0};
		struct dt_jsonl j;
		json_t *o = NULL;

		open_pipe(&j, cases[i].text, strlen(cases[i].text));
		j.skip_cut = true;
		assert_int_equal(dt_jsonl_next(&j, &o, &err), 1);
		json_decref(o);
		assert_int_equal(dt_jsonl_next(&j, &o, &err), cases[i].want);
		assert_int_equal(j.cut, cases[i].want == 0);
		dt_jsonl_close(&j);
	}
}

static void endless_line_is_refused(void **state)
{
	struct dt_err err = {0};
	struct dt_jsonl j;
	json_t *o = NULL;

	assert_int_equal(dt_jsonl_open(&j, "/dev/zero", &err), 0);
	assert_int_equal(dt_jsonl_next(&j, &o, &err), -EFBIG);
	assert_non_null(strstr(err.msg, "/dev/zero:1: "));
	dt_jsonl_close(&j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(long_integers_are_reals),
		cmocka_unit_test(infinity_of_files),
		cmocka_unit_test(garbage_is_refused_with_its_line),
		cmocka_unit_test(nul_in_texts),
		cmocka_unit_test(deep_nesting_is_refused),
		cmocka_unit_test(members),
		cmocka_unit_test(files),
		cmocka_unit_test(large_file_is_read_whole),
		cmocka_unit_test(writing),
		cmocka_unit_test(lines_one_by_one),
		cmocka_unit_test(bad_lines_are_named_or_counted),
		cmocka_unit_test(cut_last_line_is_skipped),
		cmocka_unit_test(endless_line_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
