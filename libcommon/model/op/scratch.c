#include "model/op/scratch_need.h"

#include "kernels/attention.h"
#include "kernels/fp8.h"
#include "kernels/layernorm.h"
#include "kernels/rmsnorm.h"

/* ---- products ---- */

/*
 * A product that overlaps messages (model/op/stream.c) is made in slices of each rank's rows, or whole if the
 * bits would differ. Slices often take less, but may be made in another way that takes more.
 */
static void rows(const struct dt_need *w, const struct dt_node *n, struct dt_product p)
{
	const int64_t part = p.m / w->s->tp, each = dt_stream_slice((double)p.n * (double)p.k, part);

	dt_need_product(w, p);
	if (!n->attr.parts && !n->attr.sends)
		return;
	p.m = each;
	dt_need_product(w, p);
	p.m = each ? part % each : 0;
	dt_need_product(w, p);
}

static void linear(const struct dt_need *w, const struct dt_node *n)
{
	rows(w, n,
	     (struct dt_product){.m = dt_need_rows(w, n->in[0]),
				 .n = dt_need_out(w, n),
				 .k = dt_need_in(w, n),
				 .tb = true,
				 .in = dt_need_type(w, n->in[0]),
				 .out = dt_need_type(w, n->out[0]),
				 .bias = n->param[3] >= 0});
}

static void lora_down(const struct dt_need *w, const struct dt_node *n)
{
	struct dt_node plain = *n;

	plain.param[3] = -1; /* not a bias */
	linear(w, &plain);
}

static void dx(const struct dt_need *w, const struct dt_node *n)
{
	rows(w, n,
	     (struct dt_product){.m = dt_need_rows(w, n->in[0]),
				 .n = dt_need_in(w, n),
				 .k = dt_need_out(w, n),
				 .in = dt_need_type(w, n->in[0]),
				 .out = dt_need_type(w, n->out[0])});
}

/* dw (+)= dy^T x; whether it is added changes nothing. */
static void gradient(const struct dt_need *w, int dy, int x)
{
	dt_need_product(w, (struct dt_product){.m = dt_need_cols(w, dy),
					       .n = dt_need_cols(w, x),
					       .k = dt_need_rows(w, dy),
					       .ta = true,
					       .in = dt_need_type(w, dy),
					       .out = DT_F32});
}

static void dw(const struct dt_need *w, const struct dt_node *n)
{
	gradient(w, n->in[0], n->in[1]);
}

static void colsum(const struct dt_need *w, const struct dt_node *n)
{
	dt_need_op(w, dt_colsum_scratch(w->on, dt_need_rows(w, n->in[0]), dt_need_cols(w, n->in[0])));
}

/* The gradient of a table of token types. */
static void embed_b(const struct dt_need *w, const struct dt_node *n)
{
	if (n->param[2] >= 0)
		colsum(w, n);
}

static void quantize(const struct dt_need *w, const struct dt_node *n)
{
	dt_need_op(w, dt_fp8_quantize_scratch(w->on, n->out[1] >= 0));
}

static void product8(const struct dt_need *w, int64_t rows, int64_t cols, int64_t k, enum dt_dtype out,
		     bool bias)
{
	const struct dt_product p = {.m = rows, .n = cols, .k = k, .out = out, .bias = bias};

	dt_fp8_matmul_scratch(w->on, &p, w->s->compute == DT_F32, w->ret);
}

static void linear8(const struct dt_need *w, const struct dt_node *n)
{
	product8(w, dt_need_rows(w, n->out[0]), dt_need_out(w, n), dt_need_in(w, n),
		 dt_need_type(w, n->out[0]), n->param[3] >= 0);
}

static void dx8(const struct dt_need *w, const struct dt_node *n)
{
	product8(w, dt_need_rows(w, n->out[0]), dt_need_in(w, n), dt_need_out(w, n),
		 dt_need_type(w, n->out[0]), false);
}

static void dw8(const struct dt_need *w, const struct dt_node *n)
{
	product8(w, dt_need_out(w, n), dt_need_in(w, n), w->s->p->rows[DT_ROWS_ALL], DT_F32, false);
}

/* ---- norms ---- */

