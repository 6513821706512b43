/*
 * Host names of servers. A thread beside the loop looks them up periodically; when the addresses of one have
 * changed, the configuration is read again. So a server that restarts at another address is found, and every
 * address of a name with `each` is a server as long as the name has it.
 */
#include "base/progress.h"
#include "route/priv.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dt_route_lookup {
	struct gaicb request;
	struct addrinfo hint;
	char host[256], port[8];
};

static struct dt_route_lookup *begin(const struct dt_route_watched *w)
{
	struct dt_route_lookup *l = calloc(1, sizeof(*l));
	struct gaicb *list[1];

	if (!l)
		return NULL;
	memcpy(l->host, w->host, sizeof(l->host));
	memcpy(l->port, w->port, sizeof(l->port));
	l->hint.ai_socktype = SOCK_STREAM;
	l->request = (struct gaicb){.ar_name = l->host, .ar_service = l->port, .ar_request = &l->hint};
	list[0] = &l->request;
	if (getaddrinfo_a(GAI_NOWAIT, list, 1, NULL) != 0) {
		free(l);
		return NULL;
	}
	return l;
}

/* 0: not done yet; 1: *ret is the hash of its addresses; -1: the name server did not answer. */
static int end(struct dt_route_lookup *l, uint64_t *ret)
{
	int rc = gai_error(&l->request);

	if (rc == EAI_INPROGRESS)
		return 0;
	*ret = dt_route_conf_sum(rc == 0 ? l->request.ar_result : NULL);
	if (rc == 0)
		freeaddrinfo(l->request.ar_result);
	free(l);
	return rc == 0 || rc == EAI_NONAME || rc == EAI_NODATA ? 1 : -1;
}

bool dt_route_names_tick(struct dt_router *r, double now)
{
	struct dt_route_watched *w;
	bool changed = false;

	if (r->lookup) {
		uint64_t sum = 0;
		int rc = end(r->lookup, &sum);

		if (rc == 0)
			return false;
		r->lookup = NULL;
		w = r->next_name < r->conf.nwatched ? &r->conf.watched[r->next_name] : NULL;
		changed = w && rc > 0 && r->names_of == r->stats.reloads && sum != w->sum;
		/* a name without addresses keeps its old ones, except with `each` */
		changed = changed && (w->each || sum != 1);
		r->next_name++;
		if (changed)
			return true;
	}
	if (r->next_name >= r->conf.nwatched) {
		r->next_name = 0;
		r->next_lookup = now + r->conf.resolve;
	}
	if (r->conf.nwatched == 0 || r->conf.resolve == 0 || now < r->next_lookup)
		return false;
	r->names_of = r->stats.reloads;
	r->lookup = begin(&r->conf.watched[r->next_name]);
	return false;
}

void dt_route_names_stop(struct dt_router *r)
{
	const struct timespec most = {.tv_sec = 5};
	const struct gaicb *list[1];
	uint64_t sum;

	if (!r->lookup)
		return;
	list[0] = &r->lookup->request;
	if (gai_cancel(&r->lookup->request) == EAI_NOTCANCELED)
		gai_suspend(list, 1, &most); /* its memory is in use until then */
	if (gai_error(&r->lookup->request) != EAI_CANCELED)
		end(r->lookup, &sum);
	else
		free(r->lookup);
	r->lookup = NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
