#include "comm/comm.h"

#include <stddef.h>

int dt_comm_agree(struct dt_comm *c, int rc, bool *ret_reached, struct dt_err *err)
{
	int rank = dt_comm_rank(c), size = dt_comm_size(c);
	int32_t guilty = rc < 0 ? rank : size, code = rc;
	int now = dt_all_reduce(c, &guilty, NULL, 1, DT_I32, DT_MIN, "agreement on success", err);

	if (ret_reached)
		*ret_reached = now == 0;
	if (now < 0 || guilty == size)
		return now;
	now = dt_broadcast(c, &code, 1, DT_I32, guilty, "what failed", err);
	if (ret_reached)
		*ret_reached = now == 0;
	if (now < 0 || guilty == rank)
		return now < 0 ? now : rc;
	return dt_err_set(err, code, "%s", "");
}
/* SPDX-License-Identifier: Apache-2.0 */
