/* Shared by infer.c, infer_load.c, infer_device.c and call_serve.c alone. */
#ifndef DT_NN_INFER_PRIV_H
#define DT_NN_INFER_PRIV_H

#include "base/arena.h"
#include "comm/comm.h"
#include "kernels/ops.h"
#include "kernels/quant.h"
#include "nn/call.h"
#include "nn/infer.h"
#include "plan/inferplan.h"

#define DT_INFER_RECORDED 32

struct dt_infer_recorded {
	int nseq, kind;		/* enum dt_draw_kind of its draws, -1: logits are returned */
	bool adapted;		/* whether any row has an adapter */
	int64_t keys;		/* the largest number of keys of a sequence */
	uint64_t used;		/* the step in which it ran last */
	struct dt_graph *graph; /* NULL: such a step ran once, and is not recorded yet */
};

/* infer_device.c: a CUDA device's tables of a step and recorded steps; unused on the CPU. */
struct dt_infer_side {
	char *host, *there;		/* tables of a step, pinned, and where they are on the device */
	size_t bytes, fixed, out_bytes; /* fixed: without the edits, which come last */
	int64_t *slot, *all_slots;	/* in host; all_slots: with cp, those of all its ranks' rows */
	int32_t *ids, *pos, *q_start, *kv_len, *table;
	int32_t *head; /* [heads + 1] rows that begin each head, where heads lie one after another */
	struct dt_draw *draw;
	struct dt_lora_part *parts; /* [linears, nparts], where some sequence has an adapter */
	int *linear; /* [steps + 1] of the program: linears that may have adapters in front of each */
	int nparts;
	struct dt_edit *edit; /* [max_edits] */
	int max_edits;
	struct dt_drawn *drawn, *drawn_host; /* [max_seqs] on the device, and pinned */
	float *out, *logits;		     /* [max_seqs, vocab] on the device, and pinned */
	int64_t keys; /* for attention: what a sequence of the step may have; 0: what it has */
	struct dt_infer_recorded recorded[DT_INFER_RECORDED];
	int nrecorded;
	uint64_t steps, replayed;
	struct dt_comm_card card; /* what comm/ reaches the work area with, over ranks */
	bool reached;		  /* it does */
	const char *staged;	  /* why messages go through host memory, a clause; NULL: they do not */
};

/* Latent attention: the weights that map latents to keys and values, one weight per head in each set. */
struct dt_infer_heads {
	struct dt_packed **w; /* [2 n]: for keys, transposed, then for values */
	int n;
	struct dt_packed_set *keys, *values;
};

/* infer_parts.c: of a part of a pass, [max_seqs + 1], [max_seqs], [max_seqs], and [cp], [ep] */
struct dt_infer_parts {
	int32_t *q_start, *kv_len, *want, *rows_of_cp, *rows_of_ep;
};

/*
 * Sequences [first, end) of a pass that use the same tensors at a node: the base's (NULL), or an adapter's.
 * 
 */
struct dt_infer_window {
	int first, end;
	const struct dt_infer_adapter *whole;
};

struct dt_infer {
	struct dt_config config;
	struct dt_infer_params p;    /* ranks: this->ranks, or NULL */
	struct dt_infer_ranks ranks; /* of one rank: all axes 1, no groups */
	int first_layer;	     /* of this rank's stage */
	struct dt_dev *dev;
	struct dt_memory_plan plan; /* of the working set, and the program */
	struct dt_exec x;	    /* w: vectors and plain matrices, by parameter */
	int *owner;		    /* by parameter: the first of those it is packed with; -1: it is plain */
	struct dt_packed **packed;  /* by owner */
	struct dt_packed ***expert; /* by owner: every expert's */
	struct dt_packed_set **set; /* by owner: the experts, as they are multiplied with */
	struct dt_infer_heads *heads; /* by parameter */
	struct dt_arena weights;      /* vectors, and plain matrices */
	struct dt_arena cache, work;
	uint64_t packed_bytes;	    /* of matrices in memory, as laid out */
	struct dt_infer_disk *disk; /* infer_disk.h; NULL: all weights are in memory */
	uint64_t set_bytes;	    /* of what finds those of experts */
	uint64_t sum;		    /* of the weights as they were read, with p.name */
	int64_t positions;
	struct dt_flight flight;
	struct dt_infer_side side;
	struct dt_lora_part *parts; /* [max_seqs] of a pass, with adapters */
	struct dt_infer_parts cut;  /* with stages, cp or ep */
	struct dt_infer_gone *gone; /* infer_adapter_parts.c; NULL: one rank, or no adapters */
	/* the pass under way */
	const struct dt_infer_batch *batch;
	bool wholes;		       /* some of its adapters have tensors whole */
	struct dt_infer_window window; /* the sequences that calls compute, all at first */
	float *logits;
};

