/*
 * The router's parts without a socket: heads and chunks of HTTP, members of a JSON text, the prefix
 * index, the choice.
 */
#include "route/balance.h"
#include "route/http1.h"
#include "route/members.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ssize_t parse(const char *s, bool response, struct dt_route_head *h, const char **why)
{
	size_t scanned = 0;

	return dt_route_head_parse(s, strlen(s), response, &scanned, h, why);
}

static void test_head(void **state)
{
	static const char text[] =
		"POST /v1/x?a=b HTTP/1.1\r\nHost: h\r\ncontent-length:  12 \r\nX-A: \r\n\r\nbody";
	struct dt_route_head h;
	const char *why = NULL;
	size_t scanned = 0;

	/* byte by byte: nothing until it is whole */
	for (size_t n = 0; n + 4 < sizeof(text) - 1; n++)
		assert_int_equal(dt_route_head_parse(text, n, false, &scanned, &h, &why), 0);
	assert_int_equal(dt_route_head_parse(text, sizeof(text) - 1, false, &scanned, &h, &why),
			 sizeof(text) - 5);
	assert_true(dt_route_is(h.target, "/v1/x?a=b"));
	assert_int_equal(h.framing, DT_ROUTE_LENGTH);
	assert_int_equal(h.length, 12);
	assert_true(h.keep_alive);
	assert_int_equal(dt_route_header(&h, "x-a").n, 0);
	assert_non_null(dt_route_header(&h, "x-a").s);
	assert_null(dt_route_header(&h, "x-b").s);
	assert_true(parse("GET http://h:1/v1?a HTTP/1.1\r\nHost: h\r\n\r\n", false, &h, &why) > 0);
	assert_true(h.target.n == 5 && !memcmp(h.target.s, "/v1?a", 5));
	assert_true(parse("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n", false, &h, &why) > 0);
	assert_true(h.expects);
	/* HTTP/1.0 has no interim responses */
	assert_true(parse("POST / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n", false, &h, &why) > 0);
	assert_false(h.expects);
}

static void test_framing_refused(void **state)
{
	static const char *const bad[] = {
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: \r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n",
		("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
		 "chunked\r\n\r\n"),
		"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\n Content-Length: 1\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nX: a\nContent-Length: 1\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nX(: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
		"POST / HTTP/1.1\r\n\r\n",
		"POST / HTTP/1.2\r\nHost: h\r\n\r\n",
		"POST / HTTP/2.0\r\nHost: h\r\n\r\n",
		"POST  / HTTP/1.1\r\nHost: h\r\n\r\n",
		"POST /a b HTTP/1.1\r\nHost: h\r\n\r\n",
		"POST http://h HTTP/1.1\r\nHost: h\r\n\r\n",
		"POST ftp://h/ HTTP/1.1\r\nHost: h\r\n\r\n",
		"P\001ST / HTTP/1.1\r\nHost: h\r\n\r\n",
		"\r\nPOST / HTTP/1.1\r\nHost: h\r\n\r\n",
	};
	struct dt_route_head h;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		const char *why = NULL;
		ssize_t n = parse(bad[i], false, &h, &why);

		if (n != -EINVAL || !why)
			fail_msg("taken: %s", bad[i]);
	}
}

static void test_head_bounds(void **state)
{
	char *s = calloc(1, DT_ROUTE_MAX_HEAD + 100);
	struct dt_route_head h;
	const char *why;
	size_t n = (size_t)sprintf(s, "GET / HTTP/1.1\r\nHost: h\r\nX: ");

	memset(s + n, 'x', DT_ROUTE_MAX_HEAD);
	assert_int_equal(parse(s, false, &h, &why), -E2BIG);
	n = (size_t)sprintf(s, "GET / HTTP/1.1\r\nHost: h\r\n");
	for (int i = 0; i < 200; i++)
		n += (size_t)sprintf(s + n, "X: y\r\n");
	sprintf(s + n, "\r\n");
	assert_int_equal(parse(s, false, &h, &why), -E2BIG);
	assert_string_equal(why, "there are too many headers");
	free(s);
}

static void test_response(void **state)
{
	struct dt_route_head h;
	const char *why;

	assert_true(parse("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", true, &h, &why) > 0);
	assert_int_equal(h.status, 200);
	assert_true(parse("HTTP/1.1 200\r\n\r\n", true, &h, &why) > 0);
	assert_int_equal(h.framing, DT_ROUTE_TO_CLOSE);
	assert_true(parse("HTTP/1.1 204 No\r\nContent-Length: 3\r\n\r\n", true, &h, &why) > 0);
	assert_int_equal(h.framing, DT_ROUTE_NO_BODY);
	assert_true(parse("HTTP/1.0 200 OK\r\n\r\n", true, &h, &why) > 0);
	assert_false(h.keep_alive);
	assert_int_equal(parse("HTTP/1.1 20 OK\r\n\r\n", true, &h, &why), -EINVAL);
	assert_int_equal(parse("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
			       true, &h, &why),
			 -EINVAL);
	assert_int_equal(parse("ICY 200 OK\r\n\r\n", true, &h, &why), -EINVAL);
}

