/* Shared by the files of nn/ that serve a model: infer*.c and call_serve*.c. */
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
	int nseq, kind;		/* enum dt_draw_kind of its draws; -1: logits are returned */
	bool adapted;		/* whether any row has an adapter */
	int64_t keys;		/* keys that it was recorded for: an upper bound for every sequence */
	uint64_t used;		/* number of the step that ran it last */
	struct dt_graph *graph; /* NULL: such a step ran once and is not recorded yet */
};

/* infer_device.c: a CUDA device's tables of a step and recorded steps; unused on the CPU. */
struct dt_infer_side {
	char *host, *there;		/* tables of a step: pinned, and on the device */
	size_t bytes, fixed, out_bytes; /* fixed: bytes without the edits, which are last */
	int64_t *slot, *all_slots;	/* in host; all_slots: with cp, slots of all its ranks' rows */
	int32_t *ids, *pos, *q_start, *kv_len, *table, *state;
	int32_t *head; /* [heads + 1] each head's first row, in matrices of one head after another */
	struct dt_draw *draw;
	struct dt_lora_part *parts; /* [linears, nparts], if some sequence has an adapter */
	int *linear; /* [steps + 1]: linears that may have adapters before each step of the program */
	int nparts;
	struct dt_edit *edit; /* [max_edits] */
	int max_edits;
	struct dt_drawn *drawn, *drawn_host; /* [max_seqs] on the device, and pinned */
	float *out, *logits;		     /* [max_seqs, vocab] on the device, and pinned */
	int64_t keys; /* for attention: upper bound of a sequence's keys in the step; 0: the actual number */
	struct dt_infer_recorded recorded[DT_INFER_RECORDED];
	int nrecorded;
	uint64_t steps, replayed;
	struct dt_comm_card card; /* with several ranks: how comm/ accesses the work area */
	bool reached;		  /* whether it does */
	const char *staged;	  /* why host memory is used for messages, a clause; NULL: it is not */
};

/* Latent attention: the weights that map latents to keys and values, one weight per head in each set. */
struct dt_infer_heads {
	struct dt_packed **w; /* [2 n]: n for keys, transposed, then n for values */
	int n;
	struct dt_packed_set *keys, *values;
};

/* infer_parts.c: tables of a part of a pass: [max_seqs + 1], [max_seqs], [max_seqs], [cp], [ep] */
struct dt_infer_parts {
	int32_t *q_start, *kv_len, *want, *rows_of_cp, *rows_of_ep;
};

/* infer_narrow.c: where a pass drops the rows whose logits nobody wants */
struct dt_infer_narrow {
	int step;		     /* of the model's last attention; -1: none are dropped on this rank */
	int worth;		     /* a card's passes have so many rows for each that is left and copied */
	const struct dt_node *at;    /* the step in the current pass; NULL: it keeps its rows */
	int32_t *q_start, *want;     /* [max_seqs + 1] of the rows that are left: want is 0, 1, 2 .. */
	struct dt_infer_batch batch; /* the pass from there on */
};

/* Sequences [first, end) of a pass that use the same tensors at a node: the base's (NULL) or an adapter's. */
struct dt_infer_window {
	int first, end;
	const struct dt_infer_adapter *whole;
};

struct dt_infer {
	struct dt_config config;
	struct dt_infer_params p;    /* p.ranks: &ranks, or NULL */
	struct dt_infer_ranks ranks; /* with one rank: all axes 1, no groups */
	int first_layer;	     /* first layer of this rank's stage */
	struct dt_dev *dev;
	struct dt_memory_plan plan; /* memory plan of the working set, and the program */
	struct dt_exec x;	    /* x.w: w or, in calls for an adapter, the tensors that it has instead */
	struct dt_tensor *w;	    /* vectors and plain matrices, by parameter; other threads read them */
	int *owner;		    /* by parameter: the first parameter it is packed with; -1: not packed */
	struct dt_packed **packed;  /* by owner */
	struct dt_packed ***expert; /* by owner: packed weights of each expert */
	struct dt_packed_set **set; /* by owner: the experts as one set, for products */
	struct dt_infer_heads *heads; /* by parameter */
	/* by parameter: a matrix's; and that of an adapter's tensor in its place (NULL: no adapters) */
	enum dt_format *format, *others;
	struct dt_scratch scratch; /* reserved for passes, on the CPU */
	struct dt_arena weights;   /* vectors, and plain matrices */
	struct dt_arena cache, work;
	struct dt_arena states;	    /* [layers of Mamba-2, slots, dt_ssm_slot] (kernels/ssm.h) */
	uint64_t packed_bytes;	    /* bytes of packed matrices in memory */
	struct dt_infer_disk *disk; /* infer_disk.h; NULL: all weights are in memory */
	uint64_t set_bytes;	    /* bytes of the tables of sets */
	uint64_t sum;		    /* checksum of the weights as read, if p.name is set */
	int64_t positions;
	struct dt_flight flight;
	struct dt_infer_side side;
	struct dt_lora_part *parts; /* [max_seqs] parts of a pass with adapters */
	struct dt_infer_parts cut;  /* with pp, cp or ep */
	struct dt_infer_narrow narrow;
	struct dt_infer_gone *gone; /* infer_adapter_parts.c; NULL: one rank, or no adapters */
	/* the current pass */
	const struct dt_infer_batch *batch;
	bool wholes;		       /* some of its adapters replace tensors */
	struct dt_infer_window window; /* the sequences that calls compute; initially all */
	float *logits;
};