/* A step of a hash. */
static inline uint64_t dt_infer_mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15u;
	h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
	return h ^ h >> 32;
}

/*
 * infer_pass.c: the pass itself, and the draws where there are some; logits and drawn are in the device's
 * memory, and what the batch points to otherwise is dt_dev_tables'.
 */
int dt_infer_pass(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err);

/* infer_area.c: memory of the device; what the host copies there is there when the call returns. */
int dt_infer_area(struct dt_infer *m, struct dt_arena *a, size_t bytes, struct dt_err *err);
void dt_infer_area_release(struct dt_infer *m, struct dt_arena *a);
int dt_infer_put(struct dt_infer *m, void *to, const void *from, size_t n, struct dt_err *err);
int dt_infer_side_open(struct dt_infer *m, struct dt_err *err);
void dt_infer_side_release(struct dt_infer *m);
/* Drops recorded steps, because the addresses of weights are about to change. */
void dt_infer_side_forget(struct dt_infer *m);
/* The device address of a table of the step. */
const int32_t *dt_infer_there(const struct dt_infer *m, const int32_t *p);
/* dt_infer_run, recorded where it may be. */
int dt_infer_side_forward(struct dt_infer *m, const struct dt_infer_batch *b, float *logits,
			  struct dt_err *err);
/* dt_infer_draw: tokens of logits that the host has. */
int dt_infer_side_draw(struct dt_infer *m, const struct dt_infer_batch *b, const float *logits,
		       struct dt_err *err);

/*
 * infer_ranks.c. gather: what each rank of the group over tp has of the logits, by node n, whole on the
 * first, in the device's memory. receive: what the stage before has computed; send: to the stage behind.
 * made: the last stage's logits of the pass before, in the host's memory.
 */
int dt_infer_gather(struct dt_infer *m, const struct dt_node *n, float *logits, struct dt_err *err);
int dt_infer_receive(struct dt_infer *m, struct dt_err *err);
int dt_infer_send(struct dt_infer *m, struct dt_err *err);
const float *dt_infer_made(const struct dt_infer *m);
static inline bool dt_infer_last_stage(const struct dt_infer *m)
{
	return m->ranks.at.pp == m->ranks.layout.pp - 1;
}
/* Whether this rank has the logits of its replica when all stages have computed. */
static inline bool dt_infer_has_logits(const struct dt_infer *m)
{
	return dt_infer_last_stage(m) && m->ranks.at.tp == 0 && m->ranks.at.cp == 0;
}

/* Rows that ranks [0, rank) have, of what each has (rows_of_cp, rows_of_ep). */
static inline int64_t dt_infer_rows_before(const int32_t *rows_of, int rank)
{
	int64_t n = 0;

	for (int r = 0; r < rank; r++)
		n += rows_of[r];
	return n;
}

/*
 * infer_run.c. run: dt_infer_pass for a batch with tables in host memory. Drawn tokens come to the host, or
 * without draws logits, on the rank that has them: to logits, or where that is NULL to dt_infer_made, until
 * the next pass. finish: logits of a whole pass and pooled states go from the last stage to the first.
 */
int dt_infer_run(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err);
int dt_infer_finish(struct dt_infer *m, const struct dt_infer_batch *b, const float *made, float *logits,
		    struct dt_err *err);

/*
 * infer_parts.c: a pass over the stages of a pipeline, and what it and one over cp or ep need. part_of: rows
 * [row, end) of b, of which those before had `want` wanted ones. count_rows: which rows of part i of n of b
 * each rank of cp and ep has, for p.
 */
struct dt_infer_batch dt_infer_part_of(struct dt_infer *m, const struct dt_infer_batch *b, int row, int end,
				       int want);
void dt_infer_count_rows(struct dt_infer *m, const struct dt_infer_batch *b, int i, int n,
			 struct dt_infer_batch *p);
