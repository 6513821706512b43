#include "bench/load/asks.h"

#include "base/curl_lines.h"
#include "base/json.h"
#include "base/progress.h"
#include "bench/load/client.h"

#include <curl/curl.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAUSE	   0.2	/* seconds before a question is asked again */
#define MOST_PAUSE 600. /* longest pause that a server may ask for (Retry-After); a longer one is an error */

struct slot { /* one question in flight */
	CURL *easy;
	int64_t at; /* index of the question; -1: free */
	double due; /* when it is asked again; 0: it is under way */
	char *body, *reply;
	size_t n, most;
	bool over; /* the answer is longer than most */
};

struct dt_asks {
	char *url, *model;
	struct curl_slist *headers;
	CURLM *multi;
	struct slot *slot;
	int nslot;
	double since; /* time of the first failure after the last answer; 0: none */
	double pause; /* longest pause that the server has asked for since then */
	bool met;     /* the server has answered, if only that it cannot yet */
};

static size_t receive(char *data, size_t size, size_t n, void *arg)
{
	struct slot *s = arg;
	char *grown;

	s->over = n >= s->most - s->n;
	grown = s->over ? NULL : realloc(s->reply, s->n + n + 1);
	if (!grown)
		return 0;
	memcpy(grown + s->n, data, n);
	s->reply = grown;
	s->n += n;
	s->reply[s->n] = '\0';
	return size * n;
}

static int no_memory(const struct dt_asks *a, struct dt_err *err)
{
	return dt_err_sys(err, -ENOMEM, "cannot ask '%s'", a->url);
}

