#include "base/http.h"

#include <ctype.h>
#include <string.h>

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
/* SPDX-License-Identifier: Apache-2.0 */
