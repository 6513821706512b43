/* Event files of TensorBoard against the bytes that its own messages and records make. */
#include "base/crc.h"
#include "base/tfevents.h"
#include "base/tmpfile.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static size_t read_all(const char *path, unsigned char *buf, size_t room)
{
	FILE *f = fopen(path, "re");
	size_t n;

	assert_non_null(f);
	n = fread(buf, 1, room, f);
	fclose(f);
	return n;
}

static void test_golden(void **state)
{
	static const double limits[] = {-1.0, 0.0, 0.5, 1.7976931348623157e308}, counts[] = {1, 2, 3, 1};
	static const struct dt_tf_histogram h = {-1.5, 2.0, 7, 1.25, 9.5, limits, counts, 4};
	char dir[] = "/tmp/test_tfevents-XXXXXX", path[512];
	unsigned char want[4096], got[4096];
	struct dt_tfevents *e;
	struct dt_err err;
	size_t n, m;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/a/b", dir);
	assert_int_equal(dt_tfevents_open(path, 1700000000.25, &e, &err), 0);
	dt_tfevents_restart(e, 1700000001.5, 3);
	dt_tfevents_scalar(e, 1700000002.0, 3, "train/loss", 2.375);
	dt_tfevents_histogram(e, 1700000003.0, 300, "weights/0", &h);
	dt_tfevents_text(e, 1700000004.0, 70000, "run", "```\n{\"seq\": \"32\"}\n```");
	assert_int_equal(dt_tfevents_flush(e, &err), 0);
	assert_non_null(strstr(e->path, "/events.out.tfevents.1700000000."));
	m = read_all(e->path, got, sizeof(got));
	dt_tfevents_close(e);
	dt_remove_tree(dir, &err);

	n = read_all(GOLDEN_DIR "/golden-tfevents.bin", want, sizeof(want));
	assert_true(n > 300);
	assert_int_equal(m, n);
	assert_memory_equal(got, want, n);
}

static void test_checksum(void **state)
{
	assert_int_equal(dt_crc32c("123456789", 9), 0xe3069283u); /* RFC 3720, B.4 has others */
	assert_int_equal(dt_crc32c("", 0), 0);
}

static void test_full_disk(void **state)
{
	struct dt_tfevents e = {.f = fopen("/dev/full", "we"), .path = strdup("/dev/full")};
	struct dt_err err = {0};

	assert_non_null(e.f);
	dt_tfevents_scalar(&e, 1, 1, "x", 1);
	assert_true(dt_tfevents_flush(&e, &err) < 0);
	assert_non_null(strstr(err.msg, "No space left"));
	fclose(e.f);
	free(e.path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_checksum),
		cmocka_unit_test(test_full_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
