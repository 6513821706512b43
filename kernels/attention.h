/*
 * Causal self-attention without the s x s matrix in memory (online softmax: Milakov & Gimelshein 2018;
 * tiling and backward: Dao et al., FlashAttention, 2022, algorithms 1, 2 and 4).
 *
 * Training
 *   qkv [batch * seq, (heads + 2 kv_heads) * head_dim]: the q heads first, then k, then v. Head h reads
 *       key/value head h / (heads / kv_heads). With value_dim set, heads of v and o have value_dim elements
 *       instead of head_dim (latent attention).
 *   s_ij = scale q_i . k_j for j <= i (and i - j < window where window > 0), scale > 0;  p = softmax(s)
 *   With softcap > 0 each s_ij is softcap tanh(scale q_i . k_j / softcap), also in attention_paged (Gemma 2).
 *   o_i = sum_j p_ij v_j     o [batch * seq, heads * head_dim]                 = overwritten
 *   lse = log sum_j exp(s_ij)     [batch, heads, seq] f32                      = overwritten
 *   Saved for backward: qkv, o and lse.
 * Backward
 *   D_i = do_i . o_i;  dv_j = sum_i p_ij do_i;  ds_ij = p_ij (do_i . v_j - D_i)
 *   With softcap > 0 ds_ij is multiplied by 1 - (s_ij / softcap)^2.
 *   dq_i = scale sum_j ds_ij k_j;  dk_j = scale sum_i ds_ij q_i; dk and dv are summed over the q heads that
 *   share the kv head. dqkv is overwritten and may not alias qkv.
 * All accumulation is f32 and in an order that does not depend on the number of threads. On a processor with
 * AVX512_BF16, bf16 inputs are multiplied as bf16, and p and ds are rounded to bf16 before their products;
 * elsewhere bf16 is widened to f32. f16 is always widened to f32.
 *
 * Spans: queries and keys in different rows (context parallelism), and packed documents
 *   attention_span_forward, _backward compute the same, but the keys are rows of a separate matrix kv that
 *   struct dt_attn_span describes. Query i sees keys at positions max(first_i, pos_i - window + 1) .. pos_i,
 *   or with span.all, which needs window 0, all from first_i on (attention without a causal mask: images).
 *   q [batch * rows, >= heads * head_dim], its first columns; kv [any, >= v_col + kv_heads * head_dim]. q and
 *       kv may be the same matrix. o [batch * rows, heads * head_dim] is f32 or of q's type, lse
 *       [batch, heads, rows]. A row that sees no key: o = 0, lse = -Inf.
 *   dq has q's rows and >= heads * head_dim columns, dkv has kv's shape. Only the query, key and value
 *       columns are written, and in dkv only the rows of keys.
 *       = overwritten, or += if span.add. dq and dkv are f32 (required for +=) or of q's type.
 *       lse may cover more keys than the span: the result is then the span's share of the gradients.
 *   attention_merge (Milakov & Gimelshein 2018): merges part and part_lse, computed over a second set of
 *       keys, into o and lse. o [batch * rows, heads * d] f32, part f32: o += sigmoid(part_lse - lse) (part -
 *       o), lse = log(exp(lse) + exp(part_lse)); a part with lse -Inf changes nothing.
 *
 * Sinks: a logit per head whose exponential joins the softmax's denominator (gpt-oss, 2025)
 *   attention_sink           o and lse of keys alone -> those with the sink, in place: lse' = log(exp(lse) +
 *                            exp(sink_h)), o' = o exp(lse - lse'). lse [batch, heads, rows], o [batch * rows,
 *                            heads * d] and sink [heads] of any compute type. Of a row without keys o' = 0.
 *   attention_sink_backward  dsink_h += -sum over rows of exp(sink_h - lse') (do . o'), f32. The gradients of
 *                            q, k and v are those of attention_backward with o' and lse'.
 *
 * Inference
 *   attention_paged reads the keys and values of each sequence through its block table. A row's result does
 *   not depend on the rest of the batch, nor on how a prompt was cut into chunks.
 *   qkv [tokens, (heads + 2 kv_heads) * head_dim] (only q is read), o [tokens, heads * head_dim]
 *   kcache, vcache [blocks, block_size, dt_kv_row] or [slots, dt_kv_row], same type as qkv, f32, or int8.
 *       With three dimensions the device chooses the order within a block (cpu/kv.h), the same in both ops.
 *   kv_write stores the k and v parts of row i in slot[i] (= block * block_size + offset); slot -1 skips.
 *   int8: each head of a row is head_dim integers, rounded to nearest even, followed by their f32 scale,
 *       max |x| / 127 of the head. Products take the integers as they are (bf16 holds them exactly); scores
 *       and probabilities are multiplied by the scales, so the only error is that of rounding to integers. A
 *       head with NaN or Inf becomes NaN.
 *   Keys that the window hides from every row are not read. Their blocks need not exist, and their entries in
 *   the block table may hold anything. A block or slot outside the cache is -EINVAL, and nothing is written.
 *   slot and what a dt_paged points to are host memory on every device, except sink.
 *   value_dim > 0 (latent attention with compressed keys: DeepSeek-V2, 2024, section 2.1.2): the last
 *   value_dim elements of a key are its value, so there is a single cache and qkv has no v. vcache is absent,
 *   o [tokens, heads * value_dim]; any number of heads may share a key.
 */
