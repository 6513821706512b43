/* Parses streams of server-sent events, and queries the server before the run. */
#include "base/curl_lines.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/room.h"
#include "base/utf8.h"
#include "bench/load/internal.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_HOST = 500 }; /* with its path */

int dt_load_text_add(struct load_text *t, const char *s, size_t n)
{
	if (t->cap - t->n <= n || !t->s) {
		size_t cap = 2 * t->cap + n + 64;
		char *p = realloc(t->s, cap);

		if (!p)
			return -ENOMEM;
		t->s = p;
		t->cap = cap;
	}
	memcpy(t->s + t->n, s, n);
	t->n += n;
	t->s[t->n] = '\0';
	return 0;
}

/* ---- the stream ---- */

static int note_piece(struct dt_load_result *r, double now, double *last)
{
	if (r->first < 0) {
		r->first = now;
	} else {
		if (!DT_ROOM(r->gap, r->ngap, r->cap_gap, 32))
			return -ENOMEM;
		r->gap[r->ngap++] = (float)(now - *last);
	}
	*last = now;
	return 0;
}

/* A number of tokens; -1: it is missing, or none. */
static int count_of(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);
	const json_int_t n = json_is_integer(v) ? json_integer_value(v) : -1;

	return n >= 0 && n <= INT_MAX ? (int)n : -1;
}

static void take_usage(struct load_stream *s, struct dt_load_result *r, const json_t *usage)
{
	const int input = count_of(usage, "prompt_tokens"), output = count_of(usage, "completion_tokens");
	const int cached = count_of(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");

	if (input < 0 || output < 0)
		return;
	s->counted = true;
	r->input = input;
	r->output = output;
	r->cached = cached > 0 ? cached : 0;
}

int dt_load_too_long(struct load_stream *s, const char *what)
{
	s->failed = true;
	snprintf(s->what, sizeof(s->what), "%s is longer than %d MiB", what, DT_LOAD_MOST_TEXT >> 20);
	return -EMSGSIZE;
}

/* Drops NULs, which many servers would refuse in the next turn. */
static int keep_text(struct load_stream *s, const char *text, size_t n)
{
	if (s->reply.n + n > DT_LOAD_MOST_TEXT)
		return dt_load_too_long(s, "the answer");
	for (size_t i = 0; i < n; i++)
		if (text[i] && dt_load_text_add(&s->reply, text + i, 1) < 0)
			return -ENOMEM;
	return 0;
}

static int take_chunk(struct load_stream *s, struct dt_load_result *r, const json_t *v, double now)
{
	const json_t *choice = json_array_get(json_object_get(v, "choices"), 0);
	const json_t *usage = json_object_get(v, "usage"), *text = json_object_get(choice, "text");
	const json_t *delta = json_object_get(choice, "delta"), *thought;
	size_t n;
	int rc = 0;

	if (json_object_get(v, "error") && !json_is_null(json_object_get(v, "error"))) {
		char *body = json_dumps(v, 0);

		s->failed = true;
		dt_load_error_text(body ? body : "", s->what, sizeof(s->what));
		free(body);
		return 0;
	}
	take_usage(s, r, usage);
	if (!text)
		text = json_object_get(delta, "content");
	thought = json_object_get(delta, "reasoning_content");
	if (!thought)
		thought = json_object_get(delta, "reasoning");
	n = json_string_length(text);
	if (n > 0 && s->keep && (rc = keep_text(s, json_string_value(text), n)) < 0)
		return rc;
	/* The end counts as the first text if no text was visible, e.g. bytes that form no character. */
	n += json_string_length(thought); /* tokens as others, but no part of the next turn */
	if (n > 0 || (r->first < 0 && json_is_string(json_object_get(choice, "finish_reason"))))
		return note_piece(r, now, &r->end);
	return 0;
}

static int take_line(struct load_stream *s, struct dt_load_result *r, double now)
{
	const char *p = s->line.s;
	json_t *v;
	int rc;

	if (strncmp(p, "data:", 5))
		return 0; /* a comment, a blank line, or an unused field */
	s->begun = true;
	p += 5;
	p += *p == ' ';
	if (!strncmp(p, "[DONE]", 6)) {
		s->done = true;
		return 0;
	}
	v = json_loads(p, JSON_ALLOW_NUL, NULL); /* a text may hold a NUL */
	if (!v) {
		s->failed = true;
		snprintf(s->what, sizeof(s->what), "a chunk of the stream is not JSON");
		return 0;
	}
	rc = take_chunk(s, r, v, now);
	json_decref(v);
	return rc;
}

int dt_load_stream_push(struct load_stream *s, struct dt_load_result *r, const char *data, size_t n,
			double now)
{
	int rc;

	while (n > 0) {
		const char *nl = memchr(data, '\n', n);
		size_t k = nl ? (size_t)(nl - data) : n;

		if (s->line.n + k > DT_LOAD_MOST_TEXT)
			return dt_load_too_long(s,
						s->begun ? "a line of the stream" : "a line of the answer");
		if (dt_load_text_add(&s->line, data, k) < 0)
			return -ENOMEM;
		data += k + (nl != NULL);
		n -= k + (nl != NULL);
		if (!nl)
			break;
		rc = take_line(s, r, now);
		if (rc < 0)
			return rc;
		s->line.n = 0;
	}
	return 0;
}

/* Copies whole characters of well-formed UTF-8, as many as fit; control characters become spaces. */
static void put_visible(const char *s, char *ret, size_t n)
{
	size_t size = 0, k = 0, len;
	char *clean = dt_utf8_clean(s, strlen(s), &size);
	uint32_t cp;

	for (size_t i = 0; clean && i < size && k + 4 < n; i += len) {
		len = dt_utf8_decode(clean + i, size - i, &cp);
		if (cp < 0x20 || (cp >= 0x7f && cp < 0xa0)) {
			ret[k++] = ' ';
		} else {
			memcpy(ret + k, clean + i, len);
			k += len;
		}
	}
	ret[k] = '\0';
	free(clean);
}

void dt_load_error_text(const char *body, char *ret, size_t n)
{
	json_t *v = json_loads(body, 0, NULL);
	const json_t *e = json_object_get(v, "error");
	const char *text =
		json_is_string(e) ? json_string_value(e) : json_string_value(json_object_get(e, "message"));

	put_visible(text ? text : body, ret, n);
	json_decref(v);
}

void dt_load_refusal_text(CURL *c, const char *body, char *ret, size_t n)
{
	const char *to = NULL;
	char text[400];

	curl_easy_getinfo(c, CURLINFO_REDIRECT_URL, &to);
	if (to) {
		snprintf(text, sizeof(text), "redirects are not followed: %s", to);
		put_visible(text, ret, n);
	} else {
		dt_load_error_text(body ? body : "", ret, n);
		if (!*ret)
			snprintf(ret, n, "no message");
	}
}

/* ---- before the run ---- */

static size_t collect(char *data, size_t one, size_t n, void *arg)
{
	struct load_text *t = arg;

	return t->n + n > DT_LOAD_MOST_TEXT || dt_load_text_add(t, data, n) < 0 ? 0 : n;
}

/* Sends a request, until the time given again while the server cannot answer yet, as late as it asks for. */
static CURLcode perform(CURL *c, double until, struct load_text *reply, long *ret_status)
{
	curl_off_t after;
	CURLcode cc;

	for (;;) {
		reply->n = after = 0;
		cc = curl_easy_perform(c);
		curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, ret_status);
		curl_easy_getinfo(c, CURLINFO_RETRY_AFTER, &after);
		if (cc != CURLE_OK || !dt_load_later(*ret_status) || dt_now() + (double)after > until)
			return cc;
		usleep(after > 0 ? (useconds_t)after * 1000000 : 200000);
	}
}

