/* See soon.h. */
#include "kernels/cpu/soon.h"

static _Thread_local struct dt_soon_list list;

void dt_soon_begin(const void *k, const void *v, int64_t bytes)
{
	if (list.n)
		list.usual = list.room;
	list.cache[0] = k;
	list.cache[1] = v;
	list.both = v != NULL;
	list.at = list.end = NULL;
	list.bytes = bytes;
	list.n = list.taken = 0;
	list.room = 0;
}

bool dt_soon_add(int64_t i)
{
	const int n = list.n >> list.both;

	if (n == DT_SOON_PIECES || (list.n + 2) * list.bytes > DT_SOON_BYTES || i > INT32_MAX)
		return false;
	list.piece[n] = (int32_t)i;
	list.n += 1 + list.both;
	return true;
}

void dt_soon_end(void)
{
	list.wait = list.usual - list.n * list.bytes;
}

bool dt_soon_there(int64_t m)
{
	return m >= DT_SOON_ROWS && list.n > 0;
}

struct dt_soon_list *dt_soon_take(int64_t m, int64_t bytes)
{
	if (m < DT_SOON_ROWS)
		return NULL;
	list.room += bytes;
	return list.room < list.wait || (list.at >= list.end && list.taken == list.n) ? NULL : &list;
}
/* SPDX-License-Identifier: Apache-2.0 */
