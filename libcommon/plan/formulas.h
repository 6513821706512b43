/*
 * Published formulas for memory, apart from what our own trainer allocates (plan/memory.h): to estimate other
 * programs, and to be checked against the numbers their authors print. Bytes are doubles here: these are
 * estimates, and "GB" in the sources means 1e9.
 */
#ifndef DT_PLAN_FORMULAS_H
#define DT_PLAN_FORMULAS_H

#include "kernels/quant_formats.h"
#include "model/mix.h"
#include "model/params.h"
#include "model/recompute.h"

#include <stdbool.h>

/*
 * Bytes of model state a parameter: weight, gradient, optimizer (master copy and moments).
 * Mixed precision with Adam is 2, 2, 12 (Rajbhandari et al. 2020, section 3.1); Megatron-LM keeps gradients
 * in f32: 2, 4, 12.
 */
struct dt_scheme {
	double weight, grad, optim;
};

/*
 * Bytes of state a rank: ZeRO stage 1 divides the optimizer's part by ranks, 2 the gradient's too, 3 all
 * (Rajbhandari et al. 2020, figure 1). Gathered units of stage 3 are not in it.
 */
double dt_state_bytes(double params, struct dt_scheme s, int zero, int ranks);

/*
 * DeepSpeed's documented estimate for ZeRO-2 (estimate_zero2_model_states_mem_needs): 2 bytes a parameter on
 * the device with the optimizer on the host, else 4 + 16 / ranks.
 */
double dt_deepspeed_zero2_bytes(double params, int ranks, bool offload);

/*
 * Activations Megatron-LM keeps for backward, bytes a layer, 16-bit, with dropout and f = 4h (Korthikanti et
 * al. 2022, table 2 and section 5). flash: the s x s scores are not kept, only 4 bytes a head and token.
 * Full recomputation keeps the layer's input; working set of the layer run again is not in it.
 */
double dt_megatron_activation_bytes(double hidden, double heads, double seq, double batch, int tp,
				    bool seq_parallel, bool flash, enum dt_recompute recompute);

/*
 * The same for a layer of any model of ours: q, k, v and the MLP of their own widths, gated or not, what goes
 * to experts and comes back; dropout masks where the model has learned positions, as GPT does. For GPT with
 * f = 4h it is the formula above.
 */
double dt_megatron_layer_bytes(const struct dt_config *c, int64_t layer, double seq, double batch, int tp,
			       bool seq_parallel, bool flash, enum dt_recompute recompute);

/*
 * Bytes of each score that attention keeps, in numbers of `size` bytes: the result of the softmax; with
 * dropout, which models of learned positions have, also its mask of a byte and what it leaves.
 */
double dt_score_bytes(const struct dt_config *c, double size);

/* Sizes a rank computes a layer with, cut over tp; ffn: of experts, those that a token goes through. */
struct dt_local_dims {
	int64_t heads, kv_heads, ffn, vocab;
	int64_t qkv;	/* (heads + 2 kv_heads) head_dim */
	int64_t routed; /* experts a token goes to */
};
void dt_layer_dims(const struct dt_config *c, int64_t layer, int tp, int tp_rank, struct dt_local_dims *ret);

/*
 * The activations of a layer in a textbook implementation, and which of them each recomputation mode keeps:
 * for estimates of other programs. per_token: elements per token on one rank; 0: this model has none.
 */
struct dt_activation {
	const char *name;
	int64_t per_token;
	enum dt_dtype dtype;
	bool stream; /* part of the residual stream, which sequence parallelism cuts over tp */
	bool cheap;  /* selective recomputation recomputes it */
	bool input;  /* the layer's input: full recomputation keeps it */
};
enum { DT_ACT_N = 21 };
void dt_activations(const struct dt_config *c, const struct dt_local_dims *d, enum dt_dtype compute,
		    struct dt_activation ret[DT_ACT_N]);
/* Whether it is kept of layer number `layer` of its chunk. */
bool dt_activation_saved(const struct dt_activation *a, struct dt_keep keep, int layer);

/* Microbatches whose activations stage (of stages) holds at once under 1F1B: min(microbatches, stages -
 * stage). */
