/*
 * What the router reads: heads of requests and responses, chunked bodies, members of JSON bodies. What is
 * taken must be within the bytes given, and a chunked body must give the same content in one piece as byte
 * by byte.
 */
#include "route/http1.h"
#include "route/members.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

static void inside(const char *s, size_t n, struct dt_route_text t)
{
	if (t.s && (t.s < s || t.s + t.n > s + n))
		abort();
}

static void heads(const char *s, size_t n)
{
	for (int response = 0; response < 2; response++) {
		struct dt_route_head h, again;
		const char *why = NULL;
		size_t scanned = 0, part = 0;
		ssize_t got = dt_route_head_parse(s, n, response, &scanned, &h, &why), later = 0;

		if (got > (ssize_t)n || (got == -22 && !why))
			abort();
		for (size_t k = 0; k < n && n < 4096 && later == 0; k++) /* as it would come in pieces */
			later = dt_route_head_parse(s, k + 1, response, &part, &again, &why);
		if (n < 4096 && n > 0 && (later > 0) != (got > 0))
			abort();
		if (got <= 0)
			continue;
		inside(s, (size_t)got, h.method);
		inside(s, (size_t)got, h.target);
		for (int i = 0; i < h.n; i++) {
			inside(s, (size_t)got, h.header[i].name);
			inside(s, (size_t)got, h.header[i].value);
			dt_route_hop_by_hop(&h, h.header[i].name);
			if (memchr(h.header[i].value.s, '\n', h.header[i].value.n))
				abort();
		}
	}
}

static int unchunk(const char *s, size_t n, size_t step, char *out, size_t *ret)
{
	struct dt_route_chunks c = {0};
	size_t at = 0, k = 0;

	while (at < n && !c.done) {
		size_t give = n - at < step ? n - at : step, body;
		ssize_t used = dt_route_chunks_next(&c, s + at, give, &body);

		if (used < 0)
			return -1;
		if ((size_t)used > give || body > (size_t)used || used == 0)
			abort();
		memcpy(out + k, s + at + (size_t)used - body, body);
		k += body;
		at += (size_t)used;
	}
	*ret = k;
	return c.done;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
	char *s = malloc(n + 1), *a = malloc(n + 1), *b = malloc(n + 1);
	struct dt_route_member m[] = {{"model"}, {"messages"}, {"stream"}};
	size_t na = 0, nb = 0;
	int one, many;

	if (!s || !a || !b)
		abort();
	memcpy(s, data, n); /* of exactly n bytes, for the sanitizer */
	heads(s, n);
	one = unchunk(s, n, n ? n : 1, a, &na);
	many = unchunk(s, n, 1, b, &nb);
	if (one != many || (one >= 0 && (na != nb || memcmp(a, b, na))))
		abort();
	if (!dt_route_members(s, n, m, 3))
		for (int i = 0; i < 3; i++)
			inside(s, n, m[i].value);
	free(s);
	free(a);
	free(b);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
