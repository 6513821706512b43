/* Bodies of llama.cpp's /completion and /infill, where they differ from those of completions. */
#include "serve/api/native.h"

#include "serve/api/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FIELDS	64
#define MAX_FIELD_BYTES 256

void dt_native_defaults(struct dt_body *b)
{
	struct dt_sampling *s = &b->ask.sampling;

	b->n_predict = -1;
	s->temperature = 0.8;
	s->top_k = 40;
	s->top_p = 0.95;
	s->min_p = 0.05;
}

/* Members of a reply, by their paths: "content", "timings/predicted_n". */
static int read_fields(struct dt_body *b, struct dt_completion *c)
{
	json_t *v = json_object_get(b->o, "response_fields"), *name;
	size_t i;

	if (!v || json_is_null(v))
		return 0;
	if (!json_is_array(v) || json_array_size(v) > MAX_FIELDS)
		return dt_body_bad(b->e, "response_fields",
				   "'response_fields' is not an array of at most %d strings", MAX_FIELDS);
	json_array_foreach(v, i, name)
	{
		if (!json_is_string(name) || json_string_length(name) > MAX_FIELD_BYTES)
			return dt_body_bad(b->e, "response_fields",
					   "'response_fields' has an element that is not a string of at most "
					   "%d bytes",
					   MAX_FIELD_BYTES);
	}
	c->fields = json_array_size(v) > 0 ? json_incref(v) : NULL;
	return 0;
}

int dt_native_read(struct dt_body *b, struct dt_completion *c)
{
	const struct dt_sampling *s = &b->ask.sampling;
	const json_t *last = json_object_get(b->o, "repeat_last_n");
	const json_t *seed = json_object_get(b->o, "seed");

	c->native = true;
	c->ids = b->ids;
	if (last && !json_is_null(last) && !json_is_integer(last))
		return dt_body_bad(b->e, "repeat_last_n", "'repeat_last_n' is not an integer");
	if (json_is_integer(last) && json_integer_value(last) != -1 && dt_sampling_penalises(s))
		return dt_body_bad(
			b->e, "repeat_last_n",
			"'repeat_last_n' is only supported as -1 with a penalty: penalties count all "
			"tokens");
	if (json_is_integer(seed) && json_integer_value(seed) == -1)
		b->ask.sampling.seed = b->m->seed;
	if (b->n_probs > b->m->engine->model.vocab)
		return dt_body_bad(b->e, "n_probs", "'n_probs' exceeds the vocabulary size");
	b->ask.logprobs = b->n_probs > 0 ? b->n_probs : -1;
	b->ask.drawn_probs = b->post_probs && b->n_probs > 0;
	return read_fields(b, c);
}

/* ---- /infill ---- */

static int read_text(struct dt_body *b, const char *key, const char **ret, size_t *n)
{
	const json_t *v = json_object_get(b->o, key);

	if (v && !json_is_null(v) && !json_is_string(v))
		return dt_body_bad(b->e, key, "'%s' is not a string", key);
	*ret = json_is_string(v) ? json_string_value(v) : "";
	*n = json_string_length(v);
	return 0;
}

/* The prompt goes on after the token that begins what is filled in. */
static int append(struct dt_body *b, struct dt_prompt *p, const char *text, size_t bytes)
{
	int32_t *more = NULL;
	size_t n = 0;
	struct dt_err err;
	int rc;

	if (dt_tokenizer_encode(b->m->engine->tok, text, bytes, false, &more, &n, &err) < 0)
		return dt_body_bad(b->e, "prompt", "%s", err.msg);
	rc = dt_body_append(b, p, more, n, 0);
	free(more);
	return rc;
}

int dt_native_infill(struct dt_body *b)
{
	const json_t *extra = json_object_get(b->o, "input_extra");
	const json_t *suffix = json_object_get(b->o, "input_suffix");
	json_t *none = json_string("");
	const char *prefix = "", *after, *prompt = "";
	size_t nprefix = 0, nafter, nprompt = 0;
	int rc = -EINVAL;

	b->prompt = calloc(1, sizeof(*b->prompt));
	if (!b->prompt || !none)
		rc = dt_body_no_memory(b->e);
	else if (json_array_size(extra) > 0 || (extra && !json_is_null(extra) && !json_is_array(extra)))
		rc = dt_body_bad(b->e, "input_extra", "'input_extra' is only supported as an empty array");
	else if (read_text(b, "input_prefix", &prefix, &nprefix) == 0 &&
		 read_text(b, "input_suffix", &after, &nafter) == 0 &&
		 read_text(b, "prompt", &prompt, &nprompt) == 0)
		rc = 0;
	if (rc == 0) {
		b->nprompts = 1;
		b->prompt->text = (struct dt_text){malloc(nprefix + 1), nprefix};
		if (!b->prompt->text.s)
			rc = dt_body_no_memory(b->e);
		else
			memcpy(b->prompt->text.s, prefix, nprefix + 1);
	}
	if (rc == 0)
		rc = dt_body_infill(b, b->prompt, json_is_string(suffix) ? suffix : none);
	if (rc == 0)
		rc = append(b, b->prompt, prompt, nprompt);
	json_decref(none);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
