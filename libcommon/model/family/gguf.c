/*
 * Helpers to read a GGUF file's keys. A feature that would change the result and is not supported is refused
 * by name.
 */
#include "model/family/family.h"

#include "kernels/quant_formats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "ARCH.NAME" */
const char *dt_gguf_key(struct dt_gguf_keys *k, const char *name)
{
	snprintf(k->key, sizeof(k->key), "%s.%s", k->arch, name);
	return k->key;
}

int dt_gguf_key_real(struct dt_gguf_keys *k, const char *name, bool required, double *ret, struct dt_err *err)
{
	double v = 0;
	int rc = dt_gguf_real(k->g, dt_gguf_key(k, name), required, &v, err);

	if (rc <= 0)
		return rc;
	*ret = dt_json_short((float)v);
	return 1;
}

int dt_gguf_key_size(struct dt_gguf_keys *k, const char *name, bool required, int64_t *ret,
		     struct dt_err *err)
{
	return dt_gguf_int(k->g, dt_gguf_key(k, name), required, 1, DT_HF_MOST, ret, err);
}

/* How far the file's divisors are from those of c's scaling: the largest relative difference of a pair. */
static double rope_distance(const uint8_t *divisors, const struct dt_config *c)
{
	double far = 0;

	for (int64_t i = 0; i < dt_rope_dim(c) / 2; i++) {
		double want = pow(c->rope_theta, -2.0 * (double)i / (double)dt_rope_dim(c)) /
			      dt_rope_frequency(c, i),
		       is;
		float got;

		memcpy(&got, divisors + 4 * i, 4);
		is = fabs((double)got - want) / want;
		if (!(is <= far)) /* not a number is far too */
			far = isfinite(is) ? is : INFINITY;
	}
	return far;
}

/* Divisors of frequencies, one a pair. A tensor of the first part, where the keys are. */
static int read_divisors(const struct dt_gguf *g, const char *name, const struct dt_config *c,
			 const uint8_t **ret, struct dt_err *err)
{
	const struct dt_gguf_tensor *t = dt_gguf_find_tensor(g, name);
	const int64_t half = dt_rope_dim(c) / 2;

	if (!t)
		return dt_err_set(err, -EBADMSG, "the file has no '%s'", name);
	if (t->at > g->bytes || t->bytes > g->bytes - t->at)
		return dt_err_set(err, -ENOTSUP, "'%s' is not in the first part", name);
	if (t->format != DT_FMT_F32 || t->ndim != 1 || t->shape[0] != half)
		return dt_err_set(err, -EBADMSG, "'%s' is not %lld numbers", name, (long long)half);
	*ret = (const uint8_t *)g->file + t->at;
	return 0;
}

/*
 * Llama 3's frequencies come as divisors, one a pair, in a tensor. What they were computed from is not in
 * the file. The factor is the largest divisor, or a published one where no pair turns that slowly. The
 * length that it is for is the published one, one of max_seq, or a power of two: the one whose divisors
 * are closest is taken.
 */
