/* Whole reads and writes: at a place of a file, through a pipe that takes little at once, past the end. */
#include "base/io.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MANY = 1 << 20 }; /* bytes: more than a pipe holds */

static void a_file(void **state)
{
	FILE *f = tmpfile();
	char got[8] = "";

	assert_non_null(f);
	assert_int_equal(dt_write_all(fileno(f), "abcdef", 6, 0), 0);
	assert_int_equal(dt_write_all(fileno(f), "XY", 2, 2), 0);
	assert_int_equal(dt_read_all(fileno(f), got, 6, 0), 6);
	assert_string_equal(got, "abXYef");
	assert_int_equal(dt_read_all(fileno(f), got, 8, 4), 2); /* it ends */
	assert_int_equal(dt_read_all(fileno(f), got, 8, 6), 0);
	assert_int_equal(dt_read_all(fileno(f), got, 0, 0), 0);
	assert_int_equal(dt_read_all(fileno(f), got, 3, -1),
			 3); /* where it stands, which places do not move */
	assert_memory_equal(got, "abX", 3);
	fclose(f);
	assert_int_equal(dt_write_all(-1, "x", 1, -1), -EBADF);
	assert_int_equal(dt_read_all(-1, got, 1, 0), -EBADF);
}

static void *fill(void *arg)
{
	char *data = malloc(MANY);

	for (int i = 0; i < MANY; i++)
		data[i] = (char)(i * 31 >> 4);
	if (dt_write_all(*(int *)arg, data, MANY, -1) < 0)
		*data = '\0';
	close(*(int *)arg);
	return data;
}

static void a_pipe(void **state)
{
	char *got = malloc(MANY + 1);
	pthread_t t;
	void *sent;
	int end[2];

	assert_int_equal(pipe(end), 0);
	assert_int_equal(pthread_create(&t, NULL, fill, &end[1]), 0);
	assert_int_equal(dt_read_all(end[0], got, MANY + 1, -1), MANY);
	pthread_join(t, &sent);
	assert_memory_equal(got, sent, MANY);
	free(sent);
	free(got);
	close(end[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_file), cmocka_unit_test(a_pipe)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
