/* Output when memory is short: calls of calloc pass through the test, which can refuse them. */
#include "base/table.h"
#include "base/tmpfile.h"
#include "model/config.h"
#include "plan/layout.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static bool refuses;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return refuses ? NULL : __real_calloc(n, size);
}

/* -errno of dt_close_stdout in a process that has done this, with a calloc that fails. */
static int closed_after(void (*does)(void))
{
	const pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (!pid) {
		refuses = true;
		does();
		refuses = false;
		_exit(-dt_close_stdout(NULL));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return -WEXITSTATUS(status);
}

static void nothing(void)
{
}

static void a_table(void)
{
	struct dt_table *t = dt_table_new("name|>size");

	dt_table_cell(t, "x");
	dt_table_print(t, stdout);
	dt_table_free(t);
}

static struct dt_layout in_stages(void)
{
	struct dt_layout l;
	struct dt_err err = {0};

	assert_int_equal(dt_layout_parse("pp2", &l, &err), 0);
	return l;
}

static void a_cut(void)
{
	const struct dt_layout l = in_stages();
	struct dt_config c;
	int first, last;

	dt_config_find_preset("llama-tiny", &c);
	dt_layout_stage(&l, &c, 1, &first, &last);
	if (first < 1 || last != (int)c.layers)
		_exit(255);
}

static void what_is_lost_fails_at_exit(void **state)
{
	(void)state;
	fflush(stdout);
	assert_int_equal(closed_after(nothing), 0);
	assert_int_equal(closed_after(a_table), -ENOMEM);
	assert_int_equal(closed_after(a_cut), -ENOMEM);
}

/* A cut without memory is no cut, and is not remembered as one. */
static void layers_are_not_cut_otherwise(void **state)
{
	const struct dt_layout l = in_stages();
	struct dt_config c;
	struct dt_err err = {0};

	(void)state;
	dt_config_find_preset("llama-tiny", &c);
	refuses = true;
	assert_int_equal(dt_layout_check(&l, &c, &err), -ENOMEM);
	refuses = false;
	assert_int_equal(dt_layout_check(&l, &c, &err), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_lost_fails_at_exit),
		cmocka_unit_test(layers_are_not_cut_otherwise),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
