/*
 * The key file: one bearer key a line, with its tenant's settings:
 *   KEY [tenant=NAME] [weight=W] [priority=P] [tokens-per-minute=N] [requests-per-minute=N] [admin=yes]
 * Keys of one tenant share its limits; a key without a tenant gets a tenant of its own. If several lines of a
 * tenant give settings, the last of them counts as a whole. Empty lines and lines that begin with # are
 * skipped.
 */
#ifndef DT_BASE_KEYFILE_H
#define DT_BASE_KEYFILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dt_key_tenant {
	char name[64];
	double weight;		 /* weight of its fair share, > 0 */
	int priority;		 /* higher is served first */
	double tokens, requests; /* limits a minute, 0: none */
};

struct dt_keyfile {
	struct dt_key {
		const char *key;
		int tenant;
		bool admin;
	} * key; /* [nkeys] */
	int nkeys, cap_keys;
	struct dt_key_tenant *tenant; /* [ntenants] */
	int ntenants, cap_tenants;
	char *text;		    /* contents of the file; keys point into it */
	uint32_t *by_key, *by_name; /* hash tables of indices + 1 into key and tenant, 0: free slot */
	size_t cap_by_key, cap_by_name;
};

/*
 * -EINVAL names the line that is wrong. A file without any key, or with the same key twice, is an error too.
 */
int dt_keyfile_read(const char *path, struct dt_keyfile *ret, struct dt_err *err);
/* Adds a key with a tenant of its own. key must outlive f. -EINVAL: it is empty or has white space. */
int dt_keyfile_add(struct dt_keyfile *f, const char *key, struct dt_err *err);
void dt_keyfile_release(struct dt_keyfile *f);

/*
 * Index of the key that equals these n bytes, or -1. The time it takes does not depend on how many leading
 * bytes match.
 */
int dt_keyfile_find(const struct dt_keyfile *f, const char *key, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
