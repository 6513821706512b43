/*
 * The models people ask for by name. Sources: the configurations published beside the weights (GPT-2:
 * Radford et al. 2019; Llama 2: Touvron et al. 2023; Llama 3: Grattafiori et al. 2024; Mistral 7B:
 * Jiang et al. 2023, v0.1; Qwen2.5: Yang et al. 2024; Qwen3: Yang et al. 2025; Phi-3: Abdin et al.
 * 2024; OLMo 2: 2024; Gemma 2: 2024; Gemma 3: 2025; Mixtral: Jiang et al. 2024; DeepSeek-V3: 2024;
 * gpt-oss: OpenAI 2025; Command R, R7B and A: Cohere 2024, 2025; Granite 3: IBM 2024, 2025; GPT-NeoX-20B:
 * Black et al. 2022; Pythia: Biderman et al. 2023; StarCoder2: Lozhkov et al. 2024; BERT: Devlin et al. 2018;
 * RoBERTa: Liu et al. 2019; XLM-RoBERTa: Conneau et al. 2019; Mamba-2: Dao and Gu 2024; GPT-3: Brown et al.
 * 2020; ResNets: He et al. 2015, as torchvision has them; megatron-*: Korthikanti et al. 2022, table 3). The
 * last six are ours: four for tests, two to train on a processor.
 */
#include "model/config.h"

#include "kernels/activation.h"
#include "kernels/rope.h"

#include <errno.h>
#include <string.h>

#define GPT2(n, v, h, f, l, a, s, e)                                                                         \
	{                                                                                                    \
		.name = n, .family = "gpt2", .vocab = v, .hidden = h, .ffn = f, .layers = l, .heads = a,     \
		.kv_heads = a, .head_dim = (h) / (a), .max_seq = s, .norm = DT_NORM_LAYER, .norm_eps = 1e-5, \
		.pos = DT_POS_LEARNED, .rope_pairing = DT_ROPE_HALF, .act = DT_ACT_GELU_TANH, .tied = true,  \
		.qkv_bias = true, .out_bias = true, .mlp_bias = true, .bos = e, .eos = e, .init_std = 0.02   \
	}

#define GATED(n, fam, v, h, f, l, a, g, d, s, ep, th, b, e)                                                  \
	.name = n, .family = fam, .vocab = v, .hidden = h, .ffn = f, .layers = l, .heads = a, .kv_heads = g, \
	.head_dim = d, .max_seq = s, .norm = DT_NORM_RMS, .norm_eps = ep, .pos = DT_POS_ROPE,                \
	.rope_theta = th, .gated = true, .bos = b, .eos = e, .init_std = 0.02
#define LLAMA(n, fam, v, h, f, l, a, g, s, ep, th, b, e)                                                     \
	GATED(n, fam, v, h, f, l, a, g, (h) / (a), s, ep, th, b, e), .act = DT_ACT_SILU

#define DEEPSEEK_ROPE                                                                                        \
	.rope_pairing = DT_ROPE_ADJACENT, .rope_scaling = DT_ROPE_SCALING_YARN, .rope_factor = 40,           \
	.rope_original_seq = 4096, .rope_beta_fast = 32, .rope_beta_slow = 1, .rope_mscale = 1
#define LLAMA31_ROPE                                                                                         \
	.rope_scaling = DT_ROPE_SCALING_LLAMA3, .rope_factor = 8, .rope_low_freq = 1, .rope_high_freq = 4,   \
	.rope_original_seq = 8192

/* Llama 3.2's: the same with a larger factor. */
#define LLAMA32_ROPE                                                                                         \
	.rope_scaling = DT_ROPE_SCALING_LLAMA3, .rope_factor = 32, .rope_low_freq = 1, .rope_high_freq = 4,  \
	.rope_original_seq = 8192

#define PHI4_MINI_ROPE                                                                                       \
	.rope_scaling = DT_ROPE_SCALING_LONGROPE, .rope_factor = 32, .rope_original_seq = 4096,              \
	.rope_mscale = 1.1902380714238083, .rope_short = {[0 ... 47] = 1},                                   \
	.rope_long = {1,	   1.118320672, 1.250641126, 1.398617824, 1.564103225, 1.74916897,           \
		      1.956131817, 2.187582649, 2.446418898, 2.735880826, 3.059592084, 3.421605075,          \
		      3.826451687, 4.279200023, 4.785517845, 5.351743533, 5.984965424, 6.693110555,          \
		      7.485043894, 8.370679318, 9.36110372,  10.4687158,  11.70738129, 13.09260651,          \
		      14.64173252, 16.37415215, 18.31155283, 20.47818807, 22.90118105, 25.61086418,          \
		      28.64115884, 32.03,	32.1,	     32.13,	  32.23,       32.6,                 \
		      32.61,	   32.64,	32.66,	     32.7,	  32.71,       32.93,                \
		      32.97,	   33.28,	33.49,	     33.5,	  44.16,       47.77}

