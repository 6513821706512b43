/*
 * Groups of ranks and the collectives between them. One process is one rank. A world of one rank never
 * touches MPI; more ranks come from mpirun or Slurm (dt_world_init finds out).
 *
 * All calls of one rank come from one thread. Every rank of a group makes the same calls in the same order.
 * Reductions accumulate bf16 and f16 in f32. In-place operation: where src == NULL the input is already in
 * dst, at the place the result's layout gives it.
 *
 * A watchdog thread follows every operation. One that does not complete within the timeout is reported on the
 * log of the world ("all-reduce 'grads bucket 3' of group dp: ranks 2 3 have not arrived after 60 s"). It
 * then ends the job, or with linger_s marks the world as broken.
 */
#ifndef DT_COMM_COMM_H
#define DT_COMM_COMM_H

#include "base/err.h"
#include "base/log.h"
#include "comm/op.h"
#include "kernels/dtype.h"
#include "plan/layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dt_redop { DT_SUM, DT_MAX, DT_MIN, DT_AVG };

struct dt_world;
struct dt_comm;
struct dt_comm_req; /* an operation under way */
struct dt_trace;    /* base/trace.h */

struct dt_world_info {
	int rank, size;
	int local_rank, local_size; /* among the ranks of this machine */
	int nodes, node;	    /* machines; the number of this one */
};

enum dt_comm_transport_kind {
	DT_TRANSPORT_AUTO, /* shared memory inside one machine, MPI for the rest */
	DT_TRANSPORT_MPI,
};

struct dt_world_opts {
	double timeout_s; /* 0: no watchdog */
	double start_s;	  /* time for all ranks to start; 0: 60, or timeout_s if that is longer */
	enum dt_comm_transport_kind transport;
	const char *recorder; /* file, with .RANK behind it, of each rank's last operations; NULL: none */
	int node_ranks;	      /* > 0: treat every node_ranks ranks as a machine of its own (tests) */
	/*
	 * > 0: if an operation does not complete, rank 0 itself ends the job: its calls return -ETIMEDOUT
	 * from then on, with the report's first line. The other ranks give it this many seconds before they
	 * end the job, and time operations out that much later.
	 */
	double linger_s;
	/*
	 * elastic: the job survives the loss of ranks. A rank that dies, or is stopped for a second, breaks
	 * the world of the others, which then call dt_world_reform. join: "PID:FD", the board of such a job
	 * in one of its processes (dt_world_epoch); this process waits there to become a rank. NULL: it is
	 * one of the first ranks.
	 */
	bool elastic;
	const char *join; /* the value of DT_JOIN_ENV (base/beat.h) */
};

/*
 * More than one rank comes from mpirun, Slurm or another launcher, found in the environment; without one MPI
 * is never initialised. timeout_s 0: no watchdog. log must outlive the world. -EINVAL when the launcher
 * started several processes and MPI sees one: an mpirun of another MPI.
 */
int dt_world_open(struct dt_world **ret, const struct dt_world_opts *o, const struct dt_log *log,
		  struct dt_err *err);
/* dt_world_open with the defaults. */
int dt_world_init(struct dt_world **ret, double timeout_s, const struct dt_log *log, struct dt_err *err);
void dt_world_info(const struct dt_world *w, struct dt_world_info *ret);
/* Why calls return -ETIMEDOUT: "broadcast 'step' of group world: rank 1 died"; NULL: they do not. */
const char *dt_world_broken(const struct dt_world *w);
/*
 * Elastic worlds: makes w a new world of the remaining ranks and of processes that wait to join. All groups
 * must have been freed before; if w is broken these calls return at once. Ranks keep their order; those that
 * join come last. Every rank of w calls it. -ESTALE: the others went on without this rank.
 */
int dt_world_reform(struct dt_world *w, struct dt_err *err);
/*
 * epoch: counts from 1; 0: the world is not elastic. place: the number of this process within the job: its
 * first rank, or a new number if it has joined. board: its file descriptor of the board; -1: none.
 */
