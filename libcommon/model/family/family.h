/* Helpers for the families' files; only for libcommon/model. */
#ifndef DT_MODEL_FAMILY_FAMILY_H
#define DT_MODEL_FAMILY_FAMILY_H

#include "kernels/activation.h"
#include "kernels/rope.h"
#include "model/block/block.h"
#include "model/family.h"

#include <errno.h>

/* ---- graphs ---- */

/* Pre-norm layers, with additional norms after attention and MLP if configured. */
void dt_build_decoder(struct dt_builder *b);

/* ---- config.json ---- */

#define DT_HF_MOST (INT64_C(1) << 31)

int dt_hf_size(const json_t *o, const char *key, bool required, int64_t *ret, struct dt_err *err);
int dt_hf_act(const json_t *o, const char *key, int *ret, struct dt_err *err);
/* Reads a softcap; an explicit null means none. */
int dt_hf_cap(const json_t *o, const char *key, double *ret, struct dt_err *err);
/* -EINVAL when the key has the value `refused`, which is not supported. */
int dt_hf_refuse(const json_t *o, const char *key, bool refused, struct dt_err *err);
/*
 * Reads the sizes of a decoder with RMSNorm, rotary positions and a gated MLP, under Llama's keys. On entry
 * ret has the class's defaults where they differ from Llama's: norm_eps, act, heads, max_seq, head_dim (0:
 * must be given, or follow from the others), kv_heads (0: must be given; DT_HF_AS_HEADS: same as heads).
 */
#define DT_HF_AS_HEADS (-1)
int dt_hf_decoder(const json_t *o, struct dt_config *ret, struct dt_err *err);
/* Read the rotary base alone, and with its scaling. On entry ret->rope_theta is the default, 0: 10000. */
int dt_hf_rope_base(const json_t *o, struct dt_config *ret, const json_t **ret_scaling, const char **ret_type,
		    struct dt_err *err);
int dt_hf_rope(const json_t *o, struct dt_config *ret, struct dt_err *err);
/*
 * Reads, after the sizes, which part of each head is rotated: ret->rope_dim, rounded to the nearest number of
 * elements, because a part such as 0.4286 of 14 is rounded itself. part: the class's default. The part that
 * is written is one that transformers, which truncates, reads as this number.
 */
int dt_hf_rope_part(const json_t *o, double part, struct dt_config *ret, struct dt_err *err);
/*
 * Reads one sliding window for all layers, or none. use: default of use_sliding_window. all: without
 * layer_types every layer has it; else layers from max_window_layers on.
 */
int dt_hf_window(const json_t *o, struct dt_config *ret, bool use, bool all, struct dt_err *err);
int dt_hf_attention_bias(const json_t *o, struct dt_config *ret, struct dt_err *err);
/*
 * *ret: n, if the key's list, of one entry a layer or more, has an entry that `is` takes for layers n - 1,
 * 2n - 1, ... alone; 0: for none. Unchanged without the key. -EINVAL for a list without such a period.
 */
int dt_hf_every(const json_t *o, const char *key, bool (*is)(const json_t *v), const struct dt_config *c,
		int64_t *ret, struct dt_err *err);
/* Reads that every global_every-th layer has full attention, from layer_types if that key is there. */
int dt_hf_period(const json_t *o, struct dt_config *ret, struct dt_err *err);
/*
 * Reads a router with groups and shared experts under DeepSeek's keys. On entry ret has the class's defaults;
 * without them the numbers of experts must be given. shared: the default number of shared experts.
 */
int dt_hf_router(const json_t *o, int64_t shared, struct dt_config *ret, struct dt_err *err);
void dt_hf_write_router(const struct dt_config *c, json_t *o);
/*
 * Mamba-2. Steps may be limited, by no published model: -ENOTSUP. The other two read and write the mixers of
 * models that have attention in other layers, under Bamba's keys ("mamba_n_heads" ..), after the sizes.
 */
int dt_hf_step_limit(const json_t *o, struct dt_err *err);
int dt_hf_mixers(const json_t *o, struct dt_config *ret, struct dt_err *err);
void dt_hf_write_mixers(const struct dt_config *c, json_t *o);
/* Sets head_dim from the hidden size and the number of heads. */
int dt_hf_even_heads(struct dt_config *c, struct dt_err *err);
/* Writes the decoder under Llama's keys. */
json_t *dt_hf_write_decoder(const struct dt_config *c);
/* The value of rope_scaling. */
json_t *dt_hf_rope_scaling(const struct dt_config *c);
/* Writes the window of all layers under Mistral's keys. */
void dt_hf_write_window(const struct dt_config *c, json_t *o);
void dt_hf_write_period(const struct dt_config *c, json_t *o);
double dt_hf_part(const struct dt_config *c);
void dt_hf_write_rope_part(const struct dt_config *c, json_t *o);
const char *dt_hf_act_name(int act);

/* ---- GGUF ---- */

/* Divisors of LongRoPE's frequencies. */
#define DT_GGUF_ROPE_SHORT "rope_factors_short.weight"
#define DT_GGUF_ROPE_LONG  "rope_factors_long.weight"
/* Writes "ARCH.NAME" to k->key and returns it. */
const char *dt_gguf_key(struct dt_gguf_keys *k, const char *name);
int dt_gguf_key_size(struct dt_gguf_keys *k, const char *name, bool required, int64_t *ret,
		     struct dt_err *err);
/* Reads a float32 as its shortest decimal, such as 1e-5. Returns 1 when the key is there. */
int dt_gguf_key_real(struct dt_gguf_keys *k, const char *name, bool required, double *ret,
		     struct dt_err *err);
