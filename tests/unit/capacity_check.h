/* What tests of server plans share. */
#ifndef DT_TESTS_CAPACITY_CHECK_H
#define DT_TESTS_CAPACITY_CHECK_H

#include "serve/capacity/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define near(a, b)                                                                                           \
	do {                                                                                                 \
		double near_a = (a), near_b = (b);                                                           \
		if (fabs(near_a - near_b) > 1e-9 * (1 + fabs(near_b)))                                       \
			fail_msg("%s: %.12g, not %.12g", #a, near_a, near_b);                                \
	} while (0)

/* Seconds of one pass alone. */
static inline double pass(struct dt_serve_clock *c, const struct dt_serve_span *span, int n)
{
	struct dt_flow t;

	assert_int_equal(dt_serve_clock_pass(c, span, n, &t, NULL), 0);
	assert_true(dt_flow_slowest(&t) > 0);
	return dt_flow_alone(&t);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
