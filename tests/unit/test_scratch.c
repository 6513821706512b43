/* base/scratch.h: what was written is read again, by io_uring and by threads; what fails says so. */
#include "base/rng.h"
#include "base/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BLOCK 4096u
#define ALL   (512u * BLOCK)

static char dir[64];

static int setup(void **state)
{
	strcpy(dir, "/tmp/dt-test-scratch-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	return rmdir(dir); /* which fails where a file was left */
}

static char *aligned(size_t n)
{
	void *p = NULL;

	assert_int_equal(posix_memalign(&p, BLOCK, n), 0);
	return p;
}

static int names(void)
{
	DIR *d = opendir(dir);
	int n = 0;

	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

/* Random transfers in all slots at once, held to a copy in memory. */
static void transfers(bool threads)
{
	struct dt_scratch *s = NULL;
	struct dt_err err = {0};
	char *copy = aligned(ALL), *buf[DT_SCRATCH_SLOTS];
	const struct dt_rng rng = dt_rng_make(7, DT_RNG_TEST, threads);
	uint64_t drawn = 0;

	assert_int_equal(dt_scratch_open(dir, ALL, threads, &s, &err), 0);
	assert_true(!threads || strstr(dt_scratch_how(s), "threads"));
	assert_int_equal(names(), 0);
	memset(copy, 0, ALL);
	for (int k = 0; k < DT_SCRATCH_SLOTS; k++)
		buf[k] = aligned(ALL / DT_SCRATCH_SLOTS);
	for (int round = 0; round < 60; round++) {
		size_t at[DT_SCRATCH_SLOTS], n[DT_SCRATCH_SLOTS], each = ALL / DT_SCRATCH_SLOTS;
		bool write[DT_SCRATCH_SLOTS];

		for (int k = 0; k < DT_SCRATCH_SLOTS; k++) { /* each in its own part of the file */
			size_t first = dt_rng_u32(&rng, drawn++) % (each / BLOCK) * BLOCK;

			n[k] = (1 + dt_rng_u32(&rng, drawn++) % ((each - first) / BLOCK)) * BLOCK;
			at[k] = (size_t)k * each + first;
			write[k] = dt_rng_u32(&rng, drawn++) % 2;
			for (size_t i = 0; i < n[k]; i += 64)
				buf[k][i] = (char)dt_rng_u32(&rng, drawn++);
			if (write[k])
				memcpy(copy + at[k], buf[k], n[k]);
			if (write[k])
				dt_scratch_write(s, k, buf[k], n[k], at[k]);
			else
				dt_scratch_read(s, k, buf[k], n[k], at[k]);
		}
		for (int k = DT_SCRATCH_SLOTS; k-- > 0;) {
			while (k % 2 && !dt_scratch_done(s, k)) /* looked at, in place of a wait */
				sched_yield();
			if (k % 2 && !write[k])
				assert_memory_equal(buf[k], copy + at[k], n[k]);
			assert_int_equal(dt_scratch_wait(s, k, &err), 0);
			if (!write[k])
				assert_memory_equal(buf[k], copy + at[k], n[k]);
		}
	}
	for (int k = 0; k < DT_SCRATCH_SLOTS; k++)
		free(buf[k]);
	free(copy);
	dt_scratch_close(s);
}

static void test_ring(void **state)
{
	transfers(false);
}

static void test_threads(void **state)
{
	transfers(true);
}

static void test_large_transfers_are_cut(void **state)
{
	size_t n = (size_t)37 << 20;
	char *a = aligned(n), *b = aligned(n);

	for (size_t i = 0; i < n; i += 512)
		a[i] = (char)(i * 2654435761u >> 24);
	for (int threads = 0; threads < 2; threads++) {
		struct dt_scratch *s = NULL;
		struct dt_err err = {0};

		memset(b, 1, n);
		assert_int_equal(dt_scratch_open(dir, n, threads, &s, &err), 0);
		dt_scratch_write(s, 3, a, n, 0);
		assert_int_equal(dt_scratch_wait(s, 3, &err), 0);
		dt_scratch_read(s, 0, b, n, 0);
		assert_int_equal(dt_scratch_wait(s, 0, &err), 0);
		for (size_t i = 0; i < n; i += 512)
			assert_int_equal(a[i], b[i]);
		dt_scratch_close(s);
	}
	free(a);
	free(b);
}

static void test_end_of_file(void **state)
{
	for (int threads = 0; threads < 2; threads++) {
		struct dt_scratch *s = NULL;
		struct dt_err err = {0};
		char *buf = aligned(4 * BLOCK);

		assert_int_equal(dt_scratch_open(dir, 4 * BLOCK, threads, &s, &err), 0);
		assert_int_equal(ftruncate(dt_scratch_fd(s), BLOCK), 0);
		dt_scratch_read(s, 1, buf, 4 * BLOCK, 0);
		assert_int_equal(dt_scratch_wait(s, 1, &err), -EIO);
		assert_non_null(strstr(err.msg, "cannot read byte 4096 of the file in"));
		dt_scratch_read(s, 1, buf, BLOCK, 0); /* the slot can be used again */
		assert_int_equal(dt_scratch_wait(s, 1, &err), 0);
		dt_scratch_close(s);
		free(buf);
	}
}

static void test_what_cannot_be_opened(void **state)
{
	struct dt_scratch *s = NULL;
	struct dt_err err = {0};
	uint64_t room = 0;

	assert_int_equal(dt_scratch_free(dir, &room, &err), 0);
	assert_true(room > 0);
	if (room < (uint64_t)1 << 46) {
		int rc = dt_scratch_open(dir, room + ((uint64_t)1 << 40), false, &s, &err);

		assert_true(rc == -ENOSPC || rc == -EFBIG);
		assert_non_null(strstr(err.msg, "cannot reserve"));
	}
	assert_int_equal(dt_scratch_open("/nonexistent/folder", BLOCK, false, &s, &err), -ENOENT);
	assert_non_null(strstr(err.msg, "/nonexistent/folder"));
	assert_int_equal(dt_scratch_open("/proc/self/stat", BLOCK, false, &s, &err), -ENOTDIR);
	assert_int_equal(dt_scratch_free("/nonexistent/folder", &room, &err), -ENOENT);
	assert_null(s);
	assert_int_equal(names(), 0);
	dt_scratch_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ring),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_large_transfers_are_cut),
		cmocka_unit_test(test_end_of_file),
		cmocka_unit_test(test_what_cannot_be_opened),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
