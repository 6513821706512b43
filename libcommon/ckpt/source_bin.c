/*
 * Reads llm.c's and llama2.c's model files: a header of numbers, then arrays over all layers. Every array
 * becomes tensors with GGUF's names, so that one table (model/names.c) knows them.
 */
#include "ckpt/source_internal.h"

#include "kernels/activation.h"
#include "kernels/rope.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LLMC_MAGIC 20240326
#define LLMC_HEAD  1024 /* bytes */

struct array {
	const char *name;   /* with %d: one tensor per layer, in order */
	int64_t rows, cols; /* cols 0: a vector */
	int64_t keep;	    /* rows that the model has, if the file pads them; 0: all */
};

/* Lays out arrays one after another; returns their bytes, negative: past the end of the file. */
static int64_t lay(struct dt_source *s, const uint8_t *p, size_t n, const struct array *a, int count,
		   int layers, enum dt_format f)
{
	int64_t at = 0, size = dt_format_info(f)->bytes;

	for (int i = 0; i < count; i++) {
		const char *percent = strstr(a[i].name, "%d");
		int64_t bytes = a[i].rows * (a[i].cols ? a[i].cols : 1) * size;

		for (int l = 0; l < (percent ? layers : 1); l++, at += bytes) {
			struct src_stored t = {.format = f,
					       .format_known = 1,
					       .ndim = a[i].cols ? 2 : 1,
					       .shape = {a[i].keep ? a[i].keep : a[i].rows, a[i].cols},
					       .data = p + at};

			if (bytes > (int64_t)n - at)
				return -1;
			if (percent)
				snprintf(t.name, sizeof(t.name), "%.*s%d%s", (int)(percent - a[i].name),
					 a[i].name, l, percent + 2);
			else
				snprintf(t.name, sizeof(t.name), "%s", a[i].name);
			if (a[i].name[0] && s && src_add(s, &t) < 0)
				return -1;
		}
	}
	return at;
}

static int wrong_size(const char *path, const char *what, struct dt_err *err)
{
	return dt_err_set(err, -EBADMSG,
			  "'%s' does not have the length that its %s header implies: it is truncated, or "
			  "another kind of file",
			  path, what);
}

static void head(const uint8_t *p, int32_t *h, int n)
{
	memcpy(h, p, (size_t)n * 4);
}

bool src_is_llmc(const uint8_t *p, size_t n)
{
	int32_t magic = 0;

	if (n >= LLMC_HEAD)
		head(p, &magic, 1);
	return magic == LLMC_MAGIC;
}

/* The configuration in header h; the rest is GPT-2's. */
static struct dt_config llmc_config(const int32_t h[8])
{
	const int64_t c = h[6];

	return (struct dt_config){.name = "gpt2",
				  .family = "gpt2",
				  .vocab = h[3],
				  .hidden = c,
				  .ffn = 4 * c,
				  .layers = h[4],
				  .heads = h[5],
				  .kv_heads = h[5],
				  .head_dim = c / h[5],
				  .max_seq = h[2],
				  .norm = DT_NORM_LAYER,
				  .norm_eps = 1e-5,
				  .pos = DT_POS_LEARNED,
				  .act = DT_ACT_GELU_TANH,
				  .tied = true,
				  .qkv_bias = true,
				  .out_bias = true,
				  .mlp_bias = true,
				  .bos = h[3] > 50256 ? 50256 : -1,
				  .eos = h[3] > 50256 ? 50256 : -1,
				  .init_std = 0.02};
}

int src_open_llmc(struct dt_source *s, struct dt_err *err)
{
	const uint8_t *p;
	int32_t h[8];
	size_t n;
	int64_t c, vp;
	int rc = src_map(s, s->path, &p, &n, err);

	if (rc < 0)
		return rc;
	if (!src_is_llmc(p, n))
		return dt_err_set(err, -EBADMSG, "'%s' is not a model file of llm.c", s->path);
	head(p, h, 8);
	if (h[1] != 3 && h[1] != 5)
		return dt_err_set(err, -ENOTSUP,
				  "'%s': version %d of llm.c's format is not supported; known: 3, 5", s->path,
				  h[1]);
	if (h[6] < 1 || h[5] < 1 || h[7] < h[3])
		return dt_err_set(err, -EBADMSG, "'%s': its header has invalid sizes", s->path);
	c = h[6];
	vp = h[7];
	s->config = llmc_config(h);
	rc = dt_config_check(&s->config, err);
	if (rc < 0)
		return dt_err_prefix(err, "'%s'", s->path);
	{
		const struct array a[] = {
			{"token_embd.weight", vp, c, h[3]},	 {"position_embd.weight", h[2], c, 0},
			{"blk.%d.attn_norm.weight", c, 0, 0},	 {"blk.%d.attn_norm.bias", c, 0, 0},
			{"blk.%d.attn_qkv.weight", 3 * c, c, 0}, {"blk.%d.attn_qkv.bias", 3 * c, 0, 0},
			{"blk.%d.attn_output.weight", c, c, 0},	 {"blk.%d.attn_output.bias", c, 0, 0},
			{"blk.%d.ffn_norm.weight", c, 0, 0},	 {"blk.%d.ffn_norm.bias", c, 0, 0},
			{"blk.%d.ffn_up.weight", 4 * c, c, 0},	 {"blk.%d.ffn_up.bias", 4 * c, 0, 0},
			{"blk.%d.ffn_down.weight", c, 4 * c, 0}, {"blk.%d.ffn_down.bias", c, 0, 0},
			{"output_norm.weight", c, 0, 0},	 {"output_norm.bias", c, 0, 0},
		};
		int64_t took = lay(s, p + LLMC_HEAD, n - LLMC_HEAD, a, sizeof(a) / sizeof(a[0]), h[4],
				   h[1] == 3 ? DT_FMT_F32 : DT_FMT_BF16);

		if (took != (int64_t)n - LLMC_HEAD)
			return wrong_size(s->path, "llm.c", err);
	}
	return src_resolve(s, DT_NAMES_GGUF, err);
}

