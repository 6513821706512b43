/*
 * What the rules of ops are written with; only for libcommon/model. A rule has
 *   shape     gives a forward node its results: their types, rows and columns on this rank
 *   backward  appends the nodes of its backward to the program; NULL: it has none yet
 *   cost      flops, bytes and message of a node (model/op/cost.h); NULL: operands are moved, that is all
 *   timed     the measured operations it consists of (model/op/timed.h); NULL: its cost has to do
 * A backward rule asks for what it needs of forward by dt_lo_need; that alone is kept.
 */
#ifndef DT_MODEL_RULE_H
#define DT_MODEL_RULE_H

#include "model/program.h"

struct dt_info {	     /* of a value, while the program is derived */
	int from;	     /* tape entry that made it; -1: none */
	int grad;	     /* its gradient so far; -1 */
	int uses;	     /* forward nodes that read it */
	int copy[DT_LIST_N]; /* computed again in this list; -1 */
	int copied_for;	     /* the unit whose backward that was for */
	int same;	     /* the value it is another name of: entering costs nothing; -1 */
	bool whole;	     /* equal on all tensor-parallel ranks, or this rank's rows of that */
	bool partial;	     /* a sum over the tensor-parallel ranks is still to be made */
};

struct dt_lower {
	const struct dt_prog_spec *s;
	struct dt_prog *p;
	struct dt_info *info; /* of every value */
	int value_cap;
	struct dt_step *list[DT_LIST_N];
	int n[DT_LIST_N], cap[DT_LIST_N];
	struct dt_node
		*tape; /* forward nodes, operands by their logical names, params by the graph's numbers */
	int ntape, tape_cap;
	int *map;	 /* values of the graph to values of the program; -1 */
	enum dt_list to; /* where nodes go */
	bool again;	 /* nodes that are emitted compute something again */
	int unit;	 /* whose backward is under way */
	bool failed;
	void (*linear8)(struct dt_lower *lo, const struct dt_node *n); /* dt_lo_linear8 */
	int (*put)(struct dt_lower *lo, struct dt_node *n);	       /* what dt_lo_put does */
};

struct dt_cost_site;
struct dt_node_cost;
struct dt_timed_list;
struct dt_op_rule {
	void (*shape)(struct dt_lower *lo, struct dt_node *n);
	void (*backward)(struct dt_lower *lo, const struct dt_node *n);
	struct dt_node_cost (*cost)(const struct dt_cost_site *s, const struct dt_node *n);
	void (*timed)(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t);
};

int dt_lo_value(struct dt_lower *lo, const char *name, int unit, enum dt_dtype dtype, enum dt_rows rows,
		int64_t mul, int64_t cols);
/* Whether the node makes the loss, and with it the first gradients. */
static inline bool dt_lo_is_loss(const struct dt_node *n)
{
	return n->op == DT_OP_LOSS || n->op == DT_OP_CLASSIFY;
}
/* A value of the shape and type of another. */
int dt_lo_like(struct dt_lower *lo, const char *name, int unit, int v);
/* Room that only the node uses. */
int dt_lo_room(struct dt_lower *lo, const char *name, int unit, enum dt_dtype dtype, enum dt_rows rows,
	       int64_t mul, int64_t cols);
