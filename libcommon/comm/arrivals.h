/*
 * Who is done first. In each round every rank says once whether it has finished its part or has given it up,
 * and sees at any time how many others have finished, without waiting for anybody. A round is p - 1 messages
 * of four bytes a rank.
 */
#ifndef DT_COMM_ARRIVALS_H
#define DT_COMM_ARRIVALS_H

#include "comm/comm.h"

struct dt_arrivals;

/* c outlives it. Not collective. */
int dt_arrivals_open(struct dt_arrivals **ret, struct dt_comm *c, struct dt_err *err);
/* No round is under way. NULL is fine. */
void dt_arrivals_close(struct dt_arrivals *a);

int dt_arrivals_begin(struct dt_arrivals *a, struct dt_err *err);
/* Other ranks that have finished, as far as is known here: dt_comm_poll brings the news. */
int dt_arrivals_count(const struct dt_arrivals *a);
/* Once a round. */
int dt_arrivals_say(struct dt_arrivals *a, bool finished, struct dt_err *err);
/* Waits until every rank has said so; *ret: ranks that have finished, this one included. */
int dt_arrivals_end(struct dt_arrivals *a, int *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
