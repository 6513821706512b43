/*
 * Shared by the files of comm/. A group (struct dt_comm) always has an MPI communicator; collectives of a
 * group whose ranks are all on one machine go through shared memory instead (shm.c). struct
 * dt_comm_transport is the interface to both.
 *
 * An operation is started, then stepped until it is done: no background thread moves data. A rank that waits
 * for one operation steps all pending ones of every group, so waiting in one group never blocks another.
 */
#ifndef DT_COMM_INTERNAL_H
#define DT_COMM_INTERNAL_H

#include "base/recorder.h"
#include "comm/comm.h"
#include "comm/op.h"
#include "comm/reduce.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

struct dt_comm_op {
	enum dt_comm_op_kind kind;
	void *dst;
	const void *src; /* NULL: in place */
	size_t n;
	enum dt_dtype t;
	enum dt_redop op;
	int root, tag; /* root is the peer of a send or receive */
	const char *what;
};

struct dt_comm_req {
	struct dt_comm *c;
	const struct dt_comm_transport *t;
	struct dt_comm_op op;
	uint64_t seq;	   /* number of this collective in its group, from 1 */
	uint64_t record;   /* of the recording; 0: none */
	double began;	   /* start of a traced non-blocking operation; else 0 */
	bool done, waited; /* waited: the caller does nothing else until it is done */
	int status;	   /* 0 or the error it ended with */
	struct dt_err err;
	struct dt_comm_stage *stage; /* stage.c; NULL: the buffers are the host's */
	struct dt_comm_req *next;    /* of the group's queue, oldest first */
	void *state;		     /* the transport's own, t->state bytes, zero before start */
};

#define DT_COMM_REQ_STATE_MAX 256 /* bytes of a transport's state */

/* How a group moves bytes. */
struct dt_comm_transport {
	const char *name;
	size_t state; /* bytes of a request's private state; at most DT_COMM_REQ_STATE_MAX */
	bool ordered; /* only the oldest operation of a group can move */
	/* Starts r->op. Everything it needs from this rank later happens in step. */
	int (*start)(struct dt_comm_req *r, struct dt_err *err);
	/* Returns 1 when done, 0 when not yet, a negative errno when failed. Never blocks. */
	int (*step)(struct dt_comm_req *r, struct dt_err *err);
	/* Grows whenever a step has moved something: a waiting rank then spins again. NULL: not known. */
	size_t (*progress)(const struct dt_comm_req *r);
	/* Frees what the state holds, once, after a start, however it or the steps ended. NULL: nothing. */
	void (*release)(struct dt_comm_req *r);
	/* The whole operation at once, blocking; NULL: start and step. */
	int (*run)(struct dt_comm *c, const struct dt_comm_op *op, struct dt_err *err);
	/* Sleeps until something may have changed, a millisecond at most; NULL: the processor is yielded. */
	void (*sleep)(struct dt_comm *c);
};
extern const struct dt_comm_transport dt_comm_transport_self, dt_comm_transport_mpi, dt_comm_transport_shm,
	dt_comm_transport_steps, dt_comm_transport_chan;

#define DT_COMM_GROUPS_MAX 64

struct dt_comm {
	struct dt_world *w;
	int index; /* in w->comm and on the board; the same on all members */
	char name[16];
	int rank, size;
	int *ranks; /* world rank of each member */
	int *local; /* place of each member on this machine's board, -1: on another machine */
	const struct dt_comm_transport *collectives, *p2p;
	enum dt_alg alg;		 /* AUTO: chosen for each operation */
	uint64_t id;			 /* never used again; the same on all members */
	uint64_t seq;			 /* collectives started */
	struct dt_comm_req *head, *tail; /* pending */
	int node_ranks;			 /* dt_comm_node_ranks */
	bool mpi_only;			 /* dt_comm_mpi_only */
	dt_comm_chooser *chooser;	 /* NULL: none */
	void *chooser_arg;
	MPI_Comm mpi, lanes; /* lanes: messages of step lists */
	struct dt_comm_shm *shm;
	struct dt_comm_nccl_group *nccl; /* nccl.c; NULL: no cards */
};

/* The current operation of a rank, read by the watchdogs of its peers. */
struct dt_comm_where {
	int kind; /* enum dt_comm_op_kind */
	int group, peer;
	uint64_t seq;
	double since; /* dt_now of that machine */
	char what[64];
};

#define DT_COMM_REGIONS_MAX 16