/* s NULL: only computes the size. */
static int64_t lay_llama2c(struct dt_source *s, const uint8_t *p, size_t n, const struct src_llama2c *h)
{
	int64_t v = h->vocab < 0 ? -(int64_t)h->vocab : h->vocab, dim = h->dim, f = h->ffn,
		d = dim / h->heads, kv = h->kv_heads * d;
	const struct array a[] = {
		{"token_embd.weight", v, dim, 0},
		{"blk.%d.attn_norm.weight", dim, 0, 0},
		{"blk.%d.attn_q.weight", dim, dim, 0},
		{"blk.%d.attn_k.weight", kv, dim, 0},
		{"blk.%d.attn_v.weight", kv, dim, 0},
		{"blk.%d.attn_output.weight", dim, dim, 0},
		{"blk.%d.ffn_norm.weight", dim, 0, 0},
		{"blk.%d.ffn_gate.weight", f, dim, 0},
		{"blk.%d.ffn_down.weight", dim, f, 0},
		{"blk.%d.ffn_up.weight", f, dim, 0},
		{"output_norm.weight", dim, 0, 0},
		{"", h->seq, d, 0}, /* two unused tables of half a head each */
		{"output.weight", v, dim, 0},
	};

	return lay(s, p, n, a, h->vocab < 0 ? 13 : 12, h->layers, DT_FMT_F32);
}

/* Whether p starts with a plausible header; the format has no magic number, only seven numbers. */
static bool head_llama2c(const uint8_t *p, size_t n, struct src_llama2c *h)
{
	if (n < 28)
		return false;
	memcpy(h, p, 28);
	return h->dim > 0 && h->dim <= 1 << 20 && h->ffn > 0 && h->ffn <= 1 << 22 && h->layers > 0 &&
	       h->layers <= 4096 && h->heads > 0 && h->dim % h->heads == 0 && h->kv_heads > 0 &&
	       h->kv_heads <= h->heads && h->vocab && h->vocab > -(1 << 24) && h->vocab < 1 << 24 &&
	       h->seq > 0 && h->seq <= 1 << 24;
}

int src_refuse_pickle(const uint8_t *p, size_t n, const char *path, struct dt_err *err)
{
	static const uint8_t old[] = {0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20}; /* a number */
	const bool zip = n >= 4 && !memcmp(p, "PK\3\4", 4) && memmem(p, n < 512 ? n : 512, "/data.pkl", 9);

	if (!zip && (n < sizeof(old) || memcmp(p, old, sizeof(old)) != 0))
		return 0;
	return dt_err_set(err, -ENOTSUP,
			  "'%s' is a pickle of PyTorch, which is not read: save the model as safetensors",
			  path);
}

bool src_is_llama2c(const uint8_t *p, size_t n)
{
	struct src_llama2c h;

	return head_llama2c(p, n, &h);
}

struct dt_config src_llama2c_config(const struct src_llama2c *h)
{
	return (struct dt_config){.name = "llama2c",
				  .family = "llama",
				  .vocab = h->vocab < 0 ? -h->vocab : h->vocab,
				  .hidden = h->dim,
				  .ffn = h->ffn,
				  .layers = h->layers,
				  .heads = h->heads,
				  .kv_heads = h->kv_heads,
				  .head_dim = h->dim / h->heads,
				  .max_seq = h->seq,
				  .norm = DT_NORM_RMS,
				  .norm_eps = 1e-5,
				  .pos = DT_POS_ROPE,
				  .rope_theta = 10000,
				  .rope_factor = 1,
				  .rope_pairing = DT_ROPE_ADJACENT,
				  .act = DT_ACT_SILU,
				  .gated = true,
				  .tied = h->vocab > 0,
				  .bos = 1,
				  .eos = 2,
				  .init_std = 0.02};
}

int src_open_llama2c(struct dt_source *s, struct dt_err *err)
{
	struct src_llama2c h;
	const uint8_t *p;
	size_t n;
	int rc = src_map(s, s->path, &p, &n, err);

	if (rc < 0)
		return rc;
	if (!head_llama2c(p, n, &h) || lay_llama2c(NULL, p + 28, n - 28, &h) != (int64_t)n - 28)
		return wrong_size(s->path, "llama2.c", err);
	s->config = src_llama2c_config(&h);
	rc = dt_config_check(&s->config, err);
	if (rc < 0)
		return dt_err_prefix(err, "'%s'", s->path);
	if (lay_llama2c(s, p + 28, n - 28, &h) < 0)
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", s->path);
	return src_resolve(s, DT_NAMES_GGUF, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
