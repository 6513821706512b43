/*
 * The cost of a program's node: arithmetic, memory traffic and messages, from its op and the sizes of its
 * operands on this rank. An op's cost function is next to its rule; an op without one does no products and
 * reads and writes each operand once.
 */
#ifndef DT_MODEL_COST_H
#define DT_MODEL_COST_H

#include "model/program.h"

/* What limits a node besides memory bandwidth: nothing, matrix products (also in 8-bit floats), attention. */
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
	 * Multiplications and additions of products. Attention counts the pairs that its mask allows, its
	 * backward the five products of FlashAttention (Dao et al. 2022).
	 */
	double flops;
	/*
	 * Flops that MFU counts (Chowdhery et al. 2022, PaLM, appendix B): attention over all pairs, or those
	 * of its window; backward is twice forward; recomputation counts nothing.
	 */
	double model_flops;
	/* Bytes of operands, each once; the first microbatch of a step overwrites weight gradients. */
	double read, written;
	double passes; /* bytes of these moved by separate passes before or after the node's products */
	enum dt_cost_kind kind;
	enum dt_message message;
	/* Bytes of the whole tensor for gather, scatter and ring; of a rank's part for all-to-all. */
	double message_bytes;
	bool over_cp; /* between context-parallel ranks; else tensor-parallel ranks */
	bool over_ep; /* between expert-parallel ranks */
	bool begins;  /* the message starts here and runs */
	bool waits;   /* until here */
	bool parts;   /* a product that overlaps a started gather and ends it */
	bool sends;   /* a product that sends results for other ranks as it computes them */
	bool ends;    /* the message started with that product */
};

struct dt_cost_site { /* what a node does not contain itself */
	const struct dt_prog *p;
	int64_t seq;	       /* sequence length in tokens */
	int tp, cp, ep;	       /* tensor-, context- and expert-parallel ranks */
	int64_t chunk[2];      /* cp > 1: where in a sequence this rank's two chunks start */
	enum dt_dtype compute; /* of weights; gradients are f32 */
	int64_t loss_chunk;    /* rows of logits computed at a time */
	int64_t targets;       /* rows of a microbatch with a target, where that is fixed; else 0 */
	bool picks;	       /* a processor: the loss of these rows alone is computed if they are few */
	/*
	 * Serving; 0 in training. Each row is the next token of a sequence and sees `context` keys; cache_row
	 * bytes of KV cache are read per key, layer and sequence. weight_bytes: stored bytes per element of a
	 * matrix.
	 */
	int64_t context;
	double cache_row, weight_bytes;
	const int64_t (*param)[2]; /* rows and columns of tensors, by local index */
};

/* stream.c: rows of a product with a matrix of `numel` elements between two polls of messages. */
int64_t dt_stream_slice(double numel, int64_t part);

struct dt_node_cost dt_step_cost(const struct dt_cost_site *s, const struct dt_step *step);
/* "all-reduce", "gather", "reduce-scatter", "all-to-all"; "" for none. */
const char *dt_message_name(enum dt_message m);

/* ---- for the ops ---- */

/* Rows of which a processor computes the loss, of `all` rows. */
static inline int64_t dt_cost_picked(const struct dt_cost_site *s, int64_t all)
{
	return s->targets && (all - s->targets) * DT_LOSS_PICKS >= all ? s->targets : all;
}

/* Adds a product of `rows` rows with a matrix of `numel` elements. */
struct dt_node_cost dt_cost_product(struct dt_node_cost r, double rows, double numel);
double dt_cost_bytes(const struct dt_cost_site *s, int value);
/* Elements of the node's tensors param[first .. last). */
double dt_cost_numel(const struct dt_cost_site *s, const struct dt_node *n, int first, int last);
/* Bytes per element of a weight. */
static inline double dt_cost_weight(const struct dt_cost_site *s)
{
	return s->weight_bytes > 0 ? s->weight_bytes : (double)dt_dtype_size(s->compute);
}
/* Reads every value and weight, writes every result. */
struct dt_node_cost dt_cost_move(const struct dt_cost_site *s, const struct dt_node *n);
/* The same, for nodes that accumulate into gradients of their tensors. */
struct dt_node_cost dt_cost_move_add(const struct dt_cost_site *s, const struct dt_node *n);

typedef struct dt_node_cost dt_cost_of(const struct dt_cost_site *s, const struct dt_node *n);
dt_cost_of dt_cost_embed, dt_cost_embed_b, dt_cost_linear, dt_cost_colsum, dt_cost_dw, dt_cost_dx,
	dt_cost_quantize, dt_cost_linear8, dt_cost_dx8, dt_cost_dw8, dt_cost_attention, dt_cost_attention_b,
	dt_cost_route, dt_cost_route_b, dt_cost_experts, dt_cost_experts_dx, dt_cost_experts_dw,
	dt_cost_experts_db, dt_cost_loss, dt_cost_latent_absorb, dt_cost_latent_values, dt_cost_combine,
	dt_cost_combine_b, dt_cost_dispatch, dt_cost_dispatch_b, dt_cost_send_rows, dt_cost_wait,
	dt_cost_head, dt_cost_kv_gather, dt_cost_kv_scatter, dt_cost_exchange, dt_cost_ring, dt_cost_ring_b,
	dt_cost_enter, dt_cost_leave, dt_cost_lora_down, dt_cost_dropout, dt_cost_lora_norm,
	dt_cost_lora_scale, dt_cost_lora_up, dt_cost_lora_up_b, dt_cost_lora_dx, dt_cost_conv,
	dt_cost_batch_norm, dt_cost_batch_norm_b, dt_cost_classify, dt_cost_class_row, dt_cost_class_row_b,
	dt_cost_heads_norm, dt_cost_heads_norm_b, dt_cost_ssm_scan, dt_cost_ssm_scan_b, dt_cost_ssm_norm,
	dt_cost_ssm_norm_b;

#endif
/* SPDX-License-Identifier: Apache-2.0 */
