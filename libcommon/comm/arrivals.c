#include "comm/arrivals.h"

#include <errno.h>
#include <stdlib.h>

struct dt_arrivals {
	struct dt_comm *c;
	int32_t own;
	struct {
		int32_t finished;
		struct dt_comm_req *in, *out;
	} peer[]; /* by rank; this rank's own is unused */
};

int dt_arrivals_open(struct dt_arrivals **ret, struct dt_comm *c, struct dt_err *err)
{
	struct dt_arrivals *a = calloc(1, sizeof(*a) + (size_t)dt_comm_size(c) * sizeof(a->peer[0]));

	if (!a)
		return dt_err_sys(err, -ENOMEM, "cannot follow which ranks have finished");
	a->c = c;
	*ret = a;
	return 0;
}

void dt_arrivals_close(struct dt_arrivals *a)
{
	free(a);
}

static bool is_other(const struct dt_arrivals *a, int rank)
{
	return rank != dt_comm_rank(a->c);
}

int dt_arrivals_begin(struct dt_arrivals *a, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < dt_comm_size(a->c) && rc == 0; i++)
		if (is_other(a, i))
			rc = dt_irecv(a->c, &a->peer[i].finished, 1, DT_I32, i, 0, "ranks that have finished",
				      &a->peer[i].in, err);
	return rc;
}

int dt_arrivals_count(const struct dt_arrivals *a)
{
	int n = 0;

	for (int i = 0; i < dt_comm_size(a->c); i++)
		n += is_other(a, i) && dt_comm_done(a->peer[i].in) && a->peer[i].finished;
	return n;
}

int dt_arrivals_say(struct dt_arrivals *a, bool finished, struct dt_err *err)
{
	int rc = 0;

	a->own = finished;
	for (int i = 0; i < dt_comm_size(a->c) && rc == 0; i++)
		if (is_other(a, i))
			rc = dt_isend(a->c, &a->own, 1, DT_I32, i, 0, "ranks that have finished",
				      &a->peer[i].out, err);
	return rc;
}

int dt_arrivals_end(struct dt_arrivals *a, int *ret, struct dt_err *err)
{
	int rc = 0, n = a->own;

	for (int i = 0; i < dt_comm_size(a->c) && rc == 0; i++) {
		if (!is_other(a, i))
			continue;
		rc = dt_wait(&a->peer[i].in, NULL, err);
		if (rc == 0)
			rc = dt_wait(&a->peer[i].out, NULL, err);
		n += a->peer[i].finished;
	}
	if (rc == 0)
		*ret = n;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
