/*
 * Autoscaling: how many servers there should be. Pure functions: counts and time in, a number out. Load is
 * the number of waiting and running requests. Each server should have `requests` of them; two bands keep the
 * number stable:
 *
 *   more   if load > n * requests * (1 + band) for up_after seconds: to ceil(load / requests), the smallest
 *          value of that time; at once if there is no server at all
 *   fewer  if ceil(load / (requests * (1 - band))) < n for down_after seconds: to the largest value of that
 *          time. Each change restarts both times.
 *   none   if least is 0 and there was no load for zero_after seconds
 *
 * n does not include the spares, which are servers beyond those that the load needs.
 */
#ifndef DT_ROUTE_SCALE_H
#define DT_ROUTE_SCALE_H

struct dt_scale_rule {
	int least, most; /* servers, including spares */
	int spares;
	double requests;			 /* target load of one server, > 0 */
	double band;				 /* 0 <= band < 1 */
	double up_after, down_after, zero_after; /* seconds */
};

struct dt_scale {
	int wanted;
	int above_to, below_to;
	double above_since, below_since; /* < 0: the condition does not hold */
	double busy;			 /* time of the last load */
};

/* servers: current number. */
void dt_scale_init(struct dt_scale *s, const struct dt_scale_rule *rule, int servers, double now);
/* Returns the wanted number of servers. now: seconds, monotonic. */
int dt_scale_step(struct dt_scale *s, const struct dt_scale_rule *rule, int load, double now);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
