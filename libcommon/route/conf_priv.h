/* What conf.c and conf_server.c share; not for others. */
#ifndef DT_ROUTE_CONF_PRIV_H
#define DT_ROUTE_CONF_PRIV_H

#include "route/conf.h"

/* o is an object with keys of `known` alone, which ends with NULL; -EINVAL. */
int dt_route_conf_keys(const json_t *o, const char *const *known, struct dt_err *err);
/* A number within min and max; *ret stays where o has no such key. -EINVAL. */
int dt_route_conf_real(const json_t *o, const char *key, double min, double max, double *ret,
		       struct dt_err *err);
/* conf_server.c: one more server, or several behind one name. -EINVAL, -ENOMEM. */
int dt_route_conf_server(struct dt_route_conf *c, const json_t *o, struct dt_err *err);
/* The last server's address. -EINVAL. */
int dt_route_conf_url(struct dt_route_conf *c, const char *given, bool each, struct dt_err *err);
/* A server without an address; NULL after a message. */
struct dt_route_server_conf *dt_route_conf_new(struct dt_route_conf *c, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
