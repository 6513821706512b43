/*
 * Time of a server's forward passes with any mixture of prefill and decode: the nodes of the program for that
 * number of rows, and attention by the number of keys of each row. A clock is for one model on one layout;
 * costs that depend on the number of rows alone are cached.
 */
#ifndef DT_PLAN_SERVCLOCK_H
#define DT_PLAN_SERVCLOCK_H

#include "base/flow.h"
#include "plan/cluster.h"
#include "plan/work.h"

struct dt_serve_site {
	const struct dt_cluster *cluster;
	const struct dt_config *config; /* stays where it is as long as the clock lives */
	int tp, pp, ep;			/* ep: as many ranks that share experts have equal rows */
	int cp; /* ranks that share the rows of a pass, as dt-serve cuts them; 0 is 1 */
	double weight_bits, cache_bits; /* an element of a matrix, of the cache */
	int max_rows;			/* of a pass */
};

struct dt_serve_span { /* tokens [first, first + n) of a sequence */
	int first, n;
};

struct dt_serve_clock;

/* -EINVAL: more stages than DT_FLOW_STAGES. */
int dt_serve_clock_open(const struct dt_serve_site *s, struct dt_serve_clock **ret, struct dt_err *err);
void dt_serve_clock_close(struct dt_serve_clock *c);

/* Of a pass over at most max_rows rows of n sequences, which wants the logits of one row of each. Processors
 * compute it in dt-serve's parts; on cards a part of few rows would take as long as many. */
int dt_serve_clock_pass(struct dt_serve_clock *c, const struct dt_serve_span *span, int n,
			struct dt_flow *ret, struct dt_err *err);

/* Seconds until the cache of n tokens has gone from one server to another over the network. */
double dt_serve_clock_move(const struct dt_serve_clock *c, int n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