static int read_rope_freqs(const struct dt_gguf *g, struct dt_config *c, struct dt_err *err)
{
	double factors[] = {1, 8, 32, 4, 16}, best = 1e-4, factor = 0;
	int64_t half = dt_rope_dim(c) / 2, original = 0;
	const uint8_t *divisors;
	int rc;

	if (!dt_gguf_find_tensor(g, "rope_freqs.weight"))
		return 0;
	rc = read_divisors(g, "rope_freqs.weight", c, &divisors, err);
	if (rc < 0)
		return rc;
	for (int64_t i = 0; i < half; i++) {
		double rounded;
		float got;

		memcpy(&got, divisors + 4 * i, 4);
		rounded = round((double)got * 1e4) / 1e4;
		if (rounded > factors[0]) /* gcc 12 has an internal error at fmax here, on arm64 */
			factors[0] = rounded;
	}
	c->rope_scaling = DT_ROPE_SCALING_LLAMA3;
	c->rope_low_freq = 1;
	c->rope_high_freq = 4;
	for (size_t f = 0; f < sizeof(factors) / sizeof(*factors); f++)
		for (int o = 0; o < 24; o++) {
			double far;

			c->rope_factor = factors[f];
			c->rope_original_seq = o == 0	? 8192
					       : o == 1 ? (int64_t)((double)c->max_seq / factors[f])
					       : o == 2 ? c->max_seq
							: (int64_t)1 << o;
			far = c->rope_original_seq ? rope_distance(divisors, c) : 1;
			if (far < best) {
				best = far;
				factor = c->rope_factor;
				original = c->rope_original_seq;
			}
		}
	c->rope_factor = factor;
	c->rope_original_seq = original;
	if (original)
		return 0;
	return dt_err_set(
		err, -ENOTSUP,
		"'rope_freqs.weight' is not what the scaling of Llama 3.1 makes of any known length");
}

/* LongRoPE is in tensors; some files name no type. */
static int read_longrope(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	const int64_t half = dt_rope_dim(c) / 2;
	const uint8_t *lists[2];
	int rc;

	c->rope_scaling = DT_ROPE_SCALING_LONGROPE;
	c->rope_mscale = 1;
	if (half > DT_ROPE_FACTORS)
		return dt_err_set(err, -ENOTSUP, "heads of more than %d elements with LongRoPE",
				  2 * DT_ROPE_FACTORS);
	if ((rc = dt_gguf_key_size(k, "rope.scaling.original_context_length", true, &c->rope_original_seq,
				   err)) < 0 ||
	    (rc = dt_gguf_key_real(k, "rope.scaling.attn_factor", false, &c->rope_mscale, err)) < 0 ||
	    (rc = read_divisors(k->g, DT_GGUF_ROPE_SHORT, c, &lists[0], err)) < 0 ||
	    (rc = read_divisors(k->g, DT_GGUF_ROPE_LONG, c, &lists[1], err)) < 0)
		return rc;
	memcpy(c->rope_short, lists[0], (size_t)half * sizeof(float));
	memcpy(c->rope_long, lists[1], (size_t)half * sizeof(float));
	c->rope_factor = dt_rope_long_factor(c);
	return 0;
}

static int read_yarn(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->rope_scaling = DT_ROPE_SCALING_YARN;
	c->rope_beta_fast = 32;
	c->rope_beta_slow = 1;
	c->rope_original_seq = c->max_seq;
	if ((rc = dt_gguf_key_real(k, "rope.scaling.factor", true, &c->rope_factor, err)) < 0 ||
	    (rc = dt_gguf_key_real(k, "rope.scaling.yarn_beta_fast", false, &c->rope_beta_fast, err)) < 0 ||
	    (rc = dt_gguf_key_real(k, "rope.scaling.yarn_beta_slow", false, &c->rope_beta_slow, err)) < 0 ||
	    (rc = dt_gguf_key_size(k, "rope.scaling.original_context_length", false, &c->rope_original_seq,
				   err)) < 0)
		return rc;
	c->rope_mscale = dt_rope_yarn_mscale(c->rope_factor, 1);
	return 0;
}

/* A file with a factor, but without a type of scaling, is scaled linearly. Old files say scale_linear. */
static int read_linear(struct dt_gguf_keys *k, bool named, struct dt_config *c, struct dt_err *err)
{
	double factor = 0;
	int rc = dt_gguf_key_real(k, "rope.scale_linear", false, &factor, err);

	if (rc < 0 || (rc = dt_gguf_key_real(k, "rope.scaling.factor", named && rc == 0, &factor, err)) < 0)
		return rc;
	if (!named && (factor == 0 || factor == 1))
		return 0;
	c->rope_scaling = DT_ROPE_SCALING_LINEAR;
	c->rope_factor = factor;
	return 0;
}

