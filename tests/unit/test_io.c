/*
 * Whole reads and writes: at a place of a file, through a pipe that takes little at once, past the end.
 * Mapped files that become shorter.
 */
#include "base/io.h"
#include "base/mapped.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
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

/* Reads a byte of a map in a child process, whose standard error goes to said. Returns its status. */
static int read_in_child(const volatile char *at, char *said, size_t n)
{
	int end[2], status = 0;
	pid_t child;

	assert_int_equal(pipe(end), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		dup2(end[1], STDERR_FILENO);
		_exit(*at == 'x' ? 0 : 3);
	}
	close(end[1]);
	said[dt_read_all(end[0], said, n - 1, -1)] = '\0';
	close(end[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

static void a_map(void **state)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	FILE *f[2] = {tmpfile(), tmpfile()};
	char *at[2], said[256];
	int status;

	for (int i = 0; i < 2; i++) {
		assert_int_equal(dt_write_all(fileno(f[i]), "x", 1, (int64_t)page), 0);
		at[i] = mmap(NULL, page + 1, PROT_READ, MAP_PRIVATE, fileno(f[i]), 0);
		assert_true(at[i] != MAP_FAILED);
	}
	dt_mapped_note(at[0], page + 1, "folder/text");
	assert_int_equal(read_in_child(at[0] + page, said, sizeof(said)), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(ftruncate(fileno(f[i]), 10), 0);
	status = read_in_child(at[0] + page, said, sizeof(said));
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);
	assert_non_null(strstr(said, ": cannot read 'folder/text': it has become shorter"));
	status = read_in_child(at[1] + page, said, sizeof(said)); /* not noted */
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGBUS);
	for (int i = 0; i < 2; i++) {
		dt_mapped_drop(at[i], page + 1);
		fclose(f[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_file), cmocka_unit_test(a_pipe),
					   cmocka_unit_test(a_map)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
