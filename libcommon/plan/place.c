#include "plan/place.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct order {
	uint64_t bytes;
	int first, item;
};

static int by_size(const void *x, const void *y)
{
	const struct order *a = x, *b = y;

	if (a->bytes != b->bytes)
		return a->bytes < b->bytes ? 1 : -1;
	return a->first != b->first ? (a->first > b->first) - (a->first < b->first) : a->item - b->item;
}

static int by_first(const void *x, const void *y)
{
	const struct order *a = x, *b = y;

	if (a->first != b->first)
		return (a->first > b->first) - (a->first < b->first);
	return by_size(x, y);
}

static bool meet(const struct dt_item *a, const struct dt_item *b)
{
	for (int i = 0; i < a->nspan; i++)
		for (int k = 0; k < b->nspan; k++)
			if (a->span[i].first <= b->span[k].last && b->span[k].first <= a->span[i].last)
				return true;
	return false;
}

/* placed: numbers of the items that have an address, by rising offset. */
static uint64_t lowest(const struct dt_item *item, const int *placed, int n, const struct dt_item *x)
{
	uint64_t at = 0;

	for (int i = 0; i < n; i++) {
		const struct dt_item *p = &item[placed[i]];

		if (p->offset + p->bytes <= at || !meet(p, x))
			continue;
		if (p->offset >= at + x->bytes)
			break;
		at = p->offset + p->bytes;
	}
	return at;
}

static uint64_t place(struct dt_item *item, int n, const struct order *order, int *placed)
{
	uint64_t top = 0;

	for (int i = 0; i < n; i++) {
		struct dt_item *x = &item[order[i].item];
		int k = i;

		x->offset = lowest(item, placed, i, x);
		if (x->offset + x->bytes > top)
			top = x->offset + x->bytes;
		for (; k > 0 && item[placed[k - 1]].offset > x->offset; k--)
			placed[k] = placed[k - 1];
		placed[k] = order[i].item;
	}
	return top;
}

/* The largest sum of bytes alive at the start of some span. */
static uint64_t bound(const struct dt_item *item, int n)
{
	uint64_t most = 0;

	for (int i = 0; i < n; i++)
		for (int k = 0; k < item[i].nspan; k++) {
			const struct dt_item now = {.span = {{item[i].span[k].first, item[i].span[k].first}},
						    .nspan = 1};
			uint64_t sum = 0;

			for (int j = 0; j < n; j++)
				sum += meet(&item[j], &now) ? item[j].bytes : 0;
			most = sum > most ? sum : most;
		}
	return most;
}

int dt_place_items(struct dt_item *item, int n, uint64_t *ret_bytes, uint64_t *ret_bound)
{
	struct order *order = malloc(((size_t)n + 1) * sizeof(*order));
	uint64_t *best = malloc(((size_t)n + 1) * sizeof(*best)), least = 0;
	int *placed = malloc(((size_t)n + 1) * sizeof(*placed)), rc = order && best && placed ? 0 : -ENOMEM;

	for (int i = 0; i < n && rc == 0; i++) {
		if (item[i].nspan < 1)
			rc = -EINVAL;
		order[i] = (struct order){item[i].bytes, item[i].span[0].first, i};
	}
	if (rc == 0)
		*ret_bound = bound(item, n);
	for (int way = 0; way < 2 && rc == 0; way++) {
		uint64_t top;

		qsort(order, (size_t)n, sizeof(*order), way ? by_first : by_size);
		top = place(item, n, order, placed);
		if (way && top >= least)
			break;
		least = top;
		for (int i = 0; i < n; i++)
			best[i] = item[i].offset;
		if (top == *ret_bound)
			break;
	}
	if (rc == 0) {
		for (int i = 0; i < n; i++)
			item[i].offset = best[i];
		*ret_bytes = least;
	}
	free(order);
	free(best);
	free(placed);
	return rc;
}
