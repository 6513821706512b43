/* Shared by nccl.c (operations), nccl_calls.c (what they call), nccl_link.c (communicators, events) and
 * nccl_world.c (the library). */
#ifndef DT_COMM_NCCL_PRIV_H
#define DT_COMM_NCCL_PRIV_H

#include "comm/nccl.h"
#include "comm/nccl_api.h"

#define DT_COMM_NCCL_LEFT_S 1.0 /* seconds that NCCL may take to return from a call after a rank is lost */

enum dt_comm_nccl_link_state { LINK_NONE, LINK_MEETING, LINK_STARTING, LINK_READY };

/* A communicator and its queue. */
struct dt_comm_nccl_link {
	struct dt_comm_nccl *k;
	enum dt_comm_nccl_link_state state;
	int rank, size;
	struct dt_comm_nccl_id id;
	MPI_Request meeting;
	pthread_t thread;
	_Atomic int started; /* the thread has ended and result is set */
	int result;
	void *_Atomic comm;
	void *queue;
	uint64_t given, next;		 /* messages: positions assigned; position to be issued next */
	struct dt_comm_nccl_link *other; /* next in the list of all links */
};

/* An operation on the card; it may outlive its request. */
struct dt_comm_nccl_op {
	struct dt_comm_nccl_link *link;
	void *before, *after; /* events */
	struct dt_comm_where at;
	bool issued, attached;
	struct dt_comm_nccl_op *next;
	/* messages */
	char ready;
	struct place {
		uint64_t n;
		struct dt_comm_nccl_id id;
	} place;
	bool placed;
	MPI_Request mr[2];
};

struct dt_comm_nccl_group {
	MPI_Comm mpi;
	struct dt_comm_nccl_link all, *to, *from; /* to, from: [size] */
	void *spare; /* card memory for operations that NCCL does not do in place */
	size_t spare_n;
};

struct dt_comm_nccl {
	struct dt_comm_nccl_lib lib;
	struct dt_world *w;
	pthread_mutex_t lock;		 /* of links and flying, against the watchdog */
	struct dt_comm_nccl_link *links; /* all links with a communicator, or one being made */
	struct dt_comm_nccl_op *flying;	 /* issued and not known to be done */
	void **event;			 /* free ones */
	int nevent, room, pending;	 /* pending: issued requests */
	_Atomic int calling;		 /* the rank's thread is in a call that takes a communicator */
	_Atomic int given_up;		 /* dt_comm_nccl_give_up */
	bool stuck; /* a thread waits in NCCL for ranks that are gone: its memory is not freed */
};

static inline const struct dt_comm_card *dt_comm_nccl_card(const struct dt_comm_nccl *k)
{
	return k->w->device.card;
}

static inline void *dt_comm_nccl_arg(const struct dt_comm_nccl *k)
{
	return k->w->device.arg;
}

/*
 * nccl_calls.c: enqueues the operation on its link's stream. Returns an ncclResult_t (>= 0) or a negative
 * errno; -ETIMEDOUT: communicators have been given up.
 */
int dt_comm_nccl_call(struct dt_comm *c, const struct dt_comm_op *o, struct dt_comm_nccl_link *l);
/* The asynchronous error of a link's operations; 0: none. */
int dt_comm_nccl_async_error(struct dt_comm_nccl_link *l);
/* NCCL's type; -1: it has none. */
int dt_comm_nccl_type(enum dt_dtype t);

/* NCCL's error message for the operation at. Returns -EIO. */
int dt_comm_nccl_failed(struct dt_comm_nccl *k, const struct dt_comm_where *at, int result,
			struct dt_err *err);
int dt_comm_nccl_take_event(struct dt_comm_nccl *k, void **ret);
void dt_comm_nccl_give_event(struct dt_comm_nccl *k, void *event);
void dt_comm_nccl_release(struct dt_comm_nccl *k, struct dt_comm_nccl_op *o);
/* Releases operations that are done on the card and whose request is gone. */
void dt_comm_nccl_prune(struct dt_comm_nccl *k);
/* Starts the thread that creates the communicator; the id has arrived. */
int dt_comm_nccl_begin_link(struct dt_comm_nccl_link *l, struct dt_err *err);
/* 1: the communicator is ready, 0: not yet. */
int dt_comm_nccl_link_ready(struct dt_comm_nccl_link *l, const struct dt_comm_where *at, struct dt_err *err);
/* The same for a group's collectives; takes the next step of creating it. */
int dt_comm_nccl_group_ready(struct dt_comm *c, const struct dt_comm_where *at, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
