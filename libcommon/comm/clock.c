/* One clock for all ranks: each machine's monotonic clock starts at its own time. */
#include "comm/internal.h"

#include "base/progress.h"

#include <math.h>

enum { ROUNDS = 16, TAG = 1 };

/* On rank 0: replies with its clock to `peer`. */
static int answer(struct dt_comm *c, int peer, struct dt_err *err)
{
	double asked, now;
	int rc = 0;

	for (int i = 0; i < ROUNDS && rc == 0; i++) {
		rc = dt_recv(c, &asked, 1, DT_F64, peer, TAG, "clock", err);
		now = dt_now();
		if (rc == 0)
			rc = dt_send(c, &now, 1, DT_F64, peer, TAG, "clock", err);
	}
	return rc;
}

/*
 * Of ROUNDS exchanges the one with the shortest round trip counts; half of that bounds the error (Cristian,
 * Probabilistic clock synchronization, 1989).
 */
static int ask(struct dt_comm *c, double *ret, double *ret_error, struct dt_err *err)
{
	double best = INFINITY, there = 0;
	int rc = 0;

	for (int i = 0; i < ROUNDS && rc == 0; i++) {
		double t0 = dt_now(), t1;

		rc = dt_send(c, &t0, 1, DT_F64, 0, TAG, "clock", err);
		if (rc == 0)
			rc = dt_recv(c, &there, 1, DT_F64, 0, TAG, "clock", err);
		t1 = dt_now();
		if (rc == 0 && t1 - t0 < best) {
			best = t1 - t0;
			*ret = there - (t0 + t1) / 2;
			*ret_error = best / 2;
		}
	}
	return rc;
}

int dt_comm_clock(struct dt_comm *c, double *ret, double *ret_error, struct dt_err *err)
{
	double error = 0, offset = 0;
	int rc = 0;

	for (int r = 1; r < c->size && rc == 0; r++) {
		if (c->rank == 0)
			rc = answer(c, r, err);
		else if (c->rank == r)
			rc = ask(c, &offset, &error, err);
	}
	if (rc < 0)
		return rc;
	/* Ranks of one machine read the same clock. */
	if (c->w->node_of && c->w->node_of[c->ranks[0]] == c->w->node_of[c->ranks[c->rank]])
		offset = error = 0;
	*ret = offset;
	*ret_error = error;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
