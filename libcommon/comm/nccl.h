/* Operations on the memory of cards, over NCCL (nccl.c), as the rest of comm/ sees them. */
#ifndef DT_COMM_NCCL_H
#define DT_COMM_NCCL_H

#include "comm/internal.h"

/*
 * Collective over the world. Operations go from card to card from now on, or *why not, a clause: the same on
 * every rank.
 */
int dt_nccl_open(struct dt_world *w, const char **why, struct dt_err *err);
/* Waits for what is under way and lets go of everything. Collective. */
void dt_nccl_close(struct dt_world *w);
/* A group's own part, before its first operation and after its last one. */
int dt_nccl_join(struct dt_comm *c, struct dt_err *err);
void dt_nccl_leave(struct dt_comm *c);

/* The transport of an operation that all lies on the card; NULL: it does not, or NCCL cannot do it. */
const struct dt_transport *dt_nccl_transport(const struct dt_comm *c, const struct dt_comm_op *o);

/*
 * For the watchdog's thread. dt_nccl_look: 1 where NCCL met an error (what, of at most 200 bytes, and where
 * it was) or something has been under way for more than timeout_s on the card (what is empty); 0: neither.
 */
int dt_nccl_look(struct dt_world *w, double timeout_s, struct dt_where *at, char what[200]);
/* ncclCommAbort of everything: kernels that wait for ranks which never come end. */
void dt_nccl_abort(struct dt_world *w);

#endif
