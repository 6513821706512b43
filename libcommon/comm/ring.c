#include "comm/comm.h"

int dt_ring_exchange(struct dt_comm *c, const void *buf, void *const into[2], size_t n, enum dt_dtype t,
		     const char *what, struct dt_err *err)
{
	const int size = dt_comm_size(c), rank = dt_comm_rank(c), others = size > 2 ? 2 : size - 1;
	const int peer[2] = {(rank + size - 1) % size, (rank + 1) % size};
	struct dt_comm_req *req[4] = {NULL};
	int rc = 0;

	for (int k = 0; k < others && rc == 0; k++)
		rc = dt_irecv(c, into[k], n, t, peer[k], 0, what, &req[k], err);
	for (int k = 0; k < others && rc == 0; k++)
		rc = dt_isend(c, buf, n, t, peer[k], 0, what, &req[2 + k], err);
	for (int k = 0; k < 4 && rc == 0; k++)
		rc = dt_wait(&req[k], NULL, err);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
