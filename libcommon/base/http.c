#include "base/http.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

bool dt_http_is_token(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)s[i]) && !memchr("!#$%&'*+-.^_`|~", s[i], 15))
			return false;
	return n > 0;
}

bool dt_http_is_text(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (((unsigned char)s[i] < 0x20 && s[i] != '\t') || s[i] == 0x7f)
			return false;
	return true;
}

size_t dt_http_before_path(const char *s, size_t n)
{
	const size_t scheme = n > 8 && !strncasecmp(s, "https://", 8)  ? 8
			      : n > 7 && !strncasecmp(s, "http://", 7) ? 7
								       : 0;
	const char *path = scheme ? memchr(s + scheme, '/', n - scheme) : NULL;

	return path ? (size_t)(path - s) : 0;
}

void dt_http_unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		unsigned c;

		if (*s == '%' && isxdigit((unsigned char)s[1]) && sscanf(s + 1, "%2x", &c) == 1 && c != 0 &&
		    isxdigit((unsigned char)s[2])) {
			*to++ = (char)c;
			s += 2;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}
/* SPDX-License-Identifier: Apache-2.0 */
