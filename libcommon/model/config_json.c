/* Our own form of a model configuration: each field under its name, as in manifest.json. */
#include "model/config.h"
#include "model/family.h"

#include "kernels/activation.h"
#include "kernels/class_loss.h"
#include "kernels/rope.h"
#include "kernels/unpack.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum kind { STR, INT, REAL, BOOL, WORD, LIST, BITS };

/*
 * One table for writing and reading. words: the names of an enum's values, in order. A LIST is of floats,
 * all above 0, up to the first 0; BITS are the numbers of the bits that are set, increasing.
 */
static const struct field {
	const char *key;
	enum kind kind;
	size_t off, size;
	const char *words;
	bool optional; /* 0 if missing; not written if 0 */
	bool text;     /* text models only */
} fields[] = {
#define F(k, f, ...)                                                                                         \
	{                                                                                                    \
#f, k, offsetof(struct dt_config, f), sizeof(((struct dt_config *)0)->f), __VA_ARGS__        \
	}
	F(STR, name, NULL),
	F(STR, family, NULL),
	F(INT, vocab, NULL),
	F(INT, hidden, NULL, .text = true),
	F(INT, ffn, NULL, .text = true),
	F(INT, layers, NULL),
	F(INT, heads, NULL, .text = true),
	F(INT, kv_heads, NULL, .text = true),
	F(INT, head_dim, NULL, .text = true),
	F(INT, max_seq, NULL, .text = true),
	F(WORD, norm, "layer|rms", .text = true),
	F(REAL, norm_eps, NULL),
	F(WORD, pos, "learned|rope|none", .text = true),
	F(REAL, rope_theta, NULL, .text = true),
	F(WORD, rope_scaling, "none|linear|llama3|ntk|yarn|dynamic|longrope", .text = true),
	F(REAL, rope_factor, NULL, .text = true),
	F(REAL, rope_low_freq, NULL, .text = true),
	F(REAL, rope_high_freq, NULL, .text = true),
	F(INT, rope_original_seq, NULL, .text = true),
	F(REAL, rope_beta_fast, NULL, true),
	F(REAL, rope_beta_slow, NULL, true),
	F(REAL, rope_mscale, NULL, true),
	F(BOOL, rope_untruncated, NULL, true),
	F(LIST, rope_short, NULL, true),
	F(LIST, rope_long, NULL, true),
	F(WORD, rope_pairing, "half|adjacent", .text = true),
	F(WORD, act, "gelu_tanh|gelu_erf|silu|relu|silu_clamped", .text = true),
	F(BOOL, gated, NULL, .text = true),
	F(BOOL, tied, NULL, .text = true),
	F(BOOL, qkv_bias, NULL, .text = true),
	F(BOOL, out_bias, NULL, .text = true),
	F(BOOL, mlp_bias, NULL, .text = true),
	F(BOOL, qk_norm, NULL, .text = true),
	F(INT, window, NULL, .text = true),
	F(INT, global_every, NULL, true),
	F(BOOL, post_norms, NULL, true),
	F(BOOL, norm_plus_one, NULL, true),
	F(BOOL, embed_scaled, NULL, true),
	F(REAL, rope_local_theta, NULL, true),
	F(INT, rope_skip_every, NULL, true),
	F(BOOL, parallel_residual, NULL, true),
	F(BOOL, one_norm, NULL, true),
	F(BOOL, norm_no_bias, NULL, true),
	F(BOOL, no_pre_norms, NULL, true),
	F(BOOL, qk_norm_whole, NULL, true),
	F(REAL, score_cap, NULL, true),
	F(REAL, logit_cap, NULL, true),
	F(BOOL, attn_sinks, NULL, true),
	F(BOOL, value_head, NULL, true),
	F(INT, score_dim, NULL, true),
	F(REAL, score_mscale, NULL, true),
	F(REAL, embed_factor, NULL, true),
	F(REAL, score_factor, NULL, true),
	F(REAL, residual_factor, NULL, true),
	F(REAL, logit_divisor, NULL, true),
	F(INT, experts, NULL, true),
	F(INT, experts_used, NULL, true),
	F(INT, expert_ffn, NULL, true),
	F(INT, shared_ffn, NULL, true),
	F(INT, dense_layers, NULL, true),
	F(BOOL, router_bias, NULL, true),
	F(BOOL, router_unscaled, NULL, true),
	F(BOOL, router_sigmoid, NULL, true),
	F(INT, router_groups, NULL, true),
	F(INT, router_groups_used, NULL, true),
	F(REAL, router_scale, NULL, true),
	F(BOOL, expert_bias, NULL, true),
	F(INT, mtp_layers, NULL, true),
	F(INT, kv_rank, NULL, true),
	F(INT, q_rank, NULL, true),
	F(INT, rope_dim, NULL, true),
	F(INT, v_dim, NULL, true),
	F(INT, ssm_heads, NULL, true),
	F(INT, ssm_head_dim, NULL, true),
	F(INT, ssm_groups, NULL, true),
	F(INT, ssm_state, NULL, true),
	F(INT, ssm_kernel, NULL, true),
	F(BITS, attn_layers, NULL, true),
	F(BOOL, encoder, NULL, true),
	F(INT, token_types, NULL, true),
	F(INT, pos_first, NULL, true),
	F(WORD, head, "masked|none|classes", true),
	F(BOOL, pooler, NULL, true),
	F(INT, labels, NULL, true),
	F(WORD, label_loss, DT_CLASS_LOSSES, true),
	F(WORD, pooling, "open|mean|cls", true),
	F(INT, mask_token, NULL, true),
	F(INT, bos, NULL, .text = true),
	F(INT, eos, NULL, .text = true),
	F(REAL, init_std, NULL, .text = true),
	F(INT, image_size, NULL, true),
	F(INT, channels, NULL, true),
	F(STR, blocks, NULL, true),
	F(INT, patch, NULL, true),
	F(BOOL, bottleneck, NULL, true),
	F(WORD, stem, "imagenet|cifar", true),
	F(BOOL, zero_init_residual, NULL, true),
	F(INT, tower.hidden, NULL, true),
	F(INT, tower.ffn, NULL, true),
	F(INT, tower.layers, NULL, true),
	F(INT, tower.heads, NULL, true),
	F(INT, tower.patch, NULL, true),
	F(INT, tower.channels, NULL, true),
	F(INT, tower.side, NULL, true),
	F(INT, tower.join, NULL, true),
	F(INT, tower.out, NULL, true),
	F(WORD, tower.act, "gelu_tanh|gelu_erf|silu|relu|silu_clamped", true),
	F(REAL, tower.norm_eps, NULL, true),
	F(INT, tower.token, NULL, true),
	F(INT, lora.rank, NULL, true),
	F(REAL, lora.alpha, NULL, true),
	F(WORD, lora.kind, DT_LORA_KINDS, true),
	F(WORD, lora.base, DT_BLOCKS_NAMES, true),
	F(STR, lora.targets, NULL, true),
	F(STR, lora.modules_to_save, NULL, true),
	F(REAL, lora.dropout, NULL, true),
	F(BOOL, lora.dora, NULL, true),
#undef F
};
#define NFIELDS (sizeof(fields) / sizeof(fields[0]))

