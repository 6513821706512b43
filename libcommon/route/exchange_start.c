/* A request begins: quotas, a copy to another model, the queue. */
#include "route/priv.h"

#include "base/progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUDGET_MOST 20. /* max retries saved up */

/* Sends a copy to another model; its response is dropped. */
static void shadow(struct dt_route_x *x, const struct dt_route_name *n)
{
	struct dt_router *r = x->r;
	struct dt_route_x *copy;
	double u = (double)(dt_prefix_hash(r->id_salt, x->id, strlen(x->id)) >> 11) * 0x1p-53;

	if (!n->shadow || u >= n->shadow_share || r->memory > r->conf.memory / 2)
		return;
	copy = calloc(1, sizeof(*copy));
	if (!copy)
		return;
	copy->r = r;
	copy->tenant = r->ntenants - 1;
	copy->begun = dt_now();
	TAILQ_INSERT_TAIL(&r->all, copy, in_all);
	r->nall++;
	copy->target = strdup(x->target);
	copy->asked = strdup(n->shadow);
	copy->model = strdup(n->shadow);
	snprintf(copy->id, sizeof(copy->id), "shadow-%.120s", x->id);
	dt_route_buf_add(&copy->head, x->head.s, x->head.n);
	dt_route_buf_add(&copy->key, x->key.s, x->key.n);
	dt_route_buf_add(&copy->body, dt_route_buf_data(&x->body), dt_route_buf_size(&x->body));
	r->stats.shadows++;
	copy->deadline = copy->begun + r->conf.request_timeout;
	copy->state = DT_X_TRYING;
	if (!copy->target || !copy->asked || !copy->model || dt_route_x_read(copy)) {
		dt_route_x_free(copy);
	} else {
		dt_route_x_count(copy);
		dt_route_x_try(copy, false);
	}
}

/* Charges the tenant's quotas; false: refused, with 400 if it can never be admitted. */
static bool charge(struct dt_route_x *x)
{
	struct dt_router *r = x->r;
	double whole = dt_route_limit_below(r, x->tenant, x->asks), wait = 0, taken = 0, asks = x->asks;

	if (whole == 0)
		wait = dt_route_limit_take(r, x->tenant, x->quota, &taken);
	x->quota = taken;
	if (whole == 0 && wait == 0)
		return true;
	r->stats.limited++;
	r->tenant[x->tenant].n_refused++;
	if (whole > 0)
		dt_route_x_fail(x, 400, "request_over_quota", 0,
				"the request needs %.0f tokens, more than the whole quota of %.0f per minute",
				asks, whole);
	else
		dt_route_x_fail(x, 429, "rate_limit_exceeded", (int)fmin(ceil(wait), 3600),
				"the quota of tenant '%s' is used up", r->tenant[x->tenant].name);
	return false;
}

void dt_route_x_start(struct dt_route_x *x)
{
	struct dt_router *r = x->r;
	const char *why = dt_route_x_read(x);
	const struct dt_route_name *name;

	dt_route_x_count(x);
	x->state = DT_X_TRYING;
	x->deadline = dt_now() + r->conf.request_timeout;
	if (why) {
		dt_route_x_fail(x, 400, "invalid_request", 0, "%s", why);
		return;
	}
	if (!charge(x))
		return;
	r->budget = fmin(r->budget + r->conf.retry_budget, BUDGET_MOST);
	r->tenant[x->tenant].n_requests++;
	name = dt_route_x_name(x);
	if (name)
		shadow(x, name);
	if (r->nqueue > 0 &&
	    dt_route_choice_mark(x, dt_now()) != DT_ROUTE_UNKNOWN) { /* do not overtake waiting requests */
		dt_route_x_wait(x);
		dt_route_x_run_queue(r);
	} else {
		dt_route_x_try(x, false);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
