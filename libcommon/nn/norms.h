/*
 * Norms besides the two in front of attention and MLP.
 *
 * RMSNorm over each head of q and of k (Qwen3; Henry et al. 2020, Query-Key Normalization), between the
 * projection and the rotation. Rows of qkv hold heads side by side, so they are copied out, normalised and
 * copied back; on the processor only.
 */
#ifndef DT_NN_NORMS_H
#define DT_NN_NORMS_H

#include "nn/model.h"

/* What a norm multiplies by: w, or 1 + w in f32 (Gemma), which is good until the next call. */
struct dt_tensor dt_norm_weight(struct dt_model *m, struct dt_tensor w);

/* What is normalised is kept in DT_A_QKV_RAW, q before k, and 1 / rms in DT_A_QK_RSTD; DT_A_ATTN is
 * overwritten. */
int dt_heads_forward(struct dt_model *m, const struct dt_pass *p, int l, struct dt_tensor qkv);
/* dqkv becomes the gradient of the projection's output; p->dsmall is overwritten. */
int dt_heads_backward(struct dt_model *m, const struct dt_pass *p, int l, struct dt_tensor dqkv);

#endif
