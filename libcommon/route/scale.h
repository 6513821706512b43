/*
 * How many servers there should be. Pure: counts and a clock in, a number out. Load is requests that wait and
 * requests under way. A server should have `requests` of them, and two bands keep the number still:
 *
 *   more   when load > n * requests * (1 + band) for up_after seconds: to ceil(load / requests), the smallest
 *          value of that time; at once when there is no server at all
 *   fewer  when ceil(load / (requests * (1 - band))) < n for down_after seconds: to the largest value of
 *          that time. Each change starts both times anew.
 *   none   when least is 0 and nothing was asked for zero_after seconds
 *
 * n leaves out the spares, which are servers beyond those that the load needs.
 */
#ifndef DT_ROUTE_SCALE_H
#define DT_ROUTE_SCALE_H

struct dt_scale_rule {
	int least, most; /* servers, spares among them */
	int spares;
	double requests;			 /* of one server, > 0 */
	double band;				 /* 0 to below 1 */
	double up_after, down_after, zero_after; /* seconds */
};

struct dt_scale {
	int wanted;
	int above_to, below_to;
	double above_since, below_since; /* < 0: it is not */
	double busy;			 /* when there was load last */
};

/* servers: there now. */
void dt_scale_init(struct dt_scale *s, const struct dt_scale_rule *rule, int servers, double now);
/* Returns the servers wanted. now: seconds, never going back. */
int dt_scale_step(struct dt_scale *s, const struct dt_scale_rule *rule, int load, double now);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
