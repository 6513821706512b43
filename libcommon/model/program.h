/*
 * A program: the nodes that one rank executes for one chunk of a model's units, in four lists. FORWARD ends
 * with the final norm or the output for the next stage. LOSS is head and loss, forward and backward at once.
 * BACKWARD is derived from FORWARD by each op's rule. WEIGHTS has the nodes that compute only weight
 * gradients, for schedules that run them separately (zero-bubble).
 *
 * Derivation walks the nodes in reverse. A value has at most one gradient; if it is used more than once,
 * gradients are added in reverse order of use, by the op's accumulating operand if it has one (a norm adds
 * the residual's gradient in the same pass over memory). Forward values that backward reads are kept or
 * recomputed right before; `keep` decides for each value.
 */
#ifndef DT_MODEL_PROGRAM_H
#define DT_MODEL_PROGRAM_H

#include "model/graph.h"

enum dt_list { DT_LIST_FORWARD, DT_LIST_LOSS, DT_LIST_BACKWARD, DT_LIST_WEIGHTS, DT_LIST_N };

/*
 * Number of rows of a value: none of the batch; all tokens of the microbatch on this context-parallel rank;
 * this rank's part of the residual stream; all tokens of the microbatch; in serving, those of all ranks of
 * ep; the samples of the microbatch, of texts; of a tower of vision, those that its patches are joined to.
 */
enum dt_rows {
	DT_ROWS_NONE,
	DT_ROWS_ALL,
	DT_ROWS_STREAM,
	DT_ROWS_SEQ,
	DT_ROWS_EXPERTS,
	DT_ROWS_SAMPLES,
	DT_ROWS_JOINED,
	DT_ROWS_N,
};

/* How attention communicates over a sequence cut by context parallelism (model/op/context.c). */
enum dt_cp_comm { DT_CP_AUTO, DT_CP_GATHER, DT_CP_RING, DT_CP_ULYSSES };
#define DT_CP_COMM_CHOICES "auto|gather|ring|ulysses"

enum dt_life {
	DT_LIFE_NODE,	/* between nodes of one list, or of LOSS, BACKWARD and WEIGHTS */
	DT_LIFE_KEPT,	/* from FORWARD to BACKWARD or WEIGHTS: one copy for each microbatch in flight */
	DT_LIFE_PINNED, /* from before FORWARD to after BACKWARD: other ranks read or write it */
};

struct dt_value {
	const char *name;
	int unit;
	enum dt_dtype dtype;
	enum dt_rows rows;
	int64_t mul, cols, extra; /* rows x mul rows of cols elements, followed by `extra` elements */
	bool room;		  /* scratch of the node that writes it */
	bool again;		  /* recomputed for backward */
	bool gradient;
	/* computed by dt_prog_finish */
	enum dt_life life;
	int over;      /* the value whose memory this one reuses; -1: none */
	int def, last; /* first and last position in the concatenated lists */
};

struct dt_step {	  /* a node of a program */
	struct dt_node n; /* parameters by local index */
	enum dt_list list;
	bool again; /* recomputes a value */
};

struct dt_segment { /* consecutive nodes of the same unit and direction */
	int unit, first, n;
	bool backward;
	bool again;  /* only recomputes forward values */
	bool before; /* first segment of the unit in this direction */
	/*
	 * last segment of the unit in this direction; backward: this microbatch's gradients of the unit are
	 * complete
	 */
	bool after;
};

struct dt_prog {
	struct dt_value *value;
	int nvalue;
	struct dt_step *step; /* all lists, concatenated */
	int nstep, start[DT_LIST_N + 1];
	struct dt_segment *segment;
	int nsegment, segment_start[DT_LIST_N + 1];
	int input;    /* received from the previous stage; -1: the chunk starts with the embedding */
	int output;   /* sent to the next stage; -1: the chunk ends with the loss */
	int grad_in;  /* gradient of output, received; -1: none */
	int grad_out; /* gradient of input, sent; -1: none */
	int64_t rows[DT_ROWS_N];
	char *refused; /* static text: what cannot be derived; NULL: nothing */
};

/* Rows of "loss rows": maximum, sum, target's logit, scratch; then those of distillation. */
enum { DT_LOSS_ROWS = 4, DT_LOSS_ROWS_TAUGHT = 7 };
/* A processor computes the loss of rows with a target alone, if at least one of so many rows has none. */
enum { DT_LOSS_PICKS = 16 };

/* What a program is derived for. */
struct dt_prog_spec {
	const struct dt_config *c;
	const struct dt_graph *graph;
	int first_unit, last_unit; /* inclusive, numbered as dt_param.layer */
	int64_t microbatch, seq;   /* the residual stream has microbatch x seq / cp rows */
	enum dt_dtype compute;
	int tp, tp_rank;
	bool seq_parallel; /* the residual stream is cut over tp */
	bool backward;	   /* derive backward too */
	int64_t outputs;   /* > 0: serving, where rows are those of a pass; the most rows that need logits */
	int64_t adapters;  /* serving: largest LoRA rank of any row's adapter; 0: no adapters */
	bool split;	   /* compute weight gradients separately */
	int ep, ep_rank;
	bool overlap;		 /* compute what does not need the experts' rows while these are exchanged */
	bool stream_overlap;	 /* overlap products with the messages of a stream that is cut */
	int cp;			 /* number of context-parallel ranks; 0 is 1 */
	enum dt_cp_comm cp_comm; /* must not be DT_CP_AUTO */
	double capacity;	 /* choices an expert takes, relative to an even share; 0: all */
	int64_t loss_chunk;
	bool teacher;	   /* the loss includes a divergence from a teacher (kernels/distill.h) */
	int64_t bn_groups; /* groups of rows with separate batch norm statistics; 0: 1 */
	/* local index of a tensor, or -1; its local shape and offset */
	int (*local)(const void *arg, int param, int64_t shape[2], int64_t off[2]);
	const void *local_arg;
	/* Whether the result `out` of node n is kept for backward in this unit (index in the chunk). */
	bool (*keep)(const void *arg, const struct dt_node *n, int out, int unit);
	const void *keep_arg;
	/* Whether linear n is computed in 8 bits on every rank. NULL: none is. */
	bool (*in_8_bits)(const void *arg, const struct dt_node *n);
	const void *fp8_arg;
};

int dt_prog_build(const struct dt_prog_spec *s, struct dt_prog *ret, struct dt_err *err);
void dt_prog_release(struct dt_prog *p);

/* Rows of a value's matrix, and its elements. */
int64_t dt_value_rows(const struct dt_prog *p, int v);
int64_t dt_value_numel(const struct dt_prog *p, int v);
/* The root of the chain of values that share v's memory; v itself if it reuses none. */
int dt_value_root(const struct dt_prog *p, int v);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