static void test_hop_by_hop(void **state)
{
	struct dt_route_head h;
	const char *why;

	assert_true(parse("GET / HTTP/1.1\r\nHost: h\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\nX-Yours: "
			  "2\r\n\r\n",
			  false, &h, &why) > 0);
	assert_true(dt_route_hop_by_hop(&h, h.header[1].name));
	assert_true(dt_route_hop_by_hop(&h, h.header[2].name));
	assert_false(dt_route_hop_by_hop(&h, h.header[3].name));
	assert_false(h.keep_alive);
}

/* The content of a chunked text fed in pieces of `step` bytes; -1: refused, -2: it does not end. */
static int unchunk(const char *s, size_t step, char *out)
{
	struct dt_route_chunks c = {0};
	size_t n = strlen(s), at = 0, k = 0, body;

	while (at < n && !c.done) {
		size_t give = n - at < step ? n - at : step;
		ssize_t used = dt_route_chunks_next(&c, s + at, give, &body);

		if (used < 0)
			return -1;
		memcpy(out + k, s + at + (size_t)used - body, body);
		k += body;
		at += (size_t)used;
	}
	out[k] = '\0';
	return c.done ? (int)(n - at) : -2;
}

static void test_chunks(void **state)
{
	static const char good[] = "5;ext=1\r\nhello\r\n00A\r\n, my world\r\n0\r\nTrailer: x\r\n\r\nrest";
	static const char *const bad[] = {"\r\n",
					  "g\r\n",
					  "5\nhello\r\n0\r\n\r\n",
					  "5\r\nhelloX\r\n",
					  "-5\r\n",
					  "0x5\r\nhello\r\n",
					  "5 \r\nhello\r\n",
					  "fffffffffffffffff\r\n",
					  "5\r\nhello\n0\r\n\r\n"};
	char out[64];

	for (size_t step = 1; step < sizeof(good); step++) {
		assert_int_equal(unchunk(good, step, out), 4);
		assert_string_equal(out, "hello, my world");
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (unchunk(bad[i], 64, out) != -1)
			fail_msg("taken: %s", bad[i]);
	assert_int_equal(unchunk("5\r\nhel", 64, out), -2);
}

/* Events are found at every length of the input, however it is cut, as by splitting at empty lines. */
static void test_events(void **state)
{
	static const char *const text[] = {"data: a\n\ndata: b\n\n", "data: a\r\n\r\ndata: b\r\n\r\n",
					   "data: a\r\rdata: b\r\r", "data: a\n\r\ndata: b\r\n\n",
					   "id: 1\ndata: a\n\n: x\r\ndata: b\r\n\r\n"};
	static const size_t first[] = {9, 11, 9, 10, 15}, second[] = {9, 11, 9, 10, 16};

	for (size_t k = 0; k < sizeof(text) / sizeof(*text); k++) {
		const size_t n = strlen(text[k]);

		assert_int_equal(n, first[k] + second[k]);
		for (size_t have = 0; have < first[k]; have++) {
			assert_int_equal(dt_route_event_size(text[k], have, 0), 0);
			/* the search may go on three bytes back */
			assert_int_equal(dt_route_event_size(text[k], n, have > 3 ? have - 3 : 0), first[k]);
		}
		for (size_t have = first[k]; have <= n; have++)
			assert_int_equal(dt_route_event_size(text[k], have, 0), first[k]);
		assert_int_equal(dt_route_event_size(text[k] + first[k], second[k], 0), second[k]);
	}
	assert_int_equal(dt_route_event_size("data: no end\ndata: yet\n", 24, 0), 0);
}

static void test_members(void **state)
{
	static const char text[] =
		" {\"a\": \"x\\\"y\", \"b\":[1,{\"a\":2},\"]\"] ,\"c\" : -1.5e3, \"d\":{}} ";
	static const char *const bad[] = {"",
					  "[1]",
					  "{\"a\"}",
					  "{\"a\":}",
					  "{\"a\":1",
					  "{\"a\":1}x",
					  "{\"a\":1,}",
					  "{a:1}",
					  "{\"a\":1 \"b\":2}",
					  "{\"a\":1,\"a\":2}",
					  "{\"\\u0061\":1}",
					  "{\"a\":\"\\\"}",
					  "{\"a\":[1}"};
	struct dt_route_member m[] = {{"a"}, {"b"}, {"c"}, {"d"}, {"e"}};

	assert_null(dt_route_members(text, sizeof(text) - 1, m, 5));
	assert_true(dt_route_is(m[0].value, "\"x\\\"y\""));
	assert_true(dt_route_is(m[1].value, "[1,{\"a\":2},\"]\"]"));
	assert_true(dt_route_is(m[2].value, "-1.5e3"));
	assert_true(dt_route_is(m[3].value, "{}"));
	assert_null(m[4].value.s);
	assert_null(dt_route_members("{}", 2, m, 5));
	for (size_t i = 0; i + 1 < sizeof(bad) / sizeof(*bad); i++) /* the last is the server's to refuse */
		if (!dt_route_members(bad[i], strlen(bad[i]), m, 5))
			fail_msg("taken: %s", bad[i]);
}

/* ---- the index, beside a plain list of what each server was sent ---- */

#define TEXTS 400

static void test_prefix_against_list(void **state)
{
	static uint64_t text[TEXTS][12];
	static int len[TEXTS], server[TEXTS];
	struct dt_prefix *p = dt_prefix_new(100000, 1e9);
	uint64_t r = 5;

	for (int i = 0; i < TEXTS; i++) {
		int depth[DT_PREFIX_SERVERS], n = 1 + (int)(r % 11);

		for (int k = 0; k < n; k++) { /* few values, so that beginnings are shared */
			r = r * 6364136223846793005u + 1442695040888963407u;
			text[i][k] = dt_prefix_hash(k ? text[i][k - 1] : 1, &(char){(char)(r >> 40 & 1)}, 1);
		}
		len[i] = n;
		dt_prefix_match(p, text[i], n, i, depth);
		for (int s = 0; s < 200; s += 33) {
			int want = 0;

			for (int j = 0; j < i; j++)
				for (int k = 0;
				     server[j] == s && k < n && k < len[j] && text[j][k] == text[i][k]; k++)
					want = k + 1 > want ? k + 1 : want;
			if (depth[s] != want)
				fail_msg("text %d server %d: %d, want %d", i, s, depth[s], want);
		}
		server[i] = (int)(r >> 50) % 7 * 33;
		dt_prefix_insert(p, text[i], n, server[i], i);
		if (i % 100 == 99) {
			dt_prefix_forget(p, 66);
			for (int j = 0; j <= i; j++)
				server[j] = server[j] == 66 ? -1 : server[j];
		}
	}
	dt_prefix_free(p);
}

static void test_prefix_cap_and_age(void **state)
{
	struct dt_prefix *p = dt_prefix_new(10, 100);
	uint64_t a[6], b[8];
	int depth[DT_PREFIX_SERVERS];

	for (uint64_t i = 0; i < 6; i++)
		a[i] = 1000 + i;
	for (uint64_t i = 0; i < 8; i++)
		b[i] = 2000 + i;
	dt_prefix_insert(p, a, 6, 3, 0);
	dt_prefix_insert(p, b, 8, 4, 1);
	assert_int_equal(dt_prefix_blocks(p), 10);
	assert_int_equal(dt_prefix_match(p, b, 8, 1, depth), 8);
	dt_prefix_match(p, a, 6, 1, depth);
	assert_int_equal(depth[3], 2); /* the end went, the beginning is left */
	dt_prefix_match(p, b, 8, 102, depth);
	assert_int_equal(depth[4], 0);
	dt_prefix_free(p);
}

/* Of a server that tells: what it says counts, whatever the age; what was sent there, for a while. */
static void test_prefix_exact(void **state)
{
	struct dt_prefix *p = dt_prefix_new(100, 1000);
	uint64_t a[4] = {11, 12, 13, 14};
	int depth[DT_PREFIX_SERVERS];

	dt_prefix_exact(p, 70, true);
	dt_prefix_insert(p, a, 4, 70, 0);
	dt_prefix_insert(p, a, 4, 3, 0);
	dt_prefix_match(p, a, 4, 50, depth);
	assert_int_equal(depth[70], 4); /* it is on its way */
	dt_prefix_match(p, a, 4, 100, depth);
	assert_int_equal(depth[70], 0); /* and never came */
	assert_int_equal(depth[3], 4);	/* this one does not tell */
	for (int i = 0; i < 3; i++)
		dt_prefix_store(p, a[i], 70, 100);
	dt_prefix_match(p, a, 4, 5000, depth);
	assert_int_equal(depth[70], 3);
	assert_int_equal(depth[3], 0); /* too old */
	dt_prefix_remove(p, a[1], 70);
	dt_prefix_remove(p, 999, 70);
	dt_prefix_match(p, a, 4, 5000, depth);
	assert_int_equal(depth[70], 1);
	dt_prefix_forget(p, 70);
	dt_prefix_forget(p, 3);
	assert_int_equal(dt_prefix_blocks(p), 0);
	dt_prefix_free(p);
}

/* ---- the choice ---- */

static struct dt_balance make(enum dt_balance_policy policy, struct dt_prefix *p, int n)
{
	struct dt_balance b;

	dt_balance_init(&b, policy, p, 1);
	b.n = n;
	for (int i = 0; i < n; i++) {
		dt_balance_add(&b, i, (uint64_t)i * 77 + 5, 1, 0);
		dt_balance_set_bit(b.candidate, i, true);
	}
	return b;
}

static void test_even(void **state)
{
	static const enum dt_balance_policy policy[] = {DT_BALANCE_CACHE, DT_BALANCE_LEAST, DT_BALANCE_TWO,
							DT_BALANCE_ROUND};
	static const struct dt_balance_ask ask;

	for (int k = 0; k < 4; k++) {
		struct dt_prefix *p = dt_prefix_new(1000, 100);
		struct dt_balance b = make(policy[k], p, 8);
		struct dt_balance_choice c[800];

		for (int i = 0; i < 800; i++)
			c[i] = dt_balance_take(&b, &ask);
		for (int i = 0; i < 8; i++)
			assert_in_range(b.server[i].running, policy[k] == DT_BALANCE_TWO ? 95 : 100,
					policy[k] == DT_BALANCE_TWO ? 105 : 100);
		for (int i = 0; i < 800; i++)
			dt_balance_give(&b, &c[i], -1);
		for (int i = 0; i < 8; i++) {
			assert_int_equal(b.server[i].running, 0);
			assert_true(b.server[i].work == 0);
		}
		dt_prefix_free(p);
	}
}

/* A miss goes to the least loaded, not to where the index is smallest; a hit does not pile up without end. */
static void test_cache_minds_load(void **state)
{
	struct dt_prefix *p = dt_prefix_new(100000, 1e9);
	struct dt_balance b = make(DT_BALANCE_CACHE, p, 4);
	uint64_t same[8], other[8];
	int on[4] = {0};

	for (uint64_t i = 0; i < 8; i++)
		same[i] = 100 + i;
	for (int i = 0; i < 100; i++) {
		struct dt_balance_ask ask = {.hash = same, .n = 8, .now = 1};

		on[dt_balance_take(&b, &ask).server]++;
	}
	for (int i = 0; i < 4; i++)
		assert_in_range(on[i], 20, 30);
	b.server[2].work = b.load[2] = 0;
	for (uint64_t i = 0; i < 8; i++)
		other[i] = 900 + i;
	assert_int_equal(
		dt_balance_take(&b, &(struct dt_balance_ask){.hash = other, .n = 8, .now = 1}).server, 2);
	dt_prefix_free(p);
}

static void test_sessions_move_little(void **state)
{
	struct dt_balance b = make(DT_BALANCE_ROUND, NULL, 10);
	int before[1000], moved = 0, on[10] = {0};

	for (uint64_t i = 0; i < 1000; i++) {
		before[i] = dt_balance_take(&b, &(struct dt_balance_ask){.session = i + 1}).server;
		on[before[i]]++;
	}
	for (int i = 0; i < 10; i++)
		assert_in_range(on[i], 60, 140);
	dt_balance_set_bit(b.candidate, 4, false);
	for (uint64_t i = 0; i < 1000; i++) {
		int now = dt_balance_take(&b, &(struct dt_balance_ask){.session = i + 1}).server;

		assert_int_not_equal(now, 4);
		moved += now != before[i];
	}
	assert_int_equal(moved, on[4]);
	for (int i = 0; i < 10; i++)
		dt_balance_set_bit(b.candidate, i, false);
	assert_int_equal(dt_balance_take(&b, &(struct dt_balance_ask){.session = 3}).server, -1);
}

static void test_hash_is_bounded(void **state)
{
	struct dt_balance b = make(DT_BALANCE_HASH, NULL, 4);
	uint64_t h = 42;
	int most = 0;

	for (int i = 0; i < 400; i++)
		dt_balance_take(&b, &(struct dt_balance_ask){.hash = &h, .n = 1});
	for (int i = 0; i < 4; i++)
		most = b.server[i].running > most ? b.server[i].running : most;
	assert_in_range(most, 100, 126); /* 1.25 of the mean */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_head),
		cmocka_unit_test(test_framing_refused),
		cmocka_unit_test(test_head_bounds),
		cmocka_unit_test(test_response),
		cmocka_unit_test(test_hop_by_hop),
		cmocka_unit_test(test_chunks),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_members),
		cmocka_unit_test(test_prefix_against_list),
		cmocka_unit_test(test_prefix_cap_and_age),
		cmocka_unit_test(test_prefix_exact),
		cmocka_unit_test(test_even),
		cmocka_unit_test(test_cache_minds_load),
		cmocka_unit_test(test_sessions_move_little),
		cmocka_unit_test(test_hash_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