static int read_rope(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	const int64_t all = dt_rope_dim(c);
	int64_t dims = all;
	const char *type = "linear";
	size_t n = 6;
	int rc, named = 0;

	c->pos = DT_POS_ROPE;
	c->rope_theta = 10000;
	c->rope_factor = 1;
	if ((rc = dt_gguf_key_real(k, "rope.freq_base", false, &c->rope_theta, err)) < 0 ||
	    (rc = dt_gguf_key_size(k, "rope.dimension_count", false, &dims, err)) < 0 ||
	    (named = dt_gguf_str(k->g, dt_gguf_key(k, "rope.scaling.type"), false, &type, &n, err)) < 0)
		return rc < 0 ? rc : named;
	if (dims != all && (c->kv_rank || dims > all))
		return dt_err_set(err, -ENOTSUP, "rotating %lld of %lld elements of a head is not supported",
				  (long long)dims, (long long)all);
	if (dims != all)
		c->rope_dim = dims;
	if (dt_gguf_find_tensor(k->g, DT_GGUF_ROPE_LONG) || (n == 8 && !memcmp(type, "longrope", 8)))
		rc = read_longrope(k, c, err);
	else if (n == 6 && !memcmp(type, "linear", 6))
		rc = read_linear(k, named, c, err);
	else if (n == 4 && !memcmp(type, "yarn", 4))
		rc = read_yarn(k, c, err);
	else if (n != 4 || memcmp(type, "none", 4))
		return dt_err_set(err, -ENOTSUP,
				  "rotary scaling '%.*s' is not supported; known: linear, yarn, longrope, "
				  "llama3",
				  n > 40 ? 40 : (int)n, type);
	if (rc < 0 || c->rope_scaling == DT_ROPE_SCALING_NONE)
		return rc < 0 ? rc : read_rope_freqs(k->g, c, err);
	if (dt_gguf_find_tensor(k->g, "rope_freqs.weight"))
		return dt_err_set(err, -ENOTSUP,
				  "'rope_freqs.weight' together with rotary scaling '%.*s' is not supported",
				  (int)n, type);
	return 0;
}

int dt_gguf_attention(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->kv_heads = c->heads;
	c->head_dim = c->hidden / c->heads;
	if ((rc = dt_gguf_key_size(k, "attention.head_count_kv", false, &c->kv_heads, err)) < 0 ||
	    (rc = dt_gguf_key_size(k, "attention.key_length", false, &c->head_dim, err)) < 0 ||
	    (rc = dt_gguf_int(k->g, dt_gguf_key(k, "attention.sliding_window"), false, 0, DT_HF_MOST,
			      &c->window, err)) < 0)
		return rc;
	return read_rope(k, c, err);
}

int dt_gguf_decoder(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->norm = DT_NORM_RMS;
	c->gated = true;
	rc = dt_gguf_key_real(k, "attention.layer_norm_rms_epsilon", true, &c->norm_eps, err);
	return rc < 0 ? rc : dt_gguf_attention(k, c, err);
}

int dt_gguf_decoder_part(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc = dt_gguf_decoder(k, c, err);

	c->rope_dim = dt_rope_dim(c);
	return rc;
}

int dt_gguf_experts(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc = dt_gguf_int(k->g, dt_gguf_key(k, "expert_count"), false, 0, DT_HF_MOST, &c->experts, err);

	if (rc < 0 || !c->experts)
		return rc < 0 ? rc : 0;
	return dt_gguf_key_size(k, "expert_used_count", true, &c->experts_used, err);
}

int dt_gguf_leave_modules(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int64_t more = 0;
	int rc = dt_gguf_int(k->g, dt_gguf_key(k, "nextn_predict_layers"), false, 0, c->layers - 1, &more,
			     err);

	if (rc < 0)
		return rc;
	c->layers -= more;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
