#include "model/same.h"

#include "base/json.h"

#include <string.h>

/* Replaces NTK scaling by the equivalent larger base: files may store either. */
static struct dt_config based(const struct dt_config *c)
{
	struct dt_config r = *c;

	if (c->rope_scaling == DT_ROPE_SCALING_NTK) {
		r.rope_theta = dt_rope_base(c);
		r.rope_scaling = DT_ROPE_SCALING_NONE;
	}
	return r;
}

static void drop(json_t *x, json_t *y, const char *key)
{
	json_object_del(x, key);
	json_object_del(y, key);
}

/* What a key is about, in words for a message. */
static const char *subject(const char *key)
{
	static const struct {
		const char *begins, *what;
	} subjects[] = {{"window", "a sliding window"},
			{"global_every", "a sliding window"},
			{"act", "its activation"},
			{"rope_", "its rotary positions"},
			{"score_", "the scale or cap of its scores"},
			{"logit_", "the scale or cap of its logits"},
			{"embed_", "the scale of its embeddings"},
			{"residual_", "the scale of its residuals"},
			{"parallel_", "the order of attention and MLP"},
			{"router_", "its router"},
			{"head", "its heads"},
			{"pooler", "its pooler"},
			{"labels", "its classes"},
			{"tower.", "its tower of vision"}};

	for (size_t i = 0; i < sizeof(subjects) / sizeof(*subjects); i++)
		if (!strncmp(key, subjects[i].begins, strlen(subjects[i].begins)))
			return subjects[i].what;
	return strstr(key, "bias")     ? "its biases"
	       : strstr(key, "expert") ? "its experts"
				       : "its sizes or norms";
}

/* What the first key of x that y lacks, or has another value for, is about; NULL: none. */
static const char *difference(json_t *x, const json_t *y)
{
	const char *key;
	json_t *v;

	json_object_foreach(x, key, v)
	{
		const json_t *w = json_object_get(y, key);
		bool equal = json_is_real(v) && json_is_real(w)
				     ? (float)json_real_value(v) == (float)json_real_value(w)
				     : json_equal(v, w);

		if (!equal)
			return subject(key);
	}
	return NULL;
}

bool dt_config_same(const struct dt_config *a, const struct dt_config *b, const char **ret_what)
{
	static const char *const free_keys[] = {
		"name",	      "family",	    "rope_pairing", "norm_plus_one",
		"init_std",   "bos",	    "eos",	    "zero_init_residual",
		"value_head", "mask_token", "pooling"};
	struct dt_config first = based(a), second = based(b);
	json_t *x = dt_config_to_json(&first), *y = dt_config_to_json(&second);
	const char *what;

	for (size_t i = 0; i < sizeof(free_keys) / sizeof(*free_keys); i++)
		drop(x, y, free_keys[i]);
	if (a->pos != DT_POS_ROPE || a->rope_scaling != DT_ROPE_SCALING_LLAMA3)
		for (size_t i = 0; i < 2; i++)
			drop(x, y, ((const char *const[]){"rope_low_freq", "rope_high_freq"})[i]);
	if (a->pos != DT_POS_ROPE || a->rope_scaling != DT_ROPE_SCALING_YARN)
		for (size_t i = 0; i < 3; i++)
			drop(x, y,
			     ((const char *const[]){"rope_beta_fast", "rope_beta_slow",
						    "rope_untruncated"})[i]);
	if (a->pos != DT_POS_ROPE ||
	    (a->rope_scaling != DT_ROPE_SCALING_YARN && a->rope_scaling != DT_ROPE_SCALING_LONGROPE))
		drop(x, y, "rope_mscale");
	if (a->pos != DT_POS_ROPE || first.rope_scaling <= DT_ROPE_SCALING_LINEAR)
		drop(x, y, "rope_original_seq");
	if (a->pos != DT_POS_ROPE || first.rope_scaling == DT_ROPE_SCALING_NONE)
		drop(x, y, "rope_factor");
	if (a->pos != DT_POS_ROPE)
		drop(x, y, "rope_theta");
	what = difference(x, y);
	what = what ? what : difference(y, x); /* a key that only the second has */
	if (what && ret_what)
		*ret_what = what;
	json_decref(x);
	json_decref(y);
	return !what;
}
/* SPDX-License-Identifier: Apache-2.0 */
