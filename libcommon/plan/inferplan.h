/*
 * Memory of inference: the sizes of the working set and the cache, and the formats of the weights. nn/infer.c
 * allocates them so, and the estimate of a server sums them.
 */
#ifndef DT_PLAN_INFERPLAN_H
#define DT_PLAN_INFERPLAN_H

#include "kernels/quant_formats.h"
#include "model/op/scratch.h"
#include "plan/layout.h"
#include "plan/stage.h"

/*
 * piece: bytes of the keys (or of the values) of a block's tokens in a layer on one of tp ranks; a latent
 * stands for both and is whole on every rank. dt_infer_cache: bytes of the blocks of the rank at `at`, for
 * the layers of its stage that have attention. cache: the cache's type.
 */
uint64_t dt_infer_cache_piece(const struct dt_config *c, int tp, enum dt_dtype cache, int64_t block_size);
/*
 * The size of blocks for sequences of up to len tokens, of which `size` is asked for: without attention
 * blocks hold nothing, and a sequence has one.
 */
static inline int64_t dt_infer_block(const struct dt_config *c, int64_t size, int64_t len)
{
	return dt_config_attends(c) ? size : len;
}
uint64_t dt_infer_cache(const struct dt_config *c, const struct dt_layout *l, struct dt_coords at,
			enum dt_dtype cache, int64_t blocks, int64_t block_size);
/*
 * Bytes that so many sequences have besides, whatever their length: their convolutions' windows and states,
 * f32, in the stage's layers of Mamba-2.
 */
uint64_t dt_infer_states(const struct dt_config *c, const struct dt_layout *l, struct dt_coords at,
			 int64_t n);
/* The part of p that a rank has, as a parameter: its shape, its experts. */
struct dt_param dt_infer_part(const struct dt_param *p, const struct dt_local_param *part);

/* Rows of logits an engine of so many sequences has room for, f32: two more than sequences. */
#define DT_INFER_LOGITS_ROWS(seqs) ((seqs) + 2)

/*
 * Parts that a pass over the stages of a pipeline is computed in, each of part_rows rows at least (0: as
 * dt-serve has it), so that a stage computes one while the stage behind computes the one before.
 */
enum { DT_INFER_PART_ROWS = 64, DT_INFER_PARTS_A_STAGE = 4 };
static inline int dt_infer_parts(int rows, int part_rows, int stages)
{
	const int n = rows / (part_rows ? part_rows : DT_INFER_PART_ROWS),
		  most = DT_INFER_PARTS_A_STAGE * stages;

	return stages == 1 || n < 1 ? 1 : n < most ? n : most;
}
/* Where part i of n begins, of so many rows; and the rows of rank i of cp: the first have one more. */
static inline int dt_infer_part_at(int rows, int i, int n)
{
	return (int)((int64_t)rows * i / n);
}
static inline int dt_infer_row_at(int rows, int i, int cp)
{
	return (int)(((int64_t)rows * i + cp - 1) / cp);
}

/*
 * The part of a model that passes of a server compute: of an encoder without what stands behind the last
 * layer, whose tensors are the last ones.
 */
struct dt_config dt_infer_config_of(const struct dt_config *c);
/* Bytes of the classes of an encoder (nn/labels.h), 0: it has none. */
uint64_t dt_infer_labels(const struct dt_config *c);
/* 0: dt-serve computes the model, or an encoder's states; otherwise the error of dt_config_servable. */
int dt_infer_serves(const struct dt_config *c, struct dt_err *err);

/* Whether parameter p is packed: a matrix to multiply with. */
bool dt_infer_packs(const struct dt_param *p);
/*
 * The format that a matrix is kept in. weights: the format asked for; -1: blocks as they are stored, all else
 * as compute. A router is small and sensitive: f32. The matrix that makes keys from latents is also used
 * transposed, which blocks do not allow: as compute.
 */
enum dt_format dt_infer_format(const struct dt_param *p, int weights, enum dt_format stored,
			       enum dt_dtype compute);
/* The type of tensors that are not packed. RMSNorm weights are near 1, where bf16 is coarse. */
enum dt_dtype dt_infer_plain_type(const struct dt_config *c, const struct dt_param *p, enum dt_dtype compute);
/*
 * Where in the arena of plain weights p lies, *at moved behind it; *at unchanged where it is packed. What is
 * fused to the one before has no gap before it; the experts' up lies between the rows of gate.
 */
uint64_t dt_infer_place(const struct dt_config *c, const struct dt_param *p, enum dt_dtype compute,
			uint64_t *at);
/* Bytes of p as packed; 0 where it is plain. */
uint64_t dt_infer_packed(const struct dt_config *c, const struct dt_param *p, enum dt_format format);

/*
 * estimate_scratch.c: scratch of the CPU for any pass of s, whose stage is given, within these limits; seqs
 * is s->outputs. The rank that has the logits of all sequences samples from them.
 */
void dt_infer_scratch(const struct dt_serving *s, const struct dt_stage *stage,
		      const struct dt_scratch_on *on, const struct dt_serving_limits *most,
		      struct dt_scratch *ret);
/* Bytes of all its buffers, each rounded up like those of a memory plan. */
uint64_t dt_infer_scratch_bytes(const struct dt_scratch *s);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
