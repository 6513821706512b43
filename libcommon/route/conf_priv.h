/* Shared by conf.c and conf_server.c. */
#ifndef DT_ROUTE_CONF_PRIV_H
#define DT_ROUTE_CONF_PRIV_H

#include "route/conf.h"

/* Reads a number within min and max; leaves *ret unchanged if o has no such key. -EINVAL. */
int dt_route_conf_real(const json_t *o, const char *key, double min, double max, double *ret,
		       struct dt_err *err);
/* conf_server.c: adds a server, or several behind one name. -EINVAL, -ENOMEM. */
int dt_route_conf_server(struct dt_route_conf *c, const json_t *o, struct dt_err *err);
/* Sets the last server's address from a URL. -EINVAL. */
int dt_route_conf_url(struct dt_route_conf *c, const char *given, bool each, struct dt_err *err);
/* Appends a server without an address; NULL: err is set. */
struct dt_route_server_conf *dt_route_conf_new(struct dt_route_conf *c, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