/* t: token types; f: the row of position 0; m: the mask token; b, e: tokens that begin and end a text. */
#define ENCODER(n, fam, v, h, l, a, s, ep, t, f, m, b, e)                                                    \
	.name = n, .family = fam, .vocab = v, .hidden = h, .ffn = 4 * (h), .layers = l, .heads = a,          \
	.kv_heads = a, .head_dim = (h) / (a), .max_seq = s, .norm = DT_NORM_LAYER, .norm_eps = ep,           \
	.pos = DT_POS_LEARNED, .rope_pairing = DT_ROPE_HALF, .act = DT_ACT_GELU_ERF, .qkv_bias = true,       \
	.out_bias = true, .mlp_bias = true, .encoder = true, .token_types = t, .pos_first = f,               \
	.mask_token = m, .bos = b, .eos = e, .init_std = 0.02
#define BERT(n, h, l, a)	       ENCODER(n, "bert", 30522, h, l, a, 512, 1e-12, 2, 0, 103, -1, -1)
#define ROBERTA(n, fam, v, h, l, a, m) ENCODER(n, fam, v, h, l, a, 512, 1e-5, 1, 2, m, 0, 2), .tied = true
/* Without a head that predicts masked tokens, with a pooler as their files have it. */
#define BERT_EMBEDS(n, h, l, a, p) BERT(n, h, l, a), .head = DT_ENCODER_NONE, .pooler = true, .pooling = p

#define QWEN25(n, v, h, f, l, a, g)                                                                          \
	LLAMA(n, "qwen2", v, h, f, l, a, g, 32768, 1e-6, 1000000, 151643, 151643), .qkv_bias = true
#define QWEN3(n, h, f, l, a, g)                                                                              \
	GATED(n, "qwen3", 151936, h, f, l, a, g, 128, 40960, 1e-6, 1000000, 151643, 151645),                 \
		.act = DT_ACT_SILU, .qk_norm = true

#define OLMO2 .qk_norm = true, .qk_norm_whole = true, .post_norms = true, .no_pre_norms = true
#define OLMO3                                                                                                \
	OLMO2, .window = 4096, .global_every = 4, .rope_local_theta = 500000,                                \
	       .rope_scaling = DT_ROPE_SCALING_YARN, .rope_factor = 8, .rope_original_seq = 8192,            \
	       .rope_beta_fast = 32, .rope_beta_slow = 1, .rope_mscale = 1.2079441541679836
#define GLM4 .act = DT_ACT_SILU, .rope_dim = 64, .qkv_bias = true
/* Layers of 128 experts or more with one shared expert, of the same width. */
#define GLM45(f)                                                                                             \
	GLM4, .expert_ffn = (f), .shared_ffn = (f), .experts_used = 8, .router_bias = true,                  \
	      .router_sigmoid = true
#define GEMMA2                                                                                               \
	.act = DT_ACT_GELU_TANH, .tied = true, .post_norms = true, .norm_plus_one = true,                    \
	.embed_scaled = true, .global_every = 2, .window = 4096, .score_cap = 50, .logit_cap = 30

#define GEMMA3                                                                                               \
	.act = DT_ACT_GELU_TANH, .tied = true, .qk_norm = true, .post_norms = true, .norm_plus_one = true,   \
	.embed_scaled = true, .global_every = 6, .rope_local_theta = 10000
#define GEMMA3_ROPE .rope_scaling = DT_ROPE_SCALING_LINEAR, .rope_factor = 8

#define GRANITE(n, h, f, sc, lo)                                                                             \
	LLAMA(n, "granite", 49159, h, f, 40, 32, 8, 131072, 1e-5, 10000000, 0, 0),                           \
		.tied = true, .embed_factor = 12, .score_factor = sc, .residual_factor = 0.22,               \
		.logit_divisor = lo
#define NEOX(n, v, h, l, a, e)                                                                               \
	.name = n, .family = "gpt_neox", .vocab = v, .hidden = h, .ffn = 4 * (h), .layers = l, .heads = a,   \
	.kv_heads = a, .head_dim = (h) / (a), .rope_dim = (h) / (a) / 4, .max_seq = 2048,                    \
	.norm = DT_NORM_LAYER, .norm_eps = 1e-5, .pos = DT_POS_ROPE, .rope_theta = 10000, .qkv_bias = true,  \
	.out_bias = true, .mlp_bias = true, .parallel_residual = true, .bos = 0, .eos = e, .init_std = 0.02
