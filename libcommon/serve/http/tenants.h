/* Converts the keys of a key file (base/keyfile.h) to the server's bearer keys and the engine's tenants. */
#ifndef DT_SERVE_TENANTS_H
#define DT_SERVE_TENANTS_H

#include "base/keyfile.h"
#include "serve/http/http.h"

struct dt_tenants {
	struct dt_keyfile file;
	struct dt_api_key *key;	  /* [file.nkeys] */
	struct dt_tenant *tenant; /* [file.ntenants] */
};

/* path: a key file, NULL: none. more [n]: additional keys, which outlive t, each with its own tenant. */
int dt_tenants_open(struct dt_tenants *t, const char *path, const char *const *more, int n,
		    struct dt_err *err);
void dt_tenants_release(struct dt_tenants *t);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
