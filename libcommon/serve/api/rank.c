#include "serve/api/rank.h"

#include "serve/api/priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The text of a document: the document itself if it is a string, or its "text". NULL: it has none. */
static json_t *text_of(const json_t *v)
{
	json_t *text = json_is_object(v) ? json_object_get(v, "text") : (json_t *)v;

	return json_is_string(text) && json_string_length(text) > 0 ? text : NULL;
}

/* Parses a call that embeds one text and a list of others. */
static int embed(const json_t *body, const char *one, const char *many, const struct dt_api_model *m,
		 struct dt_completion *c, struct dt_rank *ret, struct dt_api_error *e)
{
	static const char *const same[] = {"model", "truncate_prompt_tokens"}; /* as of /v1/embeddings */
	const json_t *list = json_object_get(body, many);
	json_t *query = text_of(json_object_get(body, one)), *inputs, *ask, *v;
	size_t i, n = json_is_array(list) ? json_array_size(list) : 1;
	int rc = 0;

	if (!query)
		return dt_body_bad(e, one, "key '%s' is missing or not a string", one);
	if (!list || n == 0)
		return dt_body_bad(e, many, "key '%s' is missing or empty", many);
	if (n >= DT_INPUTS_MAX)
		return dt_body_bad(e, many, "'%s' has %zu elements, more than the %d allowed", many, n,
				   DT_INPUTS_MAX - 1);
	inputs = json_array();
	json_array_append(inputs, query);
	for (i = 0; i < n && rc == 0; i++) {
		v = text_of(json_is_array(list) ? json_array_get(list, i) : list);
		rc = v ? json_array_append(inputs, v)
		       : dt_body_bad(e, many, "'%s' has an element that is not a string", many);
	}
	ask = json_pack("{s:O}", "input", inputs);
	for (i = 0; i < 2; i++)
		if (json_object_get(body, same[i]))
			json_object_set(ask, same[i], json_object_get(body, same[i]));
	if (rc == 0)
		rc = dt_embedding_parse(ask, m, c, e);
	if (rc < 0 && !strcmp(e->param, "input")) /* one of the texts: no key of this request */
		e->param[0] = '\0';
	json_decref(ask);
	json_array_remove(inputs, 0);
	ret->texts = inputs;
	if (rc < 0)
		dt_rank_release(ret);
	return rc;
}

int dt_rerank_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *c,
		    struct dt_rank *ret, struct dt_api_error *e)
{
	static const char *const known[] = {
		"model", "query", "documents", "top_n", "return_documents", "truncate_prompt_tokens",
		"user",	 NULL};
	struct dt_rank r = {.documents = true};
	struct dt_err err;
	int64_t top = 0;

	if (dt_api_known(body, known, e) < 0)
		return -EINVAL;
	if (dt_json_int(body, "top_n", false, 1, INT32_MAX, &top, &err) < 0)
		return dt_body_bad(e, "top_n", "%s", err.msg);
	if (dt_json_bool(body, "return_documents", false, &r.documents, &err) < 0)
		return dt_body_bad(e, "return_documents", "%s", err.msg);
	r.top = (int)top;
	if (embed(body, "query", "documents", m, c, &r, e) < 0)
		return -EINVAL;
	*ret = r;
	return 0;
}

int dt_score_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *c,
		   struct dt_rank *ret, struct dt_api_error *e)
{
	static const char *const known[] = {"model", "text_1", "text_2", "truncate_prompt_tokens",
					    "user",  NULL};
	struct dt_rank r = {.score = true};

	if (dt_api_known(body, known, e) < 0 || embed(body, "text_1", "text_2", m, c, &r, e) < 0)
		return -EINVAL;
	*ret = r;
	return 0;
}

static double cosine(const float *a, const float *b, size_t n)
{
	double ab = 0, aa = 0, bb = 0;

	for (size_t i = 0; i < n; i++) {
		ab += (double)a[i] * b[i];
		aa += (double)a[i] * a[i];
		bb += (double)b[i] * b[i];
	}
	return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

struct result {
	int at;
	double score;
};

static int best_first(const void *x, const void *y)
{
	const struct result *a = x, *b = y;

	return a->score != b->score ? (a->score < b->score) - (a->score > b->score) : a->at - b->at;
}

static json_t *result_json(const struct dt_rank *r, const struct result *x)
{
	json_t *v;

	if (r->score)
		return json_pack("{s:i, s:s, s:f}", "index", x->at, "object", "score", "score", x->score);
	v = json_pack("{s:i, s:f}", "index", x->at, "relevance_score", x->score);
	if (r->documents)
		json_object_set_new(v, "document",
				    json_pack("{s:O}", "text", json_array_get(r->texts, (size_t)x->at)));
	return v;
}

json_t *dt_rank_json(const struct dt_rank *r, const struct dt_completion *c, size_t hidden,
		     struct dt_api_error *e)
{
	int n = c->call->n - 1, top = r->top > 0 && r->top < n ? r->top : n;
	struct result *list = calloc((size_t)n + 1, sizeof(*list));
	json_int_t tokens = c->call->req[0].nprompt;
	json_t *results;

	for (int i = 0; i <= n; i++)
		if (!list || dt_completion_failed(&c->call->req[i], e)) {
			if (!list)
				dt_body_no_memory(e);
			free(list);
			return NULL;
		}
	for (int i = 0; i < n; i++) {
		list[i] = (struct result){i,
					  cosine(c->call->req[0].pooled, c->call->req[i + 1].pooled, hidden)};
		tokens += c->call->req[i + 1].nprompt;
	}
	if (!r->score)
		qsort(list, (size_t)n, sizeof(*list), best_first);
	results = json_array();
	for (int i = 0; i < top; i++)
		json_array_append_new(results, result_json(r, &list[i]));
	free(list);
	return json_pack("{s:s, s:s*, s:s, s:o, s:{s:I, s:I}}", "id", c->id, "object",
			 r->score ? "list" : NULL, "model", c->model, r->score ? "data" : "results", results,
			 "usage", "prompt_tokens", tokens, "total_tokens", tokens);
}

void dt_rank_release(struct dt_rank *r)
{
	json_decref(r->texts);
	r->texts = NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
