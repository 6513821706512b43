#include "rl/rollout.h"

#include "base/utf8.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void dt_group_release(struct dt_group *g)
{
	for (int i = 0; g->answer && i < g->n; i++) {
		free(g->answer[i].ids);
		free(g->answer[i].logprob);
		free(g->answer[i].text);
	}
	free(g->answer);
	free(g->prompt);
	free(g->prompt_ids);
	json_decref(g->item);
	*g = (struct dt_group){0};
}

static json_t *ids_json(const int32_t *ids, int n)
{
	json_t *list = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(list, json_integer(ids[i]));
	return list;
}

static json_t *answer_json(const struct dt_answer *a)
{
	json_t *o = json_pack("{s:o, s:s, s:s}", "ids", ids_json(a->ids, a->n), "text", a->text, "finish",
			      a->finish);
	json_t *list = a->logprob ? json_array() : NULL;

	for (int i = 0; list && i < a->n; i++)
		json_array_append_new(list, json_real((double)a->logprob[i]));
	if (list)
		json_object_set_new(o, "logprobs", list);
	json_object_set_new(o, "reward", isfinite(a->reward) ? json_real(a->reward) : json_null());
	if (a->fail)
		json_object_set_new(o, "reward_error", json_string(a->fail));
	return o;
}

json_t *dt_group_json(const struct dt_group *g)
{
	json_t *list = json_array(),
	       *o = json_pack("{s:i, s:I, s:f, s:s, s:o}", "rollout", 1, "index", (json_int_t)g->index,
			      "temperature", g->temperature, "prompt", g->prompt, "prompt_ids",
			      ids_json(g->prompt_ids, g->nprompt));

	if (o && g->step >= 0)
		json_object_set_new(o, "step", json_integer((json_int_t)g->step));
	if (o && g->max_tokens > 0)
		json_object_set_new(o, "max_tokens", json_integer((json_int_t)g->max_tokens));
	if (o && g->renewed > 0)
		json_object_set_new(o, "renewed", json_integer((json_int_t)g->renewed));
	if (o && g->weights[0])
		json_object_set_new(o, "weights", json_string(g->weights));
	if (o && g->item)
		json_object_set(o, "item", g->item);
	for (int i = 0; i < g->n; i++)
		json_array_append_new(list, answer_json(&g->answer[i]));
	if (!o || json_array_size(list) != (size_t)g->n || json_object_set_new(o, "answers", list) < 0) {
		json_decref(o);
		return NULL;
	}
	return o;
}

/* Copies text to `to`, truncated to size bytes at a character boundary. */
static void put_text(char *to, size_t size, const char *text)
{
	size_t n = strlen(text);

	n = n < size ? n : size - 1;
	memcpy(to, text, n);
	to[n - dt_utf8_tail(text, n)] = '\0';
}

/* Reads an array of ids below vocab; returns its length, or -EINVAL. */
static int read_ids(const json_t *o, const char *key, int64_t vocab, int least, int32_t **ret,
		    struct dt_err *err)
{
	const json_t *list = json_object_get(o, key);
	const size_t n = json_array_size(list);
	int32_t *ids;

	if (!json_is_array(list) || n < (size_t)least || n > DT_ROLLOUT_TOKENS)
		return dt_err_set(err, -EINVAL, "'%s' is not an array of %d to %d token ids", key, least,
				  DT_ROLLOUT_TOKENS);
	ids = malloc((n + 1) * sizeof(*ids));
	if (!ids)
		return dt_err_sys(err, -ENOMEM, "cannot read rollouts");
	*ret = ids;
	for (size_t i = 0; i < n; i++) {
		const json_t *v = json_array_get(list, i);
		const json_int_t id = json_integer_value(v);

		if (!json_is_integer(v) || id < 0 || id >= (vocab > 0 ? vocab : INT32_MAX))
			return dt_err_set(err, -EINVAL, "'%s'[%zu] is not a token id of the vocabulary", key,
					  i);
		ids[i] = (int32_t)id;
	}
	return (int)n;
}

static int read_logprobs(const json_t *o, struct dt_answer *a, struct dt_err *err)
{
	const json_t *list = json_object_get(o, "logprobs");

	if (!list || json_is_null(list))
		return 0;
	if (!json_is_array(list) || json_array_size(list) != (size_t)a->n)
		return dt_err_set(err, -EINVAL, "'logprobs' is not an array as long as 'ids'");
	a->logprob = malloc(((size_t)a->n + 1) * sizeof(*a->logprob));
	if (!a->logprob)
		return dt_err_sys(err, -ENOMEM, "cannot read rollouts");
	for (int i = 0; i < a->n; i++) {
		const json_t *v = json_array_get(list, (size_t)i);
		const double x = json_number_value(v);

		if (!json_is_number(v) || !(x >= -(double)FLT_MAX) || x > 1e-3)
			return dt_err_set(err, -EINVAL, "'logprobs'[%d] is not a log-probability", i);
		a->logprob[i] = (float)fmin(x, 0); /* above 0 only by rounding */
	}
	return 0;
}

