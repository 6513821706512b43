#include "model/same.h"

#include "base/json.h"

#include <string.h>

/* Files know a scaling by a larger base as the larger base. */
static struct dt_config based(const struct dt_config *c)
{
	struct dt_config r = *c;

	if (c->rope_scaling == DT_ROPE_SCALING_NTK) {
		r.rope_theta = dt_rope_base(c);
		r.rope_scaling = DT_ROPE_SCALING_NONE;
	}
	return r;
}

bool dt_config_same(const struct dt_config *a, const struct dt_config *b, const char **ret_what)
{
	static const char *const free_keys[] = {"name",	     "family", "rope_pairing", "norm_plus_one",
						"init_std",  "bos",    "eos",	       "zero_init_residual",
						"value_head"};
	struct dt_config first = based(a), second = based(b);
	json_t *x = dt_config_to_json(&first), *y = dt_config_to_json(&second), *v;
	const char *key;
	bool same = true;

	for (size_t i = 0; i < sizeof(free_keys) / sizeof(*free_keys); i++)
		json_object_del(x, free_keys[i]);
	if (a->pos != DT_POS_ROPE || a->rope_scaling != DT_ROPE_SCALING_LLAMA3)
		for (size_t i = 0; i < 2; i++)
			json_object_del(x, ((const char *const[]){"rope_low_freq", "rope_high_freq"})[i]);
	if (a->pos != DT_POS_ROPE || a->rope_scaling != DT_ROPE_SCALING_YARN)
		for (size_t i = 0; i < 4; i++)
			json_object_del(x, ((const char *const[]){"rope_beta_fast", "rope_beta_slow",
								  "rope_mscale", "rope_untruncated"})[i]);
	if (a->pos != DT_POS_ROPE || first.rope_scaling <= DT_ROPE_SCALING_LINEAR)
		json_object_del(x, "rope_original_seq");
	if (a->pos != DT_POS_ROPE || first.rope_scaling == DT_ROPE_SCALING_NONE)
		json_object_del(x, "rope_factor");
	if (a->pos != DT_POS_ROPE)
		json_object_del(x, "rope_theta");
	json_object_foreach(x, key, v)
	{
		const json_t *w = json_object_get(y, key);
		bool equal = json_is_real(v) && json_is_real(w)
				     ? (float)json_real_value(v) == (float)json_real_value(w)
				     : json_equal(v, w);

		if (same && !equal) {
			same = false;
			for (size_t i = 0; ret_what && i < 1; i++)
				*ret_what = !strcmp(key, "window")	? "a sliding window"
					    : !strcmp(key, "act")	? "its activation"
					    : !strncmp(key, "rope_", 5) ? "its rotary positions"
					    : strstr(key, "bias")	? "its biases"
									: "its sizes or norms";
		}
	}
	json_decref(x);
	json_decref(y);
	return same;
}
/* SPDX-License-Identifier: Apache-2.0 */