_Static_assert(sizeof(enum dt_norm_kind) == sizeof(int), "words are stored as int");
_Static_assert(DT_ACT_GELU_TANH == 0 && DT_ACT_GELU_ERF == 1 && DT_ACT_SILU == 2 && DT_ACT_RELU == 3 &&
		       DT_ACT_SILU_CLAMPED == 4,
	       "order of the words of act");
_Static_assert(DT_ROPE_HALF == 0 && DT_ROPE_ADJACENT == 1, "order of the words of rope_pairing");

static int word_index(const char *words, const char *word)
{
	int i = 0;

	for (const char *s = words;; s++, i++) {
		size_t n = strcspn(s, "|");

		if (strlen(word) == n && !strncmp(s, word, n))
			return i;
		s += n;
		if (!*s)
			return -1;
	}
}

static json_t *word_json(const char *words, int i)
{
	while (i-- > 0 && words)
		words = strchr(words, '|') ? strchr(words, '|') + 1 : NULL;
	return words ? json_stringn(words, (size_t)(strchrnul(words, '|') - words)) : NULL;
}

static json_t *list_json(const float *x, size_t n)
{
	json_t *list = json_array();

	for (size_t i = 0; i < n && x[i] > 0; i++)
		json_array_append_new(list, json_real(dt_json_short(x[i])));
	return list;
}

static json_t *bits_json(const uint64_t *x, size_t size)
{
	json_t *list = json_array();

	for (size_t i = 0; i < 8 * size; i++)
		if (x[i / 64] >> i % 64 & 1)
			json_array_append_new(list, json_integer((json_int_t)i));
	return list;
}

static int read_bits(const json_t *o, const char *key, uint64_t *x, size_t size, struct dt_err *err)
{
	const json_t *list = json_object_get(o, key), *v;
	size_t i;

	if (list && !json_is_array(list))
		return dt_err_set(err, -EINVAL, "'%s' is not a list", key);
	json_array_foreach(list, i, v)
	{
		const json_int_t n = json_is_integer(v) ? json_integer_value(v) : -1;

		if (n < 0 || n >= (json_int_t)(8 * size))
			return dt_err_set(err, -EINVAL, "'%s' has an entry that is no integer from 0 to %zu",
					  key, 8 * size - 1);
		x[n / 64] |= UINT64_C(1) << n % 64;
	}
	return 0;
}

