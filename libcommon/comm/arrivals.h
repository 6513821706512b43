/*
 * Counts the ranks that have finished. In each round every rank reports once whether it has finished its part
 * or has given it up, and can see at any time, without waiting, how many others have finished. A round costs
 * each rank p - 1 messages of four bytes.
 */
#ifndef DT_COMM_ARRIVALS_H
#define DT_COMM_ARRIVALS_H

#include "comm/comm.h"

struct dt_arrivals;

/* c must outlive it. Not collective. */
int dt_arrivals_open(struct dt_arrivals **ret, struct dt_comm *c, struct dt_err *err);
/* No round is under way. NULL is fine. */
void dt_arrivals_close(struct dt_arrivals *a);

int dt_arrivals_begin(struct dt_arrivals *a, struct dt_err *err);
/* The number of other ranks known to have finished. dt_comm_poll receives their reports. */
int dt_arrivals_count(const struct dt_arrivals *a);
/* Reports this rank to the others, once per round. */
int dt_arrivals_say(struct dt_arrivals *a, bool finished, struct dt_err *err);
/* Waits for the reports of all ranks. *ret: number of ranks that have finished, this one included. */
int dt_arrivals_end(struct dt_arrivals *a, int *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
