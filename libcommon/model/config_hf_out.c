/* Our configuration as Hugging Face's config.json. Callers check it by reading it back. */
#include "model/family.h"

#include <errno.h>

static json_t *id_or_null(int64_t id)
{
	return id < 0 ? json_null() : json_integer(id);
}

int dt_config_to_hf(const struct dt_config *c, const char *dtype, json_t **ret, struct dt_err *err)
{
	const struct dt_family *f = dt_family_find(c->family);
	json_t *o, *own;

	if (f && f->images && !f->to_hf) {
		*ret = f->to_timm ? f->to_timm(c) : NULL;
		if (!*ret)
			*ret = json_pack("{s:o}", "model", dt_config_to_json(c));
		return *ret ? 0 : dt_err_sys(err, -ENOMEM, "cannot describe '%s'", c->name);
	}
	if (!f || !f->to_hf)
		return dt_err_set(err, -ENOTSUP, "config.json has no form for models of family '%s'",
				  c->family);
	o = json_pack("{s:[s], s:s}", "architectures", f->class, "model_type", f->type);
	own = f->to_hf(c);
	json_object_update(o, own);
	json_decref(own);
	if (!f->images) {
		json_object_set_new(o, "vocab_size", json_integer((json_int_t)c->vocab));
		json_object_set_new(o, "tie_word_embeddings", json_boolean(c->tied));
		json_object_set_new(o, "bos_token_id", id_or_null(c->bos));
		json_object_set_new(o, "eos_token_id", id_or_null(c->eos));
	}
	json_object_set_new(o, "initializer_range", json_real(c->init_std));
	json_object_set_new(o, "torch_dtype", json_string(dtype));
	*ret = o;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
