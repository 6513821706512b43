/*
 * Where the members of a JSON object stand in its text, without parsing what is inside them: a router reads a
 * prompt of a megabyte only to hash it. The text is not checked further than that takes.
 */
#ifndef DT_ROUTE_MEMBERS_H
#define DT_ROUTE_MEMBERS_H

#include "route/http1.h"

struct dt_route_member {
	const char *name;	    /* that is looked for */
	struct dt_route_text value; /* as it stands there; s NULL: it does not */
};

/*
 * Fills the values of members [n]. NULL, or what is wrong: this is no object, a name of the table stands
 * there twice, or one is written with an escape, so that another reader could take it for a name of the
 * table.
 */
const char *dt_route_members(const char *s, size_t size, struct dt_route_member *member, int n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
