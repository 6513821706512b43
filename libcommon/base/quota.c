#include "base/quota.h"

#include <math.h>

struct dt_quota dt_quota_full(double rate, double now)
{
	return (struct dt_quota){.rate = rate, .tokens = rate, .at = now};
}

static void fill(struct dt_quota *q, double more, double now)
{
	q->tokens = fmin(q->tokens + more + (now - q->at) * q->rate / 60, q->rate);
	q->at = now;
}

double dt_quota_take(struct dt_quota *q, double n, double now)
{
	if (q->rate <= 0)
		return 0;
	fill(q, 0, now);
	if (n > q->rate)
		return INFINITY;
	if (n > q->tokens)
		return (n - q->tokens) * 60 / q->rate;
	q->tokens -= n;
	return 0;
}

void dt_quota_give(struct dt_quota *q, double n, double now)
{
	if (q->rate > 0)
		fill(q, n, now);
}
/* SPDX-License-Identifier: Apache-2.0 */
