/* A server that speaks OpenAI's API: completions with echo and log-probabilities, over libcurl. */
#include "eval/asker.h"

#include "base/json.h"
#include "base/utf8.h"
#include "bench/load/client.h"

#include <curl/curl.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_REPLY (64u << 20) /* bytes */

struct slot { /* one request under way */
	CURL *easy;
	struct dt_question *q; /* NULL: free */
	char *body, *reply;
	size_t n;
};

struct remote {
	struct dt_asker asker;
	char *url, *model;
	struct curl_slist *headers;
	CURLM *multi;
	struct slot *slot;
	int nslot;
};

static size_t receive(char *data, size_t size, size_t n, void *arg)
{
	struct slot *s = arg;
	char *grown = s->n + n < MOST_REPLY ? realloc(s->reply, s->n + n + 1) : NULL;

	if (!grown)
		return 0;
	memcpy(grown + s->n, data, n);
	s->reply = grown;
	s->n += n;
	s->reply[s->n] = '\0';
	return size * n;
}

static char *make_body(const struct remote *r, const struct dt_question *q)
{
	json_t *o = json_pack("{s:s, s:i, s:i}", "model", r->model, "temperature", 0, "max_tokens",
			      q->continuation ? 1 : q->max_tokens);
	char *prompt = NULL, *text;

	if (q->continuation && asprintf(&prompt, "%s%s", q->context, q->continuation) < 0)
		prompt = NULL;
	json_object_set_new(o, "prompt", json_string(prompt ? prompt : q->context));
	if (q->continuation) {
		json_object_set_new(o, "echo", json_true());
		json_object_set_new(o, "logprobs", json_integer(1));
	} else if (q->nstop) {
		json_t *list = json_array();

		for (int i = 0; i < q->nstop; i++)
			json_array_append_new(list, json_string(q->stop[i]));
		json_object_set_new(o, "stop", list);
	}
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	free(prompt);
	return text;
}

/* Tokens of the prompt that begin at or behind the end of the context. */
static int take_scores(const struct dt_question *q, const json_t *choice, json_int_t prompt,
		       struct dt_question *ret, struct dt_err *err)
{
	const json_t *o = json_object_get(choice, "logprobs"), *at = json_object_get(o, "text_offset"),
		     *lp = json_object_get(o, "token_logprobs"), *top = json_object_get(o, "top_logprobs");
	const int64_t from = (int64_t)dt_utf8_count(q->context, strlen(q->context));
	const size_t n = json_array_size(at);

	if (!json_is_array(at) || json_array_size(lp) != json_array_size(at))
		return dt_err_set(err, -ENOTSUP, "the server gives no log-probabilities of a prompt (echo)");
	ret->greedy = true;
	/* One token was generated; where the server does not count the prompt's, it is the last. */
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
			   : dt_err_set(err, -EINVAL, "no token begins where the context '%.40s' ends",
					q->context);
}

static int take(struct remote *r, struct slot *s, CURLcode done, struct dt_err *err)
{
	struct dt_question *q = s->q;
	json_t *o = NULL;
	const json_t *choice;
	long status = 0;
	int rc = 0;

	if (done != CURLE_OK)
		return dt_err_set(err, -EIO, "'%s': %s", r->url, curl_easy_strerror(done));
	curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status != 200)
		return dt_err_set(err, -EIO, "'%s' answers %ld: %.200s", r->url, status,
				  s->reply ? s->reply : "");
	rc = dt_json_parse(s->reply ? s->reply : "", s->n, r->url, &o, err);
	if (rc < 0)
		return rc;
	choice = json_array_get(json_object_get(o, "choices"), 0);
	if (q->continuation) {
		rc = take_scores(
			q, choice,
			json_integer_value(json_object_get(json_object_get(o, "usage"), "prompt_tokens")), q,
			err);
	} else {
		const char *text = json_string_value(json_object_get(choice, "text"));

		q->text = strdup(text ? text : "");
		rc = !text ? dt_err_set(err, -EIO, "'%s': an answer without text", r->url) : 0;
	}
	json_decref(o);
	return rc;
}

static int start(struct remote *r, struct slot *s, struct dt_question *q, struct dt_err *err)
{
	free(s->body);
	s->body = make_body(r, q);
	s->n = 0;
	s->q = q;
	if (!s->body)
		return dt_err_sys(err, -ENOMEM, "cannot ask '%s'", r->url);
	curl_easy_setopt(s->easy, CURLOPT_POSTFIELDS, s->body);
	return curl_multi_add_handle(r->multi, s->easy) == CURLM_OK
		       ? 0
		       : dt_err_set(err, -EIO, "cannot ask '%s'", r->url);
}

/* Takes the answers that have come; how many, or a negative errno. */
static int collect(struct remote *r, struct dt_err *err)
{
	CURLMsg *m;
	int left, n = 0, rc = 0;

	while ((m = curl_multi_info_read(r->multi, &left))) {
		struct slot *s = NULL;
		CURLcode done = m->data.result;

		if (m->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&s);
		curl_multi_remove_handle(r->multi, s->easy);
		if (rc == 0)
			rc = take(r, s, done, err);
		s->q = NULL;
		n++;
	}
	return rc < 0 ? rc : n;
}

