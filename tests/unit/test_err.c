/* base/err.h and base/log.h: messages, prefixes, what a message that is too long loses. */
#include "base/err.h"
#include "base/log.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void set_and_hint(void **state)
{
	struct dt_err err = {0};

	assert_int_equal(dt_err_set(&err, -EINVAL, "bad %s %d", "thing", 7), -EINVAL);
	assert_int_equal(err.code, -EINVAL);
	assert_string_equal(err.msg, "bad thing 7");
	assert_string_equal(err.hint, "");
	dt_err_hint(&err, "try %d", 8);
	assert_string_equal(err.hint, "try 8");
	dt_err_set(&err, -EIO, "other"); /* a new error forgets the old hint */
	assert_string_equal(err.hint, "");
}

static void sys_says_the_reason(void **state)
{
	struct dt_err err = {0};

	assert_int_equal(dt_err_sys(&err, -ENOENT, "cannot open '%s'", "x.h5"), -ENOENT);
	assert_string_equal(err.msg, "cannot open 'x.h5': No such file or directory");
}

static void null_is_allowed(void **state)
{
	assert_int_equal(dt_err_set(NULL, -EINVAL, "x"), -EINVAL);
	assert_int_equal(dt_err_sys(NULL, -ENOMEM, "x"), -ENOMEM);
	assert_true(dt_err_prefix(NULL, "x") < 0);
	dt_err_hint(NULL, "x");
}

static void prefix(void **state)
{
	struct dt_err err = {0};

	dt_err_sys(&err, -EACCES, "cannot open 'a'");
	assert_int_equal(dt_err_prefix(&err, "shard %d", 3), -EACCES);
	assert_string_equal(err.msg, "shard 3: cannot open 'a': Permission denied");
}

static void long_messages_keep_head_and_reason(void **state)
{
	static const char reason[] = ": No such file or directory";
	struct dt_err err = {0};
	char path[4096];

	memset(path, 'p', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	dt_err_sys(&err, -ENOENT, "cannot open '%s'", path);
	assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
	assert_memory_equal(err.msg, "cannot open 'pp", 15);
	assert_string_equal(err.msg + strlen(err.msg) - strlen(reason), reason);

	dt_err_prefix(&err, "checkpoint 'c'");
	assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
	assert_memory_equal(err.msg, "checkpoint 'c': p", 17);
	assert_string_equal(err.msg + strlen(err.msg) - strlen(reason), reason);
}

static void log_lines(void **state)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);
	struct dt_log log = {.f = f, .name = "dt-x", .rank = -1},
		      ranked = {.f = f, .name = "dt-x", .rank = 3};
	struct dt_err err = {0};

	dt_log_msg(&log, "one %d", 1);
	dt_log_debug(&log, "not shown");
	log.verbose = true;
	dt_log_debug(&log, "shown");
	dt_err_set(&err, -EINVAL, "broken");
	dt_err_hint(&err, "mend it");
	dt_log_err(&ranked, &err);
	dt_log_msg(&ranked, "%s", "a\tb\nrank 0: \x1b[2J\x7f \xc3\xa9");
	dt_log_msg(NULL, "nobody listens");
	dt_log_msg(&(struct dt_log){.name = "silent"}, "nobody listens");
	fclose(f);
	assert_string_equal(text, "dt-x: one 1\ndt-x: shown\ndt-x: rank 3: broken\ndt-x: rank 3: mend it\n"
				  "dt-x: rank 3: a\\x09b\\x0arank 0: \\x1b[2J\\x7f \xc3\xa9\n");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(set_and_hint),
		cmocka_unit_test(sys_says_the_reason),
		cmocka_unit_test(null_is_allowed),
		cmocka_unit_test(prefix),
		cmocka_unit_test(long_messages_keep_head_and_reason),
		cmocka_unit_test(log_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