/* One JSON request; body NULL: GET. */
static int ask(const struct dt_load_target *t, const char *route, const char *body, json_t **ret,
	       struct dt_err *err)
{
	const double patience = fmin(fmax(t->patience, 1), DT_LOAD_AGAIN_S);
	char url[1024], why[CURL_ERROR_SIZE] = "", text[200];
	struct curl_slist *head = NULL;
	struct load_text reply = {0};
	CURL *c = curl_easy_init();
	long status = 0;
	CURLcode cc;
	int rc = 0;

	snprintf(url, sizeof(url), "%s%s", t->url, route);
	if (!c || !dt_curl_line(&head, "Content-Type: application/json") ||
	    (t->nkey > 0 && !dt_curl_bearer(&head, t->key[0]))) {
		curl_slist_free_all(head);
		curl_easy_cleanup(c);
		return dt_err_sys(err, -ENOMEM, "cannot ask %s", url);
	}
	curl_easy_setopt(c, CURLOPT_URL, url);
	curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(c, CURLOPT_PROXY, "");
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)(patience * 1e3));
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, head);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, collect);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, &reply);
	curl_easy_setopt(c, CURLOPT_ERRORBUFFER, why);
	if (body)
		curl_easy_setopt(c, CURLOPT_POSTFIELDS, body);
	cc = perform(c, dt_now() + patience, &reply, &status);
	if (cc == CURLE_OPERATION_TIMEDOUT) {
		rc = dt_err_set(err, -ETIMEDOUT, "%s does not answer within %g s", url, patience);
	} else if (cc == CURLE_WRITE_ERROR) {
		rc = dt_err_set(err, -EMSGSIZE, "%s: the answer is longer than %d MiB", url,
				DT_LOAD_MOST_TEXT >> 20);
	} else if (cc != CURLE_OK) {
		rc = dt_err_set(err, -ECONNREFUSED, "cannot ask %s: %s", url,
				why[0] ? why : curl_easy_strerror(cc));
	} else if (status != 200) {
		dt_load_refusal_text(c, reply.s, text, sizeof(text));
		rc = dt_err_set(err, -EPROTO, "%s answers %ld: %s", url, status, text);
	} else {
		rc = dt_json_parse(reply.s ? reply.s : "", reply.n, url, ret, err);
	}
	curl_slist_free_all(head);
	curl_easy_cleanup(c);
	free(reply.s);
	return rc;
}

