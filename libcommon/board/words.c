#include "board/words.h"

#include <stdint.h>
#include <stdlib.h>

const char *dt_board_skip_blank(const char *p)
{
	while (*p == ' ' || *p == '\t')
		p++;
	return p;
}

const char *dt_board_skip_string(const char *p, const char *end)
{
	for (p++; p < end && *p != '"'; p++)
		if (*p == '\\')
			p++;
	return p < end ? p + 1 : NULL;
}

const char *dt_board_skip_nested(const char *p, const char *end)
{
	int depth = 0;

	while (p < end) {
		if (*p == '"') {
			p = dt_board_skip_string(p, end);
			if (!p)
				return NULL;
			continue;
		}
		depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
		p++;
		if (!depth)
			return p;
	}
	return NULL;
}

double dt_board_parse_number(const char *p, char **stop)
{
	static const long double power[] = {1e0L,  1e1L,  1e2L,	 1e3L,	1e4L,  1e5L,  1e6L,
					    1e7L,  1e8L,  1e9L,	 1e10L, 1e11L, 1e12L, 1e13L,
					    1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L, 1e20L,
					    1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L};
	const char *q = p + (*p == '-');
	uint64_t m = 0;
	int digits = 0, e = 0, point = 0;

	for (; (*q >= '0' && *q <= '9') || (*q == '.' && !point); q++) {
		if (*q == '.') {
			point = 1;
			continue;
		}
		digits++;
		if (m < UINT64_MAX / 10 - 1) {
			m = m * 10 + (uint64_t)(*q - '0');
			e -= point;
		} else {
			e += !point;
		}
	}
	if (!digits || *q == 'e' || *q == 'E' || e < -27 || e > 27)
		return strtod(p, stop);
	*stop = (char *)q;
	return (double)((e < 0 ? (long double)m / power[-e] : (long double)m * power[e]) *
			(*p == '-' ? -1 : 1));
}
/* SPDX-License-Identifier: Apache-2.0 */