void dt_need_norm(const struct dt_need *w, const struct dt_node *n)
{
	const int64_t cols = dt_need_cols(w, n->in[0]);

	dt_need_op(w, n->attr.layernorm ? dt_layernorm_forward_scratch(w->on, cols)
					: dt_rmsnorm_forward_scratch(w->on, cols));
}

static void norm_b(const struct dt_need *w, const struct dt_node *n)
{
	const int64_t rows = dt_need_rows(w, n->in[2]), cols = dt_need_cols(w, n->in[2]);

	dt_need_op(w, n->attr.layernorm ? dt_layernorm_backward_scratch(w->on, rows, cols)
					: dt_rmsnorm_backward_scratch(w->on, rows, cols));
}

static void of_heads(const struct dt_need *w, const struct dt_node *n, bool backward, bool sums)
{
	const int64_t rows = w->s->p->rows[DT_ROWS_ALL];

	for (int keys = 0; keys < 2; keys++) {
		const int64_t all = keys ? n->attr.kv_heads : n->attr.heads, heads = n->attr.whole ? 1 : all,
			      dim = n->attr.head_dim * (n->attr.whole ? all : 1);

		dt_need_op(w, backward ? dt_rmsnorm_backward_scratch(w->on, rows * heads, dim)
				       : dt_rmsnorm_forward_scratch(w->on, dim));
		if (sums)
			dt_need_op(w, dt_heads_sums_scratch(w->on, dim));
	}
}

void dt_need_heads_norm(const struct dt_need *w, const struct dt_node *n)
{
	of_heads(w, n, false, n->out[3] >= 0);
}

static void heads_norm_b(const struct dt_need *w, const struct dt_node *n)
{
	of_heads(w, n, true, n->out[1] >= 0);
}

/* ---- attention ---- */

static struct dt_attn attn_of(const struct dt_need *w, const struct dt_attr *a)
{
	const int64_t rows = w->s->p->rows[DT_ROWS_ALL];

	return (struct dt_attn){.batch = a->tokens ? rows : rows * w->s->cp / w->s->seq,
				.heads = a->heads,
				.kv_heads = a->kv_heads,
				.head_dim = a->head_dim,
				.value_dim = a->value_dim == a->head_dim ? 0 : a->value_dim};
}

/* qkv: the queries; gathered: keys of all ranks of cp; else those of one rank, or of all under Ulysses. */
static void attend(const struct dt_need *w, const struct dt_node *n, int qkv, bool gathered, bool backward)
{
	const struct dt_attn a = attn_of(w, &n->attr);
	const int64_t seq = n->attr.tokens ? n->attr.tokens : w->s->seq, here = seq / w->s->cp,
		      rows = w->s->p->value[qkv].rows == DT_ROWS_SEQ ? seq : here,
		      keys = gathered ? seq : rows;

	dt_need_op(w, backward ? dt_attention_backward_scratch(w->on, dt_need_type(w, qkv), &a, rows, keys)
			       : dt_attention_forward_scratch(w->on, dt_need_type(w, qkv), &a, rows, keys));
}

static void attention(const struct dt_need *w, const struct dt_node *n)
{
	attend(w, n, n->in[0], n->in[1] >= 0, false);
}

static void attention_b(const struct dt_need *w, const struct dt_node *n)
{
	attend(w, n, n->in[3], n->in[4] >= 0, true);
}

static void ring(const struct dt_need *w, const struct dt_node *n)
{
	attend(w, n, n->in[0], false, false);
}

static void ring_b(const struct dt_need *w, const struct dt_node *n)
{
	attend(w, n, n->in[3], false, true);
}

/* ---- the loss, in chunks of rows ---- */

static void loss_rows(const struct dt_need *w, const struct dt_node *n, int64_t rows)
{
	const int64_t hidden = dt_need_cols(w, n->in[0]), vocab = w->s->param[n->param[0]][0];
	const enum dt_dtype t = dt_need_type(w, n->in[0]);

	dt_need_product(w, (struct dt_product){.m = rows,
					       .n = vocab,
					       .k = hidden,
					       .tb = true,
					       .in = t,
					       .out = DT_F32,
					       .bias = n->param[2] >= 0});
	if (n->param[2] >= 0)
		dt_need_op(w, dt_colsum_scratch(w->on, rows, vocab));
	if (!n->attr.frozen)
		dt_need_product(
			w, (struct dt_product){
				   .m = vocab, .n = hidden, .k = rows, .ta = true, .in = t, .out = DT_F32});
	dt_need_product(w, (struct dt_product){.m = rows, .n = hidden, .k = vocab, .in = t, .out = t});
}

