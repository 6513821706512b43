/*
 * The key file: one bearer key a line, with what its holder is entitled to:
 *   KEY [tenant=NAME] [weight=W] [priority=P] [tokens-per-minute=N] [requests-per-minute=N] [admin=yes]
 * Keys of one tenant share its limits; a key without a tenant is one of its own. Of several lines of one
 * tenant the last that says something counts. Empty lines and lines that begin with # are skipped.
 */
#ifndef DT_BASE_KEYFILE_H
#define DT_BASE_KEYFILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dt_key_tenant {
	char name[64];
	double weight;		 /* of its share, > 0 */
	int priority;		 /* higher goes first */
	double tokens, requests; /* a minute, 0: no limit */
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
	char *text;		    /* of the file: keys point into it */
	uint32_t *by_key, *by_name; /* hash tables of numbers, 0: free */
	size_t cap_by_key, cap_by_name;
};

/* -EINVAL with the line that is wrong; a file without a key is wrong, and one that has a key twice. */
int dt_keyfile_read(const char *path, struct dt_keyfile *ret, struct dt_err *err);
/* Adds a key, which outlives f, with a tenant of its own. -EINVAL: the key is empty or has white space. */
int dt_keyfile_add(struct dt_keyfile *f, const char *key, struct dt_err *err);
void dt_keyfile_release(struct dt_keyfile *f);

/*
 * The number of the key that is these n bytes, or -1. Its time says nothing of how much of a key was
 * right.
 */
int dt_keyfile_find(const struct dt_keyfile *f, const char *key, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
