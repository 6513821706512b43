/*
 * Reads the post-processors of tokenizer.json: which tokens stand before a text and behind it. Encoding does
 * not add them.
 */
#include "data/tok_json.h"

#include <errno.h>
#include <string.h>

/* Takes one token of a template; behind: the text stands before it. */
static int take(struct dt_tokenizer *t, bool behind, const char *name, const json_t *id, struct dt_err *err)
{
	int32_t *to = behind ? &t->end : &t->bos;
	json_int_t v = json_integer_value(id);

	if (*to >= 0)
		return dt_err_set(err, -ENOTSUP,
				  "post_processor TemplateProcessing with more than one token %s the text is "
				  "not supported",
				  behind ? "after" : "before");
	if (!json_is_integer(id))
		return dt_err_set(err, -EINVAL, "post_processor token '%.80s' does not have exactly one id",
				  name);
	if (v < 0 || v >= t->vocab)
		return dt_err_set(err, -EINVAL, "post_processor token '%.80s' is not in the vocabulary",
				  name);
	*to = (int32_t)v;
	return 0;
}

/* The number of tokens between the two texts of a template for pairs; 0: it does not say. */
static int between(const json_t *pair)
{
	const json_t *part;
	int texts = 0, n = 0;
	size_t i;

	json_array_foreach(pair, i, part)
	{
		texts += json_object_get(part, "Sequence") != NULL;
		n += texts == 1 && json_object_get(part, "SpecialToken");
	}
	return n;
}

static int read_template(struct dt_tokenizer *t, const json_t *o, struct dt_err *err)
{
	const json_t *single = json_object_get(o, "single"), *ids, *part;
	bool text_seen = false;
	size_t i;
	int rc = 0;

	t->seps = between(json_object_get(o, "pair"));
	if (!json_is_array(single))
		return dt_err_set(err, -EINVAL, "post_processor TemplateProcessing has no 'single'");
	json_array_foreach(single, i, part)
	{
		const char *name =
			json_string_value(json_object_get(json_object_get(part, "SpecialToken"), "id"));

		if (rc < 0)
			break;
		if (json_object_get(part, "Sequence")) {
			text_seen = true;
			continue;
		}
		if (!name)
			return dt_err_set(err, -EINVAL,
					  "post_processor TemplateProcessing is not understood");
		ids = json_object_get(json_object_get(json_object_get(o, "special_tokens"), name), "ids");
		rc = take(t, text_seen, name, json_array_size(ids) == 1 ? json_array_get(ids, 0) : NULL, err);
	}
	return rc;
}

/* {"cls": ["[CLS]", 101], "sep": ["[SEP]", 102]} */
static int read_bert(struct dt_tokenizer *t, const json_t *o, struct dt_err *err)
{
	static const char *const keys[] = {"cls", "sep"};
	int rc = 0;

	for (int i = 0; i < 2 && rc == 0; i++) {
		const json_t *pair = json_object_get(o, keys[i]);
		const char *name = json_string_value(json_array_get(pair, 0));

		rc = take(t, i == 1, name ? name : keys[i], json_array_get(pair, 1), err);
	}
	return rc;
}

int tok_json_post(struct dt_tokenizer *t, const json_t *o, int depth, struct dt_err *err)
{
	const char *type = tok_json_type(o);
	const json_t *list = json_object_get(o, "processors");
	int rc = 0;

	if (!o || json_is_null(o) || !strcmp(type, "ByteLevel"))
		return 0;
	if (!strcmp(type, "TemplateProcessing"))
		return read_template(t, o, err);
	if (!strcmp(type, "BertProcessing") || !strcmp(type, "RobertaProcessing")) {
		t->seps = *type == 'R' ? 2 : 1;
		return read_bert(t, o, err);
	}
	if (strcmp(type, "Sequence") || !json_is_array(list) || depth > 4)
		return tok_json_unsupported(err, "post_processor", type);
	for (size_t i = 0; i < json_array_size(list) && rc == 0; i++)
		rc = tok_json_post(t, json_array_get(list, i), depth + 1, err);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
