#include "base/base64.h"

#include <stdlib.h>
#include <string.h>

void dt_base64_encode(const void *bytes, size_t n, char *out)
{
	static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const uint8_t *s = bytes;

	for (size_t i = 0; i < n; i += 3) {
		const unsigned w = (unsigned)s[i] << 16 | (i + 1 < n ? (unsigned)s[i + 1] << 8 : 0) |
				   (i + 2 < n ? s[i + 2] : 0);

		*out++ = digit[w >> 18];
		*out++ = digit[w >> 12 & 63];
		*out++ = i + 1 < n ? digit[w >> 6 & 63] : '=';
		*out++ = i + 2 < n ? digit[w & 63] : '=';
	}
}

static int digit(char c)
{
	return c >= 'A' && c <= 'Z'   ? c - 'A'
	       : c >= 'a' && c <= 'z' ? c - 'a' + 26
	       : c >= '0' && c <= '9' ? c - '0' + 52
	       : c == '+'	      ? 62
	       : c == '/'	      ? 63
				      : -1;
}

int64_t dt_base64_decode(const char *s, size_t n, uint8_t *out)
{
	uint32_t bits = 0;
	int64_t len = 0;
	int have = 0;

	if (n % 4)
		return -1;
	while (n > 0 && s[n - 1] == '=' && have < 2) {
		n--;
		have++;
	}
	have = 0;
	for (size_t i = 0; i < n; i++) {
		int d = digit(s[i]);

		if (d < 0)
			return -1;
		bits = bits << 6 | (uint32_t)d;
		have += 6;
		if (have >= 8) {
			have -= 8;
			out[len++] = (uint8_t)(bits >> have);
		}
	}
	return len;
}

/* Value of a base64 digit, in the standard or the URL-safe alphabet; -1: none. */
static int any_digit(char c)
{
	return c >= 'A' && c <= 'Z'   ? c - 'A'
	       : c >= 'a' && c <= 'z' ? c - 'a' + 26
	       : c >= '0' && c <= '9' ? c - '0' + 52
	       : c == '+' || c == '-' ? 62
	       : c == '/' || c == '_' ? 63
				      : -1;
}

unsigned char *dt_base64_bytes(const char *s, size_t n, size_t *ret_n)
{
	unsigned char *to = malloc(n / 4 * 3 + 4);
	unsigned bits = 0;
	int have = 0;
	size_t out = 0, i = 0;

	for (; to && i < n && s[i] != '='; i++) {
		const int d = any_digit(s[i]);

		if (d < 0 && strchr(" \t\r\n", s[i]) && s[i])
			continue;
		if (d < 0)
			break;
		bits = bits << 6 | (unsigned)d;
		if (have += 6, have >= 8)
			to[out++] = (unsigned char)(bits >> (have -= 8) & 255);
	}
	while (i < n && s[i] && strchr("= \t\r\n", s[i]))
		i++;
	if (i < n || have >= 6) { /* trailing text, or a lone digit */
		free(to);
		return NULL;
	}
	*ret_n = out;
	return to;
}
/* SPDX-License-Identifier: Apache-2.0 */