/* A range of a rank's memory that its peers on the machine can map (region.c). */
struct dt_comm_region {
	uint64_t gen; /* 0: free */
	char *base;   /* in the address space of its owner */
	size_t bytes;
	int fd; /* of its owner */
	bool allocated;
};

/* A place in a region. */
struct dt_comm_offer {
	int region; /* -1: in none */
	uint64_t gen;
	size_t offset;
};

enum dt_comm_phase { DT_COMM_PHASE_ABSENT, DT_COMM_PHASE_RUNNING, DT_COMM_PHASE_FINISHED };

/* One rank's line on the board, written by that rank alone. */
struct dt_comm_slot {
	_Alignas(128) _Atomic int pid;
	_Atomic int phase;
	_Atomic int reporter;	  /* of the first slot: a rank of this machine is reporting */
	_Atomic uint32_t version; /* odd while at is being written */
	struct dt_comm_where at;
	_Atomic uint64_t arrived[DT_COMM_GROUPS_MAX]; /* collectives entered, a group */
	struct dt_comm_region region[DT_COMM_REGIONS_MAX];
};

struct dt_comm_launch {
	const char *by;	     /* "Open MPI's mpirun"; NULL: nobody, one rank */
	int size;	     /* as the launcher says, 0: it does not say */
	const char *size_in; /* the variable that says so */
};

struct dt_comm_watch;
struct dt_elastic;
struct dt_comm_region_map;

struct dt_world {
	struct dt_world_info info;
	struct dt_world_opts opts;
	const struct dt_log *log;
	struct dt_comm_launch launch;
	bool mpi;	 /* MPI_Init was called */
	bool stepwise;	 /* blocking MPI collectives are stepped too: some group uses shared memory */
	bool crowded;	 /* more ranks than processors here */
	MPI_Comm world;	 /* for set-up */
	MPI_Comm node;	 /* the ranks of this machine */
	int *node_ranks; /* their world ranks */
	int *node_of;	 /* [size]: machine number of every rank */
	struct dt_comm_slot *board; /* [local_size] in shared memory, or one slot of our own */
	int board_n;
	size_t board_bytes;
	struct dt_comm_slot *_Atomic me;
	struct dt_comm_watch *watch;
	struct dt_recording *recording; /* NULL: none */
	struct dt_trace *trace;		/* likewise */
	pthread_mutex_t lock;		/* of comm[] against the watchdog */
	struct dt_comm *comm[DT_COMM_GROUPS_MAX];
	int ncomm; /* no group at or past this index */
	int pending;
	void (*meanwhile)(void *arg); /* dt_world_meanwhile; NULL: none */
	void *meanwhile_arg;
	bool in_meanwhile;
	double sent;			 /* dt_comm_op_sent of all operations so far */
	uint64_t region_gen, groups;	 /* groups: made so far */
	_Atomic bool broken;		 /* calls return -ETIMEDOUT: why */
	char why[400];			 /* set before broken */
	struct dt_comm_device device;	 /* bytes 0: none */
	struct dt_comm_nccl *nccl;	 /* nccl.c; NULL: what is on a device is staged */
	struct dt_comm_chans *chans;	 /* chan.c; NULL: messages go by MPI */
	struct dt_comm_region_map *maps; /* [board_n][DT_COMM_REGIONS_MAX] */
	struct dt_elastic *elastic;	 /* elastic.c; NULL: the ranks stay the same */
};

/* stage.c: *ret NULL if no buffer is on the device; otherwise dt_comm_stage_end after the operation. */
struct dt_comm_stage;
int dt_comm_stage_begin(struct dt_comm *c, struct dt_comm_op *o, struct dt_comm_stage **ret,
			struct dt_err *err);
/* rc: the status of the operation. Returns it, or the error of copying back. */
int dt_comm_stage_end(struct dt_comm *c, struct dt_comm_stage *s, const char *what, int rc,
		      struct dt_err *err);

/* collective.c: bytes that this rank sends if the operation uses a ring, whatever its algorithm. */
double dt_comm_op_sent(const struct dt_comm *c, const struct dt_comm_op *o);

/* Bytes of dst and src that the operation uses on this rank. */
void dt_comm_op_extents(const struct dt_comm *c, const struct dt_comm_op *o, size_t *dst, size_t *src);
bool dt_comm_on_device(const struct dt_comm_device *d, const void *p);

/* launch.c: the launcher, from the environment. */
struct dt_comm_launch dt_comm_launch_detect(char *(*get)(const char *));

/* world.c */
/* This rank is inside start-up or finish, for the watchdogs; until dt_comm_slot_leave. */
void dt_comm_start_up(struct dt_world *w, enum dt_comm_op_kind kind, const char *what);