struct dt_world_epoch {
	uint64_t epoch;
	int place, board;
};
struct dt_world_epoch dt_world_epoch(const struct dt_world *w);
/* The number of processes that wait to become ranks; ranks may see different numbers. */
int dt_world_waiting(const struct dt_world *w);
/* Whether this process has joined. */
bool dt_world_joined(const struct dt_world *w);
/*
 * After an operation has failed: checks whether a rank is lost, for as long as it takes to be sure that a
 * rank is stopped. If one is lost, marks the world as broken and returns true.
 */
bool dt_world_lost(struct dt_world *w);
/*
 * The number of threads for this rank: the processors that it is bound to (*ret_mine), else its share of the
 * machine's processors.
 */
int dt_world_threads(const struct dt_world_info *i, int *ret_mine);
/* Seconds that an operation may take; 0: no watchdog. */
double dt_world_timeout(const struct dt_world *w);
/* A rank of this machine whose process is stopped, by a signal or a debugger, and its process; -1: none. */
int dt_world_stopped(const struct dt_world *w, int *ret_pid);
/* Finalizes MPI. After an error use dt_world_abort instead. */
void dt_world_finalize(struct dt_world *w);
/* Ends every rank of the job at once. */
void dt_world_abort(struct dt_world *w, int status) __attribute__((noreturn));

/* From now on operations are events of t, which outlives its use; NULL: no longer. */
void dt_world_trace(struct dt_world *w, struct dt_trace *t);

/*
 * Bytes that this rank has sent by operations so far, counted as busbw is (nccl-tests, PERFORMANCE.md): an
 * all-reduce of n bytes over p ranks is 2 (p - 1) / p n, whatever its algorithm.
 */
double dt_world_sent(const struct dt_world *w);

/*
 * *ret: what must be added to this rank's dt_now() to get that of the group's rank 0; *ret_error: its
 * uncertainty. Both are 0 on rank 0's machine. Every rank of the group calls it.
 */
int dt_comm_clock(struct dt_comm *c, double *ret, double *ret_error, struct dt_err *err);

/*
 * Registered memory: ranks of one machine map it, so that collectives work on it directly without copies. It
 * is anonymous and freed when its processes end, however they end. The calls are local; operations on memory
 * that is not registered, or not on every rank, copy through a shared segment.
 *
 * dt_buffer_share puts shared memory under a range of the caller's own anonymous mapping, rounded outwards to
 * whole pages. THE CONTENTS OF THESE PAGES ARE LOST, they read as zeros: share before writing. Pages that are
 * shared already are refused (-EEXIST). If there is nothing to gain (one rank on the machine, transport mpi)
 * the range stays as it is. At most 16 ranges a rank (-ENOSPC).
 */
int dt_buffer_share(struct dt_world *w, void *base, size_t bytes, struct dt_err *err);
/* A new zero-filled registered range, page aligned. */
int dt_buffer_alloc(struct dt_world *w, size_t bytes, void **ret, struct dt_err *err);
void dt_buffer_free(struct dt_world *w, void *base);
/*
 * ret [size]: the addresses in this process of the p that each rank of the group passes; `bytes` bytes must
 * be in a registered range. Collective. -ENOTSUP on every rank unless all are registered and on one machine.
 * Valid until one of the ranges is freed.
 */
int dt_buffer_reach(struct dt_comm *c, void *p, size_t bytes, char **ret, struct dt_err *err);
/* Ends what dt_buffer_share began for all ranges in [base, base + bytes); the memory stays as it is. */
void dt_buffer_unshare(struct dt_world *w, void *base, size_t bytes);

/*
 * Operations on device memory, that is on addresses in [base, base + bytes).
 *
 * With a card and NCCL (libnccl.so.2, loaded at run time) operations go from card to card on streams of
 * their own. An operation waits there for the work submitted to the device before its start; work submitted
 * after its wait runs after it; the host hardly ever blocks. The buffers of an operation are on the card on
 * every rank or on none. Reductions of u16, which NCCL lacks, are staged. bf16 and f16 are rounded at each
 * addition, in NCCL's order.
 *
 * Without NCCL buffers are staged: copied to the host at the start and back at the wait, in the order of the
 * device's queue.
 *
 * copy and sync as dt_dev_copy and dt_dev_sync. Collective over the world, with no operation pending. dev
 * NULL: none (again). *ret_staged: NULL if nothing is staged, else the reason, a clause.
 */
