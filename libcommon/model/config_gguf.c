/* The configuration in a GGUF file's keys. What would compute something else than we do is refused by name.
 */
#include "model/gguf.h"

#include "kernels/activation.h"
#include "kernels/quant_formats.h"
#include "kernels/rope.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIG (INT64_C(1) << 31)

struct keys {
	const struct dt_gguf *g;
	char arch[24];
	char key[96];
};

/* "ARCH.NAME" */
static const char *key_of(struct keys *k, const char *name)
{
	snprintf(k->key, sizeof(k->key), "%s.%s", k->arch, name);
	return k->key;
}

/* Reals are single there: the shortest decimal of the same single is what was meant (1e-5). */
static int real_of(struct keys *k, const char *name, bool required, double *ret, struct dt_err *err)
{
	double v = 0;
	char text[32];
	int rc = dt_gguf_real(k->g, key_of(k, name), required, &v, err);

	if (rc <= 0)
		return rc;
	for (int digits = 1; digits <= 9; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, v);
		*ret = strtod(text, NULL);
		if ((float)*ret == (float)v)
			break;
	}
	return 1;
}

static int size_of(struct keys *k, const char *name, bool required, int64_t *ret, struct dt_err *err)
{
	return dt_gguf_int(k->g, key_of(k, name), required, 1, BIG, ret, err);
}

static bool has(const struct keys *k, const char *tensor)
{
	return dt_gguf_find_tensor(k->g, tensor);
}

/* Names come from outside and are printed: plain characters only. */
static void read_name(const struct dt_gguf *g, struct dt_config *c)
{
	const char *s;
	size_t n, at = 0;

	if (dt_gguf_str(g, "general.name", false, &s, &n, NULL) <= 0)
		return;
	for (size_t i = 0; i < n && at + 1 < sizeof(c->name); i++)
		if (s[i] > ' ' && s[i] < 127)
			c->name[at++] = s[i];
		else if (at && c->name[at - 1] != '-')
			c->name[at++] = '-';
	if (at)
		c->name[at] = '\0';
}

/*
 * Llama 3's frequencies come as divisors, one a pair, in a tensor. What they were computed from is not in the
 * file; the published values are tried, and anything else is refused.
 */
static int read_rope_freqs(const struct dt_gguf *g, struct dt_config *c, struct dt_err *err)
{
	static const double factors[] = {8, 32, 4, 16};
	const struct dt_gguf_tensor *t = dt_gguf_find_tensor(g, "rope_freqs.weight");
	int64_t half = c->head_dim / 2;

	if (!t)
		return 0;
	if (t->at > g->bytes || t->bytes > g->bytes - t->at) /* the first part's keys need it there */
		return dt_err_set(err, -ENOTSUP, "'rope_freqs.weight' is not in the first part");
	if (t->format != DT_FMT_F32 || t->ndim != 1 || t->shape[0] != half)
		return dt_err_set(err, -EBADMSG, "'rope_freqs.weight' is not %lld numbers", (long long)half);
	for (size_t f = 0; f < sizeof(factors) / sizeof(*factors); f++) {
		bool same = true;

		c->rope_scaling = DT_ROPE_SCALING_LLAMA3;
		c->rope_factor = factors[f];
		c->rope_low_freq = 1;
		c->rope_high_freq = 4;
		c->rope_original_seq = 8192;
		for (int64_t i = 0; i < half && same; i++) {
			double want = pow(c->rope_theta, -2.0 * (double)i / (double)c->head_dim) /
				      dt_rope_frequency(c, i);
			float got;

			memcpy(&got, g->file + t->at + 4 * i, 4);
			same = fabs((double)got - want) <= 1e-4 * want;
		}
		if (same)
			return 0;
	}
	return dt_err_set(err, -ENOTSUP, "'rope_freqs.weight' is not the scaling of Llama 3.1 or 3.2");
}

