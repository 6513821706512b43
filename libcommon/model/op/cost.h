/*
 * What a node of a program costs: arithmetic, memory traffic and messages, from its op and the sizes of its
 * operands on this rank. The function of an op stands next to its rule; an op without one does no products
 * and reads and writes each operand once.
 */
#ifndef DT_MODEL_COST_H
#define DT_MODEL_COST_H

#include "model/program.h"

/* What bounds a node besides memory: nothing, products of matrices (also of 8-bit floats), attention. */
enum dt_cost_kind { DT_COST_PASS, DT_COST_PRODUCT, DT_COST_PRODUCT8, DT_COST_ATTENTION };

enum dt_message {
	DT_MSG_NONE,
	DT_MSG_ALL_REDUCE,
	DT_MSG_GATHER,
	DT_MSG_REDUCE_SCATTER,
	DT_MSG_ALL_TO_ALL,
	DT_MSG_RING,
};

struct dt_node_cost {
	/*
	 * Multiplications and additions of products. Attention counts the pairs that its mask lets
	 * through, its backward the five products of FlashAttention (Dao et al. 2022).
	 */
	double flops;
	/*
	 * What MFU counts of the node (Chowdhery et al. 2022, PaLM, appendix B): attention over all pairs,
	 * or those of its window, its backward twice its forward; nothing for what is computed again.
	 */
	double model_flops;
	/* Bytes of operands, each once; the first microbatch of a step overwrites weight gradients. */
	double read, written;
	double passes; /* of these, by passes in front of or behind the node's products */
	enum dt_cost_kind kind;
	enum dt_message message;
	/* Of the whole tensor: all ranks' parts of what is gathered, scattered or goes around; what a rank
	 * holds of an all-to-all. */
	double message_bytes;
	bool over_cp; /* between context-parallel ranks; else tensor-parallel ones */
	bool over_ep; /* between those that experts are cut over */
	bool begins;  /* the message is under way from here on, */
	bool waits;   /* until here */
	bool parts;   /* a product beside a gather that has begun, whose end it is */
	bool sends;   /* a product beside whose rows what it makes of others' is sent */
	bool ends;    /* the message has been under way since that product */
};

struct dt_cost_site { /* what a node does not say itself */
	const struct dt_prog *p;
	int64_t seq;	  /* tokens a sequence */
	int tp, cp, ep;	  /* tensor-parallel ranks, context-parallel ones; those that experts are cut over */
	int64_t chunk[2]; /* cp > 1: where in a sequence the two chunks begin that this rank has */
	enum dt_dtype compute; /* of weights; their gradients are f32 */
	int64_t loss_chunk;    /* rows of logits at a time */
	/*
	 * Serving; 0 while training. Each row is a sequence's next token that sees `context` keys, and so
	 * many bytes of a cache are read a key, layer and sequence. weight_bytes: an element of a matrix as
	 * kept.
	 */
	int64_t context;
	double cache_row, weight_bytes;
	const int64_t (*param)[2]; /* rows and columns of tensors, by local number */
};

struct dt_node_cost dt_step_cost(const struct dt_cost_site *s, const struct dt_step *step);
/* "all-reduce", "gather", "reduce-scatter", "all-to-all"; "" for none. */
const char *dt_message_name(enum dt_message m);

/* ---- for the ops ---- */

/* A product of a matrix with `numel` elements, once for each row. */
struct dt_node_cost dt_cost_product(struct dt_node_cost r, double rows, double numel);
double dt_cost_bytes(const struct dt_cost_site *s, int value);
/* Elements of the node's tensors param[first .. last). */
double dt_cost_numel(const struct dt_cost_site *s, const struct dt_node *n, int first, int last);
/* Bytes of an element of a weight. */
static inline double dt_cost_weight(const struct dt_cost_site *s)
{
	return s->weight_bytes > 0 ? s->weight_bytes : (double)dt_dtype_size(s->compute);
}
/* Every value and weight read, every result written. */
struct dt_node_cost dt_cost_move(const struct dt_cost_site *s, const struct dt_node *n);
/* The same where gradients of the node's tensors are added to. */
struct dt_node_cost dt_cost_move_add(const struct dt_cost_site *s, const struct dt_node *n);

typedef struct dt_node_cost dt_cost_of(const struct dt_cost_site *s, const struct dt_node *n);
dt_cost_of dt_cost_embed, dt_cost_embed_b, dt_cost_linear, dt_cost_colsum, dt_cost_dw, dt_cost_dx,
	dt_cost_quantize, dt_cost_linear8, dt_cost_dx8, dt_cost_dw8, dt_cost_attention, dt_cost_attention_b,
	dt_cost_route, dt_cost_route_b, dt_cost_experts, dt_cost_experts_dx, dt_cost_experts_dw, dt_cost_loss,
	dt_cost_latent_absorb, dt_cost_latent_values, dt_cost_combine, dt_cost_combine_b, dt_cost_dispatch,
	dt_cost_dispatch_b, dt_cost_send_rows, dt_cost_wait, dt_cost_head, dt_cost_kv_gather,
	dt_cost_kv_scatter, dt_cost_exchange, dt_cost_ring, dt_cost_ring_b, dt_cost_enter, dt_cost_leave,
	dt_cost_lora_down, dt_cost_dropout, dt_cost_lora_norm, dt_cost_lora_scale, dt_cost_lora_up,
	dt_cost_lora_up_b, dt_cost_lora_dx, dt_cost_conv, dt_cost_batch_norm, dt_cost_batch_norm_b,
	dt_cost_classify, dt_cost_heads_norm, dt_cost_heads_norm_b;

#endif
/* SPDX-License-Identifier: Apache-2.0 */