struct dt_comm_device {
	const void *base;
	size_t bytes;
	void *arg;
	int (*copy)(void *arg, void *to, const void *from, size_t n);
	int (*sync)(void *arg);
	const struct dt_comm_card *card; /* NULL: never NCCL. Outlives its use */
};
/*
 * Queues (CUDA streams) and events of a CUDA device; queue NULL is its default one. As in kernels/device.h.
 */
struct dt_comm_card {
	unsigned char id[16]; /* unique identifier of the device */
	int (*use)(void *arg);
	int (*alloc)(void *arg, void **ret, size_t n);
	void (*free)(void *arg, void *p);
	int (*queue_open)(void *arg, void **ret);
	void (*queue_close)(void *arg, void *queue);
	int (*copy)(void *arg, void *queue, void *to, const void *from, size_t n);
	int (*event_open)(void *arg, void **ret);
	void (*event_close)(void *arg, void *event);
	int (*event_record)(void *arg, void *event, void *queue);
	int (*event_wait)(void *arg, void *event, void *queue); /* the queue waits */
	int (*event_done)(void *arg, void *event);		/* 1, or 0: not yet */
};
int dt_world_device(struct dt_world *w, const struct dt_comm_device *dev, const char **ret_staged,
		    struct dt_err *err);

/*
 * The algorithm of a collective. DIRECT: through shared memory, or on registered buffers themselves. MPI: the
 * MPI library's choice. The others are step lists (comm/steps.h) of messages between two ranks.
 */
enum dt_alg {
	DT_ALG_AUTO,
	DT_ALG_DIRECT,
	DT_ALG_MPI,
	DT_ALG_NAIVE,
	DT_ALG_PS,
	DT_ALG_RING,
	DT_ALG_DOUBLING,
	DT_ALG_RABENSEIFNER,
	DT_ALG_TREE,
	DT_ALG_DOUBLE_TREE,
	DT_ALG_TWO_LEVEL,
	DT_ALG_N,
};
#define DT_ALG_CHOICES "auto|direct|mpi|naive|ps|ring|doubling|rabenseifner|tree|double-tree|two-level"

/*
 * The communicators of a layout, each over a set of axes (DT_ON_*): this rank's peers along these axes, in
 * the order of ranks. Each is made when it is first asked for; a group of one rank is allowed.
 */
struct dt_mesh {
	struct dt_layout layout;
	struct dt_coords at;
	struct dt_world *w;
	struct dt_comm *made[1 << DT_AXES];
};
/* Makes the communicator over all ranks. -EINVAL if the layout's size is not the world's. */
int dt_mesh_init(struct dt_mesh *m, struct dt_world *w, const struct dt_layout *l, struct dt_err *err);
/* Makes the communicator over these axes, unless it exists. Collective over the world, whatever the axes:
 * every rank asks for the same sets in the same order. -EINVAL for a set that dt_layout_group refuses. */
int dt_mesh_need(struct dt_mesh *m, unsigned axes, struct dt_err *err);
/* The communicator over these axes; NULL: it has not been made. */
struct dt_comm *dt_mesh_comm(const struct dt_mesh *m, unsigned axes);
void dt_mesh_release(struct dt_mesh *m);

/*
 * A group of the ranks with the same color, ordered by key and then by rank. Collective over the world: all
 * ranks make the same calls, in one order. name (at most 15 bytes are kept) is for messages.
 */
int dt_comm_create(struct dt_comm **ret, struct dt_world *w, const char *name, int color, int key,
		   struct dt_err *err);
void dt_comm_free(struct dt_comm *c); /* collective over the group; NULL is fine */
/*
 * Sets the algorithm of the group's collectives; kinds that it does not implement use AUTO. The same call on
 * every rank, with no operation pending. -ENOTSUP if the group cannot use it: DIRECT if its ranks do not
 * share memory, TWO_LEVEL if machines do not hold equal runs of consecutive ranks.
 */
