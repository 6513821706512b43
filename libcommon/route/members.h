/*
 * Finds members of a JSON object in its text without parsing their values: a router reads a prompt of a
 * megabyte only to hash it. The text is validated only as far as that requires.
 */
#ifndef DT_ROUTE_MEMBERS_H
#define DT_ROUTE_MEMBERS_H

#include "route/http1.h"

struct dt_route_member {
	const char *name;	    /* name to find */
	struct dt_route_text value; /* raw text of the value; s NULL: not found */
};

/*
 * Fills in the values of members [n]. Returns NULL, or what is wrong: the text is no object, a name of the
 * table occurs twice, or a name contains an escape, so that another parser could read it as a name of the
 * table.
 */
const char *dt_route_members(const char *s, size_t size, struct dt_route_member *member, int n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
