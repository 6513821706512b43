/*
 * A token bucket for a tenant. It refills at `rate` tokens a minute and holds at most one minute's worth. A
 * request is charged for its prompt and its maximum output when it is submitted; unused tokens are returned
 * when it ends, never above the bucket's capacity.
 */
#ifndef DT_BASE_QUOTA_H
#define DT_BASE_QUOTA_H

struct dt_quota {
	double rate;   /* tokens a minute, 0: no limit */
	double tokens; /* tokens left at time `at` */
	double at;     /* seconds of dt_now() */
};

struct dt_quota dt_quota_full(double rate, double now);

/*
 * Takes n tokens and returns 0. If there are too few, takes nothing and returns the seconds until there are
 * enough: infinity when n is more than the bucket's capacity.
 */
double dt_quota_take(struct dt_quota *q, double n, double now);
void dt_quota_give(struct dt_quota *q, double n, double now);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