int dt_comm_set_algorithm(struct dt_comm *c, enum dt_alg alg, struct dt_err *err);
/*
 * Where AUTO would leave a collective between machines to MPI, fn chooses instead: DT_ALG_MPI or an
 * algorithm with step lists for this kind (dt_comm_steps_have). bytes: of the whole buffer, all blocks of an
 * all-gather or reduce-scatter counted. fn gives the same answer on every rank of the group; arg outlives
 * the group. fn NULL: none (again).
 */
typedef enum dt_alg dt_comm_chooser(void *arg, enum dt_comm_op_kind kind, size_t bytes);
void dt_comm_set_chooser(struct dt_comm *c, dt_comm_chooser *fn, void *arg);
/* The algorithm of an operation of n elements (a block's, where the kind has blocks) in this group. */
enum dt_alg dt_comm_choose(const struct dt_comm *c, enum dt_comm_op_kind kind, size_t n, enum dt_dtype t);
/*
 * While on, every operation of the group is a call of the MPI library, the baseline of comparisons. The same
 * call on every rank, with no operation pending.
 */
void dt_comm_mpi_only(struct dt_comm *c, bool on);
const char *dt_alg_name(enum dt_alg a, char buf[16]);
/* The transport of collectives of this group: "self", "shm" or "mpi". */
const char *dt_comm_transport(const struct dt_comm *c);

int dt_comm_rank(const struct dt_comm *c);
int dt_comm_size(const struct dt_comm *c);
struct dt_world *dt_comm_world(const struct dt_comm *c);
/* Ranks of the group on each machine if every machine holds an equal run of them, otherwise 0. */
int dt_comm_node_ranks(const struct dt_comm *c);

/*
 * In place: all-reduce, all-to-all: dst. all-gather: this rank's block of dst (src equal to it is the same).
 * reduce-scatter: dst holds size * n elements and its first n become the result; or dst is this rank's block
 * of src, and then the rest of src is undefined. Other overlaps are not allowed.
 *
 * Rounding: inside one machine (transport "shm") bf16 and f16 are added in f32 in rank order and rounded
 * once; through MPI each of the p - 1 additions rounds. Either way all ranks get the same bits.
 */
/* Blocking. what names the operation in messages and outlives it. Counts are elements; n may be 0. */
int dt_all_reduce(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, enum dt_redop op,
		  const char *what, struct dt_err *err);
/* src is size * n elements, dst n. */
int dt_reduce_scatter(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t,
		      enum dt_redop op, const char *what, struct dt_err *err);
/* src is n elements, dst size * n. */
int dt_all_gather(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, const char *what,
		  struct dt_err *err);
int dt_broadcast(struct dt_comm *c, void *buf, size_t n, enum dt_dtype t, int root, const char *what,
		 struct dt_err *err);
int dt_all_to_all(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, const char *what,
		  struct dt_err *err);
/* Only root's dst is written; root alone may have src == NULL. */
int dt_reduce(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, enum dt_redop op,
	      int root, const char *what, struct dt_err *err);
/* src is n elements, root's dst size * n; root alone may have src == NULL: its block is in its place. */
int dt_gather(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, int root,
	      const char *what, struct dt_err *err);
/* root's src is size * n elements, dst n; root alone may have dst == NULL: its block stays where it is. */
int dt_scatter(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, int root,
	       const char *what, struct dt_err *err);
/*
 * src_n[j] elements go to rank j and dst_n[j] come from it, blocks one after another in rank order. Not in
 * place. Rank i's src_n[j] is rank j's dst_n[i].
 */
int dt_all_to_allv(struct dt_comm *c, void *dst, const size_t *dst_n, const void *src, const size_t *src_n,
		   enum dt_dtype t, const char *what, struct dt_err *err);
/* The same, begun: req has 2 * size places for its messages, for dt_wait_all; none where it fails. */
int dt_iall_to_allv(struct dt_comm *c, void *dst, const size_t *dst_n, const void *src, const size_t *src_n,
		    enum dt_dtype t, const char *what, struct dt_comm_req **req, struct dt_err *err);
int dt_barrier(struct dt_comm *c, const char *what, struct dt_err *err);
int dt_send(struct dt_comm *c, const void *buf, size_t n, enum dt_dtype t, int peer, int tag,
	    const char *what, struct dt_err *err);
