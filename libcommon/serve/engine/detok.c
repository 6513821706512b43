#include "serve/engine/detok.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void dt_detok_init(struct dt_detok *d, const struct dt_tokenizer *tok, const struct dt_stop *stop, int nstop)
{
	*d = (struct dt_detok){.tok = tok, .stop = stop, .nstop = nstop, .stopped = -1};
}

void dt_detok_release(struct dt_detok *d)
{
	free(d->text);
	d->text = NULL;
	d->n = d->cap = d->ready = 0;
}

/* Length of the longest suffix of the text that is a prefix of a stop string. */
static size_t stop_prefix(const struct dt_detok *d)
{
	size_t hold = 0;

	for (int i = 0; i < d->nstop; i++) {
		size_t k = d->stop[i].n - 1;

		for (k = k < d->n ? k : d->n; k > hold; k--)
			if (!memcmp(d->text + d->n - k, d->stop[i].s, k))
				hold = k;
	}
	return hold;
}

/* Finds the stop string that ends first, among those completed by the bytes from `old` on. */
static int find_stop(struct dt_detok *d, size_t old, size_t *ret_at)
{
	size_t best_end = SIZE_MAX;
	int best = -1;

	for (int i = 0; i < d->nstop; i++) {
		size_t back = d->stop[i].n - 1, from = old > back ? old - back : 0;
		const char *hit = memmem(d->text + from, d->n - from, d->stop[i].s, d->stop[i].n);

		if (hit && (size_t)(hit - d->text) + d->stop[i].n < best_end) {
			best_end = (size_t)(hit - d->text) + d->stop[i].n;
			*ret_at = (size_t)(hit - d->text);
			best = i;
		}
	}
	return best;
}

int dt_detok_push_bytes(struct dt_detok *d, const char *s, size_t n)
{
	size_t old = d->n, at = 0, hold;

	if (n == 0)
		return 0;
	if (d->n + n > d->cap) {
		size_t cap = d->n + n > 2 * d->cap ? d->n + n + 64 : 2 * d->cap;
		char *p = realloc(d->text, cap);

		if (!p)
			return -ENOMEM;
		d->text = p;
		d->cap = cap;
	}
	memcpy(d->text + d->n, s, n);
	d->n += n;
	d->stopped = d->no_stop ? -1 : find_stop(d, old, &at);
	if (d->stopped >= 0) {
		d->n = d->include_stop ? at + d->stop[d->stopped].n : at;
		d->ready = d->n;
		return 1;
	}
	hold = stop_prefix(d);
	/*
	 * If a prefix of a stop string is held back, the character before it is complete: stop strings begin
	 * at a character.
	 */
	if (hold == 0)
		hold = dt_utf8_tail(d->text, d->n);
	if (d->n - hold > d->ready)
		d->ready = d->n - hold;
	return 0;
}

int dt_detok_push(struct dt_detok *d, int32_t id)
{
	size_t n = 0;
	const char *s = dt_tokenizer_piece(d->tok, id, d->special, &n);

	return s ? dt_detok_push_bytes(d, s, n) : 0;
}

void dt_detok_finish(struct dt_detok *d)
{
	d->ready = d->n;
}
/* SPDX-License-Identifier: Apache-2.0 */
