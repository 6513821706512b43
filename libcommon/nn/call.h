/* Operands as the functions that execute ops (nn/call_*.c) see them; only for libcommon/nn. */
#ifndef DT_NN_CALL_H
#define DT_NN_CALL_H

#include "nn/exec.h"

#define TRY(call)                                                                                            \
	do {                                                                                                 \
		int rc_ = (call);                                                                            \
		if (rc_ < 0)                                                                                 \
			return dt_kernel_check(rc_, #call, err);                                             \
	} while (0)

typedef int dt_call(struct dt_exec *x, const struct dt_node *n, struct dt_err *err);

static inline void *dt_call_at(const struct dt_exec *x, int v)
{
	return v < 0 ? NULL : x->base + x->at[v].offset + (uint64_t)x->flight->slot * x->at[v].stride;
}

/* [rows] The positions for position embeddings and RoPE. */
static inline const int32_t *dt_call_pos(const struct dt_exec *x)
{
	return x->flight->pos ? x->flight->pos : x->pos;
}

/* Bytes of a value before the first row that calls work on. */
static inline int64_t dt_call_skip(const struct dt_exec *x, const struct dt_value *v)
{
	return v->rows == DT_ROWS_NONE ? 0 : x->row * v->mul * v->cols * dt_dtype_size(v->dtype);
}

/* A value as a matrix, and as a vector; DT_NONE for -1. */
static inline struct dt_tensor dt_call_mat(const struct dt_exec *x, int v)
{
	return v < 0 ? DT_NONE
		     : dt_t2((char *)dt_call_at(x, v) + dt_call_skip(x, &x->p->value[v]),
			     x->p->value[v].dtype, dt_value_rows(x->p, v), x->p->value[v].cols);
}
static inline struct dt_tensor dt_call_vec(const struct dt_exec *x, int v)
{
	return v < 0 ? DT_NONE : dt_t1(dt_call_at(x, v), x->p->value[v].dtype, dt_value_numel(x->p, v));
}

/* A vector of ranks' heads, of which a node under Ulysses has a part. */
struct dt_tensor dt_call_sinks(const struct dt_exec *x, const struct dt_node *n, const struct dt_tensor *t,
			       int v);

/* call_value.c: the value head: x->objective.value = in w; backward adds to din, and sets or adds to dw */
int dt_call_values(struct dt_exec *x, struct dt_tensor in, struct dt_tensor w, struct dt_err *err);
int dt_call_values_back(struct dt_exec *x, struct dt_tensor in, struct dt_tensor w, struct dt_tensor din,
			struct dt_tensor dw, bool accumulate, struct dt_err *err);

/* Rows [first, first + n) of a matrix; DT_NONE stays DT_NONE. */
static inline struct dt_tensor dt_call_rows_of(struct dt_tensor t, int64_t first, int64_t n)
{
	return t.data ? dt_t2((char *)t.data + first * t.dim[1] * dt_dtype_size(t.dtype), t.dtype, n,
			      t.dim[1])
		      : t;
}

/* to [n] = rows `row` [n] of from, each of `size` bytes. In place if rows ascend and to is from. */
static inline int dt_call_pick(struct dt_dev *dev, void *to, const void *from, size_t size,
			       const int32_t *row, int64_t n)
{
	int rc = 0;

	for (int64_t i = 0; i < n && rc == 0; i++) {
		char *at = (char *)to + (size_t)i * size;
		const char *old = (const char *)from + (size_t)row[i] * size;

		rc = at == old ? 0 : dt_dev_copy(dev, at, old, size);
	}
	return rc;
}

/* call_ends.c: the rows of an embedding's table of positions from position 0 on, of t (x->w or x->g). */
struct dt_tensor dt_call_positions(const struct dt_exec *x, const struct dt_tensor *t,
				   const struct dt_node *n);

/* Adds the first row of an embedding's token types, of which all tokens of training are, to rows y. */
int dt_call_first_type(struct dt_exec *x, const struct dt_node *n, struct dt_tensor y, struct dt_err *err);

static inline struct dt_tensor dt_call_param(const struct dt_tensor *t, int param)
{
	return param < 0 ? DT_NONE : t[param];
}
/* Up to three tensors that are next to each other in memory, as one; t is x->w or x->g. */
static inline struct dt_tensor dt_call_joined(const struct dt_tensor *t, const int param[3])
{
	struct dt_tensor r = dt_call_param(t, param[0]);

	for (int i = 1; i < 3; i++)
		if (param[i] >= 0)
			r.dim[0] += t[param[i]].dim[0];
	return r;
}

/*
 * The value that a router produces: first: where each expert's rows begin among this rank's rows; owned:
 * likewise among the rows received from other ranks; expert, at, from: expert, place and row of each choice.
 */
struct dt_choices {
	int32_t *first, *owned, *expert, *at, *from;
	int64_t n;
};
static inline struct dt_choices dt_call_choices(const struct dt_exec *x, const struct dt_node *n, int v)
{
	int64_t count = x->p->rows[x->p->value[v].rows] * n->attr.used, firsts = n->attr.experts + 1;
	int32_t *p = dt_call_at(x, v), *q = p + 2 * firsts;

	return (struct dt_choices){p, p + firsts, q, q + count, q + 2 * count, count};
}
/* How a node's rows choose experts. */
static inline struct dt_moe dt_call_moe(const struct dt_attr *a)
{
	return (struct dt_moe){.experts = a->experts,
			       .used = a->used,
			       .unscaled = a->unscaled,
			       .sigmoid = a->sigmoid,
			       .groups = a->groups,
			       .groups_used = a->groups_used,
			       .scale = a->route_scale};
}
/* A value with one row per choice, cut to the rows in use; all of it if choices is -1 or on a CUDA device. */
struct dt_tensor dt_call_live(const struct dt_exec *x, const struct dt_node *n, int v, int choices);

/*
 * call_host.c: dt_call_seen returns t's data if the host can access it, else an uninitialized buffer of that
 * size (NULL: out of memory). dt_call_unseen copies the buffer to the device if rc is 0, and frees it.
 * dt_call_move copies n bytes to the host or from it, synchronously.
 */
void *dt_call_seen(const struct dt_exec *x, struct dt_tensor t);
int dt_call_unseen(struct dt_exec *x, struct dt_tensor t, void *host, int rc, struct dt_err *err);
int dt_call_move(struct dt_exec *x, void *to, const void *from, size_t n, struct dt_err *err);

/*
 * call_stream.c: a product computed one rank's rows after another, overlapped with communication
 * (dt_attr.parts, sends), or all at once. `of` computes some of its rows.
 */
typedef int dt_call_rows(struct dt_exec *x, const struct dt_node *n, int64_t first, int64_t rows,
			 struct dt_err *err);
int dt_call_in_parts(struct dt_exec *x, const struct dt_node *n, dt_call_rows *of, struct dt_err *err);
int dt_stream_open(struct dt_stream *s, const struct dt_stage *stage, int tp);
void dt_stream_close(struct dt_stream *s);
/* move: advances messages in flight. drop: waits for all of them after a failure. */
void dt_stream_move(struct dt_exec *x);
void dt_stream_drop(struct dt_exec *x);
/* The parameters of a node of op ROPE. */
struct dt_rope dt_call_rope_of(const struct dt_exec *x, const struct dt_node *n);

/* Advances the exchange of expert rows in flight. */
void dt_call_exchange_on(struct dt_exec *x);

/* The function that executes each op; NULL: not implemented. */
extern dt_call *const dt_calls[DT_OP_N];
/* Runs step number `step` of x's program, waits for the device, and records it as a span of the trace. */
int dt_call_traced(struct dt_exec *x, int step, struct dt_err *err);
/* Records a span for the unit of a segment, which began at `began`. */
void dt_call_trace_unit(struct dt_exec *x, const struct dt_segment *s, double began);

dt_call dt_call_embed, dt_call_norm, dt_call_linear, dt_call_linear_act, dt_call_heads_norm, dt_call_rope,
	dt_call_attention, dt_call_act, dt_call_gated, dt_call_loss, dt_call_enter, dt_call_leave,
	dt_call_enter_wait, dt_call_add, dt_call_quantize, dt_call_linear8, dt_call_dx8, dt_call_dw8,
	dt_call_embed_b, dt_call_norm_b, dt_call_colsum, dt_call_dw, dt_call_dx, dt_call_dx_act,
	dt_call_heads_norm_b, dt_call_rope_b, dt_call_attention_b, dt_call_sink_b, dt_call_act_b,
	dt_call_gated_b, dt_call_kv_gather, dt_call_kv_scatter, dt_call_to_heads, dt_call_to_tokens,
	dt_call_ring, dt_call_ring_b, dt_call_latent_split, dt_call_latent_split_b, dt_call_latent_join,
	dt_call_latent_join_b, dt_call_join, dt_call_join_b, dt_call_lora_norm, dt_call_lora_scale,
	dt_call_lora_scale_b, dt_call_dropout, dt_call_dropout_b, dt_call_lora_down, dt_call_lora_up,
	dt_call_lora_up_b, dt_call_lora_dx, dt_call_route, dt_call_route_b, dt_call_experts,
	dt_call_experts_dx, dt_call_experts_dw, dt_call_experts_db, dt_call_dispatch, dt_call_dispatch_b,
	dt_call_combine, dt_call_combine_b, dt_call_exchange, dt_call_exchange_wait, dt_call_pixels,
	dt_call_conv, dt_call_conv_bias, dt_call_conv_dx, dt_call_conv_dw, dt_call_batch_norm,
	dt_call_batch_norm_b, dt_call_pool_max, dt_call_pool_max_b, dt_call_pool_avg, dt_call_pool_avg_b,
	dt_call_flatten, dt_call_classify, dt_call_tokens, dt_call_tokens_b, dt_call_class_row,
	dt_call_class_row_b, dt_call_ssm_conv, dt_call_ssm_conv_b, dt_call_ssm_scan, dt_call_ssm_scan_b,
	dt_call_ssm_gate, dt_call_ssm_gate_b, dt_call_ssm_norm, dt_call_ssm_norm_b;

/* Copies value `from` to `to`, unless both are at the same address. */
int dt_call_moved(struct dt_exec *x, int to, int from);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
