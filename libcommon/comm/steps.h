/*
 * Algorithms as data: for every rank and round the messages it sends and receives. The same lists are run
 * (exec.c), simulated (simulate.h) and checked (tests/unit/test_steps.c).
 *
 * A round of a rank ends when its messages have completed; there is no barrier between rounds. A send carries
 * the contents of the buffer at the beginning of the round. A message sent in a round is received by the peer
 * in its round of the same number; several between the same two ranks keep their order.
 *
 * Sources: Thakur, Rabenseifner, Gropp, Optimization of Collective Communication Operations in MPICH (2005);
 * Bruck et al. (1997) for the logarithmic all-gather of any number of ranks, whose reversal is the
 * reduce-scatter; Sanders, Speck, Traff, Two-tree Algorithms for Full Bandwidth Broadcast, Reduction and Scan
 * (2009).
 */
#ifndef DT_COMM_STEPS_H
#define DT_COMM_STEPS_H

#include "comm/comm.h"
#include "comm/op.h"

/*
 * Bytes of pipelined messages, and the parts that messages between machines are cut into. Below what MPI
 * libraries send eagerly (64 KiB with their own header over TCP): a rendezvous costs a round trip, and over
 * TCP its answer queues behind the data in the other direction. Open MPI 4.1.4 besides leaves such answers
 * unread for good when ranks exchange some MiB in both directions.
 */
#define DT_COMM_STEPS_CHUNK_BYTES ((size_t)60 << 10)

enum dt_comm_move_kind { DT_COMM_MOVE_SEND, DT_COMM_MOVE_RECV, DT_COMM_MOVE_REDUCE /* receive and reduce */ };

struct dt_comm_move {
	enum dt_comm_move_kind kind;
	int peer;
	size_t at, n; /* elements of the buffer */
};

struct dt_comm_moves { /* zero-initialised; v is freed by the owner */
	struct dt_comm_move *v;
	int n, room;
	bool failed; /* out of memory */
};

struct dt_comm_steps {
	enum dt_comm_op_kind kind;
	enum dt_alg alg;
	int p, root, node_ranks;
	size_t n;     /* elements of the buffer: all ranks' blocks of an all-gather or reduce-scatter */
	size_t chunk; /* elements of a pipelined message */
	int rounds;
	int depth, chunks; /* of a tree; of a pipeline */
};

/* Whether there are step lists for this collective. */
bool dt_comm_steps_have(enum dt_comm_op_kind kind, enum dt_alg alg);
/*
 * chunk 0: the whole is one message. node_ranks: ranks [k * node_ranks, (k + 1) * node_ranks) share a node
 * (two-level; must divide p). -ENOTSUP when there is no such list.
 */
int dt_comm_steps_init(struct dt_comm_steps *s, enum dt_comm_op_kind kind, enum dt_alg alg, int p, int root,
		       size_t n, size_t chunk, int node_ranks, struct dt_err *err);
/* Appends what a rank does in a round. */
void dt_comm_steps_round(const struct dt_comm_steps *s, int rank, int round, struct dt_comm_moves *out);
/* The number of rounds from this one on that differ only in the block that is sent. */
int dt_comm_steps_alike(const struct dt_comm_steps *s, int round);
/* True, and the two ranks, if only two ranks take part in the round. */
bool dt_comm_steps_pair(const struct dt_comm_steps *s, int round, int who[2]);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
