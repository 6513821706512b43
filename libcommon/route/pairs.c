/*
 * Disaggregated prefill: servers that compute prompts for others (dt-serve --role prefill). A server's role
 * is in its /health. A prefill server gets no requests; instead its URL is put into requests to a decode
 * server if enough of the prompt is probably not in that server's cache. It is chosen by the same policy as
 * servers for requests, and counts as busy until the first byte of the response. The URL is a hint: the
 * decode server asks only prefill servers that it was started with, and computes itself what does not arrive.
 */
#include "base/json.h"
#include "base/progress.h"
#include "route/priv.h"

#include <string.h>

#define BLOCK_TOKENS 64. /* as in balance.c */

static enum dt_route_role role_of(const char *name)
{
	return !name			  ? DT_ROUTE_ALONE
	       : !strcmp(name, "prefill") ? DT_ROUTE_PREFILLS
	       : !strcmp(name, "decode")  ? DT_ROUTE_DECODES
	       : !strcmp(name, "both")	  ? DT_ROUTE_BOTH
					  : DT_ROUTE_ALONE;
}

const char *dt_route_role_name(const struct dt_route_server *s)
{
	static const char *const name[] = {"none", "both", "prefill", "decode"};

	return name[s->role];
}

void dt_route_take_role(struct dt_route_server *s, const char *health, size_t n)
{
	json_t *o = json_loadb(health, n, 0, NULL);
	const enum dt_route_role role = role_of(json_string_value(json_object_get(o, "role")));

	json_decref(o);
	if (role == s->role)
		return;
	s->role = role;
	dt_route_server_changed(s);
	dt_log_msg(s->r->p.log, "%s has the role '%s'", s->conf.url, dt_route_role_name(s));
	dt_route_events_stop(s); /* requests to a prefill server carry no marks */
}

/* Estimate of the prompt tokens that the chosen server has not cached. */
static double missing(const struct dt_route_x *x, const struct dt_balance_choice *c)
{
	return x->nhash > 0 ? (x->nhash - c->matched) * BLOCK_TOKENS : (double)x->body.n / 4;
}

void dt_route_pair(struct dt_route_x *x, struct dt_route_line *l, const struct dt_balance_ask *ask)
{
	struct dt_router *r = x->r;
	const enum dt_route_role role = l->server->role;

	l->pair.server = -1;
	if (!x->cached || (role != DT_ROUTE_BOTH && role != DT_ROUTE_DECODES) ||
	    missing(x, &l->choice) < r->conf.prefill_least)
		return;
	dt_route_choice_mark_prefills(x, ask->now);
	l->pair = dt_balance_take(&r->balance, ask);
	if (l->pair.server >= 0) {
		r->server[l->pair.server]->nlines++; /* keeps its number from being reused */
		r->server[l->pair.server]->n_requests++;
	}
}

void dt_route_unpair(struct dt_route_line *l)
{
	if (l->pair.server < 0)
		return;
	dt_balance_give(&l->server->r->balance, &l->pair, -1);
	l->server->r->server[l->pair.server]->nlines--;
	l->pair.server = -1;
}

size_t dt_route_pair_member(const struct dt_route_line *l, char *text, size_t room)
{
	const char *url = l->pair.server < 0 ? NULL : l->server->r->server[l->pair.server]->conf.url;
	int n;

	if (!url || strpbrk(url, "\"\\"))
		return 0;
	n = snprintf(text, room, "\"kv_prefill\":\"%s%s\",", strstr(url, "://") ? "" : "http://", url);
	return n < 0 || (size_t)n >= room ? 0 : (size_t)n;
}
/* SPDX-License-Identifier: Apache-2.0 */
