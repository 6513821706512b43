/* "Did you mean": finds the known word nearest to an unknown one. */
#ifndef DT_BASE_SUGGEST_H
#define DT_BASE_SUGGEST_H

#include <stddef.h>

/*
 * The number of letters to insert, delete, replace or swap with a neighbour to turn a into b (optimal string
 * alignment distance). Ignores case. Compares only the first 63 bytes.
 */
int dt_edit_distance(const char *a, const char *b);

struct dt_suggest {
	const char *word; /* what was typed */
	char best[64];	  /* "": no word is near enough */
	int cost;
};

static inline struct dt_suggest dt_suggest(const char *word)
{
	return (struct dt_suggest){.word = word};
}

/*
 * Considers a known word. It is near enough with at most one error in three letters, or if the typed word is
 * a prefix of it of two or more letters. If there is none of these, a known word is near enough that contains
 * the typed one (of four or more letters), or with which the typed one begins, before a hyphen. Of equally
 * near words the first wins.
 */
void dt_suggest_offer(struct dt_suggest *s, const char *known);

/* "; did you mean '--full'?" with prefix "--", or "". Returns buf. */
const char *dt_suggest_text(const struct dt_suggest *s, const char *prefix, char *buf, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
