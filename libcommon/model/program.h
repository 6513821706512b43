/*
 * A program: the nodes that one rank executes for one chunk of a model's units, in four lists. FORWARD ends
 * in the last norm, or in what is sent to the next stage. LOSS is the head with its loss, forward and
 * backward at once. BACKWARD is derived from FORWARD by each op's rule; WEIGHTS has the nodes that yield
 * weight gradients alone, where a schedule runs them apart (zero-bubble).
 *
 * Derivation: nodes are walked in reverse. A value has at most one gradient; where it is used more than
 * once, gradients are added in reverse order of use, by the op's own accumulating operand where it has one
 * (a norm adds the residual's gradient in the same pass over memory). What a backward node refers to is
 * kept from FORWARD, or computed again right before: `keep` decides, value by value.
 */
#ifndef DT_MODEL_PROGRAM_H
#define DT_MODEL_PROGRAM_H

#include "model/graph.h"

enum dt_list { DT_LIST_FORWARD, DT_LIST_LOSS, DT_LIST_BACKWARD, DT_LIST_WEIGHTS, DT_LIST_N };

/*
 * Rows of a value: of no batch; every token of the microbatch that is on this context-parallel rank; this
 * rank's part of the residual stream; every token of the microbatch; in serving, those of all ranks of ep.
 */
enum dt_rows { DT_ROWS_NONE, DT_ROWS_ALL, DT_ROWS_STREAM, DT_ROWS_SEQ, DT_ROWS_EXPERTS, DT_ROWS_N };

/* How attention looks across the cuts of a sequence (model/op/context.c). */
enum dt_cp_comm { DT_CP_AUTO, DT_CP_GATHER, DT_CP_RING, DT_CP_ULYSSES };
#define DT_CP_COMM_CHOICES "auto|gather|ring|ulysses"

enum dt_life {
	DT_LIFE_NODE,	/* between nodes of one list, or of LOSS, BACKWARD and WEIGHTS */
	DT_LIFE_KEPT,	/* from FORWARD to BACKWARD or WEIGHTS: one for each microbatch in flight */
	DT_LIFE_PINNED, /* from before FORWARD to after BACKWARD: other ranks read or write it meanwhile */
};

struct dt_value {
	const char *name;
	int unit;
	enum dt_dtype dtype;
	enum dt_rows rows;
	int64_t mul, cols, extra; /* rows x mul rows of cols elements, and extra elements behind them */
	bool room;		  /* only for the node that writes it */
	bool again;		  /* computed again for backward */
	bool gradient;
	/* worked out by dt_prog_finish */
	enum dt_life life;
	int over;      /* the value whose memory this one is written over; -1: its own */
	int def, last; /* positions in the lists, one behind the other */
};

struct dt_step {	  /* a node of a program */
	struct dt_node n; /* params are local numbers */
	enum dt_list list;
	bool again; /* computes something again */
};

struct dt_segment { /* consecutive nodes of one unit and direction */
	int unit, first, n;
	bool backward;
	bool again;  /* it only computes forward values again */
	bool before; /* the unit begins to compute here, in this direction */
	bool after;  /* it is done: backward, its gradients of this microbatch are complete */
};

struct dt_prog {
	struct dt_value *value;
	int nvalue;
	struct dt_step *step; /* all lists, one behind the other */
	int nstep, start[DT_LIST_N + 1];
	struct dt_segment *segment;
	int nsegment, segment_start[DT_LIST_N + 1];
	int input;    /* what was received from the stage before; -1: the chunk begins with the embedding */
	int output;   /* what is sent on; -1: the chunk ends with the loss */
	int grad_in;  /* gradient of output, received; -1 */
	int grad_out; /* gradient of input, sent; -1 */
	int64_t rows[DT_ROWS_N];
	char *refused; /* static text: what cannot be derived; NULL */
};

/* Rows of "loss rows": maximum, sum, target's logit and room; those of a teacher's divergence behind them. */
enum { DT_LOSS_ROWS = 4, DT_LOSS_ROWS_TAUGHT = 7 };

/* What a program is derived for. */
struct dt_prog_spec {
	const struct dt_config *c;
	const struct dt_graph *graph;
	int first_unit, last_unit; /* inclusive, as dt_param.layer */
	int64_t microbatch, seq;   /* rows of the whole stream are microbatch x seq / cp */
	enum dt_dtype compute;
	int tp, tp_rank;
	bool seq_parallel; /* the stream is cut over tp */
	bool backward;	   /* derive it */
	int64_t outputs;   /* > 0: serving, whose rows are what a pass has; so many may want logits */
	int64_t adapters;  /* of serving: the largest rank that rows' adapters may have; 0: none have any */
	bool split;	   /* weight gradients apart */
	int ep, ep_rank;
	bool overlap;		 /* what does not need experts' rows is computed while they are exchanged */
	bool stream_overlap;	 /* products go beside the messages of a stream that is cut */
	int cp;			 /* a sequence is cut so many ways; 0 is 1 */
	enum dt_cp_comm cp_comm; /* not auto */
	double capacity;	 /* of experts, over an even share of the choices; 0: they take all */
	int64_t loss_chunk;
	bool teacher;	   /* the loss is also a divergence from a teacher (kernels/distill.h) */
	int64_t bn_groups; /* groups of rows that batch norms are over; 0: 1 */
	/* local number of a tensor, or -1; its local rows and columns */
	int (*local)(const void *arg, int param, int64_t shape[2], int64_t off[2]);
	const void *local_arg;
	/* Whether backward finds the result of a node's op in this unit kept (index of unit in the chunk). */
	bool (*keep)(const void *arg, const struct dt_node *n, int out, int unit);
	const void *keep_arg;
	/* Whether the linear with rows x in -> out is computed in 8 bits on every rank. NULL: none. */
	bool (*in_8_bits)(const void *arg, const struct dt_node *n);
	const void *fp8_arg;
};

int dt_prog_build(const struct dt_prog_spec *s, struct dt_prog *ret, struct dt_err *err);
void dt_prog_release(struct dt_prog *p);

/* Elements and bytes of a value; rows of its matrix. */
int64_t dt_value_rows(const struct dt_prog *p, int v);
int64_t dt_value_numel(const struct dt_prog *p, int v);
/* The first of the values that v is written over, whose memory all have; v itself where there is none. */
int dt_value_root(const struct dt_prog *p, int v);

/* Columns of queries, keys and values (kv_heads 0: queries alone) of one rank's heads under Ulysses. */
int64_t dt_heads_cols(const struct dt_attr *a, int cp);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