#define PYTHIA(n, v, h, l, a) NEOX(n, v, h, l, a, 0), .act = DT_ACT_GELU_ERF
#define STARCODER2(n, h, l, a, g, th)                                                                        \
	.name = n, .family = "starcoder2", .vocab = 49152, .hidden = h, .ffn = 4 * (h), .layers = l,         \
	.heads = a, .kv_heads = g, .head_dim = 128, .max_seq = 16384, .norm = DT_NORM_LAYER,                 \
	.norm_eps = 1e-5, .pos = DT_POS_ROPE, .rope_theta = th, .act = DT_ACT_GELU_TANH, .qkv_bias = true,   \
	.out_bias = true, .mlp_bias = true, .window = 4096, .bos = 0, .eos = 0, .init_std = 0.018042
#define COHERE(n, fam, h, f, l, a, g, s, th)                                                                 \
	.name = n, .family = fam, .vocab = 256000, .hidden = h, .ffn = f, .layers = l, .heads = a,           \
	.kv_heads = g, .head_dim = (h) / (a), .max_seq = s, .norm = DT_NORM_LAYER, .norm_eps = 1e-5,         \
	.pos = DT_POS_ROPE, .rope_theta = th, .rope_pairing = DT_ROPE_ADJACENT, .gated = true,               \
	.act = DT_ACT_SILU, .tied = true, .parallel_residual = true, .one_norm = true, .norm_no_bias = true, \
	.bos = 5, .eos = 255001, .init_std = 0.02
#define COMMAND_WINDOWS .logit_divisor = 4, .window = 4096, .global_every = 4, .rope_skip_every = 4
#define GPT_OSS(n, l, x)                                                                                     \
	GATED(n, "gpt_oss", 201088, 2880, 2880, l, 64, 8, 64, 131072, 1e-5, 150000, 199998, 200002),         \
		.act = DT_ACT_SILU_CLAMPED, .qkv_bias = true, .out_bias = true, .attn_sinks = true,          \
		.window = 128, .global_every = 2, .experts = x, .experts_used = 4, .expert_ffn = 2880,       \
		.expert_bias = true, .rope_scaling = DT_ROPE_SCALING_YARN, .rope_factor = 32,                \
		.rope_original_seq = 4096, .rope_beta_fast = 32, .rope_beta_slow = 1,                        \
		.rope_mscale = 1.3465735902799727, .rope_untruncated = true

#define IMAGES(n, fam, classes, size, c, l, b)                                                               \
	.name = n, .family = fam, .vocab = classes, .image_size = size, .channels = c, .layers = l,          \
	.blocks = b, .norm_eps = 1e-5, .hidden = 1, .ffn = 1, .heads = 1, .kv_heads = 1, .head_dim = 1,      \
	.max_seq = 1, .bos = -1, .eos = -1
#define RESNET(n, l, b) IMAGES(n, "resnet", 1000, 224, 3, l, b)
/* Dosovitskiy et al. 2021, table 1, and smaller ones of Touvron et al. 2021 (DeiT). */
#define VIT(n, h, l, a, p, classes, size)                                                                    \
	.name = n, .family = "vit", .vocab = classes, .image_size = size, .channels = 3, .patch = p,         \
	.hidden = h, .ffn = 4 * h, .layers = l, .heads = a, .kv_heads = a, .head_dim = (h) / (a),            \
	.max_seq = 1, .norm_eps = 1e-12, .act = DT_ACT_GELU_ERF, .qkv_bias = true, .out_bias = true,         \
	.mlp_bias = true, .init_std = 0.02, .bos = -1, .eos = -1
/* a, d: heads and their elements, twice the hidden size together; n: of the state; e: bos and eos. */
#define MAMBA2(name_, v, h, l, a, d, n, e)                                                                   \
	.name = name_, .family = "mamba2", .vocab = v, .hidden = h, .layers = l, .heads = 1, .kv_heads = 1,  \
	.head_dim = 1, .max_seq = 1 << 20, .norm = DT_NORM_RMS, .norm_eps = 1e-5, .pos = DT_POS_NONE,        \
	.act = DT_ACT_SILU, .tied = true, .ssm_heads = a, .ssm_head_dim = d, .ssm_groups = 1,                \
	.ssm_state = n, .ssm_kernel = 4, .init_std = 0.02, .bos = e, .eos = e