/* How many layers of this rank in front of `layer` have attention, or else Mamba-2's mixer. */
static inline int64_t dt_infer_before(const struct dt_infer *m, int layer, bool ssm)
{
	const int64_t n = dt_config_ssm_layers(&m->config, m->first_layer, layer);

	return ssm ? n : layer - m->first_layer - n;
}

/* Mixes v into the hash h. */
static inline uint64_t dt_infer_mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15u;
	h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
	return h ^ h >> 32;
}

/*
 * infer_pass.c: computes a pass and, if there are any, the draws. logits and drawn are in the device's
 * memory, and all else that the batch points to is in the tables of dt_dev_tables.
 */
int dt_infer_pass(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err);

/* infer_area.c: device memory. put returns when the copy from the host is complete. */
int dt_infer_area(struct dt_infer *m, struct dt_arena *a, size_t bytes, struct dt_err *err);
void dt_infer_area_release(struct dt_infer *m, struct dt_arena *a);
int dt_infer_put(struct dt_infer *m, void *to, const void *from, size_t n, struct dt_err *err);
int dt_infer_side_open(struct dt_infer *m, struct dt_err *err);
void dt_infer_side_release(struct dt_infer *m);
/* Drops recorded steps, because the addresses of weights are about to change. */
void dt_infer_side_forget(struct dt_infer *m);
/* The device address of a table of the current step. */
const int32_t *dt_infer_there(const struct dt_infer *m, const int32_t *p);
/* dt_infer_run on a device, as a recorded step (CUDA graph) if possible. */
int dt_infer_side_forward(struct dt_infer *m, const struct dt_infer_batch *b, float *logits,
			  struct dt_err *err);
/* dt_infer_draw on a device: draws tokens from logits in host memory. */
int dt_infer_side_draw(struct dt_infer *m, const struct dt_infer_batch *b, const float *logits,
		       struct dt_err *err);

/*
 * infer_ranks.c. gather: gathers the logits of node n from the tp ranks to the first one, in device memory.
 * receive: gets rows from the previous stage; send: sends rows to the next one. made: the last stage's logits
 * of the previous pass, in host memory.
 */
int dt_infer_gather(struct dt_infer *m, const struct dt_node *n, float *logits, struct dt_err *err);
int dt_infer_receive(struct dt_infer *m, struct dt_err *err);
int dt_infer_send(struct dt_infer *m, struct dt_err *err);
const float *dt_infer_made(const struct dt_infer *m);
static inline bool dt_infer_last_stage(const struct dt_infer *m)
{
	return m->ranks.at.pp == m->ranks.layout.pp - 1;
}
/* Whether this rank has its replica's logits after the last stage. */
static inline bool dt_infer_has_logits(const struct dt_infer *m)
{
	return dt_infer_last_stage(m) && m->ranks.at.tp == 0 && m->ranks.at.cp == 0;
}

/* The sum of rows_of (rows_of_cp, rows_of_ep) over ranks [0, rank). */
static inline int64_t dt_infer_rows_before(const int32_t *rows_of, int rank)
{
	int64_t n = 0;

	for (int r = 0; r < rank; r++)
		n += rows_of[r];
	return n;
}

/*
 * infer_run.c. run: dt_infer_pass for a batch with tables in host memory. The rank that has the logits gets
 * drawn tokens or, without draws, logits in host memory: in logits or, if that is NULL, in dt_infer_made
 * until the next pass. finish: sends the logits and pooled states of a complete pass from the last stage to
 * the first.
 */
int dt_infer_run(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err);
int dt_infer_finish(struct dt_infer *m, const struct dt_infer_batch *b, const float *made, float *logits,
		    struct dt_err *err);

/*
 * infer_parts.c: a pass over pipeline stages, and helpers for passes over cp or ep. part_of: rows [row, end)
 * of b; `want` of the wanted rows are before them. count_rows: sets p's numbers of rows on each rank of cp
 * and ep, for part i of n of b.
 */
struct dt_infer_batch dt_infer_part_of(struct dt_infer *m, const struct dt_infer_batch *b, int row, int end,
				       int want);
void dt_infer_count_rows(struct dt_infer *m, const struct dt_infer_batch *b, int i, int n,
			 struct dt_infer_batch *p);
int dt_infer_parts_open(struct dt_infer *m, struct dt_err *err);
void dt_infer_parts_release(struct dt_infer *m);
int dt_infer_in_parts(struct dt_infer *m, const struct dt_infer_batch *b, float *made, struct dt_err *err);

