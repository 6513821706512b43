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

#include "plan/run.h"

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
	DT_MEM_COMM, /* gathered units, messages between stages */
	DT_MEM_CAT_N,
};
const char *dt_mem_cat_name(enum dt_mem_cat c);
const char *dt_phase_name(enum dt_phase p);

enum dt_buf_id {	       /* what a buffer is for; with layer and act it is unique in a plan */
		 DT_B_WEIGHTS, /* flat, compute type */
		 DT_B_MASTER,  /* flat, f32; absent when weights are f32 */
		 DT_B_GRADS,   /* flat, f32 */
		 DT_B_ROUND,   /* without masters: f32 values of the piece being updated */
		 DT_B_OPTIM1,  /* flat, f32 */
		 DT_B_OPTIM2,
		 DT_B_ACT,	  /* act of a layer, kept */
		 DT_B_ACT_SHARED, /* act in a working set that layers share; slot is its number, -1 the first
				   */
		 DT_B_GATHER,	  /* s1: all rows of what is cut [T, hidden] */
		 DT_B_DELTA,	  /* what a sublayer adds to the residual stream [T, hidden] */
		 DT_B_FINAL_RESID,
		 DT_B_FINAL_NORM,
		 DT_B_FINAL_MEAN,
		 DT_B_FINAL_RSTD,
		 DT_B_LOGITS,	/* one chunk, f32 [chunk, vocab] */
		 DT_B_DLOGITS,	/* one chunk in the compute type; absent when that is f32 */
		 DT_B_CE_STATS, /* f32 [4, chunk]: row maximum, sum of exponentials, target logit, a copy */
		 DT_B_DRESID, /* gradient of the residual stream; with a pipeline one a slot, received into */
		 DT_B_OUT,    /* output of a chunk on its way to the next stage [T, hidden] */
		 DT_B_STASH,  /* output gradients of a layer's matmuls, kept for W; act is an enum dt_stash */
		 DT_B_TIED,   /* the other stage's gradient of a tied embedding, f32 */
		 DT_B_UNIT_W, /* z3: gathered weights; act is a unit slot */
		 DT_B_UNIT_G, /* z2, z3: f32 gradients of whole units before they are scattered; likewise */
		 DT_B_WIRE,   /* gradients on their way in another type; act is a unit slot with z2, z3 */
		 DT_B_FIXED,  /* sums of gradients as 64-bit integers */
		 DT_B_DNORM,  /* gradient of a norm's output */
		 DT_B_DSMALL, /* gradient of act or attn, whichever is larger */
		 DT_B_DLARGE, /* gradient of up or qkv, whichever is larger */
		 DT_B_FP8_ROWS, /* 8 bits: one linear's operands, plan/fp8.h */
		 DT_B_FP8_TURNED,
		 DT_B_FP8_WEIGHT,
		 DT_B_FP8_SCALES, /* f32 [3] */
		 DT_B_ROPE,	  /* f32 cos and sin [2, seq, head_dim / 2] */
		 DT_B_ROPE_LOCAL, /* the same for layers with a window and a base of their own */
		 DT_B_NORM_SCALE, /* f32: 1 + w of a norm, where w is kept without the 1 */
		 DT_B_IDS,	  /* i32 [T]: inputs, targets, positions */
		 DT_B_TARGETS,
		 DT_B_POS,
		 DT_B_SNAPSHOT, /* this rank's part of a checkpoint that is written behind training's back */
};

struct dt_buf {
	enum dt_buf_id id;
	enum dt_mem_cat cat;
	int layer, act, slot; /* -1 where they do not apply; slot: microbatch in flight */
	enum dt_dtype dtype;
	int64_t numel;
	uint64_t bytes;	 /* rounded up to 64 */
	uint64_t offset; /* in the arena */
	enum dt_phase first, last;
	char name[40];
	const char *formula; /* how numel comes about, for people */
};

/* Kept from B to W where a schedule splits backward: gradients of the outputs of down, up, o and qkv. */
enum dt_stash { DT_S_DOWN, DT_S_UP, DT_S_O, DT_S_QKV, DT_STASH_N };
/* Columns that these matmuls of a layer take and give on one rank. */
void dt_linear_widths(const struct dt_config *c, const struct dt_local_dims *d, int64_t in[DT_STASH_N],
		      int64_t out[DT_STASH_N]);

/* Elements of DT_B_ROUND. */
#define DT_ROUND_NUMEL 65536

struct dt_memory_plan {
	struct dt_buf *buf;
	int n;
	uint64_t arena_bytes;		  /* the peak: what dt-train maps */
	uint64_t phase_bytes[DT_PH_N];	  /* live in each phase */
	uint64_t cat_bytes[DT_MEM_CAT_N]; /* live in the peak phase */
	enum dt_phase peak;
	int64_t loss_chunk;	  /* as chosen */
	int slots[DT_MAX_CHUNKS]; /* microbatches in flight, by chunk */
};

/* Of the rank at `at`. */
int dt_memory_plan(const struct dt_run *r, struct dt_coords at, struct dt_memory_plan *ret,
		   struct dt_err *err);
void dt_memory_plan_release(struct dt_memory_plan *p);

/* The buffer, or NULL when this rank has none. layer, act and slot are -1 where they do not apply. */
const struct dt_buf *dt_memory_find(const struct dt_memory_plan *p, enum dt_buf_id id, int layer, int act,
				    int slot);

/* Slots of DT_B_UNIT_W and DT_B_UNIT_G. */
enum { DT_UNIT_SLOT_EMBED = 2, DT_UNIT_SLOT_FINAL = 3, DT_UNIT_SLOTS = 4 };
/* Which of them local unit u lies in. */
int dt_unit_slot(const struct dt_local *l, int u, int64_t layers);

#endif