/*
 * board.c. init: a slot of this process alone; -ENOMEM. open: maps the board, and from there on ranks of a
 * machine see each other's operations. close: this process is alone again, until the next is mapped.
 */
int dt_comm_board_init(struct dt_world *w);
int dt_comm_board_open(struct dt_world *w, struct dt_err *err);
void dt_comm_board_close(struct dt_world *w);
void dt_comm_board_release(struct dt_world *w);

/*
 * shared_map.c. Anonymous shared memory of the members of comm, zero-filled: a memfd of the first member that
 * the others open through /proc. Nothing is left behind however the processes end, and the size of /dev/shm
 * does not matter. -ENOTSUP on every member when one of them cannot map it. Of an elastic world every rank
 * calls it, and comm is not used: members are the n ranks listed.
 */
int dt_comm_shared_map(struct dt_world *w, MPI_Comm comm, const int *ranks, int n, size_t bytes, void **ret,
		       struct dt_err *err);

/* collective.c */
/* Check arguments, publish the operation to the watchdog, run or start it. */
int dt_comm_run(struct dt_comm *c, struct dt_comm_op o, struct dt_err *err);
int dt_comm_start(struct dt_comm *c, struct dt_comm_op o, struct dt_comm_req **ret, struct dt_err *err);
void dt_comm_slot_enter(struct dt_world *w, const struct dt_comm_where *at);
void dt_comm_slot_leave(struct dt_world *w);
struct dt_comm_where dt_comm_where_op(const struct dt_comm *c, const struct dt_comm_op *op, uint64_t seq);
/* An operation's attributes in the trace; NULL: there is no trace. */
json_t *dt_comm_traced(const struct dt_comm *c, const struct dt_comm_op *o);

/* pending.c: operations that were started and are not done, oldest first. */
void dt_comm_push(struct dt_comm_req *r);
/* One round of a group's pending operations; of those of every group. */
void dt_comm_step(struct dt_comm *c);
void dt_comm_step_all(struct dt_world *w);
/* Waits until r is done, or the world is broken: r then has that error. */
void dt_comm_wait_done(struct dt_comm_req *r);
/* -ETIMEDOUT, with the reason why the world is broken. */
int dt_comm_fail_broken(const struct dt_world *w, struct dt_err *err);

/* choose.c */
const struct dt_comm_transport *dt_comm_transport_of(const struct dt_comm *c, const struct dt_comm_op *o);

/* chan.c */
struct dt_comm_chan_state {
	uint64_t ticket, seen; /* place among the sender's messages; messages looked at */
	int slot;	       /* taken or matched; -1: none */
	size_t moved;	       /* bytes */
};
int dt_comm_chans_open(struct dt_world *w, struct dt_err *err);
void dt_comm_chans_close(struct dt_world *w);

/* region.c */
struct dt_comm_offer dt_comm_region_find(struct dt_world *w, const void *p, size_t bytes);
/* The address here of an offer of the rank at place local of the board; the region is mapped on first use. */
int dt_comm_region_reach(struct dt_world *w, int local, const struct dt_comm_offer *o, char **ret,
			 struct dt_err *err);
void dt_comm_regions_release(struct dt_world *w);

/* shm.c */
int dt_comm_shm_open(struct dt_comm *c, struct dt_err *err);
void dt_comm_shm_close(struct dt_comm *c);

/* mpi.c: most elements of an MPI call; tests lower it to check how longer operations are cut. */
extern size_t dt_comm_mpi_max_count;
/* mpi_types.c. error: -EIO, with what failed and MPI's text for rc. init defines types of 16 bits. */
int dt_comm_mpi_error(struct dt_err *err, int rc, const char *what);
int dt_comm_mpi_types_init(struct dt_err *err);
void dt_comm_mpi_types_release(void);
MPI_Datatype dt_comm_mpi_type(enum dt_dtype t);
MPI_Op dt_comm_mpi_op(enum dt_dtype t, enum dt_redop op);

/* watchdog.c */
int dt_comm_watch_start(struct dt_world *w, struct dt_err *err);
/* After the board is mapped: exchanges addresses with the peers. Collective. */
int dt_comm_watch_connect(struct dt_world *w, struct dt_err *err);
void dt_comm_watch_stop(struct dt_world *w);
/* Ends the job: MPI_Abort, and _exit if that hangs. */
void dt_comm_end_job(struct dt_world *w, int status) __attribute__((noreturn));

#endif
/* SPDX-License-Identifier: Apache-2.0 */