/* Reads the heads, the window and rotary positions. */
int dt_gguf_attention(struct dt_gguf_keys *k, struct dt_config *ret, struct dt_err *err);
/* The same, and RMSNorm's epsilon, of a decoder with gates, as above. */
int dt_gguf_decoder(struct dt_gguf_keys *k, struct dt_config *ret, struct dt_err *err);
/* The same of a family whose heads may be rotated in part: rope_dim is set if it is the whole head, too. */
int dt_gguf_decoder_part(struct dt_gguf_keys *k, struct dt_config *ret, struct dt_err *err);
/* Reads expert_count and expert_used_count; 0 experts if the key is missing. */
int dt_gguf_experts(struct dt_gguf_keys *k, struct dt_config *ret, struct dt_err *err);
/* Reads dt_hf_router's keys. *gating: 1 softmax, 2 sigmoid; unchanged without the key. */
int dt_gguf_router(struct dt_gguf_keys *k, struct dt_config *ret, int64_t *gating, struct dt_err *err);
/* The same of a family that has no other scores than sigmoids, and assumes them without the key. */
int dt_gguf_sigmoid_router(struct dt_gguf_keys *k, struct dt_config *ret, struct dt_err *err);

/* Takes the modules for further tokens, which are counted with the layers, from their number. */
int dt_gguf_leave_modules(struct dt_gguf_keys *k, struct dt_config *ret, struct dt_err *err);

/* ---- names ---- */

extern const struct dt_tensor_name dt_names_llama[], dt_names_gguf[];
/* q, k and v in one tensor. */
extern const struct dt_tensor_name dt_names_gguf_qkv[];
/* One tensor per expert: under mlp.experts (Qwen3-MoE, DeepSeek), under block_sparse_moe.experts. */
extern const struct dt_tensor_name dt_names_experts[], dt_names_mixtral[];
/* Shared experts, and what is added to the scores of the others (DeepSeek, GLM-4.5). */
extern const struct dt_tensor_name dt_names_shared[], dt_names_gguf_shared[];
/* Modules for further tokens (DeepSeek-V3, GLM-4.5). */
extern const struct dt_tensor_name dt_names_mtp[], dt_names_gguf_mtp[];

/* Entries of Mamba-2's mixers; m: the module, "layers.%d.mixer." */
/* clang-format off */
#define DT_NAMES_SSM(m)                                                                                      \
	{DT_W_SSM_Z, m "in_proj.weight", DT_JOINED_SSM},                                                     \
	{DT_W_SSM_X, m "in_proj.weight", DT_JOINED_SSM},                                                     \
	{DT_W_SSM_B, m "in_proj.weight", DT_JOINED_SSM},                                                     \
	{DT_W_SSM_C, m "in_proj.weight", DT_JOINED_SSM},                                                     \
	{DT_W_SSM_DT, m "in_proj.weight", DT_JOINED_SSM},                                                    \
	{DT_W_SSM_CONV_X, m "conv1d.weight", DT_JOINED_SSM_CONV},                                            \
	{DT_W_SSM_CONV_B, m "conv1d.weight", DT_JOINED_SSM_CONV},                                            \
	{DT_W_SSM_CONV_C, m "conv1d.weight", DT_JOINED_SSM_CONV},                                            \
	{DT_W_SSM_CONV_X_B, m "conv1d.bias", DT_JOINED_SSM_CONV},                                            \
	{DT_W_SSM_CONV_B_B, m "conv1d.bias", DT_JOINED_SSM_CONV},                                            \
	{DT_W_SSM_CONV_C_B, m "conv1d.bias", DT_JOINED_SSM_CONV},                                            \
	{DT_W_SSM_DT_B, m "dt_bias"},                                                                        \
	{DT_W_SSM_A_LOG, m "A_log"},                                                                         \
	{DT_W_SSM_D, m "D"},                                                                                 \
	{DT_W_SSM_NORM, m "norm.weight"},                                                                    \
	{DT_W_SSM_OUT, m "out_proj.weight"}
/* clang-format on */

/* ---- the families ---- */

extern const struct dt_family dt_family_gpt2, dt_family_llama, dt_family_mistral, dt_family_qwen2,
	dt_family_qwen3, dt_family_gemma3, dt_family_mixtral, dt_family_qwen3_moe, dt_family_deepseek_v2,
	dt_family_deepseek_v3, dt_family_phi3, dt_family_olmo2, dt_family_olmo3, dt_family_smollm3,
	dt_family_gemma2, dt_family_resnet, dt_family_resnet9, dt_family_airbench, dt_family_mlp,
	dt_family_cnn, dt_family_olmoe, dt_family_policy, dt_family_glm4, dt_family_glm4_moe,
	dt_family_minimax_m2, dt_family_gpt_oss, dt_family_granite, dt_family_granitemoe,
	dt_family_granitemoeshared, dt_family_gpt_neox, dt_family_cohere, dt_family_cohere2,
	dt_family_starcoder2, dt_family_vit, dt_family_bert, dt_family_roberta, dt_family_xlm_roberta,
	dt_family_mamba2, dt_family_granitemoehybrid, dt_family_bamba, dt_family_idefics3;

/* Shared by Gemma 2 and 3 (gemma2.c): defaults of both classes, and the keys that both write. */
void dt_gemma_defaults(struct dt_config *c);
json_t *dt_gemma_to_hf(const struct dt_config *c);

struct dt_safetensors;

/*
 * ResNets in files of timm and torchvision (resnet_timm.c). From tensors: 1, or 0 if they are not a ResNet's.
 */
int dt_resnet_from_timm(const json_t *o, struct dt_config *ret, struct dt_err *err);
json_t *dt_resnet_to_timm(const struct dt_config *c);
int dt_resnet_from_tensors(const struct dt_safetensors *s, struct dt_config *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
