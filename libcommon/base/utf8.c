#include "base/utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum scan { SCAN_OK, SCAN_SHORT, SCAN_BAD };

/*
 * Checks the character at p. *len: its bytes, or those present if it is incomplete, or those of the
 * ill-formed part.
 */
static enum scan scan(const uint8_t *p, size_t n, size_t *len)
{
	uint8_t c = p[0], lo = 0x80, hi = 0xbf;
	size_t want;

	*len = 1;
	if (c < 0x80)
		return SCAN_OK;
	if (c < 0xc2 || c > 0xf4)
		return SCAN_BAD;
	want = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
	if (c == 0xe0)
		lo = 0xa0;
	else if (c == 0xed)
		hi = 0x9f;
	else if (c == 0xf0)
		lo = 0x90;
	else if (c == 0xf4)
		hi = 0x8f;
	for (; *len < want; ++*len) {
		if (*len == n)
			return SCAN_SHORT;
		if (p[*len] < lo || p[*len] > hi)
			return SCAN_BAD;
		lo = 0x80;
		hi = 0xbf;
	}
	return SCAN_OK;
}

size_t dt_utf8_tail(const char *s, size_t n)
{
	for (size_t k = 1; k <= 3 && k <= n; k++) {
		const uint8_t *p = (const uint8_t *)s + n - k;
		size_t len;

		if ((*p & 0xc0) == 0x80)
			continue; /* a continuation byte: the character begins before it */
		return scan(p, k, &len) == SCAN_SHORT ? k : 0;
	}
	return 0;
}

char *dt_utf8_clean(const char *s, size_t n, size_t *ret_n)
{
	char *out = malloc(3 * n + 1);
	size_t o = 0, len;

	if (!out)
		return NULL;
	for (size_t i = 0; i < n; i += len) {
		if (scan((const uint8_t *)s + i, n - i, &len) == SCAN_OK) {
			memcpy(out + o, s + i, len);
			o += len;
		} else {
			memcpy(out + o, "\xef\xbf\xbd", 3);
			o += 3;
		}
	}
	out[o] = '\0';
	*ret_n = o;
	return out;
}

size_t dt_utf8_decode(const char *s, size_t n, uint32_t *ret)
{
	uint8_t c = (uint8_t)s[0];
	size_t len = c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
	uint32_t x = len == 1 ? c : c & (0x7fu >> len);

	len = len < n ? len : n;
	for (size_t i = 1; i < len; i++)
		x = x << 6 | ((uint8_t)s[i] & 0x3f);
	*ret = x;
	return len;
}

size_t dt_utf8_count(const char *s, size_t n)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++)
		count += (s[i] & 0xc0) != 0x80;
	return count;
}

bool dt_utf8_is_space(uint32_t cp)
{
	return (cp >= 0x09 && cp <= 0x0d) || cp == 0x20 || cp == 0x85 || cp == 0xa0 || cp == 0x1680 ||
	       (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 || cp == 0x202f ||
	       cp == 0x205f || cp == 0x3000;
}

size_t dt_utf8_trimmed(const char *s, size_t n)
{
	while (n > 0) {
		size_t at = n - 1;
		uint32_t cp;

		while (at > 0 && (s[at] & 0xc0) == 0x80)
			at--;
		dt_utf8_decode(s + at, n - at, &cp);
		if (!dt_utf8_is_space(cp))
			break;
		n = at;
	}
	return n;
}
/* SPDX-License-Identifier: Apache-2.0 */
