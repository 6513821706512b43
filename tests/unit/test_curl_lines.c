/* Heads of requests when memory is short: no line is lost in silence, above all not the key. */
#include "base/curl_lines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static bool refuses;

struct curl_slist *__real_curl_slist_append(struct curl_slist *list, const char *line);
struct curl_slist *__wrap_curl_slist_append(struct curl_slist *list, const char *line)
{
	return refuses ? NULL : __real_curl_slist_append(list, line);
}

static void a_line_that_is_lost_is_reported(void **state)
{
	struct curl_slist *list = NULL;

	(void)state;
	refuses = true;
	assert_false(dt_curl_line(&list, "Expect:"));
	assert_null(list);
	refuses = false;
	assert_true(dt_curl_line(&list, "Expect:"));
	refuses = true;
	assert_false(dt_curl_bearer(&list, "key"));
	refuses = false;
	assert_string_equal(list->data, "Expect:");
	assert_null(list->next);
	curl_slist_free_all(list);
}

static void a_long_key_is_whole(void **state)
{
	struct curl_slist *list = NULL;
	char key[3001];

	(void)state;
	memset(key, 'k', sizeof(key) - 1);
	key[sizeof(key) - 1] = '\0';
	assert_true(dt_curl_bearer(&list, key));
	assert_int_equal(strlen(list->data), strlen("Authorization: Bearer ") + sizeof(key) - 1);
	curl_slist_free_all(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_line_that_is_lost_is_reported),
		cmocka_unit_test(a_long_key_is_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
