/*
 * What inference allocates: nn/infer.c takes its working set and its cache in these sizes and its weights in
 * these formats, and the estimate of a server adds them up.
 */
#ifndef DT_PLAN_INFERPLAN_H
#define DT_PLAN_INFERPLAN_H

#include "kernels/quant_formats.h"
#include "model/params.h"

struct dt_infer_shape {
	const struct dt_config *config;
	enum dt_dtype compute;	      /* activations: f32 or bf16 */
	enum dt_dtype cache;	      /* keys and values: compute, f32 or int8 */
	int64_t max_tokens, max_seqs; /* of a forward pass */
	int64_t positions;	      /* of a sequence */
	int64_t blocks, block_size;   /* of the cache */
};

enum dt_infer_buf { /* of the working set, in the order they lie in; rows are max_tokens */
		    DT_I_RESID,
		    DT_I_RESID2,
		    DT_I_NORM,
		    DT_I_DELTA,
		    DT_I_QKV,
		    DT_I_ATTN,
		    DT_I_UP,
		    DT_I_ACT,
		    DT_I_PICKED, /* rows whose logits are wanted */
		    DT_I_MEAN,
		    DT_I_RSTD,
		    DT_I_COS,
		    DT_I_SIN,
		    DT_I_LOCAL_COS, /* of layers with a window, where they have a base of their own */
		    DT_I_LOCAL_SIN,
		    DT_I_WIDE, /* of experts: a choice is one of the experts_used of a row */
		    DT_I_SCORE,
		    DT_I_WEIGHT,
		    DT_I_EXPERT_OUT,
		    DT_I_EXPERT,
		    DT_I_AT,
		    DT_I_FROM,
		    DT_I_FIRST,
		    DT_I_N,
};

/* Bytes of every buffer, rounded up to 64; returns their sum. */
uint64_t dt_infer_work(const struct dt_infer_shape *s, uint64_t ret[DT_I_N]);

/* Bytes of keys (or of values) of one token in a layer, and of the whole cache. */
uint64_t dt_infer_cache_row(const struct dt_infer_shape *s);
uint64_t dt_infer_cache(const struct dt_infer_shape *s);

/* Rows of logits an engine of so many sequences has room for, f32: two more than sequences. */
#define DT_INFER_LOGITS_ROWS(seqs) ((seqs) + 2)

/* Whether parameter p is a matrix to multiply with, which may be kept in blocks. */
bool dt_infer_is_matrix(const struct dt_param *p);
/* Whether it is packed for products with few rows: every matrix but routers. */
bool dt_infer_packs(const struct dt_param *p);
/*
 * The format a matrix is kept in. weights: as asked for, -1: blocks as they are stored,
 * else as compute. A router is small and decides much: f32.
 */
enum dt_format dt_infer_format(const struct dt_param *p, int weights, enum dt_format stored,
			       enum dt_dtype compute);
/* The type of what is not packed. What an RMSNorm multiplies by is near 1, where bf16 is coarse. */
enum dt_dtype dt_infer_plain_type(const struct dt_config *c, const struct dt_param *p, enum dt_dtype compute);
/*
 * Where in the arena of plain weights p lies, *at moved behind it; *at unchanged where it is packed. What is
 * fused to the one before has no gap before it; the experts' up lies between the rows of gate.
 */
uint64_t dt_infer_place(const struct dt_config *c, const struct dt_param *p, enum dt_dtype compute,
			uint64_t *at);
/* Bytes of p as packed; 0 where it is plain. */
uint64_t dt_infer_packed(const struct dt_param *p, enum dt_format format);

#endif