static int ask(struct dt_asker *asker, struct dt_question *q, int64_t n, struct dt_err *err)
{
	struct remote *r = (struct remote *)asker;
	int64_t sent = 0, got = 0;
	int rc = 0, running;

	while (rc >= 0 && got < n) {
		for (int i = 0; i < r->nslot && sent < n && rc >= 0; i++)
			if (!r->slot[i].q)
				rc = start(r, &r->slot[i], &q[sent++], err);
		curl_multi_perform(r->multi, &running);
		curl_multi_poll(r->multi, NULL, 0, 1000, NULL);
		if (rc >= 0 && (rc = collect(r, err)) > 0)
			got += rc;
	}
	for (int i = 0; i < r->nslot; i++)
		if (r->slot[i].q) {
			curl_multi_remove_handle(r->multi, r->slot[i].easy);
			r->slot[i].q = NULL;
		}
	return rc < 0 ? rc : 0;
}

static void remote_close(struct dt_asker *asker)
{
	struct remote *r = (struct remote *)asker;

	for (int i = 0; i < r->nslot; i++) {
		curl_easy_cleanup(r->slot[i].easy);
		free(r->slot[i].body);
		free(r->slot[i].reply);
	}
	curl_multi_cleanup(r->multi);
	curl_slist_free_all(r->headers);
	free(r->slot);
	free(r->url);
	free(r->model);
	free(r);
}

/* The first model that the server names. */
static int first_model(struct remote *r, const char *base, struct dt_err *err)
{
	struct slot s = {.easy = curl_easy_init()};
	char *url = NULL;
	json_t *o = NULL;
	const char *id = NULL;
	CURLcode done = CURLE_OUT_OF_MEMORY;
	long status = 0;
	int rc = 0;

	if (s.easy && asprintf(&url, "%s/v1/models", base) > 0) {
		curl_easy_setopt(s.easy, CURLOPT_URL, url);
		curl_easy_setopt(s.easy, CURLOPT_HTTPHEADER, r->headers);
		curl_easy_setopt(s.easy, CURLOPT_WRITEFUNCTION, receive);
		curl_easy_setopt(s.easy, CURLOPT_WRITEDATA, &s);
		curl_easy_setopt(s.easy, CURLOPT_TIMEOUT, 30L);
		done = curl_easy_perform(s.easy);
		curl_easy_getinfo(s.easy, CURLINFO_RESPONSE_CODE, &status);
	}
	if (done != CURLE_OK)
		rc = dt_err_set(err, -EIO, "'%s': %s", base, curl_easy_strerror(done));
	else if (status != 200)
		rc = dt_err_set(err, -EIO, "'%s' answers %ld: %.200s", base, status, s.reply ? s.reply : "");
	else if ((rc = dt_json_parse(s.reply ? s.reply : "", s.n, url, &o, err)) == 0)
		id = json_string_value(json_object_get(json_array_get(json_object_get(o, "data"), 0), "id"));
	if (rc == 0 && !id)
		rc = dt_err_set(err, -EIO, "'%s' names no model", base);
	if (rc == 0)
		r->model = strdup(id);
	json_decref(o);
	curl_easy_cleanup(s.easy);
	free(s.reply);
	free(url);
	return rc;
}

static int prepare(struct remote *r, int parallel, struct dt_err *err)
{
	r->multi = curl_multi_init();
	r->slot = calloc((size_t)parallel, sizeof(*r->slot));
	if (!r->multi || !r->slot)
		return dt_err_sys(err, -ENOMEM, "cannot ask '%s'", r->url);
	for (; r->nslot < parallel; r->nslot++) {
		struct slot *s = &r->slot[r->nslot];

		s->easy = curl_easy_init();
		if (!s->easy)
			return dt_err_sys(err, -ENOMEM, "cannot ask '%s'", r->url);
		curl_easy_setopt(s->easy, CURLOPT_URL, r->url);
		curl_easy_setopt(s->easy, CURLOPT_HTTPHEADER, r->headers);
		curl_easy_setopt(s->easy, CURLOPT_WRITEFUNCTION, receive);
		curl_easy_setopt(s->easy, CURLOPT_WRITEDATA, s);
		curl_easy_setopt(s->easy, CURLOPT_PRIVATE, s);
		curl_easy_setopt(s->easy, CURLOPT_TIMEOUT, 600L);
	}
	return 0;
}

int dt_asker_remote(const char *url, const char *model, const char *key, int parallel, struct dt_asker **ret,
		    struct dt_err *err)
{
	struct remote *r = calloc(1, sizeof(*r));
	char *base = NULL, *bearer = NULL;
	int rc = r ? dt_load_url(url, &base, err) : dt_err_sys(err, -ENOMEM, "cannot ask '%s'", url);

	if (rc < 0)
		goto out;
	r->asker = (struct dt_asker){ask, remote_close};
	r->headers = curl_slist_append(NULL, "Content-Type: application/json");
	if (key && asprintf(&bearer, "Authorization: Bearer %s", key) > 0)
		r->headers = curl_slist_append(r->headers, bearer);
	if (asprintf(&r->url, "%s/v1/completions", base) < 0)
		r->url = NULL;
	r->model = model ? strdup(model) : NULL;
	rc = r->url ? prepare(r, parallel, err) : dt_err_sys(err, -ENOMEM, "cannot ask '%s'", url);
	if (rc == 0 && !r->model)
		rc = first_model(r, base, err);
out:
	free(bearer);
	free(base);
	if (rc == 0)
		*ret = &r->asker;
	else if (r)
		remote_close(&r->asker);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
