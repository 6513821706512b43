/* A server with OpenAI's API: completions with echo and log-probabilities. */
#include "eval/asker.h"

#include "base/json.h"
#include "base/utf8.h"
#include "bench/load/asks.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct remote {
	struct dt_asker asker;
	struct dt_asks *asks;
	struct dt_question *q; /* of the current call, */
	int64_t *turn;	       /* and the order in which they are sent */
};

/* In characters; white space at the end of the context belongs to the continuation. */
static int64_t end_of_context(const struct dt_question *q)
{
	return (int64_t)dt_utf8_count(q->context, dt_utf8_trimmed(q->context, strlen(q->context)));
}

static json_t *body(void *arg, int64_t i, const char *model)
{
	const struct remote *r = arg;
	const struct dt_question *q = &r->q[r->turn[i]];
	json_t *o = json_pack("{s:s, s:i, s:i}", "model", model, "temperature", 0, "max_tokens",
			      q->continuation ? 1 : q->max_tokens);
	char *prompt = NULL;

	if (q->continuation && asprintf(&prompt, "%s%s", q->context, q->continuation) < 0)
		prompt = NULL;
	json_object_set_new(o, "prompt", json_string(prompt ? prompt : q->context));
	if (q->continuation) {
		json_object_set_new(o, "echo", json_true());
		json_object_set_new(o, "logprobs", json_integer(1));
		/* so that the context may come from the prefix cache; other servers ignore the key */
		json_object_set_new(o, "echo_logprobs_from", json_integer(end_of_context(q)));
	} else if (q->nstop) {
		json_t *list = json_array();

		for (int k = 0; k < q->nstop; k++)
			json_array_append_new(list, json_string(q->stop[k]));
		json_object_set_new(o, "stop", list);
	}
	free(prompt);
	return o;
}

static bool starts(const char *text, const char *with)
{
	return *with && !strncmp(text, with, strlen(with));
}

/*
 * Whether the prompt begins with this token, with or without the blank that SentencePiece adds. The context
 * is empty or white space, which belongs to the answer.
 */
static bool begins(const struct dt_question *q, const char *token)
{
	char *text = NULL;
	bool yes;

	if (!token || asprintf(&text, "%s%s", q->context, q->continuation) < 0)
		return token; /* without memory the stricter answer */
	yes = starts(text, token) || (*token == ' ' && starts(text, token + 1));
	free(text);
	return yes;
}

/* Adds up the prompt tokens that begin at or after the end of the context (as in local.c). */
static int take_scores(const struct dt_question *q, const json_t *choice, json_int_t prompt,
		       struct dt_question *ret, struct dt_err *err)
{
	const json_t *o = json_object_get(choice, "logprobs"), *at = json_object_get(o, "text_offset"),
		     *lp = json_object_get(o, "token_logprobs"), *top = json_object_get(o, "top_logprobs");
	const int64_t from = end_of_context(q);
	const size_t n = json_array_size(at);

	if (!json_is_array(at) || json_array_size(lp) != json_array_size(at))
		return dt_err_set(err, -ENOTSUP,
				  "the server returns no log-probabilities of the prompt (echo)");
	/* A text's first token has no log-probability, so it must not be the answer's. */
	if (from == 0 && n > 0 && !json_is_number(json_array_get(lp, 0)) &&
	    begins(q, json_string_value(json_array_get(json_object_get(o, "tokens"), 0))))
		return dt_err_set(
			err, -EINVAL,
			"the server adds no token before a prompt, so that the first token after an "
			"empty context has no log-probability");
	ret->greedy = true;
	/* One token was generated: without a count of the prompt's tokens, it is the last one. */
	for (size_t i = 0; i < (prompt > 0 && (size_t)prompt < n ? (size_t)prompt : n ? n - 1 : 0); i++) {
		const json_int_t offset = json_integer_value(json_array_get(at, i));
		const double x = json_number_value(json_array_get(lp, i));
		const json_t *alternatives = json_array_get(top, i), *v;
		const char *key;

		if (offset < from || !json_is_number(json_array_get(lp, i)))
			continue;
		ret->logprob += x;
		ret->tokens++;
		json_object_foreach((json_t *)alternatives, key, v) ret->greedy &= json_number_value(v) <= x;
	}
	return ret->tokens ? 0
			   : dt_err_set(err, -EINVAL, "no token starts at the end of the context '%.40s'",
					q->context);
}

static int take(void *arg, int64_t i, const json_t *reply, struct dt_err *err)
{
	const struct remote *r = arg;
	struct dt_question *q = &r->q[r->turn[i]];
	const json_t *choice = json_array_get(json_object_get(reply, "choices"), 0);
	const json_t *usage = json_object_get(reply, "usage");
	const json_t *text = json_object_get(choice, "text");

	if (q->continuation)
		return dt_question_error(
			q,
			take_scores(q, choice, json_integer_value(json_object_get(usage, "prompt_tokens")), q,
				    err),
			err);
	if (!json_is_string(text))
		return dt_err_set(err, -EIO, "'%s': the response has no text", dt_asks_url(r->asks));
	q->text = dt_json_text(json_string_value(text), json_string_length(text));
	return q->text ? 0 : dt_err_sys(err, -ENOMEM, "cannot keep an answer");
}

static int ask(struct dt_asker *asker, struct dt_question *q, int64_t n, struct dt_err *err)
{
	struct remote *r = (struct remote *)asker;
	int rc;

	r->q = q;
	r->turn = dt_question_turns(q, n);
	rc = r->turn ? dt_asks_run(r->asks, &(struct dt_asks_list){body, take, r}, n, err)
		     : dt_err_sys(err, -ENOMEM, "cannot query '%s'", dt_asks_url(r->asks));
	free(r->turn);
	r->turn = NULL;
	return rc;
}

static void remote_close(struct dt_asker *asker)
{
	struct remote *r = (struct remote *)asker;

	dt_asks_close(r->asks);
	free(r);
}

int dt_asker_remote(const char *url, const char *model, const char *key, int parallel, struct dt_asker **ret,
		    struct dt_err *err)
{
	const struct dt_asks_opts o = {model, key, parallel, .most_reply = 64u << 20};
	struct remote *r = calloc(1, sizeof(*r));
	int rc =
		r ? dt_asks_open(url, &o, &r->asks, err) : dt_err_sys(err, -ENOMEM, "cannot query '%s'", url);

	if (rc < 0) {
		free(r);
		return rc;
	}
	r->asker = (struct dt_asker){ask, remote_close};
	*ret = &r->asker;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