#define STATE_SPACES(n, h, l) MAMBA2(n, 50288, h, l, (h) / 32, 64, 128, 0)
/*
 * Granite 4 with Mamba-2 in all layers but the listed ones (bits of the first 64) and without positions.
 * h: hidden size, l: layers; a, g: heads of attention, of queries and of keys; m: heads of Mamba-2.
 */
#define GRANITE4(n, h, f, l, a, g, m, bits, ctx)                                                             \
	.name = n, .family = "granitemoehybrid", .vocab = 100352, .hidden = h, .ffn = f, .layers = l,        \
	.heads = a, .kv_heads = g, .head_dim = (h) / (a), .max_seq = ctx, .norm = DT_NORM_RMS,               \
	.norm_eps = 1e-5, .pos = DT_POS_NONE, .act = DT_ACT_SILU, .gated = true, .tied = true,               \
	.ssm_heads = m, .ssm_head_dim = 2 * (h) / (m), .ssm_groups = 1, .ssm_state = 128, .ssm_kernel = 4,   \
	.attn_layers = {bits}, .embed_factor = 12, .logit_divisor = (h) / 256., .init_std = 0.1,             \
	.bos = 100257, .eos = 100257
#define BAMBA(n, bits)                                                                                       \
	.name = n, .family = "bamba", .vocab = 128256, .hidden = 4096, .ffn = 14336, .layers = 32,           \
	.heads = 32, .kv_heads = 8, .head_dim = 128, .rope_dim = 64, .max_seq = 262144, .norm = DT_NORM_RMS, \
	.norm_eps = 1e-5, .pos = DT_POS_ROPE, .rope_theta = 10000, .act = DT_ACT_SILU, .gated = true,        \
	.ssm_heads = 128, .ssm_head_dim = 64, .ssm_groups = 1, .ssm_state = 128, .ssm_kernel = 4,            \
	.attn_layers = {bits}, .init_std = 0.02, .bos = 128000, .eos = 128001
#define TENTH	       (UINT64_C(1) << 5 | UINT64_C(1) << 15 | UINT64_C(1) << 25 | UINT64_C(1) << 35)
#define CIFAR(n, l, b) IMAGES(n, "resnet", 10, 32, 3, l, b), .stem = DT_STEM_CIFAR