/*
 * infer_narrow.c: begin decides for a pass; narrow, called by attention between its write to the cache and
 * its reading of queries, drops rows if n is where that is done. b is on the host, as are its tables.
 */
int dt_infer_narrow_open(struct dt_infer *m, struct dt_err *err);
void dt_infer_narrow_release(struct dt_infer *m);
void dt_infer_narrow_begin(struct dt_infer *m, const struct dt_infer_batch *b);
int dt_infer_narrow(struct dt_exec *x, const struct dt_node *n, struct dt_err *err);

/*
 * infer_context.c: a pass whose rows are divided over cp. own_rows: this rank's rows of [row, end).
 * join_rows: gathers the logits of these rows from own to the first rank of tp and cp, whose logits has room
 * for all of b. join_pool: sums pooled states over cp. cut_rows: the whole pass.
 */
struct dt_infer_batch dt_infer_own_rows(struct dt_infer *m, const struct dt_infer_batch *b, int row, int end);
int dt_infer_join_rows(struct dt_infer *m, const struct dt_infer_batch *b, int row, int end, const float *own,
		       float *logits, struct dt_err *err);
int dt_infer_join_pool(struct dt_infer *m, const struct dt_infer_batch *b, struct dt_err *err);
int dt_infer_cut_rows(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err);

/*
 * infer_weights.c. open: fills owner and allocates the tables of weights. join: makes sets of the loaded
 * experts and heads.
 */
int dt_infer_weights_open(struct dt_infer *m);
int dt_infer_weights_join(struct dt_infer *m, struct dt_err *err);
/* Drops these sets, before weights are reloaded to other addresses. */
void dt_infer_weights_part(struct dt_infer *m);
void dt_infer_weights_release(struct dt_infer *m);
/* infer_load.c: fills packed, expert, set, heads and x.w. */
int dt_infer_load(struct dt_infer *m, struct dt_source *src, struct dt_err *err);

/* infer_adapter_rows.c: measures the batch's adapters that are not measured yet, with one rank. */
int dt_infer_adapters_measured(struct dt_infer *m, const struct dt_infer_batch *b, struct dt_err *err);
/* infer_adapter.c. adapts: if some sequence has an adapter. adapt: y = the adapted product of node n. */
bool dt_infer_adapts(const struct dt_infer_batch *b);
int dt_infer_adapt(struct dt_exec *x, const struct dt_node *n, struct dt_tensor y, const struct dt_packed *w,
		   int gate, struct dt_err *err);

/*
 * infer_adapter_whole.c. wholes: whether some adapter of the batch replaces tensors. window_next: moves *w,
 * zeros at first, to node n's next window; false: no more. in_windows: calls `call` for each window, with x's
 * rows, positions and plain tensors set to the window's, or once if no adapter of the pass replaces tensors.
 * packed_at: the packed weights of a parameter in the current window.
 */
bool dt_infer_wholes(const struct dt_infer_batch *b);
bool dt_infer_window_next(const struct dt_infer *m, const struct dt_node *n, struct dt_infer_window *w);
int dt_infer_in_windows(struct dt_exec *x, const struct dt_node *n, dt_call *call, struct dt_err *err);
const struct dt_packed *dt_infer_packed_at(const struct dt_infer *m, int param);

/* Whether training uses bf16 values of a plain tensor that is f32 here. */
static inline bool dt_infer_rounds(const struct dt_infer *m, const struct dt_param *p)
{
	return m->p.as_trained && m->p.dtype == DT_BF16 && p->ndim == 1 && p->role != DT_W_ROUTER_B;
}

/*
 * infer_adapter_device.c. number: fills side.linear; -ENOMEM. lanes: bytes of a step's tables of lanes.
 * adapt: copies a batch's adapters to the device if needed, fills the tables and copies them.
 */
int dt_infer_side_number(struct dt_infer *m);
size_t dt_infer_side_lanes(const struct dt_infer *m);
int dt_infer_side_adapt(struct dt_infer *m, const struct dt_infer_batch *b, struct dt_err *err);

/* infer_adapter_deal.c: the list of closed adapters, with several ranks. */
int dt_infer_gone_open(struct dt_infer *m, struct dt_err *err);
void dt_infer_gone_close(struct dt_infer *m);

/* call_serve.c: the function of each op in serving, and of steps that are computed together. */
extern dt_call *const dt_serve_calls[DT_OP_N];
extern int (*const dt_serve_joins[DT_OP_N])(struct dt_exec *x, int k, struct dt_err *err);
dt_call dt_serve_latent_absorb, dt_serve_latent_values; /* call_serve_latent.c */
dt_call dt_serve_exchange, dt_serve_kv_gather;		/* call_serve_rows.c */
dt_call dt_serve_attention_all, dt_serve_states;	/* call_serve_encoder.c */
dt_call dt_serve_ssm_conv, dt_serve_ssm_scan;		/* call_serve_ssm.c */
/* Adds the rows of token types to y; at: scratch of its size. */
int dt_serve_types(struct dt_exec *x, const struct dt_node *n, struct dt_tensor y, struct dt_tensor at,
		   struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
