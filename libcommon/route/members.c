#include "route/members.h"

#include <stdbool.h>
#include <string.h>

static size_t space(const char *s, size_t n, size_t at)
{
	while (at < n && (s[at] == ' ' || s[at] == '\n' || s[at] == '\r' || s[at] == '\t'))
		at++;
	return at;
}

/* The offset after a string's closing quote, given that of its opening one; 0: it has no end. */
static size_t string(const char *s, size_t n, size_t at)
{
	for (at++; at < n;) {
		const char *q = memchr(s + at, '"', n - at);
		size_t i, back = 0;

		if (!q)
			return 0;
		i = (size_t)(q - s);
		while (i - back > at && s[i - back - 1] == '\\')
			back++;
		if (back % 2 == 0)
			return i + 1;
		at = i + 1;
	}
	return 0;
}

/* The offset after the value that begins at `at`; 0: it has no end. */
static size_t value(const char *s, size_t n, size_t at)
{
	size_t depth = 0;

	while (at < n) {
		char c = s[at];

		if (c == '"') {
			at = string(s, n, at);
			if (at == 0)
				return 0;
		} else if (c == '{' || c == '[') {
			depth++;
			at++;
		} else if (c == '}' || c == ']') {
			if (depth == 0) /* end of the object around a bare word */
				return at;
			depth--;
			at++;
		} else if (depth == 0 && (c == ',' || c == ' ' || c == '\n' || c == '\r' || c == '\t')) {
			return at;
		} else {
			at++;
			continue;
		}
		if (depth == 0)
			return at;
	}
	return 0;
}

static const char *enter(struct dt_route_member *member, int n, const char *s, size_t len,
			 struct dt_route_text v)
{
	if (memchr(s, '\\', len))
		return "a key of the body contains an escape sequence";
	for (int i = 0; i < n; i++) {
		if (strlen(member[i].name) != len || memcmp(member[i].name, s, len))
			continue;
		if (member[i].value.s)
			return "a key occurs twice in the body";
		member[i].value = v;
	}
	return NULL;
}

const char *dt_route_members(const char *s, size_t size, struct dt_route_member *member, int n)
{
	static const char broken[] = "the body is not a JSON object";
	size_t at = space(s, size, 0);
	const char *why = NULL;

	for (int i = 0; i < n; i++)
		member[i].value = (struct dt_route_text){0};
	if (at >= size || s[at] != '{')
		return broken;
	at = space(s, size, at + 1);
	if (at < size && s[at] == '}')
		return space(s, size, at + 1) == size ? NULL : broken;
	while (!why) {
		size_t name = at, colon, from, to;
		size_t end = at < size && s[at] == '"' ? string(s, size, at) : 0;

		colon = end ? space(s, size, end) : size;
		if (colon >= size || s[colon] != ':')
			return broken;
		from = space(s, size, colon + 1);
		to = value(s, size, from);
		if (to <= from)
			return broken;
		why = enter(member, n, s + name + 1, end - name - 2,
			    (struct dt_route_text){s + from, to - from});
		at = space(s, size, to);
		if (at >= size || (s[at] != ',' && s[at] != '}'))
			return broken;
		if (s[at] == '}')
			return why ? why : space(s, size, at + 1) == size ? NULL : broken;
		at = space(s, size, at + 1);
	}
	return why;
}
/* SPDX-License-Identifier: Apache-2.0 */