static bool is_zero(const struct field *f, const void *p)
{
	switch (f->kind) {
	case BOOL:
		return !*(const bool *)p;
	case REAL:
		return !(*(const double *)p > 0);
	case INT:
		return !*(const int64_t *)p;
	case WORD:
		return !*(const int *)p;
	case STR:
		return !*(const char *)p;
	case LIST:
		return !(*(const float *)p > 0);
	case BITS:
		for (size_t i = 0; i < f->size / sizeof(uint64_t); i++)
			if (((const uint64_t *)p)[i])
				return false;
		return true;
	}
	return false;
}

json_t *dt_config_to_json(const struct dt_config *c)
{
	json_t *o = json_object();

	for (size_t i = 0; i < NFIELDS; i++) {
		const struct field *f = &fields[i];
		const void *p = (const char *)c + f->off;
		json_t *v = NULL;

		if ((f->text && dt_config_is_image(c) && !c->patch) || (f->optional && is_zero(f, p)))
			continue;
		switch (f->kind) {
		case STR:
			v = json_string(p);
			break;
		case INT:
			v = json_integer(*(const int64_t *)p);
			break;
		case REAL:
			v = json_real(*(const double *)p);
			break;
		case BOOL:
			v = json_boolean(*(const bool *)p);
			break;
		case WORD:
			v = word_json(f->words, *(const int *)p);
			break;
		case LIST:
			v = list_json(p, f->size / sizeof(float));
			break;
		case BITS:
			v = bits_json(p, f->size);
			break;
		}
		if (json_object_set_new(o, f->key, v) < 0) {
			json_decref(o);
			return NULL;
		}
	}
	return o;
}

static int read_field(const json_t *o, const struct field *f, struct dt_config *c, struct dt_err *err)
{
	void *p = (char *)c + f->off;
	const bool needed = !f->optional && !(f->text && json_object_get(o, "image_size"));
	const char *s = NULL;
	int rc;

	switch (f->kind) {
	case INT:
		rc = dt_json_int(o, f->key, needed, -1, INT64_C(1) << 40, p, err);
		return rc < 0 ? rc : 0;
	case REAL:
		rc = dt_json_real(o, f->key, needed, p, err);
		return rc < 0 ? rc : 0;
	case BOOL:
		rc = dt_json_bool(o, f->key, needed, p, err);
		return rc < 0 ? rc : 0;
	case STR:
		rc = dt_json_str(o, f->key, needed, &s, err);
		if (rc <= 0)
			return rc;
		if (strlen(s) >= f->size)
			return dt_err_set(err, -EINVAL, "'%s' is longer than %zu characters", f->key,
					  f->size - 1);
		strcpy(p, s);
		return 0;
	case LIST:
		return dt_json_floats(o, f->key, p, f->size / sizeof(float), err);
	case BITS:
		return read_bits(o, f->key, p, f->size, err);
	case WORD:
		rc = dt_json_str(o, f->key, needed, &s, err);
		if (rc <= 0)
			return rc;
		rc = word_index(f->words, s);
		if (rc < 0)
			return dt_err_set(err, -EINVAL, "'%s' is '%.40s', not one of %s", f->key, s,
					  f->words);
		*(int *)p = rc;
		return 0;
	}
	return -EINVAL;
}

int dt_config_from_json(const json_t *o, struct dt_config *ret, struct dt_err *err)
{
	const struct dt_family *f;
	struct dt_config c;
	const char *key;
	json_t *v;
	int rc;

	memset(&c, 0, sizeof(c));
	if (!json_is_object(o))
		return dt_err_set(err, -EINVAL, "the model is not a JSON object");
	for (size_t i = 0; i < NFIELDS; i++) {
		rc = read_field(o, &fields[i], &c, err);
		if (rc < 0) {
			dt_err_prefix(err, "model description");
			return rc;
		}
	}
	/* Unknown keys are an error: one may change what the model computes. */
	json_object_foreach((json_t *)o, key, v)
	{
		size_t i = 0;

		while (i < NFIELDS && strcmp(fields[i].key, key))
			i++;
		if (i == NFIELDS)
			return dt_err_set(err, -EINVAL, "model description: unknown key '%.60s'", key);
	}
	f = dt_family_find(c.family);
	if (!f)
		return dt_err_set(err, -ENOTSUP, "model description: no family is called '%.23s'", c.family);
	if (f->images != dt_config_is_image(&c))
		return dt_err_set(err, -EINVAL, "model description: family '%s' %s", c.family,
				  f->images ? "needs an image_size" : "has no image_size");
	if (dt_config_is_image(&c))
		dt_config_complete_image(&c);
	rc = dt_config_check(&c, err);
	if (rc < 0)
		return rc;
	*ret = c;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
