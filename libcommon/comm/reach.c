/* Addresses of other ranks' registered memory, for direct access without messages. */
#include "comm/internal.h"

#include <errno.h>
#include <stdlib.h>

double dt_world_timeout(const struct dt_world *w)
{
	return w->opts.timeout_s;
}

int dt_buffer_reach(struct dt_comm *c, void *p, size_t bytes, char **ret, struct dt_err *err)
{
	struct dt_comm_offer *o = calloc((size_t)c->size, sizeof(*o));
	bool all = true;
	int rc = o ? 0 : dt_err_sys(err, -ENOMEM, "memory of %d ranks", c->size);

	if (rc == 0)
		o[c->rank] = dt_comm_region_find(c->w, p, bytes);
	if (rc == 0 && c->size > 1)
		rc = dt_all_gather(c, o, NULL, sizeof(*o), DT_U8, "where memory is", err);
	for (int r = 0; r < c->size && rc == 0 && c->size > 1; r++)
		all &= c->local[r] >= 0 && o[r].region >= 0;
	if (rc == 0 && !all)
		rc = dt_err_set(err, -ENOTSUP, "not all ranks share this memory on one machine");
	for (int r = 0; r < c->size && rc == 0; r++)
		if (r == c->rank)
			ret[r] = p;
		else
			rc = dt_comm_region_reach(c->w, c->local[r], &o[r], &ret[r], err);
	free(o);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