static int read_answer(const json_t *o, int64_t vocab, struct dt_answer *a, struct dt_err *err)
{
	const json_t *reward = json_object_get(o, "reward");
	const json_t *text = json_object_get(o, "text");
	const char *finish = "";
	int rc = json_is_object(o) ? 0 : dt_err_set(err, -EINVAL, "it is not a JSON object");

	if (rc == 0)
		rc = read_ids(o, "ids", vocab, 1, &a->ids, err);
	if (rc > 0) {
		a->n = rc;
		rc = read_logprobs(o, a, err);
	}
	if (rc >= 0 && text && !json_is_null(text) && !json_is_string(text))
		rc = dt_err_set(err, -EINVAL, "'text' is not a string");
	if (rc >= 0)
		rc = dt_json_str(o, "finish", false, &finish, err);
	if (rc < 0)
		return rc;
	a->text = json_is_string(text) ? dt_json_text(json_string_value(text), json_string_length(text))
				       : strdup("");
	if (!a->text)
		return dt_err_sys(err, -ENOMEM, "cannot read rollouts");
	put_text(a->finish, sizeof(a->finish), finish);
	a->reward = json_is_number(reward) ? json_number_value(reward) : (double)NAN;
	if (reward && !json_is_null(reward) && !isfinite(a->reward))
		return dt_err_set(err, -EINVAL, "'reward' is not a number");
	return 0;
}

static int read_head(const json_t *o, int64_t vocab, struct dt_group *g, struct dt_err *err)
{
	const char *prompt = "", *weights = "";
	int rc, n;

	*g = (struct dt_group){.step = -1, .temperature = 1};
	if (!json_is_integer(json_object_get(o, "rollout")))
		return dt_err_set(err, -EINVAL, "it is not a rollout: the key 'rollout' is missing");
	if ((rc = dt_json_int(o, "index", false, 0, INT64_MAX, &g->index, err)) < 0 ||
	    (rc = dt_json_int(o, "step", false, 0, INT64_MAX, &g->step, err)) < 0 ||
	    (rc = dt_json_int(o, "renewed", false, 0, INT64_MAX, &g->renewed, err)) < 0 ||
	    (rc = dt_json_int(o, "max_tokens", false, 1, DT_ROLLOUT_TOKENS, &g->max_tokens, err)) < 0 ||
	    (rc = dt_json_real(o, "temperature", false, &g->temperature, err)) < 0 ||
	    (rc = dt_json_str(o, "prompt", false, &prompt, err)) < 0 ||
	    (rc = dt_json_str(o, "weights", false, &weights, err)) < 0)
		return rc;
	put_text(g->weights, sizeof(g->weights), weights);
	g->item = json_incref(json_object_get(o, "item"));
	g->prompt = strdup(prompt);
	if (!g->prompt)
		return dt_err_sys(err, -ENOMEM, "cannot read rollouts");
	n = read_ids(o, "prompt_ids", vocab, 1, &g->prompt_ids, err);
	g->nprompt = n > 0 ? n : 0;
	return n < 0 ? n : 0;
}

int dt_group_parse(const json_t *o, int64_t vocab, struct dt_group *g, struct dt_err *err)
{
	const json_t *list = json_object_get(o, "answers");
	const size_t n = json_array_size(list);
	int rc = read_head(o, vocab, g, err);

	if (rc < 0)
		return rc;
	if (!json_is_array(list) || n == 0 || n > DT_ROLLOUT_ANSWERS)
		return dt_err_set(err, -EINVAL, "'answers' is not an array of 1 to %d answers",
				  DT_ROLLOUT_ANSWERS);
	g->answer = calloc(n, sizeof(*g->answer));
	if (!g->answer)
		return dt_err_sys(err, -ENOMEM, "cannot read rollouts");
	g->n = (int)n;
	for (size_t i = 0; i < n && rc == 0; i++) {
		rc = read_answer(json_array_get(list, i), vocab, &g->answer[i], err);
		if (rc < 0)
			dt_err_prefix(err, "answer %zu", i);
	}
	return rc;
}
int dt_groups_text(const struct dt_group *g, int64_t n, char **ret, size_t *ret_n)
{
	FILE *out = open_memstream(ret, ret_n);
	int rc = out ? 0 : -ENOMEM;

	for (int64_t i = 0; i < n && rc == 0; i++) {
		json_t *o = dt_group_json(&g[i]);

		rc = o ? dt_json_write_line(out, o, NULL) : -ENOMEM;
		json_decref(o);
	}
	if (out && fclose(out) == EOF)
		rc = -ENOMEM;
	return rc;
}

int dt_groups_next(const char **at, int64_t vocab, struct dt_group *g, struct dt_err *err)
{
	const char *end = strchr(*at, '\n');
	json_t *o = NULL;
	int rc = dt_json_parse_texts(*at, end ? (size_t)(end - *at) : 0, "rollouts", &o, err);

	if (rc == 0) {
		dt_group_release(g);
		rc = dt_group_parse(o, vocab, g, err);
	}
	json_decref(o);
	*at = end ? end + 1 : *at;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
