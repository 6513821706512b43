/*
 * Replaces the configuration. Everything that can fail is prepared first and changes nothing; what follows
 * cannot fail.
 */
#include "route/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct plan {
	struct dt_prefix *prefix; /* a new index; NULL: none is needed, or there is one already */
	struct dt_route_tenant *tenant;
	int ntenants;
	int place[DT_PREFIX_SERVERS];				 /* number of each configured server */
	struct dt_route_server *made[DT_PREFIX_SERVERS];	 /* new servers */
	bool stays[DT_PREFIX_SERVERS], taken[DT_PREFIX_SERVERS]; /* by server number */
};

static void plan_release(struct plan *p)
{
	for (int k = 0; k < DT_PREFIX_SERVERS; k++)
		if (p->made[k])
			dt_route_server_free(p->made[k]);
	dt_prefix_free(p->prefix);
	free(p->tenant);
}

static int server_of(const struct dt_router *r, const char *url)
{
	for (int i = 0; i < r->balance.n; i++)
		if (r->server[i] && !r->server[i]->gone && !strcmp(r->server[i]->conf.url, url))
			return i;
	return -1;
}

/* A free number, else that of a server which leaves and has no requests; -1: there is none. */
static int find_place(const struct dt_router *r, const struct plan *p)
{
	for (int i = 0; i < DT_PREFIX_SERVERS; i++)
		if (!r->server[i] && !p->taken[i])
			return i;
	for (int i = 0; i < DT_PREFIX_SERVERS; i++)
		if (!p->stays[i] && !p->taken[i] && r->server[i]->nlines == r->server[i]->nidle)
			return i;
	return -1;
}

static int no_place(const struct dt_router *r, const struct plan *p, int wanted, struct dt_err *err)
{
	int held = 0;

	for (int i = 0; i < DT_PREFIX_SERVERS; i++)
		held += r->server[i] && !p->stays[i] && r->server[i]->nlines > r->server[i]->nidle;
	return dt_err_set(
		err, -EBUSY,
		"the new configuration names %d servers, but %d of the %d places are held by servers "
		"that leave and still answer requests; send SIGHUP again once they have ended",
		wanted, held, DT_PREFIX_SERVERS);
}

static int plan_servers(struct dt_router *r, struct plan *p, struct dt_route_conf *c, struct dt_err *err)
{
	for (int k = 0; k < c->nservers; k++) {
		p->place[k] = server_of(r, c->server[k].url);
		if (p->place[k] >= 0)
			p->stays[p->place[k]] = p->taken[p->place[k]] = true;
	}
	for (int k = 0; k < c->nservers; k++) {
		if (p->place[k] < 0)
			p->place[k] = find_place(r, p);
		if (p->place[k] < 0)
			return no_place(r, p, c->nservers, err);
		p->taken[p->place[k]] = true;
		p->made[k] = dt_route_server_new(r, p->place[k], &c->server[k]);
		if (!p->made[k])
			return dt_err_sys(err, -ENOMEM, "cannot take the configuration");
	}
	return 0;
}

static int make(struct dt_router *r, struct plan *p, struct dt_route_conf *c, struct dt_err *err)
{
	if (c->policy == DT_BALANCE_CACHE && !r->prefix) {
		p->prefix = dt_prefix_new((uint32_t)c->index_blocks, c->index_age);
		if (!p->prefix)
			return dt_err_sys(err, -ENOMEM, "cannot make the prefix index");
	}
	p->ntenants = dt_route_tenants_make(r, &c->keys, &p->tenant, err);
	return p->ntenants < 0 ? p->ntenants : plan_servers(r, p, c, err);
}

/* The server keeps its health and number, and its lines at the same address; its parameters are replaced. */
static void stay(struct dt_route_server *s, struct dt_route_server *made)
{
	struct dt_route_server_conf text = s->conf;
	const bool moved =
		text.addrlen != made->conf.addrlen || memcmp(&text.addr, &made->conf.addr, text.addrlen) != 0;

	if (s->conf.drained != made->conf.drained)
		s->drained = made->conf.drained;
	s->conf = made->conf;
	made->conf = text; /* so that the old strings are freed with it */
	dt_route_server_free(made);
	dt_balance_change(&s->r->balance, s->number, s->conf.weight, s->conf.most);
	dt_route_server_changed(s);
	if (moved)
		dt_route_server_moved(s);
}

static void enter(struct dt_router *r, struct dt_route_server *s)
{
	const struct dt_route_server_conf *c = &s->conf;

	if (r->server[s->number])
		dt_route_server_remove(r, s->number);
	r->server[s->number] = s;
	dt_balance_add(&r->balance, s->number, dt_prefix_hash(7, c->url, strlen(c->url)), c->weight, c->most);
	dt_route_server_changed(s);
	if (s->number >= r->balance.n)
		r->balance.n = s->number + 1;
}

static void commit(struct dt_router *r, struct plan *p, struct dt_route_conf *c)
{
	dt_route_tenants_take(r, p->tenant, p->ntenants);
	if (p->prefix)
		r->prefix = p->prefix;
	for (int i = 0; i < r->balance.n; i++)
		if (r->server[i] && !p->stays[i])
			dt_route_server_leave(r->server[i]);
	for (int k = 0; k < c->nservers; k++)
		if (p->stays[p->place[k]])
			stay(r->server[p->place[k]], p->made[k]);
		else
			enter(r, p->made[k]);
	r->balance.policy = c->policy;
	r->balance.prefix = c->policy == DT_BALANCE_CACHE ? r->prefix : NULL;
	dt_route_conf_release(&r->conf);
	r->conf = *c;
	dt_route_books_open(r);
}

int dt_route_apply(struct dt_router *r, struct dt_route_conf *c, struct dt_err *err)
{
	struct plan p = {0};
	int rc = make(r, &p, c, err);

	if (rc < 0) {
		plan_release(&p);
		dt_route_conf_release(c);
		return rc;
	}
	commit(r, &p, c);
	return 0;
}

void dt_route_reload(struct dt_router *r)
{
	struct dt_route_conf c;
	struct dt_err err;

	if (dt_route_conf_read(&c, &r->p.args, &err) < 0 || dt_route_apply(r, &c, &err) < 0) {
		dt_log_err(r->p.log, &err);
		dt_log_msg(r->p.log, "keeping the old configuration");
		return;
	}
	r->stats.reloads++;
	dt_log_msg(r->p.log, "reloaded the configuration: %d server%s", r->conf.nservers,
		   r->conf.nservers == 1 ? "" : "s");
	dt_route_x_run_queue(r);
}
/* SPDX-License-Identifier: Apache-2.0 */