static int find_model(struct dt_load_target *t, struct dt_err *err)
{
	const char *name = t->model;
	json_t *v = NULL;
	int rc = 0;

	if (!name) {
		rc = ask(t, "/v1/models", NULL, &v, err);
		name = json_string_value(
			json_object_get(json_array_get(json_object_get(v, "data"), 0), "id"));
		if (rc == 0 && !name)
			rc = dt_err_set(err, -EPROTO, "%s/v1/models lists no model", t->url);
	}
	if (rc == 0) {
		t->name = strdup(name);
		rc = t->name ? 0 : dt_err_sys(err, -ENOMEM, "cannot start");
	}
	json_decref(v);
	return rc;
}

static int find_ids(struct dt_load_target *t, struct dt_err *err)
{
	char *words = dt_load_words();
	json_t *q = words ? json_pack("{s:s,s:s,s:s,s:b}", "model", t->name, "prompt", words, "content",
				      words, "add_special_tokens", 0)
			  : NULL;
	char *body = q ? json_dumps(q, 0) : NULL;
	json_t *v = NULL, *list;
	int rc = body ? ask(t, "/tokenize", body, &v, err) : dt_err_sys(err, -ENOMEM, "cannot start");
	size_t n;

	list = json_object_get(v, "tokens");
	n = json_array_size(list);
	if (rc == 0 && n == 0)
		rc = dt_err_set(err, -EPROTO, "%s/tokenize returns no tokens", t->url);
	if (rc == 0) {
		t->id = calloc(n, sizeof(*t->id));
		rc = t->id ? 0 : dt_err_sys(err, -ENOMEM, "cannot start");
	} else if (rc == -EPROTO) {
		dt_err_hint(err,
			    "--prompt text and chat need no /tokenize; a server of image classifiers takes "
			    "--image FILE");
	}
	for (size_t i = 0; rc == 0 && i < n; i++)
		t->id[t->nid++] = (int32_t)json_integer_value(json_array_get(list, i));
	json_decref(v);
	json_decref(q);
	free(body);
	free(words);
	return rc;
}

int dt_load_probe(struct dt_load_target *t, struct dt_err *err)
{
	int rc = find_model(t, err);

	return rc == 0 && t->prompt == DT_LOAD_TOKENS ? find_ids(t, err) : rc;
}

void dt_load_target_release(struct dt_load_target *t)
{
	free(t->name);
	free(t->id);
	for (int i = 0; i < t->nimage; i++)
		free(t->image[i].data);
	free(t->image);
	t->name = NULL;
	t->id = NULL;
	t->image = NULL;
	t->nid = t->nimage = 0;
}

int dt_load_url(const char *given, char **ret, struct dt_err *err)
{
	bool scheme = !strncasecmp(given, "http://", 7) || !strncasecmp(given, "https://", 8);
	const char *host = scheme ? strstr(given, "//") + 2 : given;
	int n = (int)strlen(host), rc = 0;

	while (n > 0 && host[n - 1] == '/')
		n--;
	if (n >= 3 && !strncmp(host + n - 3, "/v1", 3))
		n -= 3;
	while (n > 0 && host[n - 1] == '/')
		n--;
	if (n > MOST_HOST)
		return dt_err_set(err, -EINVAL, "the URL has more than %d characters", MOST_HOST);
	if (n == 0 || strpbrk(host, " \t\r\n") ||
	    (!scheme && (strstr(given, "://") || !memchr(host, ':', (size_t)n)))) {
		rc = dt_err_set(err, -EINVAL, "'%s' is neither an http:// or https:// URL nor HOST:PORT",
				given);
		dt_err_hint(err, "write http://127.0.0.1:8000 or 127.0.0.1:8000");
		return rc;
	}
	if (asprintf(ret, "%.*s%.*s", scheme ? (int)(host - given) : 7, scheme ? given : "http://", n, host) <
	    0)
		rc = dt_err_sys(err, -ENOMEM, "cannot keep the server's address");
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