static int read_rope(struct keys *k, struct dt_config *c, struct dt_err *err)
{
	int64_t dims = c->head_dim;
	const char *type = "none";
	size_t n = 4;
	int rc;

	c->pos = DT_POS_ROPE;
	c->rope_theta = 10000;
	c->rope_factor = 1;
	if ((rc = real_of(k, "rope.freq_base", false, &c->rope_theta, err)) < 0 ||
	    (rc = size_of(k, "rope.dimension_count", false, &dims, err)) < 0 ||
	    (rc = dt_gguf_str(k->g, key_of(k, "rope.scaling.type"), false, &type, &n, err)) < 0)
		return rc;
	if (dims != c->head_dim)
		return dt_err_set(err, -ENOTSUP, "rotating %lld of %lld elements of a head is not supported",
				  (long long)dims, (long long)c->head_dim);
	if (n == 6 && !memcmp(type, "linear", 6)) {
		c->rope_scaling = DT_ROPE_SCALING_LINEAR;
		return real_of(k, "rope.scaling.factor", true, &c->rope_factor, err);
	}
	if (n != 4 || memcmp(type, "none", 4))
		return dt_err_set(err, -ENOTSUP,
				  "rotary scaling '%.*s' is not supported; known: linear, llama3",
				  n > 40 ? 40 : (int)n, type);
	return read_rope_freqs(k->g, c, err);
}

static int read_llama(struct keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->norm = DT_NORM_RMS;
	c->act = DT_ACT_SILU;
	c->gated = true;
	c->kv_heads = c->heads;
	c->head_dim = c->heads > 0 ? c->hidden / c->heads : 0;
	c->rope_pairing = strcmp(k->arch, "llama") ? DT_ROPE_HALF : DT_ROPE_ADJACENT;
	if ((rc = size_of(k, "attention.head_count_kv", false, &c->kv_heads, err)) < 0 ||
	    (rc = size_of(k, "attention.key_length", false, &c->head_dim, err)) < 0 ||
	    (rc = real_of(k, "attention.layer_norm_rms_epsilon", true, &c->norm_eps, err)) < 0 ||
	    (rc = dt_gguf_int(k->g, key_of(k, "attention.sliding_window"), false, 0, BIG, &c->window, err)) <
		    0)
		return rc;
	return read_rope(k, c, err);
}

static int read_gpt2(struct keys *k, struct dt_config *c, struct dt_err *err)
{
	c->norm = DT_NORM_LAYER;
	c->pos = DT_POS_LEARNED;
	c->act = DT_ACT_GELU_TANH;
	c->kv_heads = c->heads;
	c->head_dim = c->heads > 0 ? c->hidden / c->heads : 0;
	return real_of(k, "attention.layer_norm_epsilon", true, &c->norm_eps, err);
}

/*
 * Gemma 3: what its reader takes for granted is the period, the windows' rotary base and the scale of the
 * scores, which only the largest of them has from its hidden size.
 */
static int read_gemma3(struct keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->global_every = 6;
	c->rope_local_theta = 10000;
	if ((rc = read_llama(k, c, err)) < 0 ||
	    (rc = size_of(k, "attention.sliding_window_pattern", false, &c->global_every, err)) < 0 ||
	    (rc = real_of(k, "rope.freq_base_swa", false, &c->rope_local_theta, err)) < 0)
		return rc;
	c->act = DT_ACT_GELU_TANH;
	c->embed_scaled = c->post_norms = true;
	if (c->layers == 62 && c->heads > 0 && c->hidden / c->heads != c->head_dim)
		c->score_dim = c->hidden / c->heads;
	return 0;
}

static int read_experts(struct keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc = dt_gguf_int(k->g, key_of(k, "expert_count"), false, 0, BIG, &c->experts, err);

	bool qwen = !strcmp(k->arch, "qwen3moe");

	if (rc < 0 || (!c->experts && !qwen))
		return rc;
	if (strcmp(k->arch, "llama") && !qwen)
		return dt_err_set(err, -ENOTSUP, "%lld experts in architecture '%s' are not supported",
				  (long long)c->experts, k->arch);
	snprintf(c->family, sizeof(c->family), qwen ? "qwen3_moe" : "mixtral");
	c->expert_ffn = c->ffn;
	if (qwen && (rc = size_of(k, "expert_feed_forward_length", true, &c->expert_ffn, err)) < 0)
		return rc;
	return size_of(k, "expert_used_count", true, &c->experts_used, err);
}

