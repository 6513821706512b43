/* Names under which a machine is asked, and the lines of HTTP. */
#include "base/http.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool own(const char *host)
{
	return dt_http_is_own_name(host, strlen(host), "Box.lan");
}

static void names_of_this_machine(void **state)
{
	static const char *const ours[] = {"localhost", "LocalHost:8080", "localhost:",	   "a.localhost",
					   "127.0.0.1", "127.1.2.3:80",	  "10.0.0.5:8000", "[::1]",
					   "[::1]:80",	"[fe80::1]",	  "[::127.0.0.1]", "box.lan",
					   "BOX.LAN:80"};
	static const char *const others[] = {"",
					     ":80",
					     "evil.example",
					     "localhost.evil.example",
					     "localhostevil",
					     "xlocalhost",
					     ".localhost",
					     "127.evil.example",
					     "127.0.0.1.evil.example",
					     "127.0.0.1.",
					     "127.0.0",
					     "127.0.0.256",
					     "0177.0.0.1",
					     "1234",
					     "localhost:80x",
					     "localhost:80:80",
					     "localhost:-1",
					     "localhost ",
					     "[::1",
					     "[::1].evil.example",
					     "[::1]x",
					     "[::1]80",
					     "[evil.example]",
					     "[127.0.0.1]",
					     "[]",
					     "::1",
					     "box.lan.evil.example",
					     "box"};
	char name[400];

	for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++)
		if (!own(ours[i]))
			fail_msg("'%s' is refused", ours[i]);
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (own(others[i]))
			fail_msg("'%s' is taken", others[i]);
	assert_false(dt_http_is_own_name("box.lan", 7, NULL));
	assert_true(dt_http_is_own_name("localhost.evil", 9, NULL)); /* n bytes count, not a NUL */
	assert_false(dt_http_is_own_name("localhost\0.evil", 15, NULL));
	memset(name, 'a', sizeof(name));
	memcpy(name + sizeof(name) - 11, ".localhost", 11);
	assert_false(own(name)); /* longer than a name can be */
}

static void escapes(void **state)
{
	static const char text[] = "a-B_9.~ &+%41/?\xc3\xa9";
	char *there = dt_http_escape(text);

	(void)state;
	assert_string_equal(there, "a-B_9.~%20%26%2B%2541%2F%3F%C3%A9");
	dt_http_unescape(there);
	assert_string_equal(there, text);
	free(there);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(names_of_this_machine),
					   cmocka_unit_test(escapes)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
