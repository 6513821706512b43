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

/* The lowest offset for x. placed: the items that have an offset, in increasing order. */
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

struct change {
	int time;
	uint64_t begins, ends;
};

static int by_time(const void *x, const void *y)
{
	const struct change *a = x, *b = y;

	return (a->time > b->time) - (a->time < b->time);
}

/* The largest sum of bytes that are live at the same time; room: scratch for two changes a span. */
static uint64_t bound(const struct dt_item *item, int n, struct change *room)
{
	uint64_t most = 0, now = 0;
	int k = 0;

	for (int i = 0; i < n; i++)
		for (int s = 0; s < item[i].nspan; s++) {
			room[k++] = (struct change){item[i].span[s].first, item[i].bytes, 0};
			room[k++] = (struct change){item[i].span[s].last + 1, 0, item[i].bytes};
		}
	qsort(room, (size_t)k, sizeof(*room), by_time);
	for (int i = 0; i < k; i++) {
		now += room[i].begins - room[i].ends;
		if ((i + 1 == k || room[i + 1].time != room[i].time) && now > most)
			most = now;
	}
	return most;
}

int dt_place_items(struct dt_item *item, int n, uint64_t *ret_bytes, uint64_t *ret_bound)
{
	struct order *order = malloc(((size_t)n + 1) * sizeof(*order));
	uint64_t *best = malloc(((size_t)n + 1) * sizeof(*best)), least = 0;
	struct change *room = malloc(((size_t)n * 2 * DT_PLACE_SPANS + 1) * sizeof(*room));
	int *placed = malloc(((size_t)n + 1) * sizeof(*placed));
	int rc = order && best && placed && room ? 0 : -ENOMEM;

	for (int i = 0; i < n && rc == 0; i++) {
		if (item[i].nspan < 1)
			rc = -EINVAL;
		order[i] = (struct order){item[i].bytes, item[i].span[0].first, i};
	}
	if (rc == 0)
		*ret_bound = bound(item, n, room);
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
	free(room);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