static void read_tensors(const struct keys *k, struct dt_config *c)
{
	c->qkv_bias = has(k, "blk.0.attn_q.bias") || has(k, "blk.0.attn_qkv.bias");
	c->out_bias = has(k, "blk.0.attn_output.bias");
	c->mlp_bias = has(k, "blk.0.ffn_up.bias");
	c->qk_norm = has(k, "blk.0.attn_q_norm.weight");
	c->tied = !has(k, "output.weight");
}

static int read_vocab(const struct dt_gguf *g, struct dt_config *c, struct dt_err *err)
{
	const struct dt_gguf_tensor *embed = dt_gguf_find_tensor(g, "token_embd.weight");
	const struct dt_gguf_kv *tokens = dt_gguf_find(g, "tokenizer.ggml.tokens");
	int rc;

	c->vocab = embed ? embed->shape[0] : tokens ? (int64_t)tokens->n : 0;
	if ((rc = dt_gguf_int(g, "tokenizer.ggml.bos_token_id", false, 0, BIG, &c->bos, err)) < 0 ||
	    (rc = dt_gguf_int(g, "tokenizer.ggml.eos_token_id", false, 0, BIG, &c->eos, err)) < 0)
		return rc;
	return 0;
}

int dt_config_from_gguf(const struct dt_gguf *g, struct dt_config *ret, struct dt_err *err)
{
	struct dt_config c = {.bos = -1, .eos = -1, .init_std = 0.02};
	struct keys k = {.g = g};
	static const struct {
		const char *arch;
		int (*read)(struct keys *, struct dt_config *, struct dt_err *);
	} known[] = {{"llama", read_llama}, {"gpt2", read_gpt2},      {"qwen2", read_llama},
		     {"qwen3", read_llama}, {"qwen3moe", read_llama}, {"gemma3", read_gemma3}};
	const char *arch;
	size_t n, a = 0;
	int rc = dt_gguf_str(g, "general.architecture", true, &arch, &n, err);

	if (rc < 0)
		return rc;
	snprintf(k.arch, sizeof(k.arch), "%.*s", n > 60 ? 60 : (int)n, arch);
	while (a < sizeof(known) / sizeof(known[0]) && strcmp(known[a].arch, k.arch))
		a++;
	if (a == sizeof(known) / sizeof(known[0]))
		return dt_err_set(
			err, -ENOTSUP,
			"architecture '%.40s' is not supported; known: llama, gpt2, qwen2, qwen3, qwen3moe, "
			"gemma3",
			k.arch);
	snprintf(c.name, sizeof(c.name), "%s", k.arch);
	snprintf(c.family, sizeof(c.family), "%s%s", k.arch, strcmp(k.arch, "gemma3") ? "" : "_text");
	read_name(g, &c);
	if ((rc = size_of(&k, "embedding_length", true, &c.hidden, err)) < 0 ||
	    (rc = size_of(&k, "block_count", true, &c.layers, err)) < 0 ||
	    (rc = size_of(&k, "feed_forward_length", true, &c.ffn, err)) < 0 ||
	    (rc = size_of(&k, "attention.head_count", true, &c.heads, err)) < 0 ||
	    (rc = size_of(&k, "context_length", true, &c.max_seq, err)) < 0 ||
	    (rc = read_experts(&k, &c, err)) < 0 || (rc = known[a].read(&k, &c, err)) < 0)
		return rc;
	read_tensors(&k, &c);
	if ((rc = read_vocab(g, &c, err)) < 0 || (rc = dt_config_check(&c, err)) < 0)
		return rc;
	*ret = c;
	return 0;
}