int dt_infer_parts_open(struct dt_infer *m, struct dt_err *err);
void dt_infer_parts_release(struct dt_infer *m);
int dt_infer_in_parts(struct dt_infer *m, const struct dt_infer_batch *b, float *made, struct dt_err *err);

/*
 * infer_context.c: a pass whose rows are cut over cp. own_rows: this rank's of rows [row, end). join:
 * logits of these rows, this rank's own, go to the first rank of tp and cp, which has place for all of b
 * in logits and its own there; pooled states are summed over cp.
 */
struct dt_infer_batch dt_infer_own_rows(struct dt_infer *m, const struct dt_infer_batch *b, int row, int end);
int dt_infer_join_rows(struct dt_infer *m, const struct dt_infer_batch *b, int row, int end, const float *own,
		       float *logits, struct dt_err *err);
int dt_infer_join_pool(struct dt_infer *m, const struct dt_infer_batch *b, struct dt_err *err);
int dt_infer_cut_rows(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err);

/*
 * infer_weights.c. open: owner, those that one node multiplies with, and tables without weights. join: what
 * has been loaded of experts and heads, as sets.
 */
int dt_infer_weights_open(struct dt_infer *m);
int dt_infer_weights_join(struct dt_infer *m, struct dt_err *err);
/* Those sets are no more, before weights are taken anew elsewhere. */
void dt_infer_weights_part(struct dt_infer *m);
void dt_infer_weights_release(struct dt_infer *m);
/* infer_load.c: fills packed, expert, set, heads and x.w. */
int dt_infer_load(struct dt_infer *m, struct dt_source *src, struct dt_err *err);

/* infer_adapter_rows.c: measures what adapters of the batch still wait for, of one rank. */
int dt_infer_adapters_measured(struct dt_infer *m, const struct dt_infer_batch *b, struct dt_err *err);
/* infer_adapter.c: whether some sequence has an adapter; adds theirs to y, the product of node n. */
bool dt_infer_adapts(const struct dt_infer_batch *b);
int dt_infer_adapt(struct dt_exec *x, const struct dt_node *n, struct dt_tensor y, const struct dt_packed *w,
		   int gate, struct dt_err *err);

/*
 * infer_adapter_whole.c: whether some adapter has tensors whole. next: of node n, the window behind
 * *w, which begins as zeros; false: there is none. in_windows: the call for each of them, with x's rows,
 * positions and plain tensors those of the window; at once where no adapter of the pass has any. packed_at:
 * what a parameter is packed in, there.
 */
bool dt_infer_wholes(const struct dt_infer_batch *b);
bool dt_infer_window_next(const struct dt_infer *m, const struct dt_node *n, struct dt_infer_window *w);
int dt_infer_in_windows(struct dt_exec *x, const struct dt_node *n, dt_call *call, struct dt_err *err);
const struct dt_packed *dt_infer_packed_at(const struct dt_infer *m, int param);

/* Whether training computes with bf16 numbers of a plain tensor that is f32 here. */
static inline bool dt_infer_rounds(const struct dt_infer *m, const struct dt_param *p)
{
	return m->p.as_trained && m->p.dtype == DT_BF16 && p->ndim == 1 && p->role != DT_W_ROUTER_B;
}

/*
 * infer_adapter_device.c. number: fills side.linear; -ENOMEM. lanes: bytes of the tables of lanes of a step.
 * adapt: a batch's adapters, which are on the card then, into these and on their way there.
 */
int dt_infer_side_number(struct dt_infer *m);
size_t dt_infer_side_lanes(const struct dt_infer *m);
int dt_infer_side_adapt(struct dt_infer *m, const struct dt_infer_batch *b, struct dt_err *err);

/* infer_adapter_parts.c: with several ranks and adapters. */
int dt_infer_gone_open(struct dt_infer *m, struct dt_err *err);
void dt_infer_gone_close(struct dt_infer *m);

/* call_serve.c: what nodes do in serving, by op. */
extern dt_call *const dt_serve_calls[DT_OP_N];
extern int (*const dt_serve_joins[DT_OP_N])(struct dt_exec *x, int k, struct dt_err *err);
dt_call dt_serve_latent_absorb, dt_serve_latent_values; /* call_serve_latent.c */
dt_call dt_serve_exchange, dt_serve_kv_gather;		/* call_serve_rows.c */

#endif
/* SPDX-License-Identifier: Apache-2.0 */
