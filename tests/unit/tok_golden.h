/* Golden files of tokenizers: what tests/data/tokenizer/golden_*.py have from Hugging Face's library. */
#ifndef DT_TESTS_UNIT_TOK_GOLDEN_H
#define DT_TESTS_UNIT_TOK_GOLDEN_H

#include "base/json.h"
#include "data/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static inline struct dt_tokenizer *open_one(const char *name)
{
	struct dt_tokenizer *t;
	struct dt_err err;
	char path[1024];

	snprintf(path, sizeof(path), "%s/tokenizer/%s.json", GOLDEN_DIR, name);
	if (dt_tokenizer_open(path, &t, &err) < 0)
		fail_msg("%s", err.msg);
	return t;
}

/* Texts contain zero bytes. file: golden-*.json */
static inline json_t *golden(const char *file)
{
	json_error_t why;
	char path[1024];
	json_t *g;

	snprintf(path, sizeof(path), "%s/tokenizer/%s", GOLDEN_DIR, file);
	g = json_load_file(path, JSON_ALLOW_NUL, &why);

	if (!g)
		fail_msg("%s", why.text);
	return g;
}

static inline void check(const struct dt_tokenizer *t, const json_t *text, const json_t *want, bool special)
{
	struct dt_err err = {0};
	int32_t *ids;
	size_t n;

	if (dt_tokenizer_encode(t, json_string_value(text), json_string_length(text), special, &ids, &n,
				&err) < 0)
		fail_msg("'%s': %s", json_string_value(text), err.msg);
	if (n != json_array_size(want))
		fail_msg("'%s': %zu ids, not %zu", json_string_value(text), n, json_array_size(want));
	for (size_t i = 0; i < n; i++)
		if (ids[i] != json_integer_value(json_array_get(want, i)))
			fail_msg("'%s': id %zu is %d, not %d", json_string_value(text), i, ids[i],
				 (int)json_integer_value(json_array_get(want, i)));
	free(ids);
}

static inline void check_decoded(const struct dt_tokenizer *t, const json_t *list, const json_t *want)
{
	size_t n = json_array_size(list), len;
	int32_t *ids = malloc((n + 1) * sizeof(*ids));
	struct dt_err err;
	char *s;

	for (size_t i = 0; i < n; i++)
		ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
	assert_int_equal(dt_tokenizer_decode(t, ids, n, true, &s, &len, &err), 0);
	if (len != json_string_length(want) || memcmp(s, json_string_value(want), len))
		fail_msg("'%.*s' is not '%s'", (int)len, s, json_string_value(want));
	free(s);
	free(ids);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
