/* Hugging Face's config.json: the keys that all families share. The family's file reads the rest. */
#include "model/family/family.h"

#include "kernels/activation.h"
#include "kernels/rope.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * Reads a token id; of a list, the first. *ret: the class's default, which may exceed a smaller vocabulary,
 * in a file that states it too (transformers writes it): there is no such token then, -1.
 */
static int read_token(const json_t *o, const char *key, int64_t vocab, int64_t *ret, struct dt_err *err)
{
	const json_t *v = json_object_get(o, key);
	const int64_t standard = *ret;

	if (standard >= vocab)
		*ret = -1;
	if (json_is_array(v))
		v = json_array_get(v, 0);
	if (!v || json_is_null(v))
		return 0;
	if (!json_is_integer(v))
		return dt_err_set(err, -EINVAL, "'%s' is not a whole number", key);
	if (json_integer_value(v) >= vocab && json_integer_value(v) != standard)
		return dt_err_set(
			err, -EINVAL,
			"'%s' is %lld, but 'vocab_size' is %lld: give an id below it, or null for none", key,
			(long long)json_integer_value(v), (long long)vocab);
	if (json_integer_value(v) < vocab)
		*ret = json_integer_value(v);
	return 0;
}

/* The family of a text_config that says its own: a Llama, also by default. */
static int text_family(const json_t *o, const struct dt_family **ret, struct dt_err *err)
{
	const char *type = dt_family_llama.type;
	int rc = dt_json_str(o, "model_type", false, &type, err);

	if (rc == 0 && strcmp(type, dt_family_llama.type))
		rc = dt_err_set(err, -ENOTSUP,
				"a 'text_config' of '%.60s' is not supported beside a tower of vision", type);
	*ret = &dt_family_llama;
	return rc;
}

int dt_config_from_hf(const json_t *o, struct dt_config *ret, struct dt_err *err)
{
	const struct dt_family *f, *outer;
	const json_t *all = o;
	const char *type = NULL;
	struct dt_config c;
	char known[512];
	int rc;

	if (!json_is_object(o))
		return dt_err_set(err, -EINVAL, "not a JSON object");
	if (json_is_string(json_object_get(o, "architecture")) && !json_object_get(o, "model_type"))
		return dt_family_resnet.from_timm(o, ret, err);
	if ((rc = dt_json_str(o, "model_type", true, &type, err)) < 0)
		return rc;
	f = outer = dt_family_of_outer(type);
	if (f && json_is_object(json_object_get(o, "text_config")))
		o = json_object_get(o, "text_config");
	else
		f = dt_family_find(type);
	if (f && f == outer && f->beside_text && (rc = text_family(o, &f, err)) < 0)
		return rc;
	if (!f || !f->from_hf)
		return dt_err_set(err, -EINVAL, "architecture '%.60s' is not supported; known: %s", type,
				  dt_family_list(false, known, sizeof(known)));
	memset(&c, 0, sizeof(c));
	snprintf(c.name, sizeof(c.name), "%s", f->type);
	snprintf(c.family, sizeof(c.family), "%s", f->type);
	c.rope_pairing = DT_ROPE_HALF;
	c.act = DT_ACT_SILU;
	c.norm_eps = 1e-6;
	c.bos = c.eos = -1;
	c.init_std = 0.02;
	c.vocab = f->hf_vocab;
	if ((rc = dt_json_int(o, "vocab_size", !c.vocab, 1, INT64_C(1) << 31, &c.vocab, err)) < 0 ||
	    (rc = f->from_hf(o, &c, err)) < 0 ||
	    (f != outer && outer && (rc = outer->beside_text(all, &c, err)) < 0))
		return rc;
	if ((rc = read_token(o, "bos_token_id", c.vocab, &c.bos, err)) < 0 ||
	    (rc = read_token(o, "eos_token_id", c.vocab, &c.eos, err)) < 0 ||
	    (rc = dt_json_real(o, "initializer_range", false, &c.init_std, err)) < 0 ||
	    (rc = dt_config_check(&c, err)) < 0)
		return rc;
	*ret = c;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
