#include "serve/api/label.h"

#include "kernels/class_loss.h"
#include "serve/api/pair.h"
#include "serve/api/priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The ids of {"text", "text_pair"}; *ret_first: those of the first text. NULL with e filled. */
static json_t *pair(const json_t *v, const struct dt_api_model *m, int *ret_first, struct dt_api_error *e)
{
	static const char *const known[] = {"text", "text_pair", NULL};
	json_t *text = json_object_get(v, known[0]), *second = json_object_get(v, known[1]), *a, *b, *all;

	if (dt_api_known(v, known, e) < 0)
		return NULL;
	if (!json_is_string(text) || (second && !json_is_string(second) && !json_is_null(second))) {
		dt_body_bad(e, "input", "'%s' of an input is missing or not a string",
			    known[json_is_string(text)]);
		return NULL;
	}
	a = dt_pair_ids(text, "input", m, e);
	*ret_first = (int)json_array_size(a);
	if (!a || !json_is_string(second))
		return a;
	b = dt_pair_ids(second, "input", m, e);
	all = b ? dt_pair_join(a, b, m) : NULL;
	json_decref(a);
	json_decref(b);
	return all;
}

/* Puts the ids of pairs in place of the objects in list; first [size of list]: as pair. */
static int join_pairs(json_t *list, const struct dt_api_model *m, int *first, struct dt_api_error *e)
{
	json_t *v, *ids;
	size_t i;

	json_array_foreach(list, i, v)
	{
		if (!json_is_object(v))
			continue;
		ids = pair(v, m, &first[i], e);
		if (!ids)
			return -EINVAL;
		json_array_set_new(list, i, ids);
	}
	return 0;
}

int dt_label_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *c,
		   struct dt_api_error *e)
{
	static const char *const known[] = {"model", "input", "truncate_prompt_tokens", "user", NULL};
	const json_t *input = json_object_get(body, "input");
	json_t *list, *ask;
	int *first, rc;

	if (!m->engine->model.labels)
		return dt_api_fail(e, 404, "invalid_request_error", "not_found",
				   "this model has no classes; encoders with a head for them and models of "
				   "images do");
	if (dt_api_known(body, known, e) < 0)
		return -EINVAL;
	if (json_is_array(input) && json_array_size(input) > DT_INPUTS_MAX)
		return dt_body_bad(e, "input", "'input' has %zu elements, more than the %d allowed",
				   json_array_size(input), DT_INPUTS_MAX);
	list = json_is_object(input) ? json_pack("[O]", input) : json_copy((json_t *)input);
	first = calloc(json_array_size(list) + 1, sizeof(*first));
	ask = json_copy((json_t *)body);
	rc = first && ask ? join_pairs(list, m, first, e) : dt_body_no_memory(e);
	if (rc == 0) {
		json_object_del(ask, "user");
		if (list)
			json_object_set(ask, "input", list);
		rc = dt_embedding_parse(ask, m, c, e);
	}
	for (int i = 0; rc == 0 && m->engine->model.types && i < c->call->n; i++)
		if ((size_t)i < json_array_size(list) && first[i] < c->call->req[i].nprompt)
			c->call->req[i].second = first[i];
	json_decref(ask);
	json_decref(list);
	free(first);
	return rc;
}

/* What n logits say, by the loss they were trained with: their softmax, themselves, or their sigmoids. */
static json_t *values(const float *l, int n, int loss)
{
	json_t *list = json_array();
	double sum = 0, most = (double)l[0];

	for (int k = 1; k < n; k++)
		most = fmax(most, (double)l[k]);
	for (int k = 0; k < n; k++)
		sum += exp((double)l[k] - most);
	for (int k = 0; k < n; k++) {
		const double v = (double)l[k];

		json_array_append_new(list, json_real(loss == DT_CLASS_LOSS_CE	  ? exp(v - most) / sum
						      : loss == DT_CLASS_LOSS_MSE ? v
										  : 1 / (1 + exp(-v))));
	}
	return list;
}

static json_t *result(const struct dt_engine_model *m, int at, const float *l)
{
	json_t *o = json_pack("{s:i, s:i}", "index", at, "num_classes", m->labels),
	       *v = values(l, m->labels, m->label_loss);
	int best = 0;

	for (int k = 1; k < m->labels; k++)
		best = l[k] > l[best] ? k : best;
	if (m->labels == 1)
		json_object_set(o, "score", json_array_get(v, 0));
	else if (m->label_loss == DT_CLASS_LOSS_MSE)
		json_object_set(o, "scores", v);
	else {
		json_object_set_new(o, "label",
				    m->label ? json_string(m->label[best]) : json_sprintf("LABEL_%d", best));
		json_object_set(o, "probs", v);
	}
	json_decref(v);
	return o;
}

json_t *dt_label_json(const struct dt_completion *c, const struct dt_api_model *m, struct dt_api_error *e)
{
	const struct dt_engine_model *model = &m->engine->model;
	float *logits = malloc((size_t)model->labels * sizeof(*logits));
	json_t *data = json_array();
	json_int_t tokens = 0;
	int rc = logits ? 0 : dt_body_no_memory(e);

	for (int i = 0; i < c->call->n && rc == 0; i++) {
		const struct dt_serve_req *q = &c->call->req[i];

		if (dt_completion_failed(q, e))
			rc = -EINVAL;
		else if (model->classes(model->judge, q->pooled, logits) < 0)
			rc = dt_body_no_memory(e);
		else
			json_array_append_new(data, result(model, i, logits));
		tokens += q->nprompt;
	}
	free(logits);
	if (rc < 0) {
		json_decref(data);
		return NULL;
	}
	return json_pack("{s:s, s:s, s:s, s:o, s:{s:I, s:I}}", "id", c->id, "object", "list", "model",
			 c->model, "data", data, "usage", "prompt_tokens", tokens, "total_tokens", tokens);
}
/* SPDX-License-Identifier: Apache-2.0 */
