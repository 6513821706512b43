#include "data/chat_pack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct item {
	int64_t length, index;
};

/* Samples by remaining room: a list for each size, and a bitmap of non-empty lists. */
struct rooms {
	int64_t *head; /* [room + 1] first sample; -1: none */
	int64_t *next; /* [n] next sample in the list */
	uint64_t *some;
	int64_t room;
};

static int longest_first(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->length != y->length)
		return x->length > y->length ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

static void put(struct rooms *r, int64_t sample, int64_t left)
{
	r->next[sample] = r->head[left];
	r->head[left] = sample;
	r->some[left / 64] |= 1ull << (left % 64);
}

/* The smallest remaining room of at least n that some sample has; -1: none. */
static int64_t least(const struct rooms *r, int64_t n)
{
	uint64_t word = r->some[n / 64] & ~0ull << (n % 64);

	for (int64_t k = n / 64;; word = r->some[k]) {
		if (word)
			return k * 64 + __builtin_ctzll(word);
		if (++k > r->room / 64)
			return -1;
	}
}

static int64_t take(struct rooms *r, int64_t left)
{
	int64_t sample = r->head[left];

	r->head[left] = r->next[sample];
	if (r->head[left] < 0)
		r->some[left / 64] &= ~(1ull << (left % 64));
	return sample;
}

int64_t dt_pack_best_fit(const int64_t *length, int64_t n, int64_t room, int64_t *sample, struct dt_err *err)
{
	struct rooms r = {.head = malloc((size_t)(room + 1) * sizeof(*r.head)),
			  .next = malloc((size_t)(n + 1) * sizeof(*r.next)),
			  .some = calloc((size_t)(room / 64 + 1), sizeof(*r.some)),
			  .room = room};
	struct item *item = malloc((size_t)(n + 1) * sizeof(*item));
	int64_t samples = 0;

	if (!r.head || !r.next || !r.some || !item) {
		samples = dt_err_sys(err, -ENOMEM, "cannot pack %lld examples", (long long)n);
		n = 0;
	} else {
		memset(r.head, -1, (size_t)(room + 1) * sizeof(*r.head));
		for (int64_t i = 0; i < n; i++)
			item[i] = (struct item){length[i], i};
		qsort(item, (size_t)n, sizeof(*item), longest_first);
	}
	for (int64_t i = 0; i < n; i++) {
		int64_t left = least(&r, item[i].length), s = left < 0 ? samples++ : take(&r, left);

		sample[item[i].index] = s;
		put(&r, s, (left < 0 ? room : left) - item[i].length);
	}
	free(r.head);
	free(r.next);
	free(r.some);
	free(item);
	return samples;
}
/* SPDX-License-Identifier: Apache-2.0 */
