/* DRY (serve/engine/sampling.h): finds repetitions by the Z function over the reversed tokens. */
#include "serve/engine/sampling.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define MOST 1e30 /* largest penalty; fits a float */

struct back { /* the tokens so far, reversed */
	const int32_t *prompt, *out;
	size_t nprompt, nout;
};

static int32_t at(const struct back *b, size_t i)
{
	return i < b->nout ? b->out[b->nout - 1 - i] : b->prompt[b->nprompt + b->nout - 1 - i];
}

static bool breaks(const struct dt_sampling *p, int32_t id)
{
	return p->dry_break && (p->dry_break[id / 32] >> id % 32 & 1);
}

/*
 * Z function: z[i], i < n, is the number of tokens, reading backward, for which the text that ends i tokens
 * before the last equals the text that ends at the last.
 */
static void find_matches(const struct back *b, int32_t *z, size_t n)
{
	size_t left = 0, right = 0;

	for (size_t i = 1; i < n; i++) {
		size_t k = 0;

		if (i < right) {
			k = right - i;
			k = (size_t)z[i - left] < k ? (size_t)z[i - left] : k;
		}
		while (i + k < n && at(b, k) == at(b, i + k))
			k++;
		z[i] = (int32_t)k;
		if (i + k > right) {
			left = i;
			right = i + k;
		}
	}
}

static double penalty(const struct dt_sampling *p, int32_t length)
{
	double x = p->dry_multiplier * pow(p->dry_base, length - p->dry_allowed);

	return x < MOST ? x : MOST;
}

int dt_sampling_dry(struct dt_serve_sampler *s, const struct dt_sampling *p, const int32_t *prompt,
		    size_t nprompt, const int32_t *out, size_t nout)
{
	const struct back b = {prompt, out, nprompt, nout};
	const int first = s->nedits;
	size_t n = nprompt + nout, limit = 0;

	if (p->dry_last >= 0 && (size_t)p->dry_last < n)
		n = (size_t)p->dry_last;
	if (n > s->match_cap) {
		int32_t *z = realloc(s->match, 2 * n * sizeof(*z));

		if (!z)
			return -ENOMEM;
		s->match = z;
		s->match_cap = 2 * n;
	}
	while (limit < n && !breaks(p, at(&b, limit)))
		limit++;
	find_matches(&b, s->match, n);
	/* The edit's count temporarily holds the longest match that its token would continue. */
	for (size_t i = 1; i < n; i++) {
		const int32_t next = at(&b, i - 1);
		const size_t z = (size_t)s->match[i] < limit ? (size_t)s->match[i] : limit;

		if (z == 0 || (int)z < p->dry_allowed || breaks(p, next))
			continue;
		if ((int)z > dt_sampling_edit(s, next)->count)
			dt_sampling_edit(s, next)->count = (int)z;
	}
	for (int i = first; i < s->nedits; i++) {
		s->edit[i].bias = -(float)penalty(p, s->edit[i].count);
		s->edit[i].count = 0;
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
