/* Ascending orders of numbers, for qsort and bsearch. */
#ifndef DT_BASE_ORDER_H
#define DT_BASE_ORDER_H

#include <stdint.h>

static inline int dt_order_f64(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static inline int dt_order_i64(const void *a, const void *b)
{
	const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