int64_t dt_in_flight(int stages, int stage, int64_t microbatches);

/* Key and value bytes a token, all layers, on one of tp ranks: 2 L max(1, kv_heads / tp) head_dim element. */
double dt_kv_token_bytes(const struct dt_config *c, int tp, double element_bytes);
/* The same for latent attention (DeepSeek-V2, 2024, section 2.1): L (rank + rope_dim) element. */
double dt_mla_token_bytes(int64_t layers, int64_t kv_rank, int64_t rope_dim, double element_bytes);
/* Types of a cache, and bits an element of it takes: int8 with a scale of four bytes for each head of a
 * token. The first is as the activations: 0. */
#define DT_KV_CHOICES "auto|fp32|bf16|fp16|fp8|int8|q8_0|q4_0"
enum { DT_KV_INT8 = 5 };
double dt_kv_bits(const struct dt_config *c, int choice);
/* Tokens a sequence of len holds in the cache, whole blocks; a sliding window bounds it. */
int64_t dt_kv_tokens(const struct dt_config *c, int64_t len, int64_t block);

/* Parameters of rank-r adapters on the weights of these roles: r (in + out) each (Hu et al. 2021). */
int64_t dt_lora_params(const struct dt_params *t, const enum dt_role *roles, int nroles, int64_t r);

/* Which matrices have adapters: q and v (Hu et al. 2021), attention's, or all of a layer. */
enum dt_lora_targets { DT_LORA_QV, DT_LORA_ATTENTION, DT_LORA_ALL };
#define DT_LORA_CHOICES "qv|attention|all"
bool dt_lora_target(enum dt_role role, enum dt_lora_targets which);

/* Weight formats, and bits an element with their block scales. The index is what DT_WEIGHT_CHOICES names. */
#define DT_WEIGHT_CHOICES "fp32|bf16|fp16" DT_BLOCK_CHOICES DT_FORMAT_MIX_CHOICES "|nf4|nf4_dq|fp8"
/* What they are called elsewhere, for dt_opt.elsewhere. */
#define DT_WEIGHT_ELSEWHERE                                                                                  \
	"f32=fp32|float32=fp32|float=fp32|bfloat16=bf16|f16=fp16|float16=fp16|half=fp16|int8=q8_0|w8a8=q8_"  \
	"0|"                                                                                                 \
	"w8a16=q8_0|q8=q8_0|int4=q4_0|w4a16=q4_0|awq=q4_0|gptq=q4_0|q4=q4_0|bnb4=nf4|fp4=nf4|"               \
	"bitsandbytes=nf4|nvfp4=q4_0|fp8_e4m3=fp8|fp8_e5m2=fp8|e4m3=fp8|q5_k_s=q5_k|"                        \
	"q3_k_s=q3_k|q2_k_s=q2_k"

#define DT_WF_ENTRY(NAME, name)		  DT_WF_##NAME,
#define DT_WF_MIX(NAME, name, base, type) DT_WF_##NAME,
enum dt_weight_format {
	DT_WF_F32,
	DT_WF_BF16,
	DT_WF_F16,
	DT_BLOCK_FORMATS(DT_WF_ENTRY) /* then the mixes */
	DT_FORMAT_MIXES(DT_WF_MIX) DT_WF_NF4,
	DT_WF_NF4_DQ, /* scales quantised too (Dettmers et al. 2023) */
	DT_WF_FP8,
	DT_WF_N,
};
#undef DT_WF_ENTRY
#undef DT_WF_MIX

double dt_weight_bits(enum dt_weight_format f); /* of a mix, its base's */
/*
 * Bytes of tensor p in format f: matrices in it, vectors in f32 where f is a block format. In mixes the head
 * has 6 bits.
 */
double dt_weight_bytes(const struct dt_config *c, const struct dt_param *p, double numel,
		       enum dt_weight_format f);
/* The format dt-serve keeps p in when f is asked for, an enum dt_format; -1: it has none such. */
int dt_weight_kept_as(const struct dt_config *c, const struct dt_param *p, enum dt_weight_format f);
/* Of all parameters. */
double dt_whole_weight_bytes(const struct dt_config *c, const struct dt_params *t, enum dt_weight_format f);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