static const struct dt_config presets[] = {
	GPT2("gpt2-124m", 50257, 768, 3072, 12, 12, 1024, 50256),
	GPT2("gpt2-355m", 50257, 1024, 4096, 24, 16, 1024, 50256),
	GPT2("gpt2-774m", 50257, 1280, 5120, 36, 20, 1024, 50256),
	GPT2("gpt2-1558m", 50257, 1600, 6400, 48, 25, 1024, 50256),
	{LLAMA("llama-2-7b", "llama", 32000, 4096, 11008, 32, 32, 32, 4096, 1e-5, 10000, 1, 2)},
	{LLAMA("llama-2-13b", "llama", 32000, 5120, 13824, 40, 40, 40, 4096, 1e-5, 10000, 1, 2)},
	{LLAMA("llama-2-70b", "llama", 32000, 8192, 28672, 80, 64, 8, 4096, 1e-5, 10000, 1, 2)},
	{LLAMA("llama-3-8b", "llama", 128256, 4096, 14336, 32, 32, 8, 8192, 1e-5, 500000, 128000, 128001)},
	{LLAMA("llama-3-70b", "llama", 128256, 8192, 28672, 80, 64, 8, 8192, 1e-5, 500000, 128000, 128001)},
	{LLAMA("mistral-7b", "mistral", 32000, 4096, 14336, 32, 32, 8, 32768, 1e-5, 10000, 1, 2),
	 .window = 4096},
	{LLAMA("qwen2.5-0.5b", "qwen2", 151936, 896, 4864, 24, 14, 2, 32768, 1e-6, 1000000, 151643, 151643),
	 .tied = true, .qkv_bias = true},
	{LLAMA("llama-3.1-8b", "llama", 128256, 4096, 14336, 32, 32, 8, 131072, 1e-5, 500000, 128000, 128001),
	 LLAMA31_ROPE},
	{LLAMA("llama-3.1-70b", "llama", 128256, 8192, 28672, 80, 64, 8, 131072, 1e-5, 500000, 128000,
	       128001),
	 LLAMA31_ROPE},
	{LLAMA("llama-3.1-405b", "llama", 128256, 16384, 53248, 126, 128, 8, 131072, 1e-5, 500000, 128000,
	       128001),
	 LLAMA31_ROPE},
	{LLAMA("llama-3.2-1b", "llama", 128256, 2048, 8192, 16, 32, 8, 131072, 1e-5, 500000, 128000, 128001),
	 LLAMA32_ROPE, .tied = true},
	{LLAMA("llama-3.2-3b", "llama", 128256, 3072, 8192, 28, 24, 8, 131072, 1e-5, 500000, 128000, 128001),
	 LLAMA32_ROPE, .tied = true},
	{LLAMA("llama-3.3-70b", "llama", 128256, 8192, 28672, 80, 64, 8, 131072, 1e-5, 500000, 128000,
	       128001),
	 LLAMA31_ROPE},
	{QWEN25("qwen2.5-1.5b", 151936, 1536, 8960, 28, 12, 2), .tied = true},
	{QWEN25("qwen2.5-3b", 151936, 2048, 11008, 36, 16, 2), .tied = true},
	{QWEN25("qwen2.5-14b", 152064, 5120, 13824, 48, 40, 8)},
	{QWEN25("qwen2.5-32b", 152064, 5120, 27648, 64, 40, 8)},
	{QWEN25("qwen2.5-72b", 152064, 8192, 29568, 80, 64, 8)},
	{LLAMA("qwen2.5-7b", "qwen2", 152064, 3584, 18944, 28, 28, 4, 131072, 1e-6, 1000000, 151643, 151643),
	 .qkv_bias = true},
	{GATED("qwen3-0.6b", "qwen3", 151936, 1024, 3072, 28, 16, 8, 128, 40960, 1e-6, 1000000, 151643,
	       151645),
	 .act = DT_ACT_SILU, .tied = true, .qk_norm = true},
	{LLAMA("qwen3-8b", "qwen3", 151936, 4096, 12288, 36, 32, 8, 40960, 1e-6, 1000000, 151643, 151645),
	 .qk_norm = true},
	{QWEN3("qwen3-1.7b", 2048, 6144, 28, 16, 8), .tied = true},
	{QWEN3("qwen3-4b", 2560, 9728, 36, 32, 8), .tied = true},
	{QWEN3("qwen3-14b", 5120, 17408, 40, 40, 8)},
	{QWEN3("qwen3-32b", 5120, 25600, 64, 64, 8)},
	{GATED("qwen3-235b-a22b", "qwen3_moe", 151936, 4096, 12288, 94, 64, 4, 128, 40960, 1e-6, 1000000,
	       151643, 151645),
	 .act = DT_ACT_SILU, .qk_norm = true, .experts = 128, .experts_used = 8, .expert_ffn = 1536},
	{GATED("qwen3-30b-a3b", "qwen3_moe", 151936, 2048, 6144, 48, 32, 4, 128, 262144, 1e-6, 10000000,
	       151643, 151645),
	 .act = DT_ACT_SILU, .qk_norm = true, .experts = 128, .experts_used = 8, .expert_ffn = 768},
	{GATED("gemma-3-1b", "gemma3_text", 262144, 1152, 6912, 26, 4, 1, 256, 32768, 1e-6, 1000000, 2, 1),
	 GEMMA3, .window = 512},
	{GATED("gemma-3-4b", "gemma3_text", 262208, 2560, 10240, 34, 8, 4, 256, 131072, 1e-6, 1000000, 2, 1),
	 GEMMA3, GEMMA3_ROPE, .window = 1024},
	{GATED("gemma-3-27b", "gemma3_text", 262208, 5376, 21504, 62, 32, 16, 128, 131072, 1e-6, 1000000, 2,
	       1),
	 GEMMA3, GEMMA3_ROPE, .window = 1024, .score_dim = 168},
	{LLAMA("mixtral-8x7b", "mixtral", 32000, 4096, 14336, 32, 32, 8, 32768, 1e-5, 1000000, 1, 2),
	 .experts = 8, .experts_used = 2, .expert_ffn = 14336},
	{LLAMA("olmoe-1b-7b", "olmoe", 50304, 2048, 1024, 16, 16, 16, 4096, 1e-5, 10000, -1, 50279),
	 .qk_norm = true, .qk_norm_whole = true, .experts = 64, .experts_used = 8, .expert_ffn = 1024,
	 .router_unscaled = true},
	{GATED("deepseek-v2-lite", "deepseek_v2", 102400, 2048, 10944, 27, 16, 16, 192, 163840, 1e-6, 10000,
	       100000, 100001),
	 .act = DT_ACT_SILU, .kv_rank = 512, .rope_dim = 64, .v_dim = 128, .experts = 64, .experts_used = 6,
	 .expert_ffn = 1408, .shared_ffn = 2816, .dense_layers = 1, .router_unscaled = true,
	 .router_scale = 1, DEEPSEEK_ROPE, .score_mscale = 1.260803777405855},
	{GATED("deepseek-v3", "deepseek_v3", 129280, 7168, 18432, 61, 128, 128, 192, 163840, 1e-6, 10000, 0,
	       1),
	 .act = DT_ACT_SILU, .kv_rank = 512, .q_rank = 1536, .rope_dim = 64, .v_dim = 128, .experts = 256,
	 .experts_used = 8, .expert_ffn = 2048, .shared_ffn = 2048, .dense_layers = 3, .router_bias = true,
	 .router_sigmoid = true, .router_groups = 8, .router_groups_used = 4, .router_scale = 2.5,
	 DEEPSEEK_ROPE, .score_mscale = 1.368887945411394},
	{GATED("glm-4-9b", "glm4", 151552, 4096, 13696, 40, 32, 2, 128, 32768, 1e-5, 10000, -1, 151329), GLM4,
	 .rope_pairing = DT_ROPE_ADJACENT, .post_norms = true},
	{GATED("glm-4.5-air", "glm4_moe", 151552, 4096, 10944, 46, 96, 8, 128, 131072, 1e-5, 1000000, -1,
	       151329),
	 GLM45(1408), .experts = 128, .dense_layers = 1, .router_scale = 1},
	{GATED("glm-4.5", "glm4_moe", 151552, 5120, 12288, 92, 96, 8, 128, 131072, 1e-5, 1000000, -1, 151329),
	 GLM45(1536), .experts = 160, .dense_layers = 3, .router_scale = 2.5, .qk_norm = true},
	{GATED("minimax-m2", "minimax_m2", 200064, 3072, 1536, 62, 48, 8, 128, 196608, 1e-6, 5000000, 200034,
	       200020),
	 .act = DT_ACT_SILU, .rope_dim = 64, .qk_norm = true, .qk_norm_whole = true, .experts = 256,
	 .experts_used = 8, .expert_ffn = 1536, .router_bias = true, .router_sigmoid = true},
	{GRANITE("granite-3.3-2b", 2048, 8192, 0.015625, 8)},
	{GRANITE("granite-3.3-8b", 4096, 12800, 0.0078125, 16)},
	{GPT_OSS("gpt-oss-20b", 24, 32)},
	{GPT_OSS("gpt-oss-120b", 36, 128)},
	{LLAMA("phi-3-mini", "phi3", 32064, 3072, 8192, 32, 32, 32, 4096, 1e-5, 10000, 1, 32000),
	 .window = 2047},
	{LLAMA("phi-3-medium", "phi3", 32064, 5120, 17920, 40, 40, 10, 4096, 1e-5, 10000, 1, 32000),
	 .window = 2047},
	{LLAMA("phi-4-mini", "phi3", 200064, 3072, 8192, 32, 24, 8, 131072, 1e-5, 10000, 199999, 199999),
	 PHI4_MINI_ROPE, .rope_dim = 96, .tied = true, .window = 262144},
	{LLAMA("phi-4", "phi3", 100352, 5120, 17920, 40, 40, 10, 16384, 1e-5, 250000, 100257, 100257)},
	{LLAMA("olmo-2-13b", "olmo2", 100352, 5120, 13824, 40, 40, 40, 4096, 1e-6, 500000, -1, 100257),
	 OLMO2},
	{LLAMA("olmo-2-32b", "olmo2", 100352, 5120, 27648, 64, 40, 8, 4096, 1e-6, 500000, -1, 100257), OLMO2},
	{LLAMA("olmo-2-1b", "olmo2", 100352, 2048, 8192, 16, 16, 16, 4096, 1e-6, 500000, -1, 100257), OLMO2},
	{LLAMA("olmo-2-7b", "olmo2", 100352, 4096, 11008, 32, 32, 32, 4096, 1e-6, 500000, -1, 100257), OLMO2},
	{LLAMA("olmo-3-7b", "olmo3", 100278, 4096, 11008, 32, 32, 32, 65536, 1e-6, 500000, -1, 100257),
	 OLMO3},
	{LLAMA("olmo-3-32b", "olmo3", 100278, 5120, 27648, 64, 40, 8, 65536, 1e-6, 500000, -1, 100257),
	 OLMO3},
	{LLAMA("smollm3-3b", "smollm3", 128256, 2048, 11008, 36, 16, 4, 65536, 1e-6, 5000000, 128000, 128012),
	 .tied = true, .rope_skip_every = 4},
	{GATED("gemma-2-2b", "gemma2", 256000, 2304, 9216, 26, 8, 4, 256, 8192, 1e-6, 10000, 2, 1), GEMMA2},
	{GATED("gemma-2-9b", "gemma2", 256000, 3584, 14336, 42, 16, 8, 256, 8192, 1e-6, 10000, 2, 1), GEMMA2},
	{GATED("gemma-2-27b", "gemma2", 256000, 4608, 36864, 46, 32, 16, 128, 8192, 1e-6, 10000, 2, 1),
	 GEMMA2, .score_dim = 144},
	{PYTHIA("pythia-70m", 50304, 512, 6, 8)},
	{PYTHIA("pythia-160m", 50304, 768, 12, 12)},
	{PYTHIA("pythia-410m", 50304, 1024, 24, 16)},
	{PYTHIA("pythia-1b", 50304, 2048, 16, 8)},
	{PYTHIA("pythia-1.4b", 50304, 2048, 24, 16)},
	{PYTHIA("pythia-2.8b", 50304, 2560, 32, 32)},
	{PYTHIA("pythia-6.9b", 50432, 4096, 32, 32)},
	{PYTHIA("pythia-12b", 50688, 5120, 36, 40)},
	{NEOX("gpt-neox-20b", 50432, 6144, 44, 64, 0), .act = DT_ACT_GELU_TANH},
	{LLAMA("granite-3.1-1b-a400m", "granitemoe", 49155, 1024, 512, 24, 16, 8, 131072, 1e-6, 1500000, 0,
	       0),
	 .tied = true, .embed_factor = 12, .score_factor = 0.015625, .residual_factor = 0.22,
	 .logit_divisor = 6, .experts = 32, .experts_used = 8, .expert_ffn = 512},
	{COHERE("c4ai-command-r-v01", "cohere", 8192, 22528, 40, 64, 64, 131072, 8000000),
	 .logit_divisor = 16},
	{COHERE("command-r7b", "cohere2", 4096, 14336, 32, 32, 8, 132096, 50000), COMMAND_WINDOWS},
	{COHERE("command-a", "cohere2", 12288, 36864, 64, 96, 8, 262144, 50000), COMMAND_WINDOWS},
	{STARCODER2("starcoder2-3b", 3072, 30, 24, 2, 999999.4420358813), .tied = true},
	{STARCODER2("starcoder2-7b", 4608, 32, 36, 4, 1000000), .tied = true},
	{STARCODER2("starcoder2-15b", 6144, 40, 48, 4, 100000)},
	{STATE_SPACES("mamba2-130m", 768, 24)},
	{STATE_SPACES("mamba2-370m", 1024, 48)},
	{STATE_SPACES("mamba2-780m", 1536, 48)},
	{STATE_SPACES("mamba2-1.3b", 2048, 48)},
	{STATE_SPACES("mamba2-2.7b", 2560, 64)},
	{GRANITE4("granite-4.0-h-350m", 768, 2048, 32, 12, 4, 48, 1 << 10 | 1 << 13 | 1 << 17 | 1 << 27,
		  32768),
	 .score_factor = 0.015625, .residual_factor = 0.246},
	{GRANITE4("granite-4.0-h-1b", 1536, 4096, 40, 12, 4, 48, TENTH, 131072), .score_factor = 0.0078125,
	 .residual_factor = 0.22},
	{GRANITE4("granite-4.0-h-micro", 2048, 8192, 40, 32, 8, 64, TENTH, 131072), .score_factor = 0.015625,
	 .residual_factor = 0.22},
	{GRANITE4("granite-4.0-h-tiny", 1536, 512, 40, 12, 4, 48, TENTH, 131072), .score_factor = 0.0078125,
	 .residual_factor = 0.22, .experts = 64, .experts_used = 6, .expert_ffn = 512, .shared_ffn = 1024},
	{GRANITE4("granite-4.0-h-small", 4096, 768, 40, 32, 8, 128, TENTH, 131072), .score_factor = 0.0078125,
	 .residual_factor = 0.22, .experts = 72, .experts_used = 10, .expert_ffn = 768, .shared_ffn = 1536},
	{BAMBA("bamba-9b", 1 << 9 | 1 << 18 | 1 << 27)},
	GPT2("gpt3-175b", 50257, 12288, 49152, 96, 96, 2048, 50256),
	GPT2("megatron-22b", 51200, 6144, 24576, 48, 64, 2048, -1),
	GPT2("megatron-175b", 51200, 12288, 49152, 96, 96, 2048, -1),
	GPT2("megatron-530b", 51200, 20480, 81920, 105, 128, 2048, -1),
	GPT2("megatron-1t", 51200, 25600, 102400, 128, 160, 2048, -1),
	{BERT("bert-base-uncased", 768, 12, 12), .tied = true},
	{BERT("bert-large-uncased", 1024, 24, 16), .tied = true},
	{ROBERTA("roberta-base", "roberta", 50265, 768, 12, 12, 50264)},
	{ROBERTA("roberta-large", "roberta", 50265, 1024, 24, 16, 50264)},
	{ROBERTA("xlm-roberta-base", "xlm-roberta", 250002, 768, 12, 12, 250001)},
	{ROBERTA("xlm-roberta-large", "xlm-roberta", 250002, 1024, 24, 16, 250001)},
	{BERT_EMBEDS("all-minilm-l6-v2", 384, 6, 12, DT_POOLING_MEAN)},
	{BERT_EMBEDS("bge-small-en-v1.5", 384, 12, 12, DT_POOLING_CLS)},
	{BERT_EMBEDS("bge-base-en-v1.5", 768, 12, 12, DT_POOLING_CLS)},
	{BERT_EMBEDS("bge-large-en-v1.5", 1024, 24, 16, DT_POOLING_CLS)},
	{RESNET("resnet-18", 8, "2-2-2-2")},
	{RESNET("resnet-34", 16, "3-4-6-3")},
	{RESNET("resnet-50", 16, "3-4-6-3"), .bottleneck = true},
	{RESNET("resnet-101", 33, "3-4-23-3"), .bottleneck = true},
	{CIFAR("resnet-18-cifar", 8, "2-2-2-2")},
	{CIFAR("resnet-34-cifar", 16, "3-4-6-3")},
	{CIFAR("resnet-50-cifar", 16, "3-4-6-3"), .bottleneck = true},
	{VIT("vit-ti-16", 192, 12, 3, 16, 1000, 224)},
	{VIT("vit-s-16", 384, 12, 6, 16, 1000, 224)},
	{VIT("vit-b-16", 768, 12, 12, 16, 1000, 224)},
	{VIT("vit-b-32", 768, 12, 12, 32, 1000, 224)},
	{VIT("vit-l-16", 1024, 24, 16, 16, 1000, 224)},
	{VIT("vit-ti-4-cifar", 192, 12, 3, 4, 10, 32)},
	{VIT("vit-h-14", 1280, 32, 16, 14, 1000, 224)},
	{IMAGES("resnet-9", "resnet9", 10, 32, 3, 3, "")},
	{IMAGES("airbench94", "airbench", 10, 32, 3, 3, "64-256-256")},
	{IMAGES("airbench95", "airbench", 10, 32, 3, 3, "128-384-384")},
	{IMAGES("cnn2", "cnn", 10, 28, 1, 2, "32-64")},
	{IMAGES("simple-dnn", "mlp", 10, 28, 1, 1, "512")},
	GPT2("gpt2-tiny", 257, 64, 256, 2, 4, 128, 256),
	{ENCODER("bert-tiny", "bert", 258, 64, 3, 4, 128, 1e-12, 2, 0, 257, -1, -1), .tied = true},
	{LLAMA("llama-tiny", "llama", 257, 64, 172, 3, 4, 2, 128, 1e-5, 10000, 256, 256)},
	{MAMBA2("mamba2-tiny", 257, 64, 3, 8, 16, 16, 256)},
	{.name = "hybrid-tiny",
	 .family = "granitemoehybrid",
	 .vocab = 257,
	 .hidden = 64,
	 .ffn = 128,
	 .layers = 4,
	 .heads = 4,
	 .kv_heads = 2,
	 .head_dim = 16,
	 .max_seq = 4096,
	 .norm = DT_NORM_RMS,
	 .norm_eps = 1e-5,
	 .pos = DT_POS_NONE,
	 .act = DT_ACT_SILU,
	 .gated = true,
	 .tied = true,
	 .ssm_heads = 8,
	 .ssm_head_dim = 16,
	 .ssm_groups = 1,
	 .ssm_state = 16,
	 .ssm_kernel = 4,
	 .attn_layers = {1 << 2},
	 .init_std = 0.02,
	 .bos = 256,
	 .eos = 256},
	GPT2("gpt2-nano-char", 257, 128, 512, 4, 4, 64, 256),
	GPT2("gpt2-mini", 4096, 192, 768, 6, 6, 256, -1),
};

const struct dt_config *dt_config_preset(int i)
{
	return i >= 0 && i < (int)(sizeof(presets) / sizeof(presets[0])) ? &presets[i] : NULL;
}

int dt_config_find_preset(const char *name, struct dt_config *ret)
{
	const struct dt_config *c;

	for (int i = 0; (c = dt_config_preset(i)); i++) {
		if (!strcasecmp(c->name, name)) {
			*ret = *c;
			return 0;
		}
	}
	return -ENOENT;
}
/* SPDX-License-Identifier: Apache-2.0 */
