/* Key files: what a line says, what is refused, and a hundred thousand keys. */
#include "base/keyfile.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int read_text(const char *text, struct dt_keyfile *f, struct dt_err *err)
{
	char path[] = "/tmp/test_keyfile-XXXXXX";
	int fd = mkstemp(path), rc;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	rc = dt_keyfile_read(path, f, err);
	unlink(path);
	return rc;
}

static void test_lines(void **state)
{
	struct dt_keyfile f;
	struct dt_err err;

	assert_int_equal(read_text("# keys\n\none tenant=a weight=2 requests-per-minute=5\ntwo tenant=a\n"
				   "three admin=yes\tpriority=-3\r\n",
				   &f, &err),
			 0);
	assert_int_equal(f.nkeys, 3);
	assert_int_equal(f.ntenants, 2);
	assert_int_equal(f.key[1].tenant, 0);
	assert_true(f.tenant[0].weight == 2 && f.tenant[0].requests == 5 && f.tenant[0].tokens == 0);
	assert_int_equal(f.tenant[1].priority, -3);
	assert_string_equal(f.tenant[1].name, "key-3");
	assert_true(f.key[2].admin && !f.key[1].admin);
	assert_int_equal(dt_keyfile_find(&f, "two", 3), 1);
	assert_int_equal(dt_keyfile_find(&f, "two ", 4), -1);
	assert_int_equal(dt_keyfile_find(&f, "tw", 2), -1);
	assert_int_equal(dt_keyfile_find(&f, "", 0), -1);
	assert_int_equal(dt_keyfile_add(&f, "four", &err), 0);
	assert_int_equal(dt_keyfile_find(&f, "four", 4), 3);
	assert_int_equal(dt_keyfile_add(&f, "a b", &err), -EINVAL);
	dt_keyfile_release(&f);
}

/* A second line of a tenant keeps the first one's limits. No key gets into another's tenant by its number. */
static void test_tenants(void **state)
{
	struct dt_keyfile f;
	struct dt_err err;

	assert_int_equal(read_text("a tokens-per-minute=1000 weight=3 tenant=red\n"
				   "b tenant=key-3 priority=7\n"
				   "c\n"
				   "d tenant=red requests-per-minute=10 weight=4\n",
				   &f, &err),
			 0);
	assert_int_equal(f.ntenants, 3);
	assert_true(f.tenant[0].tokens == 1000 && f.tenant[0].requests == 10 && f.tenant[0].weight == 4);
	assert_true(f.key[2].tenant != f.key[1].tenant && f.tenant[f.key[2].tenant].priority == 0);
	assert_int_equal(dt_keyfile_add(&f, "e", &err), 0);
	assert_int_equal(f.key[4].tenant, 3);
	dt_keyfile_release(&f);
}

static void test_refused(void **state)
{
	static const char *const bad[] = {
		"k weight=0\n",
		"k what=1\n",
		"k alone\n",
		"k tenant=\n",
		"k admin=no\n",
		"secret\nsecret\n",
		"# none\n",
		"k requests-per-minute=nan\n",
		"k a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1 j=1 k=1 l=1 m=1 n=1 o=1 p=1 q=1\n"};
	struct dt_keyfile f = {0};
	struct dt_err err;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		if (read_text(bad[i], &f, &err) != -EINVAL)
			fail_msg("taken: %s", bad[i]);
		assert_null(strstr(err.msg, "secret")); /* a key is never printed */
	}
}

static void test_many(void **state)
{
	size_t n = 100000;
	char *text = malloc(n * 40), key[40];
	struct dt_keyfile f;
	struct dt_err err;
	size_t k = 0;

	for (size_t i = 0; i < n; i++)
		k += (size_t)sprintf(text + k, "sk-%zu-%zu tenant=t%zu\n", i * 7919, i, i % 50000);
	assert_int_equal(read_text(text, &f, &err), 0);
	assert_int_equal(f.nkeys, n);
	assert_int_equal(f.ntenants, 50000);
	for (size_t i = 0; i < n; i++) {
		k = (size_t)sprintf(key, "sk-%zu-%zu", i * 7919, i);
		assert_int_equal(dt_keyfile_find(&f, key, k), i);
		assert_int_equal(dt_keyfile_find(&f, key, k - 1) < 0 || i >= 10, 1);
	}
	dt_keyfile_release(&f);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_tenants),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