static void loss(const struct dt_need *w, const struct dt_node *n)
{
	const int64_t rows = dt_cost_picked(w->s, dt_need_rows(w, n->in[0])),
		      chunk = w->s->loss_chunk < rows ? w->s->loss_chunk : rows;

	loss_rows(w, n, chunk);
	if (rows % chunk)
		loss_rows(w, n, rows % chunk);
}

static void (*const needs[DT_OP_N])(const struct dt_need *w, const struct dt_node *n) = {
	[DT_OP_EMBED_B] = embed_b,
	[DT_OP_NORM] = dt_need_norm,
	[DT_OP_NORM_B] = norm_b,
	[DT_OP_HEADS_NORM] = dt_need_heads_norm,
	[DT_OP_HEADS_NORM_B] = heads_norm_b,
	[DT_OP_LINEAR] = linear,
	[DT_OP_LINEAR_ACT] = linear,
	[DT_OP_DX] = dx,
	[DT_OP_DX_ACT] = dx,
	[DT_OP_DW] = dw,
	[DT_OP_COLSUM] = colsum,
	[DT_OP_QUANTIZE] = quantize,
	[DT_OP_LINEAR8] = linear8,
	[DT_OP_DX8] = dx8,
	[DT_OP_DW8] = dw8,
	[DT_OP_LORA_DOWN] = lora_down,
	[DT_OP_LORA_UP] = dt_need_lora_up,
	[DT_OP_LORA_UP_B] = dt_need_lora_up_b,
	[DT_OP_LORA_DX] = dt_need_lora_dx,
	[DT_OP_LORA_NORM] = dt_need_lora_norm,
	[DT_OP_LORA_SCALE] = dt_need_lora_scale,
	[DT_OP_LORA_SCALE_B] = dt_need_lora_scale_b,
	[DT_OP_ATTENTION] = attention,
	[DT_OP_ATTENTION_B] = attention_b,
	[DT_OP_RING] = ring,
	[DT_OP_RING_B] = ring_b,
	[DT_OP_ROUTE] = dt_need_route,
	[DT_OP_ROUTE_B] = dt_need_route_b,
	[DT_OP_EXPERTS] = dt_need_experts_y,
	[DT_OP_EXPERTS_DX] = dt_need_experts_dx,
	[DT_OP_EXPERTS_DW] = dt_need_experts_dw,
	[DT_OP_LOSS] = loss,
	[DT_OP_SSM_CONV] = dt_need_ssm_conv,
	[DT_OP_SSM_CONV_B] = dt_need_ssm_conv_b,
	[DT_OP_SSM_SCAN] = dt_need_ssm_scan,
	[DT_OP_SSM_SCAN_B] = dt_need_ssm_scan_b,
	[DT_OP_SSM_GATE] = dt_need_ssm_gate,
	[DT_OP_SSM_GATE_B] = dt_need_ssm_gate,
	[DT_OP_SSM_NORM] = dt_need_ssm_norm,
	[DT_OP_SSM_NORM_B] = dt_need_ssm_norm_b,
	[DT_OP_PIXELS] = dt_need_pixels,
	[DT_OP_CONV] = dt_need_conv,
	[DT_OP_CONV_DX] = dt_need_conv,
	[DT_OP_CONV_DW] = dt_need_conv_dw,
	[DT_OP_BATCH_NORM] = dt_need_batch_norm,
	[DT_OP_BATCH_NORM_B] = dt_need_batch_norm_b,
	[DT_OP_POOL_MAX] = dt_need_pool,
	[DT_OP_POOL_MAX_B] = dt_need_pool_b,
	[DT_OP_POOL_AVG] = dt_need_pool,
	[DT_OP_POOL_AVG_B] = dt_need_pool_b,
	[DT_OP_CLASSIFY] = dt_need_classify,
};

void dt_node_scratch(const struct dt_cost_site *s, const struct dt_scratch_on *on, const struct dt_node *n,
		     struct dt_scratch *ret)
{
	const struct dt_need w = {s, on, ret};

	if (needs[n->op] && on->threads)
		needs[n->op](&w, n);
}
/* SPDX-License-Identifier: Apache-2.0 */
