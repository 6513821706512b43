#include "base/suggest.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST = 63 };

static int least(int a, int b)
{
	return a < b ? a : b;
}

static int lower(const char *s, int i)
{
	return tolower((unsigned char)s[i]);
}

int dt_edit_distance(const char *a, const char *b)
{
	int na = (int)strnlen(a, LONGEST), nb = (int)strnlen(b, LONGEST);
	int row[3][LONGEST + 1]; /* the row before the previous, the previous row, this row */

	for (int j = 0; j <= nb; j++)
		row[1][j] = j;
	for (int i = 1; i <= na; i++) {
		row[2][0] = i;
		for (int j = 1; j <= nb; j++) {
			int same = lower(a, i - 1) == lower(b, j - 1);
			int cost = least(row[1][j] + 1, row[2][j - 1] + 1);

			cost = least(cost, row[1][j - 1] + !same);
			if (i > 1 && j > 1 && lower(a, i - 1) == lower(b, j - 2) &&
			    lower(a, i - 2) == lower(b, j - 1))
				cost = least(cost, row[0][j - 2] + 1);
			row[2][j] = cost;
		}
		memcpy(row[0], row[1], sizeof(row[0]));
		memcpy(row[1], row[2], sizeof(row[1]));
	}
	return row[1][nb];
}

/* Whether one word is part of the other: "batch" of "microbatch", or "seq" of "seq-len". */
static bool part(const char *word, int n, const char *known)
{
	const size_t k = strlen(known);

	return (n >= 4 && strcasestr(known, word)) ||
	       (k >= 3 && !strncasecmp(word, known, k) && word[k] == '-');
}

void dt_suggest_offer(struct dt_suggest *s, const char *known)
{
	int n = (int)strlen(s->word), cost = dt_edit_distance(s->word, known);

	if (n >= 2 && !strncasecmp(s->word, known, (size_t)n))
		cost = 1; /* a prefix counts like one wrong letter */
	else if (cost > (n + 1) / 3) {
		if (!part(s->word, n, known))
			return;
		cost += LONGEST; /* any word with few wrong letters is nearer */
	}
	if (!s->best[0] || cost < s->cost) {
		snprintf(s->best, sizeof(s->best), "%s", known);
		s->cost = cost;
	}
}

const char *dt_suggest_text(const struct dt_suggest *s, const char *prefix, char *buf, size_t n)
{
	*buf = '\0';
	if (s->best[0])
		snprintf(buf, n, "; did you mean '%s%s'?", prefix, s->best);
	return buf;
}
/* SPDX-License-Identifier: Apache-2.0 */
