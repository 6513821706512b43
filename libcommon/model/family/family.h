/* What families' files are written with; only for libcommon/model. */
#ifndef DT_MODEL_FAMILY_FAMILY_H
#define DT_MODEL_FAMILY_FAMILY_H

#include "kernels/activation.h"
#include "kernels/rope.h"
#include "model/block/block.h"
#include "model/family.h"

#include <errno.h>

/* ---- graphs ---- */

/* Pre-norm layers, with norms behind attention and MLP as well where the configuration says so. */
void dt_build_decoder(struct dt_builder *b);

/* ---- config.json ---- */

#define DT_HF_MOST (INT64_C(1) << 31)

int dt_hf_size(const json_t *o, const char *key, bool required, int64_t *ret, struct dt_err *err);
int dt_hf_act(const json_t *o, const char *key, int *ret, struct dt_err *err);
/* A cap of scores; an explicit null is none. */
int dt_hf_cap(const json_t *o, const char *key, double *ret, struct dt_err *err);
/* -EINVAL when the key is there and has the value that is not supported. */
int dt_hf_refuse(const json_t *o, const char *key, bool refused, struct dt_err *err);
/*
 * Sizes of a decoder with RMSNorm, rotary positions and a gated MLP, under Llama's keys. ret has the class's
 * defaults where they are not Llama's: norm_eps, act, heads, max_seq, head_dim (0: must be given, or follow
 * from the others), kv_heads (0: must be given; DT_HF_AS_HEADS).
 */
#define DT_HF_AS_HEADS (-1)
int dt_hf_decoder(const json_t *o, struct dt_config *ret, struct dt_err *err);
/* The rotary base alone; with its scaling. ret->rope_theta has the default, 0: 10000. */
int dt_hf_rope_base(const json_t *o, struct dt_config *ret, const json_t **ret_scaling, const char **ret_type,
		    struct dt_err *err);
int dt_hf_rope(const json_t *o, struct dt_config *ret, struct dt_err *err);
/*
 * One sliding window for all layers, or none. use: default of use_sliding_window; all: every layer has it
 * when layer_types does not say otherwise, else those from max_window_layers on.
 */
int dt_hf_window(const json_t *o, struct dt_config *ret, bool use, bool all, struct dt_err *err);
int dt_hf_attention_bias(const json_t *o, struct dt_config *ret, struct dt_err *err);
/* Every global_every-th layer sees all, as layer_types says where the key is there. */
int dt_hf_period(const json_t *o, struct dt_config *ret, struct dt_err *err);
/* The decoder under Llama's keys. */
json_t *dt_hf_write_decoder(const struct dt_config *c);
/* The window of all layers, under Mistral's keys. */
void dt_hf_write_window(const struct dt_config *c, json_t *o);
void dt_hf_write_period(const struct dt_config *c, json_t *o);
const char *dt_hf_act_name(int act);

/* ---- GGUF ---- */

/* "ARCH.NAME", in k->key. */
const char *dt_gguf_key(struct dt_gguf_keys *k, const char *name);
int dt_gguf_key_size(struct dt_gguf_keys *k, const char *name, bool required, int64_t *ret,
		     struct dt_err *err);
/* The shortest decimal of the same single: 1e-5. 1 when the key is there. */
int dt_gguf_key_real(struct dt_gguf_keys *k, const char *name, bool required, double *ret,
		     struct dt_err *err);
/* A decoder as above. */
int dt_gguf_decoder(struct dt_gguf_keys *k, struct dt_config *ret, struct dt_err *err);
/* expert_count and expert_used_count; 0 experts where the key is missing. */
int dt_gguf_experts(struct dt_gguf_keys *k, struct dt_config *ret, struct dt_err *err);

/* ---- names ---- */

extern const struct dt_tensor_name dt_names_llama[], dt_names_gguf[];
/* Experts with a tensor each under mlp.experts (Qwen3-MoE, DeepSeek). */
extern const struct dt_tensor_name dt_names_experts[];

/* ---- the families ---- */

extern const struct dt_family dt_family_gpt2, dt_family_llama, dt_family_mistral, dt_family_qwen2,
	dt_family_qwen3, dt_family_gemma3, dt_family_mixtral, dt_family_qwen3_moe, dt_family_deepseek_v2,
	dt_family_deepseek_v3, dt_family_phi3, dt_family_olmo2, dt_family_gemma2, dt_family_resnet,
	dt_family_resnet9, dt_family_airbench, dt_family_mlp, dt_family_cnn, dt_family_olmoe,
	dt_family_policy;

/* Of Gemma 2 and 3 (gemma2.c): defaults of both classes, and what both write. */
void dt_gemma_defaults(struct dt_config *c);
json_t *dt_gemma_to_hf(const struct dt_config *c);

struct dt_safetensors;

/* ResNets in files of others (resnet_timm.c). Of tensors: 1, or 0 where they are not a ResNet's. */
int dt_resnet_from_timm(const json_t *o, struct dt_config *ret, struct dt_err *err);
json_t *dt_resnet_to_timm(const struct dt_config *c);
int dt_resnet_from_tensors(const struct dt_safetensors *s, struct dt_config *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
