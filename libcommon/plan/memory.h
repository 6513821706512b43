/*
 * The memory plan: every buffer one rank holds while it trains, with the phases it lives in and its place in
 * one arena. dt-train allocates the arena and takes its buffers from here and nowhere else; dt-memest prints
 * the same list. Buffers whose phases do not meet share addresses, so arena_bytes is the peak, not the sum.
 *
 * Phases of a step: forward and backward alternate over the microbatches; loss is the head and cross-entropy,
 * which run between the two; step is reduction, clipping and the optimizer.
 */
#ifndef DT_PLAN_MEMORY_H
#define DT_PLAN_MEMORY_H

#include "plan/stage.h"

enum dt_phase { DT_PH_FORWARD, DT_PH_LOSS, DT_PH_BACKWARD, DT_PH_STEP, DT_PH_N };

enum dt_mem_cat {
	DT_MEM_WEIGHTS,
	DT_MEM_MASTER,
	DT_MEM_GRADS,
	DT_MEM_OPTIM,
	DT_MEM_ACTIVATIONS,
	DT_MEM_LOGITS,
	DT_MEM_WORKSPACE,
	DT_MEM_DATA,
	DT_MEM_COMM,	/* gathered units, messages between stages */
	DT_MEM_SCRATCH, /* of the device's operations */
	DT_MEM_CAT_N,
};
const char *dt_mem_cat_name(enum dt_mem_cat c);
const char *dt_phase_name(enum dt_phase p);

enum dt_buf_id {	       /* what a buffer is for; with `which` it is unique in a plan, but for values */
		 DT_B_WEIGHTS, /* flat, compute type */
		 DT_B_MASTER,  /* flat, f32; absent when weights are f32 */
		 DT_B_GRADS,   /* flat, f32 */
		 DT_B_ROUND,   /* without masters: f32 values of the piece being updated */
		 DT_B_OPTIM1,  /* flat, f32 */
		 DT_B_OPTIM2,
		 DT_B_OUTER,	  /* diloco: weights as last merged, flat, f32; gossip: a neighbour's */
		 DT_B_OUTER_M,	  /* its momentum */
		 DT_B_OUTER_WIRE, /* its outer gradients on their way, bytes (plan/outer.h) */
		 DT_B_SUMS,	  /* ssp: sums of gradients of steps under way, shares, flat, f32 */
		 DT_B_CLOCKS,	  /* who is where, bytes (train/servers.h) */
		 DT_B_GIVEN,	  /* server of messages: a rank's gradients of its share, f32, */
		 DT_B_ASKED,	  /* and its weights on their way to one, compute type */
		 DT_B_EMA,	  /* average of the weights, flat, f32 */
		 DT_B_REFERENCE,  /* weights that the run started from, flat, compute type */
		 DT_B_DRAWN,	  /* --task with tp or z3: all parameters, compute type */
		 DT_B_WHOLE,	  /* muon: a whole matrix, iterates and two products */
		 DT_B_DIRECTION,  /* update directions beside gradients that are saved, flat, f32 */
		 DT_B_VALUE,	  /* of a program: dt_memory_value says where */
		 DT_B_TIED,	  /* the other stage's gradient of a tied embedding, f32 */
		 DT_B_PACKED,	  /* frozen linears in blocks, bytes */
		 DT_B_UNIT_W,	  /* z3, offloaded: weights of a unit; which is a unit slot */
		 DT_B_UNIT_SHARE, /* offloaded and cut: bytes of this rank's share; likewise */
		 DT_B_UNIT_G,	/* z2, z3: f32 gradients of whole units before they are scattered; likewise */
		 DT_B_WIRE,	/* gradients on their way in another type; which is a unit slot with z2, z3 */
		 DT_B_KEPT,	/* compressed gradients: what is not sent yet, flat, f32; */
		 DT_B_COMPRESS, /* and what is sent, bytes (plan/compress.h) */
		 DT_B_ON_HOST, /* of a card: gradients where the processor makes other numbers of them, f32 */
		 DT_B_TO_CARD, /* of a card, from servers: weights on their way to it, compute type */
		 DT_B_CARRIED, /* of a card: a state while ranks re-form (plan/reform.h), bytes */
		 DT_B_FIXED,   /* sums of gradients as 64-bit integers */
		 DT_B_ROPE,    /* f32 cos and sin [2, seq, head_dim / 2] */
		 DT_B_ROPE_LOCAL, /* the same for layers with a window and a base of their own */
		 DT_B_IDS,	  /* i32 [T]: inputs, targets of a flight (which), positions of all */
		 DT_B_TARGETS,
		 DT_B_TYPES,	 /* i32 [T] of a flight: token types of texts with labels */
		 DT_B_IDS_AHEAD, /* the same of a module for a further token */
		 DT_B_TARGETS_AHEAD,
		 DT_B_POS,
		 DT_B_EXPERTS, /* f64 of a step: dt_experts_room */
		 DT_B_PIXELS,  /* f32 [N, C, H, W] of a flight, instead of ids */
		 DT_B_OTHERS,  /* i32 [N]: second classes; f32 [N]: the first ones' weights */
		 DT_B_SHARE,
		 DT_B_BUFFERS, /* f32: running statistics; their sums over a step */
		 DT_B_BUFFER_SUMS,
		 DT_B_DOC_POS,	   /* i32 [T] of a flight, documents kept apart: position in its document, */
		 DT_B_FIRST,	   /* and the position in the sequence where it begins */
		 DT_B_TEACHER,	   /* i32 [T, k] of a flight: a teacher's columns, */
		 DT_B_TEACHER_P,   /* f32 [T, k + 1]: what they and the rest have */
		 DT_B_TILES,	   /* offloaded: bytes; those that stay in memory, */
		 DT_B_TILES_AWAY,  /* those elsewhere, */
		 DT_B_TILE_RING,   /* some of these while they are worked on, from a multiple of 4096 on, */
		 DT_B_TILE_PIECE,  /* and what passes between them and a checkpoint */
		 DT_B_AWAY,	   /* offloaded activations, */
		 DT_B_AWAY_RING,   /* and what of them is on its way, from a multiple of 4096 on */
		 DT_B_PINNED,	   /* of the host: what passes between a card and a file */
		 DT_B_PEER_GRADS,  /* --peer-copy, of the rank before: its shares of gradients, */
		 DT_B_PEER_MASTER, /* masters */
		 DT_B_PEER_OPTIM1, /* and states, flat, f32 */
		 DT_B_PEER_OPTIM2,
		 DT_B_SCRATCH,	/* bytes; which is an enum dt_scratch_buffer */
		 DT_B_SNAPSHOT, /* this rank's part of a checkpoint that is written behind training's back */
};

