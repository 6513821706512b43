/* "Did you mean": the known word that is nearest to one that is not known. */
#ifndef DT_BASE_SUGGEST_H
#define DT_BASE_SUGGEST_H

#include <stddef.h>

/*
 * Letters to insert, delete, replace or swap with their neighbour to make a into b (optimal string alignment
 * distance). Upper and lower case are the same. Only the first 63 bytes are compared.
 */
int dt_edit_distance(const char *a, const char *b);

struct dt_suggest {
	const char *word; /* what was typed */
	char best[64];	  /* "": nothing is near enough */
	int cost;
};

static inline struct dt_suggest dt_suggest(const char *word)
{
	return (struct dt_suggest){.word = word};
}

/*
 * Offers a known word. Near enough is one error in three letters; or a beginning, of two
 * letters or more, that was not typed out. The first of equally near ones stays.
 */
void dt_suggest_offer(struct dt_suggest *s, const char *known);

/* "; did you mean '--full'?" with prefix "--", or "". Returns buf. */
const char *dt_suggest_text(const struct dt_suggest *s, const char *prefix, char *buf, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
