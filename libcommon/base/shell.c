#include "base/shell.h"

#include <string.h>

static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,=+@%-";

size_t dt_shell_word(const char *s, bool always, char *buf, size_t n)
{
	const bool quoted = always || !*s || s[strspn(s, plain)];
	size_t at = 0;

#define PUT(c) (at + 1 < n ? (void)(buf[at] = (c)) : (void)0, at++)
	if (quoted)
		PUT('\'');
	for (; *s; s++)
		if (quoted && *s == '\'') { /* closes the quotes, is escaped, and opens them again */
			for (const char *q = "'\\''"; *q; q++)
				PUT(*q);
		} else {
			PUT(*s);
		}
	if (quoted)
		PUT('\'');
#undef PUT
	if (n)
		buf[at < n ? at : n - 1] = '\0';
	return at;
}
/* SPDX-License-Identifier: Apache-2.0 */
