/*
 * The key file: one bearer key a line, with what its holder is entitled to:
 *   KEY [tenant=NAME] [weight=W] [priority=P] [tokens-per-minute=N]
 * Keys of one tenant share its queue, its quota and its cached prefixes; a key without a tenant is one of its
 * own. Empty lines and lines that begin with # are skipped.
 */
#ifndef DT_SERVE_TENANTS_H
#define DT_SERVE_TENANTS_H

#include "serve/http/http.h"

struct dt_tenants {
	struct dt_api_key *key; /* [nkeys] */
	int nkeys;
	struct dt_tenant *tenant; /* [ntenants] */
	int ntenants;
	char *text; /* of the file: keys point into it */
};

/* -EINVAL with the line that is wrong; a file without a key is wrong. */
int dt_tenants_read(const char *path, struct dt_tenants *ret, struct dt_err *err);
/* Adds a key, which outlives t, with a tenant of its own. -EINVAL: the key is empty or has white space. */
int dt_tenants_add(struct dt_tenants *t, const char *key, struct dt_err *err);
void dt_tenants_release(struct dt_tenants *t);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