static int slot_init(struct slot *s, const char *url, struct curl_slist *headers, size_t most, long seconds)
{
	*s = (struct slot){.easy = curl_easy_init(), .at = -1, .most = most};
	if (!s->easy)
		return -ENOMEM;
	curl_easy_setopt(s->easy, CURLOPT_URL, url);
	curl_easy_setopt(s->easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(s->easy, CURLOPT_PROXY, "");
	curl_easy_setopt(s->easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(s->easy, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(s->easy, CURLOPT_WRITEFUNCTION, receive);
	curl_easy_setopt(s->easy, CURLOPT_WRITEDATA, s);
	curl_easy_setopt(s->easy, CURLOPT_PRIVATE, s);
	curl_easy_setopt(s->easy, CURLOPT_TIMEOUT, seconds);
	return 0;
}

static void slot_release(struct slot *s)
{
	curl_easy_cleanup(s->easy);
	free(s->body);
	free(s->reply);
}

/* Parses the response of a finished request. */
static int read_reply(struct slot *s, const char *url, CURLcode done, json_t **ret, struct dt_err *err)
{
	long status = 0;

	if (s->over)
		return dt_err_set(err, -EIO, "'%s': the answer is longer than %zu bytes", url, s->most);
	if (done != CURLE_OK)
		return dt_err_set(err, -EIO, "'%s': %s", url, curl_easy_strerror(done));
	curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status != 200)
		return dt_err_set(err, -EIO, "'%s' answers %ld: %.200s", url, status,
				  s->reply ? s->reply : "");
	return dt_json_parse_texts(s->reply ? s->reply : "", s->n, url, ret, err);
}

/*
 * Whether to retry after a failure, at s->due: the server may come back. A server that has never been there
 * is an error at once: its address is wrong.
 */
static bool again(struct dt_asks *a, struct slot *s, CURLcode done)
{
	const double now = dt_now();
	curl_off_t after = 0;
	long status = 0;

	curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
	a->met |= done == CURLE_OK;
	if (!a->met || s->over)
		return false;
	if (done == CURLE_OK && !dt_load_later(status)) {
		a->since = a->pause = 0;
		return false;
	}
	if (done == CURLE_OK)
		curl_easy_getinfo(s->easy, CURLINFO_RETRY_AFTER, &after);
	if ((double)after > MOST_PAUSE)
		return false;
	a->since = a->since > 0 ? a->since : now;
	a->pause = fmax(a->pause, (double)after);
	s->due = now + fmax(PAUSE, (double)after);
	return now - a->since < DT_LOAD_AGAIN_S + a->pause;
}

static int send_body(struct dt_asks *a, struct slot *s, struct dt_err *err)
{
	s->n = 0;
	s->over = false;
	s->due = 0;
	curl_easy_setopt(s->easy, CURLOPT_POSTFIELDS, s->body);
	return curl_multi_add_handle(a->multi, s->easy) == CURLM_OK
		       ? 0
		       : dt_err_set(err, -EIO, "cannot ask '%s'", a->url);
}

static int start(struct dt_asks *a, struct slot *s, const struct dt_asks_list *l, int64_t i,
		 struct dt_err *err)
{
	json_t *o = l->body(l->arg, i, a->model);

	free(s->body);
	s->body = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	if (!s->body)
		return no_memory(a, err);
	s->at = i;
	return send_body(a, s, err);
}

/* Handles a finished request. 1: question s->at is answered; 0: it will be asked again. */
static int take(struct dt_asks *a, struct slot *s, const struct dt_asks_list *l, CURLcode done,
		struct dt_err *err)
{
	json_t *o = NULL;
	int rc;

	if (again(a, s, done))
		return 0;
	rc = read_reply(s, a->url, done, &o, err);
	if (rc == 0)
		rc = l->take(l->arg, s->at, o, err);
	json_decref(o);
	s->at = -1;
	return rc < 0 ? rc : 1;
}

/* Handles all finished requests; returns their number or a negative errno. */
static int collect(struct dt_asks *a, const struct dt_asks_list *l, struct dt_err *err)
{
	CURLMsg *m;
	int left, n = 0, rc = 0;

	while (rc >= 0 && (m = curl_multi_info_read(a->multi, &left))) {
		struct slot *s = NULL;
		CURLcode done = m->data.result;

		if (m->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&s);
		curl_multi_remove_handle(a->multi, s->easy);
		rc = take(a, s, l, done, err);
		n += rc > 0;
	}
	return rc < 0 ? rc : n;
}

/* Sends the next questions, and those to ask again; *soonest: when the next one is due, at the latest. */
static int send_due(struct dt_asks *a, const struct dt_asks_list *l, int64_t n, int64_t *sent,
		    double *soonest, struct dt_err *err)
{
	const double now = dt_now();
	int rc = 0;

	for (int i = 0; i < a->nslot && rc >= 0; i++) {
		struct slot *s = &a->slot[i];

		if (s->at < 0 && *sent < n)
			rc = start(a, s, l, (*sent)++, err);
		else if (s->at >= 0 && s->due > 0 && s->due <= now)
			rc = send_body(a, s, err);
		else if (s->at >= 0 && s->due > 0)
			*soonest = fmin(*soonest, s->due);
	}
	return rc;
}

int dt_asks_run(struct dt_asks *a, const struct dt_asks_list *l, int64_t n, struct dt_err *err)
{
	int64_t sent = 0, got = 0;
	int rc = 0, running;

	while (rc >= 0 && got < n) {
		double soonest = dt_now() + 1;

		rc = send_due(a, l, n, &sent, &soonest, err);
		curl_multi_perform(a->multi, &running);
		if (rc >= 0 && (rc = collect(a, l, err)) > 0)
			got += rc;
		else if (rc == 0) /* poll does not wake up for responses that have already arrived */
			curl_multi_poll(a->multi, NULL, 0, (int)(fmax(0, soonest - dt_now()) * 1e3) + 1,
					NULL);
	}
	for (int i = 0; i < a->nslot; i++)
		if (a->slot[i].at >= 0) {
			curl_multi_remove_handle(a->multi, a->slot[i].easy);
			a->slot[i].at = -1;
		}
	return rc < 0 ? rc : 0;
}

/* The first request: it is repeated like questions. */
static int ask_again(struct dt_asks *a, struct slot *s, const char *url, json_t **ret, struct dt_err *err)
{
	CURLcode done = curl_easy_perform(s->easy);

	while (again(a, s, done)) {
		usleep((useconds_t)(fmax(0, s->due - dt_now()) * 1e6));
		s->n = 0;
		s->over = false;
		done = curl_easy_perform(s->easy);
	}
	return read_reply(s, url, done, ret, err);
}

/* The first model in the server's list. */
static int first_model(struct dt_asks *a, const char *base, struct dt_err *err)
{
	struct slot s = {0};
	char *url = NULL;
	json_t *o = NULL;
	const char *id = NULL;
	int rc = asprintf(&url, "%s/v1/models", base) > 0 ? slot_init(&s, url, a->headers, 64u << 20, 30)
							  : -ENOMEM;

	if (rc < 0)
		rc = no_memory(a, err);
	else if ((rc = ask_again(a, &s, url, &o, err)) == 0)
		id = json_string_value(json_object_get(json_array_get(json_object_get(o, "data"), 0), "id"));
	if (rc == 0 && !id)
		rc = dt_err_set(err, -EIO, "'%s' lists no model", base);
	if (rc == 0 && !(a->model = strdup(id)))
		rc = no_memory(a, err);
	json_decref(o);
	slot_release(&s);
	free(url);
	return rc;
}

static int prepare(struct dt_asks *a, const char *base, const struct dt_asks_opts *o, struct dt_err *err)
{
	const bool headed = dt_curl_line(&a->headers, "Content-Type: application/json") &&
			    (!o->key || dt_curl_bearer(&a->headers, o->key));

	if (asprintf(&a->url, "%s/v1/completions", base) < 0)
		a->url = NULL;
	a->model = o->model ? strdup(o->model) : NULL;
	a->multi = curl_multi_init();
	a->slot = calloc((size_t)o->parallel, sizeof(*a->slot));
	if (!a->url || !headed || !a->multi || !a->slot || (o->model && !a->model))
		return no_memory(a, err);
	for (; a->nslot < o->parallel; a->nslot++)
		if (slot_init(&a->slot[a->nslot], a->url, a->headers, o->most_reply, 600) < 0)
			return no_memory(a, err);
	return a->model ? 0 : first_model(a, base, err);
}

int dt_asks_open(const char *url, const struct dt_asks_opts *o, struct dt_asks **ret, struct dt_err *err)
{
	struct dt_asks *a = calloc(1, sizeof(*a));
	char *base = NULL;
	int rc = a ? dt_load_url(url, &base, err)
		   : dt_err_sys(err, -ENOMEM, "cannot send requests to '%s'", url);

	if (rc == 0)
		rc = prepare(a, base, o, err);
	free(base);
	if (rc == 0)
		*ret = a;
	else
		dt_asks_close(a);
	return rc;
}

const char *dt_asks_url(const struct dt_asks *a)
{
	return a->url;
}

void dt_asks_close(struct dt_asks *a)
{
	if (!a)
		return;
	for (int i = 0; i < a->nslot; i++)
		slot_release(&a->slot[i]);
	curl_multi_cleanup(a->multi);
	curl_slist_free_all(a->headers);
	free(a->slot);
	free(a->url);
	free(a->model);
	free(a);
}
/* SPDX-License-Identifier: Apache-2.0 */
