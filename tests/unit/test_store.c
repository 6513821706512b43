/* serve/api/store.h: what is put is a copy, and a batch that was taken has places for its answers. */
#include "serve/api/store.h"

#include "base/tmpfile.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char dir[64];
static struct dt_store *store;

static void open_store(void)
{
	struct dt_err err;

	assert_int_equal(dt_store_open(&store, dir, 1 << 20, &err), 0);
}

static int setup(void **state)
{
	strcpy(dir, "/tmp/dt-test-store-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	dt_store_close(store);
	store = NULL;
	return dt_remove_tree(dir, NULL);
}

static json_t *batch(const char *id, const char *status, const char *out, const char *wrong)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "id", id, "object", "batch", "status", status,
			 "_tenant", "a", "_output", out, "_error", wrong);
}

static int put(json_t *v)
{
	struct dt_err err = {0};
	const int rc = dt_store_put(store, v, &err);

	if (rc == -ENOSPC)
		assert_non_null(strstr(err.msg, "DELETE /v1/files/ID"));
	json_decref(v);
	return rc;
}

static int put_file(const char *id)
{
	return put(json_pack("{s:s, s:s, s:s}", "id", id, "object", "file", "_tenant", "a"));
}

static void test_copy(void **state)
{
	json_t *v = batch("batch_1", "validating", "file-o", "file-e"), *got;
	struct dt_err err;

	open_store();
	assert_int_equal(dt_store_put(store, v, &err), 0);
	json_object_set_new(v, "status", json_string("failed"));
	json_decref(dt_store_public(v));
	got = dt_store_get(store, "a", "batch", "batch_1");
	assert_non_null(got); /* still a's */
	assert_string_equal(json_string_value(json_object_get(got, "status")), "validating");
	json_decref(dt_store_public(got));
	got = dt_store_get(store, "a", "batch", "batch_1");
	assert_string_equal(json_string_value(json_object_get(got, "_output")), "file-o");
	json_decref(got);
}

/* Records of files as an earlier server left them. */
static void fill(int n)
{
	for (int i = 0; i < n; i++) {
		char path[128];
		FILE *f;

		snprintf(path, sizeof(path), "%s/file-%d.json", dir, i);
		f = fopen(path, "w");
		assert_non_null(f);
		fprintf(f, "{\"id\": \"file-%d\", \"object\": \"file\", \"_tenant\": \"a\"}\n", i);
		assert_int_equal(fclose(f), 0);
	}
}

static void test_places(void **state)
{
	struct dt_err err;

	fill(DT_STORE_RECORDS - 4);
	open_store();
	assert_int_equal(put(batch("batch_1", "validating", "file-o", "file-e")), 0); /* and two places */
	assert_int_equal(put(batch("batch_2", "validating", "file-p", "file-f")), -ENOSPC);
	assert_int_equal(put_file("file-last"), 0);
	assert_int_equal(put_file("file-more"), -ENOSPC);
	assert_int_equal(put(batch("batch_1", "in_progress", "file-o", "file-e")), 0);
	dt_store_close(store); /* it holds after a start, too */
	open_store();
	assert_int_equal(put_file("file-more"), -ENOSPC);
	assert_int_equal(put_file("file-o"), 0);
	assert_int_equal(put_file("file-o"), 0); /* once more */
	assert_int_equal(put_file("file-more"), -ENOSPC);
	assert_int_equal(put(batch("batch_1", "completed", "file-o", "file-e")), 0);
	assert_int_equal(put_file("file-more"), 0); /* where the errors would have been */
	assert_int_equal(put_file("file-e"), -ENOSPC);
	for (int i = 0; i < 3; i++) {
		char id[32];

		assert_int_equal(put(batch("batch_2", "validating", "file-p", "file-f")), -ENOSPC);
		snprintf(id, sizeof(id), "file-%d", i);
		assert_int_equal(dt_store_remove(store, "a", id, &err), 0);
	}
	assert_int_equal(put(batch("batch_2", "validating", "file-p", "file-f")), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_copy, setup, teardown),
		cmocka_unit_test_setup_teardown(test_places, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
