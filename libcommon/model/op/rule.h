/*
 * Helpers for the ops' rules; only for libcommon/model. A rule has
 *   shape     creates a forward node's results: types, rows and columns on this rank
 *   backward  appends the nodes of its backward to the program; NULL: not implemented
 *   cost      flops, bytes and message of a node (model/op/cost.h); NULL: it only moves its operands
 *   timed     the measured operations it consists of (model/op/timed.h); NULL: its cost is used
 * A backward rule requests forward values by dt_lo_need; only those are kept.
 */
#ifndef DT_MODEL_RULE_H
#define DT_MODEL_RULE_H

#include "model/program.h"

struct dt_info {	     /* a value's state during derivation */
	int from;	     /* tape entry that computes it; -1: none */
	int grad;	     /* its gradient so far; -1: none */
	int uses;	     /* number of forward nodes that read it */
	int copy[DT_LIST_N]; /* recomputed copy in this list; -1: none */
	int copied_for;	     /* the unit for whose backward the copy was made */
	int same;	     /* the value that this is an alias of, as entering costs nothing; -1: none */
	bool whole;	     /* the same on all tensor-parallel ranks, or this rank's rows of that */
	bool partial;	     /* still to be summed over the tensor-parallel ranks */
};

struct dt_lower {
	const struct dt_prog_spec *s;
	struct dt_prog *p;
	struct dt_info *info; /* [value] */
	int value_cap;
	struct dt_step *list[DT_LIST_N];
	int n[DT_LIST_N], cap[DT_LIST_N];
	struct dt_node *tape; /* forward nodes, with logical operands and the graph's parameter indices */
	int ntape, tape_cap;
	int *map;	 /* graph value to program value; -1: none */
	enum dt_list to; /* the list that nodes are added to */
	bool again;	 /* emitted nodes recompute values */
	int unit;	 /* whose backward is being derived */
	bool failed;
	void (*linear8)(struct dt_lower *lo, const struct dt_node *n); /* dt_lo_linear8 */
	int (*put)(struct dt_lower *lo, struct dt_node *n);	       /* implements dt_lo_put */
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
/* Whether the node computes the loss, and with it the first gradients. */
static inline bool dt_lo_is_loss(const struct dt_node *n)
{
	return n->op == DT_OP_LOSS || n->op == DT_OP_CLASSIFY;
}
/* A new value of the shape and type of another. */
int dt_lo_like(struct dt_lower *lo, const char *name, int unit, int v);
/* Scratch of one node. */
int dt_lo_room(struct dt_lower *lo, const char *name, int unit, enum dt_dtype dtype, enum dt_rows rows,
	       int64_t mul, int64_t cols);
/*
 * Adds a step with unit, name and attributes of `like`, without operands. Never NULL; valid until the next is
 * emitted.
 */
struct dt_node *dt_lo_emit(struct dt_lower *lo, enum dt_op op, const struct dt_node *like);
/* The forward value v, kept or recomputed, for use in the current list. */
int dt_lo_need(struct dt_lower *lo, int v);
static inline int dt_lo_grad(const struct dt_lower *lo, int v)
{
	return v < 0 ? -1 : lo->info[v].grad;
}
/* Adds gradient g to that of v, or sets it if v has none. */
void dt_lo_add_grad(struct dt_lower *lo, int v, int g);
void dt_lo_set_grad(struct dt_lower *lo, int v, int g);
/* The tape entry that computes v; NULL: none. */
const struct dt_node *dt_lo_from(const struct dt_lower *lo, int v);
/* Rows (dim 0) or columns of a tensor on this rank; 0 for param -1. */
int64_t dt_lo_dim(const struct dt_lower *lo, int param, int dim);
/* Whether the program is for serving: nothing is kept for backward. */
static inline bool dt_lo_serves(const struct dt_lower *lo)
{
	return lo->s->outputs > 0;
}
/* Whether experts get the rows of all ranks of ep, not ordered by choice (model/op/rows.c). */
static inline bool dt_lo_gathers(const struct dt_lower *lo)
{
	return dt_lo_serves(lo) && lo->s->ep > 1;
}
/* Total rows and columns of a linear's tensors param[0 .. 3), joined. */
void dt_lo_linear_dims(const struct dt_lower *lo, const struct dt_node *n, int64_t *out, int64_t *in);
/* The dimension along which tp cuts a linear's tensor; -1: none, or one rank. */
int dt_lo_cut(const struct dt_lower *lo, int param);
static inline const char *dt_lo_name(const struct dt_lower *lo, int graph_value)
{
	return lo->s->graph->value_name[graph_value];
}
bool dt_lo_in_8_bits(const struct dt_lower *lo, const struct dt_node *n);
/* Emits a forward node: one step, or several for a linear in 8 bits. Operands are logical values. */
void dt_lo_forward(struct dt_lower *lo, const struct dt_node *n);
/* Shapes a node, puts it on the tape and emits it; returns its first result. */
static inline int dt_lo_put(struct dt_lower *lo, struct dt_node *n)
{
	return lo->put(lo, n);
}
void dt_lo_linear8(struct dt_lower *lo, const struct dt_node *n);
/* Adds dkv, summed over the context-parallel ranks, to dqkv; returns the gradient. */
int dt_lo_kv_scatter(struct dt_lower *lo, const struct dt_node *n, int dqkv, int dkv);
/* Emits the gradient of attention n's sinks, if it has them; o, lse: its results with them. */
void dt_lo_sinks(struct dt_lower *lo, const struct dt_node *n, int dy, int o, int lse);
/* Emits dy^T x for the tensors param[0 .. 3) of n, in the list of weight gradients. */
void dt_lo_weights(struct dt_lower *lo, const struct dt_node *n, int dy);
/* Inserts the nodes that bring a node of experts its rows, and marks it. */
void dt_lo_choose_rows(struct dt_lower *lo, struct dt_node *n);
/*
 * Returns the results of combine node n to the ranks of their rows and adds value `beside` (-1: none); named
 * as graph_value.
 */
int dt_lo_own_rows(struct dt_lower *lo, const struct dt_node *n, int beside, int graph_value);
/* Removes from backward what no trained tensor's gradient needs. */
void dt_lo_prune(struct dt_lower *lo);
/* Moves nodes that do not need experts' rows between the start and the end of an exchange. */
void dt_lo_overlap(struct dt_lower *lo);
/* Overlaps products with the gathers and scatters of a cut residual stream. */
void dt_lo_stream(struct dt_lower *lo);
/* The value that v is an alias of, or v. */
int dt_lo_real(const struct dt_lower *lo, int v);

extern const struct dt_op_rule dt_op_rules[DT_OP_N];

/* Computes lifetimes, segments and reuse of memory, once all nodes are there. */
int dt_prog_finish(struct dt_prog *p);

/* The rules, by file of model/op/. */
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
DT_RULE(join);
DT_RULE(ssm_conv);
DT_RULE(ssm_scan);
DT_RULE(ssm_gate);
DT_RULE(ssm_norm);
void dt_shape_given(struct dt_lower *lo, struct dt_node *n);
void dt_shape_states(struct dt_lower *lo, struct dt_node *n);
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
DT_RULE(tokens);
DT_RULE(class_row);
DT_RULE(classify);
DT_RULE(dispatch);
DT_RULE(exchange);
#undef DT_RULE

#endif
/* SPDX-License-Identifier: Apache-2.0 */
