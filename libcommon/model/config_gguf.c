/*
 * The configuration in a GGUF file's keys: those that all architectures share. The family's file reads the
 * rest.
 */
#include "model/family/family.h"

#include "kernels/rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool has(const struct dt_gguf_keys *k, const char *tensor)
{
	return dt_gguf_find_tensor(k->g, tensor);
}

/* Reads the model's name. It is untrusted and gets printed: only printable ASCII is kept. */
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

/* Refuses experts in a file of a family without them. */
static int refuse_experts(struct dt_gguf_keys *k, const struct dt_config *c, struct dt_err *err)
{
	int64_t n = 0;
	int rc = dt_gguf_int(k->g, dt_gguf_key(k, "expert_count"), false, 0, DT_HF_MOST, &n, err);

	if (rc < 0 || n == c->experts)
		return rc < 0 ? rc : 0;
	return dt_err_set(err, -ENOTSUP, "%lld experts in architecture '%s' are not supported", (long long)n,
			  k->arch);
}

/*
 * Refuses keys that scale what the family's reader does not scale, or by another value than it has read. One
 * that says what is computed anyway is accepted.
 */
static int refuse_scales(struct dt_gguf_keys *k, const struct dt_config *c, struct dt_err *err)
{
	const bool yarn = c->rope_scaling == DT_ROPE_SCALING_YARN;
	const bool longrope = c->rope_scaling == DT_ROPE_SCALING_LONGROPE;
	const bool factor = dt_family_find(c->family)->gguf_logit_factor;
	const double residual = dt_factor(c->residual_factor);
	const struct {
		const char *name;
		double computed;
		bool used;
	} keys[] = {
		{"rope.scaling.attn_factor", longrope ? c->rope_mscale : 1, true},
		{"rope.scaling.yarn_attn_factor", c->rope_mscale, yarn},
		{"rope.scaling.yarn_ext_factor", 1, yarn},
		{"attention.temperature_scale", 0, true},
		{"attn_logit_softcapping", c->score_cap, true},
		{"final_logit_softcapping", c->logit_cap, true},
		{"attention.scale", dt_score_scale(c), true},
		{"embedding_scale", dt_embed_scale(c) * residual, true},
		{"residual_scale", residual, true},
		{"logit_scale", factor ? dt_logit_scale(c) : dt_factor(c->logit_divisor), true},
	};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		double is = keys[i].computed;
		int rc = keys[i].used ? dt_gguf_key_real(k, keys[i].name, false, &is, err) : 0;

		if (rc < 0)
			return rc;
		if (!(fabs(is - keys[i].computed) <= 1e-4 * keys[i].computed))
			return dt_err_set(err, -ENOTSUP, "key '%s' of %g is not supported", k->key, is);
	}
	return 0;
}

static void read_tensors(const struct dt_gguf_keys *k, struct dt_config *c)
{
	c->qkv_bias = has(k, "blk.0.attn_q.bias") || has(k, "blk.0.attn_qkv.bias");
	c->out_bias = has(k, "blk.0.attn_output.bias");
	c->mlp_bias = has(k, "blk.0.ffn_up.bias");
	c->qk_norm = has(k, "blk.0.attn_q_norm.weight");
	c->tied = !c->encoder && !has(k, "output.weight");
}

static int read_vocab(const struct dt_gguf *g, struct dt_config *c, struct dt_err *err)
{
	const struct dt_gguf_tensor *embed = dt_gguf_find_tensor(g, "token_embd.weight");
	const struct dt_gguf_kv *tokens = dt_gguf_find(g, "tokenizer.ggml.tokens");
	int rc;

	c->vocab = embed ? embed->shape[0] : tokens ? (int64_t)tokens->n : 0;
	if ((rc = dt_gguf_int(g, "tokenizer.ggml.bos_token_id", false, 0, DT_HF_MOST, &c->bos, err)) < 0 ||
	    (rc = dt_gguf_int(g, "tokenizer.ggml.eos_token_id", false, 0, DT_HF_MOST, &c->eos, err)) < 0)
		return rc;
	return 0;
}

int dt_config_from_gguf(const struct dt_gguf *g, struct dt_config *ret, struct dt_err *err)
{
	struct dt_config c = {.bos = -1, .eos = -1, .init_std = 0.02, .act = DT_ACT_SILU};
	const struct dt_family *f;
	struct dt_gguf_keys k = {.g = g};
	char known[512];
	const char *arch;
	size_t n;
	int rc = dt_gguf_str(g, "general.architecture", true, &arch, &n, err);

	if (rc < 0)
		return rc;
	snprintf(k.arch, sizeof(k.arch), "%.*s", n > 60 ? 60 : (int)n, arch);
	f = dt_family_of_arch(k.arch);
	if (!f)
		return dt_err_set(err, -ENOTSUP, "architecture '%.40s' is not supported; known: %s", k.arch,
				  dt_family_list(true, known, sizeof(known)));
	c.rope_pairing = DT_ROPE_HALF;
	snprintf(c.name, sizeof(c.name), "%s", k.arch);
	snprintf(c.family, sizeof(c.family), "%s", f->type);
	read_name(g, &c);
	if ((rc = dt_gguf_key_size(&k, "embedding_length", true, &c.hidden, err)) < 0 ||
	    (rc = dt_gguf_key_size(&k, "block_count", true, &c.layers, err)) < 0 ||
	    (rc = dt_gguf_key_size(&k, "feed_forward_length", true, &c.ffn, err)) < 0 ||
	    (rc = dt_gguf_key_size(&k, "attention.head_count", true, &c.heads, err)) < 0 ||
	    (rc = dt_gguf_key_size(&k, "context_length", true, &c.max_seq, err)) < 0 ||
	    (rc = f->from_gguf(&k, &c, err)) < 0 || (rc = refuse_experts(&k, &c, err)) < 0 ||
	    (rc = refuse_scales(&k, &c, err)) < 0)
		return rc;
	read_tensors(&k, &c);
	if ((rc = read_vocab(g, &c, err)) < 0 || (rc = dt_config_check(&c, err)) < 0)
		return rc;
	*ret = c;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
