/* The socket that clients connect to, and the limit of open files. */
#include "base/listen.h"
#include "base/progress.h"
#include "route/priv.h"

#include <string.h>
#include <unistd.h>

#define OWN_FILES 32  /* open files besides connections: accounting, event loop, std streams */
#define SAY_AGAIN 60. /* seconds before a continuing condition is logged again */

int dt_route_listen(struct dt_router *r, const char *host, int port, struct dt_err *err)
{
	int fd = dt_route_passed_socket(), rc;

	if (fd < 0)
		fd = dt_listen(host, port, err);
	if (fd < 0)
		return fd;
	rc = dt_listen_name(fd, "http", r->url, sizeof(r->url), &r->loopback, err);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	evutil_make_socket_nonblocking(fd);
	r->fd = fd;
	return 0;
}

void dt_route_need_files(struct dt_router *r)
{
	const struct dt_route_conf *c = &r->conf;
	/* a connection and a line for each client; two of the router's own for each server */
	const uint64_t need =
		2 * (uint64_t)c->connections + DT_ROUTE_BEYOND + 2 * (uint64_t)c->nservers + OWN_FILES;
	const uint64_t have = dt_raise_files();

	if (have < need)
		dt_log_msg(r->p.log,
			   "the limit of open files is %llu, but max_connections %d may need %llu: raise the "
			   "limit "
			   "(ulimit -Hn, LimitNOFILE=)",
			   (unsigned long long)have, c->connections, (unsigned long long)need);
}

void dt_route_say_lack(struct dt_router *r, int error)
{
	const double now = dt_now();

	if (r->said_lack > 0 && now < r->said_lack + SAY_AGAIN)
		return;
	r->said_lack = now;
	dt_log_msg(r->p.log, "accepting no connections for now: %s (%d client connections)", strerror(error),
		   r->nclients);
}
/* SPDX-License-Identifier: Apache-2.0 */
