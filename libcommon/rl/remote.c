/*
 * A server that speaks OpenAI's API and gives the ids of its tokens (return_token_ids, as vLLM calls it),
 * over libcurl. What a server has not answered is asked again: the draws are functions of the seed, so
 * nothing but time is lost where one dies in the middle and comes back.
 */
#include "rl/drawer.h"

#include "base/progress.h"
#include "bench/load/client.h"

#include <curl/curl.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_REPLY (256u << 20) /* bytes */
#define PATIENCE   30.0		/* seconds without any answer after a failure */

struct slot { /* one request under way */
	CURL *easy;
	struct dt_group *g; /* NULL: free */
	char *body, *reply;
	size_t n;
};

struct remote {
	struct dt_drawer drawer;
	struct dt_sampler_opts o;
	char *url, *model;
	struct curl_slist *headers;
	CURLM *multi;
	struct slot *slot;
	int nslot;
	double since; /* of the first failure since an answer came; 0: none */
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

static char *make_body(const struct remote *r, const struct dt_group *g)
{
	json_t *o = json_pack("{s:s, s:s, s:i, s:i, s:i, s:f, s:I, s:b}", "model", r->model, "prompt",
			      g->prompt, "n", r->o.group, "max_tokens", r->o.max_tokens, "logprobs", 0,
			      "temperature", r->o.temperature, "seed",
			      (json_int_t)dt_rl_seed(&r->o, g->index), "return_token_ids", true);
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

	json_decref(o);
	return text;
}

/* Takes what a reply says, in the form of a rollout's line. */
static int take_choices(const struct remote *r, const json_t *reply, struct dt_group *g, struct dt_err *err)
{
	const json_t *list = json_object_get(reply, "choices");
	json_t *answers = json_array(), *line;
	struct dt_group got = {0};
	int rc;

	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *c = json_array_get(list, i);

		json_array_append_new(
			answers,
			json_pack("{s:O?, s:O?, s:O?, s:O?}", "ids", json_object_get(c, "token_ids"),
				  "logprobs",
				  json_object_get(json_object_get(c, "logprobs"), "token_logprobs"), "text",
				  json_object_get(c, "text"), "finish", json_object_get(c, "finish_reason")));
	}
	line = json_pack("{s:i, s:o, s:O?}", "rollout", 1, "answers", answers, "prompt_ids",
			 json_object_get(json_array_get(list, 0), "prompt_token_ids"));
	rc = dt_group_parse(line, 0, &got, err);
	json_decref(line);
	if (rc == 0 && got.n != r->o.group)
		rc = dt_err_set(err, -EIO, "%d answers came instead of %d", got.n, r->o.group);
	for (int i = 0; i < got.n && rc == 0; i++)
		if (!got.answer[i].logprob)
			rc = dt_err_set(err, -EIO, "an answer came without log-probabilities");
	if (rc < 0) {
		dt_group_release(&got);
		return dt_err_prefix(err, "'%s'", r->url);
	}
	g->answer = got.answer;
	g->n = got.n;
	g->prompt_ids = got.prompt_ids;
	g->nprompt = got.nprompt;
	g->temperature = r->o.temperature;
	got.answer = NULL;
	got.prompt_ids = NULL;
	dt_group_release(&got);
	return 0;
}

/* 1: taken. 0: to be asked again. A refusal of the request itself is final. */
static int take(struct remote *r, struct slot *s, CURLcode done, struct dt_err *err)
{
	long status = 0;
	json_t *o = NULL;
	int rc;

	curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
	if (done != CURLE_OK || status == 429 || status >= 500) {
		if (r->since == 0)
			r->since = dt_now();
		if (dt_now() - r->since < PATIENCE)
			return 0;
		return dt_err_set(err, -EIO, "'%s' does not answer for %.0f s: %s", r->url, PATIENCE,
				  done != CURLE_OK ? curl_easy_strerror(done) : "it is busy or fails");
	}
	if (status != 200)
		return dt_err_set(err, -EIO, "'%s' answers %ld: %.200s", r->url, status,
				  s->reply ? s->reply : "");
	r->since = 0;
	rc = dt_json_parse(s->reply ? s->reply : "", s->n, r->url, &o, err);
	if (rc == 0)
		rc = take_choices(r, o, s->g, err);
	json_decref(o);
	return rc < 0 ? rc : 1;
}

