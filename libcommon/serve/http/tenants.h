/*
 * Keys of a key file (base/keyfile.h) as the server and its engine take them: bearer keys, and tenants
 * with shares.
 */
#ifndef DT_SERVE_TENANTS_H
#define DT_SERVE_TENANTS_H

#include "base/keyfile.h"
#include "serve/http/http.h"

struct dt_tenants {
	struct dt_keyfile file;
	struct dt_api_key *key;	  /* [file.nkeys] */
	struct dt_tenant *tenant; /* [file.ntenants] */
};

/* path: of a key file, NULL: none. more [n]: keys that outlive t, each with a tenant of its own. */
int dt_tenants_open(struct dt_tenants *t, const char *path, const char *const *more, int n,
		    struct dt_err *err);
void dt_tenants_release(struct dt_tenants *t);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
