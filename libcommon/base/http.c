#include "base/http.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
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

bool dt_http_is_own_name(const char *host, size_t n, const char *own)
{
	const char *end = n && *host == '[' ? memchr(host, ']', n) : memchr(host, ':', n);
	const bool bracket = n && *host == '[';
	unsigned char address[16];
	char name[256];
	size_t len;

	if (bracket && !end)
		return false;
	len = end ? (size_t)(end - host) - bracket : n;
	if (len == 0 || len >= sizeof(name) || memchr(host, '\0', n))
		return false;
	memcpy(name, host + bracket, len);
	name[len] = '\0';
	end = host + len + 2 * bracket; /* a port */
	for (const char *p = end; p < host + n; p++)
		if (p == end ? *p != ':' : !isdigit((unsigned char)*p))
			return false;
	if (bracket)
		return inet_pton(AF_INET6, name, address) == 1;
	return inet_pton(AF_INET, name, address) == 1 || !strcasecmp(name, "localhost") ||
	       (len > 10 && !strcasecmp(name + len - 10, ".localhost")) || (own && !strcasecmp(name, own));
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

char *dt_http_escape(const char *s)
{
	char *text = malloc(3 * strlen(s) + 1), *to = text;

	for (; text && *s; s++)
		if (isalnum((unsigned char)*s) || memchr("-._~", *s, 4))
			*to++ = *s;
		else
			to += sprintf(to, "%%%02X", (unsigned char)*s);
	if (text)
		*to = '\0';
	return text;
}
/* SPDX-License-Identifier: Apache-2.0 */
