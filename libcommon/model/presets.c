/*
 * The models people ask for by name. Sources: the configurations published beside the weights (GPT-2: Radford
 * et al. 2019; Llama 2: Touvron et al. 2023; Llama 3: Grattafiori et al. 2024; Mistral 7B: Jiang et al. 2023,
 * v0.1; Qwen2.5: Yang et al. 2024). The last four are ours: two for tests, two to train on a processor.
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

#define LLAMA(n, fam, v, h, f, l, a, g, s, ep, th, b, e)                                                     \
	.name = n, .family = fam, .vocab = v, .hidden = h, .ffn = f, .layers = l, .heads = a, .kv_heads = g, \
	.head_dim = (h) / (a), .max_seq = s, .norm = DT_NORM_RMS, .norm_eps = ep, .pos = DT_POS_ROPE,        \
	.rope_theta = th, .rope_pairing = DT_ROPE_HALF, .act = DT_ACT_SILU, .gated = true, .bos = b,         \
	.eos = e, .init_std = 0.02

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
	GPT2("gpt2-tiny", 257, 64, 256, 2, 4, 128, 256),
	{LLAMA("llama-tiny", "llama", 257, 64, 172, 3, 4, 2, 128, 1e-5, 10000, 256, 256)},
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
		if (!strcmp(c->name, name)) {
			*ret = *c;
			return 0;
		}
	}
	return -ENOENT;
}
