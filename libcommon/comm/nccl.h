/* Operations on memory of cards over NCCL (nccl.c): the interface to the rest of comm/. */
#ifndef DT_COMM_NCCL_H
#define DT_COMM_NCCL_H

#include "comm/internal.h"

/*
 * Collective over the world. From now on operations go directly between CUDA devices; or *why is set to the
 * reason why they do not, a clause, the same on every rank.
 */
int dt_comm_nccl_open(struct dt_world *w, const char **why, struct dt_err *err);
/* Waits for pending operations and releases everything. Collective. */
void dt_comm_nccl_close(struct dt_world *w);
/* Creates and releases a group's part, before its first operation and after its last. */
int dt_comm_nccl_join(struct dt_comm *c, struct dt_err *err);
void dt_comm_nccl_leave(struct dt_comm *c);

/* The transport of an operation whose buffers are all on the card; NULL: they are not, or NCCL lacks it. */
const struct dt_comm_transport *dt_comm_nccl_transport(const struct dt_comm *c, const struct dt_comm_op *o);

/*
 * For the watchdog's thread. dt_comm_nccl_look returns 1 after an NCCL error (what: the message; at: the
 * operation) or when an operation has been pending on the card for more than timeout_s (what is empty);
 * otherwise 0.
 */
int dt_comm_nccl_look(struct dt_world *w, double timeout_s, struct dt_comm_where *at, char what[200]);
/* ncclCommAbort on every communicator, which ends kernels that wait for missing ranks. */
void dt_comm_nccl_abort(struct dt_world *w);
/*
 * As dt_comm_nccl_abort, but the process goes on without the communicators (elastic.c), once the world is
 * broken. Any thread may call it. Operations under way fail, also those that end because of this.
 */
void dt_comm_nccl_give_up(struct dt_world *w);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