#ifndef DT_KERNELS_ATTENTION_H
#define DT_KERNELS_ATTENTION_H

#include "kernels/device.h"
#include "kernels/scratch.h"

#include <stdbool.h>

#define DT_PAGED_GROUP 64 /* q heads that may share a key/value head in attention_paged */

struct dt_attn {
	int64_t batch, seq; /* training only */
	int64_t heads, kv_heads, head_dim;
	int64_t window; /* 0: unlimited */
	float scale;
	float softcap;	   /* 0: none */
	int64_t value_dim; /* elements per head of v and o; 0: head_dim */
};

/* Keys at positions pos, pos + 1, ... of sequence 0 are rows row, row + 1, ... of kv. */
struct dt_attn_run {
	int64_t pos, row;
};
#define DT_ATTN_RUNS 64
#define DT_ATTN_END  (INT64_MAX / 4) /* a position behind all keys */

struct dt_attn_span {
	int64_t rows; /* queries per sequence; p->seq is not read */
	const int32_t
		*pos; /* [batch * rows] position of each query in its sequence, ascending; NULL: 0, 1 ... */
	/* [batch * rows] first position that a query sees (start of its document), non-decreasing; NULL: 0 */
	const int32_t *first;
	int nrun;		       /* <= DT_ATTN_RUNS */
	const struct dt_attn_run *run; /* [nrun] ascending by position, disjoint. Host memory */
	int64_t run_keys;	       /* keys in each run */
	int64_t stride;		       /* rows of kv between the starts of two sequences */
	int64_t k_col, v_col;	       /* first column of the keys and of the values in kv */
	bool add;		       /* backward: accumulate into dq and dkv */
	bool all;		       /* every query sees all keys from first_i on; pos is not read */
};

/* Elements per head of v and o. */
static inline int64_t dt_attn_value_dim(const struct dt_attn *p)
{
	return p->value_dim ? p->value_dim : p->head_dim;
}

/* Number of cache matrices: 2 (keys and values), or 1 where values are part of the keys. */
static inline int dt_kv_parts(const struct dt_attn *p)
{
	return p->value_dim ? 1 : 2;
}

/* Elements per cache row of this type. */
static inline int64_t dt_kv_row(const struct dt_attn *p, enum dt_dtype t)
{
	return p->kv_heads * (p->head_dim + (t == DT_I8 ? 4 : 0));
}

struct dt_paged {
	int nseq;
	const int32_t *q_start; /* [nseq + 1]: sequence i has rows q_start[i] .. q_start[i + 1] - 1 of qkv */
	const int32_t *kv_len;	/* [nseq]: keys of sequence i, new ones included; its last row sees all */
	const int32_t *block_table; /* [nseq, max_blocks] */
	int max_blocks, block_size;
	int64_t further; /* bytes from the caches to those of the next layer, to prefetch them; 0: unknown */
	struct dt_tensor sink; /* [heads], of any compute type; absent: none */
	int64_t longest; /* upper bound on kv_len in a recorded call (dt_graph_begin); 0: kv_len is final */
};

/*
 * Scratch of attention_span_forward and _backward for span.rows queries of a sequence and nrun x run_keys
 * keys; of attention_forward and _backward with p->seq of both. t: the type of q.
 */
DT_C size_t dt_attention_forward_scratch(const struct dt_scratch_on *on, enum dt_dtype t,
					 const struct dt_attn *p, int64_t rows, int64_t keys);
DT_C size_t dt_attention_backward_scratch(const struct dt_scratch_on *on, enum dt_dtype t,
					  const struct dt_attn *p, int64_t rows, int64_t keys);
/* Scratch of attention_paged for every batch within these limits. t, cache: types of qkv and the cache. */
struct dt_paged_most {
	int64_t seqs, rows;	/* sequences, and query rows of all of them */
	int64_t keys, all_keys; /* keys of a sequence, and of all */
};
DT_C size_t dt_attention_paged_scratch(const struct dt_scratch_on *on, enum dt_dtype t, enum dt_dtype cache,
				       const struct dt_attn *p, const struct dt_paged_most *most);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
