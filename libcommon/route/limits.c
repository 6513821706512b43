/* Tenants: their limits, and what is left of their quotas after a change of configuration. */
#include "base/progress.h"
#include "route/priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keeps what is left of a quota, unless its rate has changed. */
static struct dt_quota carry(const struct dt_quota *old, double rate, double now)
{
	return old && old->rate == rate ? *old : dt_quota_full(rate, now);
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(struct dt_route_tenant *const *)a)->name,
		      (*(struct dt_route_tenant *const *)b)->name);
}

int dt_route_tenants_make(const struct dt_router *r, const struct dt_keyfile *keys,
			  struct dt_route_tenant **ret, struct dt_err *err)
{
	int n = keys->ntenants + 1;
	struct dt_route_tenant *made = calloc((size_t)n, sizeof(*made));
	struct dt_route_tenant **sorted = calloc((size_t)r->ntenants + 1, sizeof(*sorted));
	double now = dt_now();

	if (!made || !sorted) {
		free(made);
		free(sorted);
		return dt_err_sys(err, -ENOMEM, "cannot take the keys");
	}
	for (int i = 0; i < r->ntenants; i++)
		sorted[i] = &r->tenant[i];
	qsort(sorted, (size_t)r->ntenants, sizeof(*sorted), by_name);
	for (int i = 0; i < n; i++) {
		struct dt_key_tenant none = {.weight = 1};
		const struct dt_key_tenant *from = i < keys->ntenants ? &keys->tenant[i] : &none;
		struct dt_route_tenant *t = &made[i], **old;

		memcpy(t->name, from->name, sizeof(t->name));
		old = r->ntenants ? bsearch(&t, sorted, (size_t)r->ntenants, sizeof(*sorted), by_name) : NULL;
		if (old)
			*t = **old;
		t->weight = from->weight;
		t->priority = from->priority;
		t->waiting = 0;
		t->tokens = carry(old ? &(*old)->tokens : NULL, from->tokens, now);
		t->requests = carry(old ? &(*old)->requests : NULL, from->requests, now);
	}
	free(sorted);
	*ret = made;
	return n;
}

void dt_route_tenants_take(struct dt_router *r, struct dt_route_tenant *made, int n)
{
	/* running requests keep their tenant by name; those of removed tenants continue without one */
	for (struct dt_route_x *x = TAILQ_FIRST(&r->all); x; x = TAILQ_NEXT(x, in_all)) {
		const char *name = r->tenant[x->tenant].name;
		int at = n - 1;

		for (int i = 0; i < n - 1 && at == n - 1; i++)
			if (!strcmp(made[i].name, name))
				at = i;
		x->tenant = at;
		made[at].waiting += x->state == DT_X_QUEUED;
	}
	free(r->tenant);
	r->tenant = made;
	r->ntenants = n;
}

double dt_route_limit_take(struct dt_router *r, int tenant, double tokens, double *ret_taken)
{
	struct dt_route_tenant *t = &r->tenant[tenant];
	double now = dt_now(), wait;

	*ret_taken = 0;
	wait = dt_quota_take(&t->requests, 1, now);
	if (wait > 0)
		return wait;
	tokens = t->tokens.rate > 0 ? fmin(tokens, t->tokens.rate) : 0;
	wait = dt_quota_take(&t->tokens, tokens, now);
	if (wait > 0)
		dt_quota_give(&t->requests, 1, now);
	else
		*ret_taken = tokens;
	return wait;
}

double dt_route_limit_below(const struct dt_router *r, int tenant, double tokens)
{
	double rate = r->tenant[tenant].tokens.rate;

	return rate > 0 && tokens > rate ? rate : 0;
}

static int one(char *buf, size_t n, const char *what, const struct dt_quota *q, double now)
{
	double left = fmin(q->tokens + (now - q->at) * q->rate / 60, q->rate);

	if (q->rate <= 0)
		return 0;
	return snprintf(buf, n,
			"X-RateLimit-Limit-%s: %.0f\r\nX-RateLimit-Remaining-%s: "
			"%.0f\r\nX-RateLimit-Reset-%s: %.3fs\r\n",
			what, q->rate, what, fmax(floor(left), 0), what, (q->rate - left) * 60 / q->rate);
}

int dt_route_limit_headers(const struct dt_router *r, int tenant, char *buf, size_t n)
{
	const struct dt_route_tenant *t = &r->tenant[tenant];
	double now = dt_now();
	int k;

	*buf = '\0';
	k = one(buf, n, "Requests", &t->requests, now);
	return k + one(buf + k, n - (size_t)k, "Tokens", &t->tokens, now);
}
/* SPDX-License-Identifier: Apache-2.0 */