static int start(struct remote *r, struct slot *s, struct dt_group *g, struct dt_err *err)
{
	free(s->body);
	s->body = make_body(r, g);
	s->n = 0;
	s->g = g;
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
		if (rc >= 0)
			rc = take(r, s, done, err);
		if (rc == 0) {
			usleep(200000);
			rc = start(r, s, s->g, err);
			continue;
		}
		s->g = NULL;
		n += rc > 0;
	}
	return rc < 0 ? rc : n;
}

static int draw(struct dt_drawer *d, struct dt_group *g, int64_t n, struct dt_err *err)
{
	struct remote *r = (struct remote *)d;
	int64_t sent = 0, got = 0;
	int rc = 0, running;

	while (rc >= 0 && got < n) {
		for (int i = 0; i < r->nslot && sent < n && rc >= 0; i++)
			if (!r->slot[i].g)
				rc = start(r, &r->slot[i], &g[sent++], err);
		curl_multi_perform(r->multi, &running);
		curl_multi_poll(r->multi, NULL, 0, 1000, NULL);
		if (rc >= 0 && (rc = collect(r, err)) > 0)
			got += rc;
	}
	for (int i = 0; i < r->nslot; i++)
		if (r->slot[i].g) {
			curl_multi_remove_handle(r->multi, r->slot[i].easy);
			r->slot[i].g = NULL;
		}
	return rc < 0 ? rc : 0;
}

static void remote_close(struct dt_drawer *d)
{
	struct remote *r = (struct remote *)d;

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

static void set_up(struct slot *s, const char *url, struct curl_slist *headers)
{
	curl_easy_setopt(s->easy, CURLOPT_URL, url);
	curl_easy_setopt(s->easy, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(s->easy, CURLOPT_WRITEFUNCTION, receive);
	curl_easy_setopt(s->easy, CURLOPT_WRITEDATA, s);
	curl_easy_setopt(s->easy, CURLOPT_PRIVATE, s);
	curl_easy_setopt(s->easy, CURLOPT_TIMEOUT, 600L);
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
		set_up(&s, url, r->headers);
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
		set_up(s, r->url, r->headers);
	}
	return 0;
}

int dt_drawer_remote(const char *url, const struct dt_drawer_opts *o, struct dt_drawer **ret,
		     struct dt_err *err)
{
	struct remote *r = calloc(1, sizeof(*r));
	char *base = NULL, *bearer = NULL;
	int rc = r ? dt_load_url(url, &base, err) : dt_err_sys(err, -ENOMEM, "cannot ask '%s'", url);

	if (rc < 0)
		goto out;
	r->drawer = (struct dt_drawer){draw, remote_close};
	r->o = o->sample;
	r->headers = curl_slist_append(NULL, "Content-Type: application/json");
	if (o->key && asprintf(&bearer, "Authorization: Bearer %s", o->key) > 0)
		r->headers = curl_slist_append(r->headers, bearer);
	if (asprintf(&r->url, "%s/v1/completions", base) < 0)
		r->url = NULL;
	r->model = o->served ? strdup(o->served) : NULL;
	rc = r->url ? prepare(r, o->parallel, err) : dt_err_sys(err, -ENOMEM, "cannot ask '%s'", url);
	if (rc == 0 && !r->model)
		rc = first_model(r, base, err);
out:
	free(bearer);
	free(base);
	if (rc == 0)
		*ret = &r->drawer;
	else if (r)
		remote_close(&r->drawer);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
