/* The prompts of a body: texts, token ids, and both in one prompt. */
#include "serve/api/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int dt_api_encode(const struct dt_tokenizer *tok, const char *s, size_t n, bool ends, int32_t **ret,
		  size_t *ret_n, struct dt_err *err)
{
	const int32_t bos = dt_tokenizer_bos(tok), end = ends ? dt_tokenizer_end(tok) : -1;
	int32_t *ids, *p;
	int rc = dt_tokenizer_encode(tok, s, n, true, &ids, ret_n, err);

	if (rc < 0)
		return rc;
	p = realloc(ids, (*ret_n + 2) * sizeof(*p));
	if (!p) {
		free(ids);
		return dt_err_sys(err, -ENOMEM, "cannot encode the text");
	}
	ids = p;
	if (bos >= 0 && (*ret_n == 0 || ids[0] != bos)) {
		memmove(ids + 1, ids, *ret_n * sizeof(*ids));
		ids[0] = bos;
		++*ret_n;
	}
	if (end >= 0 && (*ret_n == 0 || ids[*ret_n - 1] != end))
		ids[(*ret_n)++] = end;
	*ret = ids;
	return 0;
}

int dt_api_decode(const struct dt_tokenizer *tok, const int32_t *ids, size_t n, char **ret, size_t *ret_n)
{
	FILE *f = open_memstream(ret, ret_n);

	if (!f)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		size_t len = 0;
		const char *s = dt_tokenizer_piece(tok, ids[i], true, &len);

		fwrite(s ? s : "", 1, s ? len : 0, f);
	}
	return fclose(f) == EOF ? -ENOMEM : 0;
}

static int add_text(struct dt_body *b, const json_t *v)
{
	struct dt_prompt *p = &b->prompt[b->nprompts];
	const struct dt_engine_params *m = b->m->engine;
	const json_t *suffix = json_object_get(b->o, "suffix");
	struct dt_err err;

	p->text.n = json_string_length(v);
	p->text.s = malloc(p->text.n + 1);
	if (!p->text.s)
		return dt_body_no_memory(b->e);
	memcpy(p->text.s, json_string_value(v), p->text.n + 1);
	b->nprompts++;
	if (json_string_length(suffix) > 0)
		return dt_body_infill(b, p, suffix);
	if ((b->special ? dt_api_encode(m->tok, p->text.s, p->text.n, b->kind & DT_BODY_EMBEDDING, &p->ids,
					&p->n, &err)
			: dt_tokenizer_encode(m->tok, p->text.s, p->text.n, true, &p->ids, &p->n, &err)) < 0)
		return dt_body_bad(b->e, dt_body_prompt_key(b), "%s", err.msg);
	if (p->n == 0 && m->model.neos > 0) { /* as OpenAI: an empty prompt starts a new document */
		p->ids = realloc(p->ids, sizeof(*p->ids));
		if (!p->ids)
			return dt_body_no_memory(b->e);
		p->ids[0] = m->model.eos[0];
		p->n = 1;
	}
	return 0;
}

int dt_body_append(struct dt_body *b, struct dt_prompt *p, const int32_t *ids, size_t n, size_t more)
{
	int32_t *all = realloc(p->ids, (p->n + n + more + 1) * sizeof(*all));

	if (!all)
		return dt_body_no_memory(b->e);
	if (n > 0)
		memcpy(all + p->n, ids, n * sizeof(*ids));
	p->ids = all;
	p->n += n;
	return 0;
}

/*
 * Part i of n of a prompt; p has room for one more id, and afterwards for one of each part that follows. The
 * bos token is added only to a text that is the first part.
 */
static int add_part(struct dt_body *b, struct dt_prompt *p, const json_t *part, size_t i, size_t n)
{
	const char *key = dt_body_prompt_key(b), *s = json_string_value(part);
	const struct dt_tokenizer *tok = b->m->engine->tok;
	size_t bytes = json_string_length(part), count;
	int32_t *ids = NULL;
	struct dt_err err;
	int rc;

	if (!s)
		return dt_body_id(b, key, part, &p->ids[p->n++]);
	if ((i == 0 && b->special ? dt_api_encode(tok, s, bytes, false, &ids, &count, &err)
				  : dt_tokenizer_encode(tok, s, bytes, true, &ids, &count, &err)) < 0)
		return dt_body_bad(b->e, key, "%s", err.msg);
	rc = dt_body_append(b, p, ids, count, n - i - 1);
	free(ids);
	return rc;
}

/* A prompt of token ids, with texts between them if there are any. */
static int add_parts(struct dt_body *b, const json_t *a)
{
	struct dt_prompt *p = &b->prompt[b->nprompts++];
	const size_t n = json_array_size(a);
	size_t i;
	json_t *v;

	if (dt_body_append(b, p, NULL, 0, n) < 0)
		return -EINVAL;
	json_array_foreach(a, i, v)
	{
		if (add_part(b, p, v, i, n) < 0)
			return -EINVAL;
	}
	if (b->echo && dt_api_decode(b->m->engine->tok, p->ids, p->n, &p->text.s, &p->text.n) < 0)
		return dt_body_no_memory(b->e);
	return 0;
}

/* An array with a number in it is one prompt, as llama.cpp reads it. */
static bool is_parts(const json_t *v)
{
	size_t i;
	json_t *part;

	json_array_foreach((json_t *)v, i, part)
	{
		if (json_is_number(part))
			return true;
	}
	return false;
}

int dt_body_prompts(struct dt_body *b, const char *key)
{
	const json_t *v = json_object_get(b->o, key);
	const bool parts = is_parts(v);
	size_t n = json_is_array(v) && !parts ? json_array_size(v) : 1;

	if (!v)
		return dt_body_bad(b->e, key, "key '%s' is missing", key);
	if (n == 0)
		return dt_body_bad(b->e, key, "'%s' is empty", key);
	if (n > 1 && b->kind == DT_BODY_LINE)
		return dt_body_bad(b->e, "prompt", "a line must have exactly one prompt");
	b->prompt = calloc(n, sizeof(*b->prompt));
	if (!b->prompt)
		return dt_body_no_memory(b->e);
	if (json_is_string(v))
		return add_text(b, v);
	if (parts)
		return add_parts(b, v);
	for (size_t i = 0; i < n; i++) {
		const json_t *x = json_array_get(v, i);
		int rc;

		if (!json_is_string(x) && !json_is_array(x))
			return dt_body_bad(b->e, key,
					   "'%s' must be a string, an array of token ids and strings, or an "
					   "array of these",
					   key);
		rc = json_is_string(x) ? add_text(b, x) : add_parts(b, x);
		if (rc < 0)
			return rc;
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
