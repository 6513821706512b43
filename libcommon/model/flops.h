/*
 * Model flops (Chowdhery et al. 2022, PaLM, appendix B), as the sum of what nodes count (model/op/cost.h):
 * 2 a token for every weight that is multiplied, the head's included and the embedding's not, of experts
 * those the token is sent to, plus 4 s (heads x head_dim) a layer for the two products of attention, as if
 * every token saw all s. For GPT this is the 72 L h^2 (1 + s / 6h + V / 12hL) of Narayanan et al. 2021.
 */
#ifndef DT_MODEL_FLOPS_H
#define DT_MODEL_FLOPS_H

#include "model/config.h"

/*
 * Makes a short model: a few layers of each kind, and one more, because the first layer has no residual sum
 * before its norm. Returns their number. Layers of one kind cost the same, so costs of the model follow from
 * these.
 */
int64_t dt_config_short(const struct dt_config *c, struct dt_config *ret);
/* The last of c's first `layers` layers that is of the same kind as layer number `layer`. */
int64_t dt_layer_alike(const struct dt_config *c, int64_t layers, int64_t layer);

/* Forward flops a token: of all layers together, and of embedding and head. -ENOMEM. */
int dt_forward_flops(const struct dt_config *c, int64_t seq, double *ret_layers, double *ret_ends,
		     struct dt_err *err);

/* Forward, or forward and a backward of twice that, without recomputation; NAN where memory is short. */
double dt_model_flops_per_token(const struct dt_config *c, int64_t seq, bool training);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
