#include "serve/api/pair.h"

#include "serve/api/priv.h"

#include <stdlib.h>

json_t *dt_pair_ids(json_t *text, const char *key, const struct dt_api_model *m, struct dt_api_error *e)
{
	json_t *ids = json_array();
	int32_t *id = NULL;
	struct dt_err err;
	size_t n = 0;

	if (json_is_array(text)) {
		json_array_extend(ids, text);
		return ids;
	}
	if (dt_api_encode(m->engine->tok, json_string_value(text), json_string_length(text), true, &id, &n,
			  &err) < 0) {
		dt_body_bad(e, key, "%s", err.msg);
		json_decref(ids);
		return NULL;
	}
	for (size_t i = 0; i < n; i++)
		json_array_append_new(ids, json_integer(id[i]));
	free(id);
	return ids;
}

json_t *dt_pair_join(const json_t *a, const json_t *b, const struct dt_api_model *m)
{
	const int32_t bos = dt_tokenizer_bos(m->engine->tok);
	const bool starts = bos >= 0 && json_integer_value(json_array_get(b, 0)) == bos;
	json_t *all = json_copy((json_t *)a);

	if (m->engine->model.seps > 1 && starts)
		json_array_append(all, json_array_get(a, json_array_size(a) - 1));
	for (size_t i = starts; i < json_array_size(b); i++)
		json_array_append(all, json_array_get(b, i));
	return all;
}
/* SPDX-License-Identifier: Apache-2.0 */