int dt_recv(struct dt_comm *c, void *buf, size_t n, enum dt_dtype t, int peer, int tag, const char *what,
	    struct dt_err *err);
/*
 * Sends buf, of n elements, to both neighbours on the ring of ranks. into[0] receives that of the previous
 * rank, into[1] that of the next. With two ranks only into[0] is used, with one rank none.
 */
int dt_ring_exchange(struct dt_comm *c, const void *buf, void *const into[2], size_t n, enum dt_dtype t,
		     const char *what, struct dt_err *err);

#define DT_TAG_MAX 32000 /* largest tag of a message; larger ones are reserved for the library */

/*
 * Combines rc of all ranks: returns 0 on all, or the same negative code on all. The lowest rank that failed
 * keeps its message; the others get its code and an empty message, so that the error is printed once.
 * *ret_reached (may be NULL): false if the ranks could not communicate, and the result is this rank's alone.
 */
int dt_comm_agree(struct dt_comm *c, int rc, bool *ret_reached, struct dt_err *err);

/* Bytes of any length to root. On root *ret (all pieces in rank order) and *ret_lens [size] are malloc'd. */
int dt_gather_bytes(struct dt_comm *c, const void *src, size_t n, char **ret, size_t **ret_lens, int root,
		    const char *what, struct dt_err *err);

/*
 * Non-blocking: buffers belong to the operation until it is waited for. Freed by the wait.
 *
 * No background thread moves data: operations progress at their start, in dt_comm_poll and in every wait,
 * also waits for other operations. Measured on two cores with two ranks of one compute thread each (1.25 ms
 * of computing and an all-reduce of 4 MiB, alone and overlapped; milliseconds):
 *                                                  all-reduce alone   both
 *   MPI_Iallreduce with MPI_Test between kernels               1.53   2.27
 *   MPI_Allreduce in a progress thread, THREAD_MULTIPLE        0.74   2.15
 *   these operations with dt_comm_poll, shared memory          0.52   1.76
 * If all cores compute, moving bytes takes time from computing whichever thread does it; a progress thread
 * hides nothing and costs context switches. Through shared memory a poll returns at once while peers are not
 * ready; call it every 0.1 to 1 ms.
 */
int dt_iall_reduce(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, enum dt_redop op,
		   const char *what, struct dt_comm_req **ret, struct dt_err *err);
int dt_ireduce_scatter(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t,
		       enum dt_redop op, const char *what, struct dt_comm_req **ret, struct dt_err *err);
int dt_iall_gather(struct dt_comm *c, void *dst, const void *src, size_t n, enum dt_dtype t, const char *what,
		   struct dt_comm_req **ret, struct dt_err *err);
int dt_ibarrier(struct dt_comm *c, const char *what, struct dt_comm_req **ret, struct dt_err *err);
int dt_isend(struct dt_comm *c, const void *buf, size_t n, enum dt_dtype t, int peer, int tag,
	     const char *what, struct dt_comm_req **ret, struct dt_err *err);
int dt_irecv(struct dt_comm *c, void *buf, size_t n, enum dt_dtype t, int peer, int tag, const char *what,
	     struct dt_comm_req **ret, struct dt_err *err);
/*
 * Whether it has completed, so that dt_wait returns at once. Makes no progress by itself; dt_comm_poll does.
 */
bool dt_comm_done(const struct dt_comm_req *req);
/* Waits, adds the seconds spent inside to *exposed_s (may be NULL), sets *req NULL. A NULL *req is done. */
int dt_wait(struct dt_comm_req **req, double *exposed_s, struct dt_err *err);
/* dt_wait for n of them; the first error. */
int dt_wait_all(struct dt_comm_req **req, int n, double *exposed_s, struct dt_err *err);
/*
 * Sets a callback for every poll and wait of this rank, called after pending operations were stepped, to
 * serve other ranks meanwhile. It may start operations and complete those that are done, but must not wait.
 * fn NULL: none (again).
 */
void dt_world_meanwhile(struct dt_world *w, void (*fn)(void *arg), void *arg);
/* Steps pending operations; cheap, called between kernels. Adds to *exposed_s (may be NULL) as dt_wait. */
void dt_comm_poll(struct dt_world *w, double *exposed_s);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
