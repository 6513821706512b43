/*
 * Norms besides the two in front of attention and MLP.
 *
 * RMSNorm over each head of q and of k (Qwen3; Henry et al. 2020, Query-Key Normalization), between the
 * projection and the rotation, in place.
 */
#ifndef DT_NN_NORMS_H
#define DT_NN_NORMS_H

#include "nn/model.h"

/* What is normalised is kept in DT_A_QKV_RAW, q before k, and 1 / rms in DT_A_QK_RSTD. */
int dt_heads_forward(struct dt_model *m, const struct dt_pass *p, int l, struct dt_tensor qkv);
/* dqkv becomes the gradient of the projection's output. */
int dt_heads_backward(struct dt_model *m, const struct dt_pass *p, int l, struct dt_tensor dqkv);

#endif