/*
 * f64 numbers of DT_B_EXPERTS: choices [blocks, experts] of a step, those past a capacity, both losses of the
 * router; behind them its biases [blocks, experts], f32.
 */
static inline int64_t dt_experts_room(const struct dt_config *c)
{
	const int64_t n = dt_config_blocks_all(c) * c->experts;

	return n + 3 + (n + 1) / 2;
}

struct dt_buf {
	enum dt_buf_id id;
	enum dt_mem_cat cat;
	int which; /* -1 where there is only one */
	int layer; /* the unit a value belongs to, as dt_param.layer; -2: none */
	int slot;  /* microbatch in flight of a value that each has; else 0 */
	enum dt_dtype dtype;
	int64_t numel;
	uint64_t bytes; /* rounded up to 64 */
	enum dt_place place;
	uint64_t offset; /* in the arena, or where its place begins */
	enum dt_phase first, last;
	bool message; /* collectives work on it */
	bool at_peak; /* alive where the most memory is */
	char name[40];
	const char *formula; /* how numel comes about, for people */
};

/* Bytes of DT_B_CLOCKS: of all ranks, and of each. */
enum { DT_CLOCKS_ALL = 8192, DT_CLOCKS_RANK = 512 };

/* Elements of DT_B_ROUND. */
#define DT_ROUND_NUMEL 65536

struct dt_value_place {
	uint64_t offset, stride; /* stride: to the next microbatch in flight; 0: all have one place */
};

/* A value of the only chunk that is elsewhere between forward and backward. */
struct dt_away {
	int value, out, in; /* it leaves behind segment out of the program, and is back before segment in */
	uint64_t bytes, at; /* there, multiples of 4096 */
};

enum { DT_MEM_POINTS = 64 };
struct dt_memory_point { /* of a stretch of the step where the most is alive */
	enum dt_phase phase;
	uint64_t cat_bytes[DT_MEM_CAT_N];
};

enum { DT_AWAY_STAYS = 2 }; /* layers at the end that keep theirs */
enum { DT_AWAY_RING = 8 };  /* values on their way at a time */

/* What stays of a run while its ranks re-form: whole on every rank, or its shares and another's copies. */
enum { DT_MEMORY_CARRIED = 7 };
extern const enum dt_buf_id dt_memory_carried[DT_MEMORY_CARRIED];

struct dt_memory_plan {
	struct dt_stage stage; /* whose values it places */
	struct dt_buf *buf;
	int n;
	uint64_t arena_bytes;		  /* the peak: what dt-train maps */
	uint64_t bound_bytes;		  /* no arena can be smaller: the most that is alive at one time */
	uint64_t place_bytes[DT_PLACE_N]; /* of each place the peak; the device's is arena_bytes */
	uint64_t gap_bytes;		  /* between buffers at the peak */
	uint64_t phase_bytes[DT_PH_N];	  /* most alive in each phase */
	uint64_t cat_bytes[DT_MEM_CAT_N]; /* alive at the peak; gaps between buffers are workspace */
	enum dt_phase peak;
	/* in the order of the step, of equal counts of its nodes; the last is the update */
	struct dt_memory_point over[DT_MEM_POINTS];
	int nover;
	struct dt_keep recompute;		     /* as chosen, where the run left it to the plan */
	double stay;				     /* likewise dt_run_offload.stay */
	struct dt_away *away;			     /* by value */
	int naway, away_layers;			     /* that many layers have some */
	uint64_t away_bytes, away_most;		     /* all; the largest */
	int peak_step;				     /* of the chunk's program; -1: in the update */
	int slots[DT_MAX_CHUNKS];		     /* microbatches in flight, by chunk */
	int flight0[DT_MAX_CHUNKS + 1];		     /* number of a chunk's first flight */
	struct dt_value_place *value[DT_MAX_CHUNKS]; /* by value of the chunk's program */
};

/* Of the rank at `at`. */
int dt_memory_plan(const struct dt_run *r, struct dt_coords at, struct dt_memory_plan *ret,
		   struct dt_err *err);
/* The working set of a server's forward pass (plan/stage.h), and its tables of angles. */
int dt_memory_plan_serving(const struct dt_serving *s, int64_t positions, struct dt_memory_plan *ret,
			   struct dt_err *err);
void dt_memory_plan_release(struct dt_memory_plan *p);

/* The buffer, or NULL when this rank has none. */
const struct dt_buf *dt_memory_find(const struct dt_memory_plan *p, enum dt_buf_id id, int which);
/* Where value v of chunk k lies for microbatch `slot` of those in flight. */
static inline uint64_t dt_memory_value(const struct dt_memory_plan *p, int k, int slot, int v)
{
	return p->value[k][v].offset + (uint64_t)slot * p->value[k][v].stride;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
