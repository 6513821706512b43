/*
 * A tenant's account of tokens. It fills at `rate` tokens a minute and holds at most one minute's. A request
 * is charged for its prompt and its longest output when it is submitted; what it did not use is given back
 * when it ends. Giving back never lifts the account above what it holds when full.
 */
#ifndef DT_BASE_QUOTA_H
#define DT_BASE_QUOTA_H

struct dt_quota {
	double rate;   /* tokens a minute, 0: no limit */
	double tokens; /* left at the moment `at` */
	double at;     /* seconds, dt_now() */
};

struct dt_quota dt_quota_full(double rate, double now);

/*
 * Takes n tokens: 0. Else the seconds after which they would be there, and nothing is taken; infinity when n
 * is more than the account ever holds.
 */
double dt_quota_take(struct dt_quota *q, double n, double now);
void dt_quota_give(struct dt_quota *q, double n, double now);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
