/*
 * A router before servers of the OpenAI API: one thread, one event loop. A client's request is read whole,
 * given to a server that the policy chooses, and the answer passed on; until its first byte has gone to the
 * client a failure is tried again elsewhere.
 */
#ifndef DT_ROUTE_ROUTER_H
#define DT_ROUTE_ROUTER_H

#include "base/log.h"
#include "route/conf.h"

struct dt_router;

struct dt_route_params {
	const char *host;	   /* to listen on; not with a socket that was passed on */
	int port;		   /* 0: any free one */
	struct dt_route_args args; /* what is read again on SIGHUP; outlives the router */
	const struct dt_log *log;
	char *const *argv; /* of the program, for SIGUSR2 */
};

/*
 * Reads the configuration and listens, on a socket passed on by systemd (LISTEN_FDS) or by the router that
 * this one replaces, where there is one.
 */
int dt_route_open(struct dt_router **ret, const struct dt_route_params *p, struct dt_err *err);
/* "http://127.0.0.1:8080" */
const char *dt_route_url(const struct dt_router *r);
/*
 * Until SIGTERM or SIGINT, then until what runs is done. SIGHUP reads the configuration again, SIGUSR2
 * starts the program anew on the same socket and ends when that one is ready. -EINTR: a second signal ended
 * it with requests unfinished.
 */
int dt_route_run(struct dt_router *r, struct dt_err *err);
void dt_route_close(struct dt_router *r);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