/* A step with unit, name and attributes of `like`, no operands; not NULL, valid until the next is emitted. */
struct dt_node *dt_lo_emit(struct dt_lower *lo, enum dt_op op, const struct dt_node *like);
/* The forward value v, kept or computed again, in the list that nodes go to. */
int dt_lo_need(struct dt_lower *lo, int v);
static inline int dt_lo_grad(const struct dt_lower *lo, int v)
{
	return v < 0 ? -1 : lo->info[v].grad;
}
/* v gets the gradient g, or g on top of the one it has. */
void dt_lo_add_grad(struct dt_lower *lo, int v, int g);
void dt_lo_set_grad(struct dt_lower *lo, int v, int g);
/* The tape entry that made v; NULL. */
const struct dt_node *dt_lo_from(const struct dt_lower *lo, int v);
/* Rows (dim 0) or columns of a tensor on this rank; 0 for param -1. */
int64_t dt_lo_dim(const struct dt_lower *lo, int param, int dim);
/* Whether the program serves: nothing is kept for a backward. */
static inline bool dt_lo_serves(const struct dt_lower *lo)
{
	return lo->s->outputs > 0;
}
/* Whether experts get the rows of all ranks of ep as they are (model/op/rows.c). */
static inline bool dt_lo_gathers(const struct dt_lower *lo)
{
	return dt_lo_serves(lo) && lo->s->ep > 1;
}
/* Rows x cols of the tensors param[0 .. 3) of a linear, joined. */
void dt_lo_linear_dims(const struct dt_lower *lo, const struct dt_node *n, int64_t *out, int64_t *in);
/* The dimension that a linear's tensors are cut in over the tensor-parallel ranks; -1: none, or one rank. */
int dt_lo_cut(const struct dt_lower *lo, int param);
static inline const char *dt_lo_name(const struct dt_lower *lo, int graph_value)
{
	return lo->s->graph->value_name[graph_value];
}
bool dt_lo_in_8_bits(const struct dt_lower *lo, const struct dt_node *n);
/* Emits a forward node: one step, or those of a linear in 8 bits. Operands by their logical names. */
void dt_lo_forward(struct dt_lower *lo, const struct dt_node *n);
/* Shapes a node, puts it on the tape and emits it; its first result. */
static inline int dt_lo_put(struct dt_lower *lo, struct dt_node *n)
{
	return lo->put(lo, n);
}
void dt_lo_linear8(struct dt_lower *lo, const struct dt_node *n);
/* The gradients of queries joined by those of keys and values, dkv of all ranks; returns them. */
int dt_lo_kv_scatter(struct dt_lower *lo, const struct dt_node *n, int dqkv, int dkv);
/* The product dy^T x for the tensors param[0 .. 3) of n, where the list of such products is. */
void dt_lo_weights(struct dt_lower *lo, const struct dt_node *n, int dy);
/* Puts in front of a node of experts what brings its rows, and marks it so. */
void dt_lo_choose_rows(struct dt_lower *lo, struct dt_node *n);
/* What combine n has summed, on the ranks it is of, plus value `beside` (-1: none), named as the graph's. */
int dt_lo_own_rows(struct dt_lower *lo, const struct dt_node *n, int beside, int graph_value);
/* Takes out of backward what no gradient of a trained tensor needs. */
void dt_lo_prune(struct dt_lower *lo);
/* Puts between the beginning of an exchange of experts' rows and its end what does not need them. */
void dt_lo_overlap(struct dt_lower *lo);
/* Puts products beside the gathers and scatters of a stream that is cut. */
void dt_lo_stream(struct dt_lower *lo);
/* The value as steps know it. */
int dt_lo_real(const struct dt_lower *lo, int v);

extern const struct dt_op_rule dt_op_rules[DT_OP_N];

/* Lifetimes, segments, and what is written over what, once all nodes are there. */
int dt_prog_finish(struct dt_prog *p);

/* One file of model/op/ has what belongs together. */
#define DT_RULE(name)                                                                                        \
	void dt_shape_##name(struct dt_lower *lo, struct dt_node *n);                                        \
	void dt_back_##name(struct dt_lower *lo, const struct dt_node *n)
DT_RULE(embed);
DT_RULE(norm);
DT_RULE(linear);
DT_RULE(linear_act);
DT_RULE(linear_gated);
DT_RULE(heads_norm);
DT_RULE(rope);
DT_RULE(attention);
DT_RULE(act);
DT_RULE(gated);
DT_RULE(latent_split);
DT_RULE(latent_join);
DT_RULE(latent_absorb);
DT_RULE(latent_values);
DT_RULE(route);
DT_RULE(experts);
DT_RULE(combine);
DT_RULE(dropout);
DT_RULE(lora_down);
DT_RULE(lora_up);
DT_RULE(lora_norm);
DT_RULE(lora_scale);
DT_RULE(loss);
DT_RULE(head);
DT_RULE(enter);
DT_RULE(leave);
DT_RULE(kv_gather);
DT_RULE(ring);
DT_RULE(to_heads);
DT_RULE(to_tokens);
DT_RULE(add);
DT_RULE(pixels);
DT_RULE(conv);
DT_RULE(conv_bias);
DT_RULE(batch_norm);
DT_RULE(pool_max);
DT_RULE(pool_avg);
DT_RULE(flatten);
DT_RULE(classify);
DT_RULE(dispatch);
DT_RULE(exchange);
#undef DT_RULE

#endif
/* SPDX-License-Identifier: Apache-2.0 */
