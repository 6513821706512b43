/*
 * A router in front of servers of the OpenAI API: one thread, one event loop. It reads a request completely,
 * sends it to the server that the policy chooses, and forwards the response. Until the first byte has gone to
 * the client, a failed attempt is retried on another server.
 */
#ifndef DT_ROUTE_ROUTER_H
#define DT_ROUTE_ROUTER_H

#include "base/log.h"
#include "route/conf.h"

struct dt_router;

struct dt_route_params {
	const char *host;	   /* address to listen on; unused with an inherited socket */
	int port;		   /* 0: any free one */
	struct dt_route_args args; /* used again on SIGHUP; outlives the router */
	const struct dt_log *log;
	char *const *argv; /* of the program, to restart it on SIGUSR2 */
};

/*
 * Reads the configuration and listens. Uses a socket inherited from systemd (LISTEN_FDS) or from the router
 * that this one replaces, if there is one.
 */
int dt_route_open(struct dt_router **ret, const struct dt_route_params *p, struct dt_err *err);
/* "http://127.0.0.1:8080" */
const char *dt_route_url(const struct dt_router *r);
/*
 * Runs until SIGTERM or SIGINT, then until running requests are done. SIGHUP reads the configuration again.
 * SIGUSR2 starts the program anew on the same socket and ends this one when the new one is ready. -EINTR: a
 * second signal ended it with requests unfinished.
 */
int dt_route_run(struct dt_router *r, struct dt_err *err);
void dt_route_close(struct dt_router *r);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
