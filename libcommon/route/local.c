/* Routes that the router answers itself: health, metrics, models, and administration. */
#include "base/http.h"
#include "base/json.h"
#include "base/progress.h"
#include "route/priv.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ONE_MODEL "/v1/models/"

static void reply_json(struct dt_route_client *c, int status, json_t *v)
{
	char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;

	dt_route_reply(c, text ? status : 500, "application/json", text ? text : "", text ? strlen(text) : 0,
		       "");
	free(text);
	json_decref(v);
}

static void health(struct dt_route_client *c)
{
	struct dt_router *r = c->r;
	int up = 0;

	for (int i = 0; i < r->balance.n; i++)
		up += r->server[i] && r->server[i]->up && !r->server[i]->gone && !r->server[i]->drained;
	reply_json(c, (up > 0 || dt_route_may_start(r)) && !r->draining ? 200 : 503,
		   json_pack("{s:s,s:i}", "status",
			     r->draining	     ? "draining"
			     : up		     ? "ok"
			     : dt_route_may_start(r) ? "asleep"
						     : "no server",
			     "servers", up));
}

static void metrics(struct dt_route_client *c)
{
	struct dt_route_buf out = {0};

	dt_route_metrics(c->r, &out);
	dt_route_reply(c, 200, "text/plain; version=0.0.4", dt_route_buf_data(&out), dt_route_buf_size(&out),
		       "");
	dt_route_buf_release(&out);
}

/* Adds a name, or another server's context length of it: the smallest one counts, 0 is unknown. */
static void add_name(json_t *names, const char *name, int context)
{
	const json_int_t before = json_integer_value(json_object_get(names, name));

	json_object_set_new(
		names, name,
		json_integer(before > 0 && (context == 0 || before < context) ? before : context));
}

/*
 * All model names that a client may use, as keys: those of the configuration, and the models of the servers.
 * The values are the context lengths in tokens, 0 if unknown.
 */
static json_t *names_of(const struct dt_router *r)
{
	json_t *names = json_object();

	for (int i = 0; i < r->conf.nnames; i++)
		add_name(names, r->conf.name[i].name, 0);
	for (int i = 0; i < r->balance.n; i++) {
		const struct dt_route_server *s = r->server[i];

		for (int k = 0; s && !s->gone && k < s->conf.nmodels; k++)
			add_name(names, s->conf.model[k], 0);
		for (int k = 0; s && !s->gone && s->conf.nmodels == 0 && k < s->nmodels; k++)
			add_name(names, s->model[k], s->context[k]);
	}
	return names;
}

static json_t *model_json(const char *name, const json_t *context)
{
	json_t *v = json_pack("{s:s,s:s,s:i,s:s}", "id", name, "object", "model", "created", 0, "owned_by",
			      "dt-route");

	if (json_integer_value(context) > 0)
		json_object_set(v, "max_model_len", (json_t *)context);
	return v;
}

static void models(struct dt_route_client *c)
{
	json_t *names = names_of(c->r), *data = json_array(), *v;
	const char *name;

	json_object_foreach(names, name, v) json_array_append_new(data, model_json(name, v));
	json_decref(names);
	reply_json(c, 200, json_pack("{s:s,s:o}", "object", "list", "data", data));
}

/* Answers a request for one model, whose name is percent-encoded. */
static void model(struct dt_route_client *c, struct dt_route_text t)
{
	char name[1024], why[sizeof(name) + 40];
	json_t *names = names_of(c->r);

	snprintf(name, sizeof(name), "%.*s", (int)(t.n < sizeof(name) ? t.n : sizeof(name)), t.s);
	dt_http_unescape(name);
	snprintf(why, sizeof(why), "no server has the model '%s'", name);
	if (t.n < sizeof(name) && json_object_get(names, name))
		reply_json(c, 200, model_json(name, json_object_get(names, name)));
	else
		dt_route_reply_error(c, 404, "model_not_found", 0, "", why);
	json_decref(names);
}

static const char *circuit_name(const struct dt_route_server *s)
{
	return s->circuit == DT_CIRCUIT_CLOSED ? "closed"
	       : s->circuit == DT_CIRCUIT_OPEN ? "open"
					       : "half-open";
}

static void servers(struct dt_route_client *c)
{
	struct dt_router *r = c->r;
	json_t *list = json_array();

	for (int i = 0; i < r->balance.n; i++) {
		const struct dt_route_server *s = r->server[i];
		json_t *names = json_array();

		for (int k = 0; s && k < (s->conf.nmodels ? s->conf.nmodels : s->nmodels); k++)
			json_array_append_new(names,
					      json_string(s->conf.nmodels ? s->conf.model[k] : s->model[k]));
		if (s)
			json_array_append_new(
				list,
				json_pack("{s:s,s:s,s:b,s:b,s:b,s:b,s:s,s:i,s:f,s:I,s:I,s:o}", "url",
					  s->conf.url, "role", dt_route_role_name(s), "up", s->up, "drained",
					  s->drained, "wanted", !s->off, "leaving", s->gone, "circuit",
					  circuit_name(s), "running", r->balance.server[i].running,
					  "work_tokens", r->balance.server[i].work, "requests",
					  (json_int_t)s->n_requests, "errors", (json_int_t)s->n_errors,
					  "models", json_incref(names)));
		json_decref(names);
	}
	reply_json(
		c, 200,
		json_pack("{s:o,s:i,s:i}", "servers", list, "waiting", r->nqueue, "wanted", r->scale.wanted));
}

/* Whether `given` is a server's URL, in one of the spellings that the command line accepts. */
static bool is_url(const char *url, const char *given)
{
	const size_t lead = strlen("http://"), n = strlen(url) - lead;

	if (!strncmp(given, "http://", lead))
		given += lead;
	if (strncmp(url + lead, given, n))
		return false;
	given += n;
	return !*given || !strcmp(given, "/") || !strcmp(given, "/v1") || !strcmp(given, "/v1/");
}

/* POST /route/drain?server=URL and /route/undrain?server=URL */
static void drain(struct dt_route_client *c, const char *url, bool on)
{
	struct dt_router *r = c->r;

	for (int i = 0; i < r->balance.n; i++) {
		struct dt_route_server *s = r->server[i];

		if (!s || s->gone || !is_url(s->conf.url, url))
			continue;
		s->drained = on;
		dt_route_server_changed(s);
		dt_log_msg(r->p.log, "%s is %s", s->conf.url,
			   on ? "drained: it gets no new requests" : "no longer drained");
		reply_json(c, 200,
			   json_pack("{s:s,s:b,s:i}", "url", s->conf.url, "drained", on, "running",
				     r->balance.server[i].running));
		dt_route_x_run_queue(r);
		return;
	}
	dt_route_reply_error(c, 404, "not_found", 0, "", "unknown server; GET /route/servers lists them");
}

/* The target without its query. */
static struct dt_route_text path_of(struct dt_route_text target)
{
	const char *query = memchr(target.s, '?', target.n);

	return (struct dt_route_text){target.s, query ? (size_t)(query - target.s) : target.n};
}

/* Decodes the value of a key of the target's query; "": it has none. */
static void query_value(struct dt_route_text target, const char *key, char value[512])
{
	const size_t named = strlen(key);
	const char *at = memchr(target.s, '?', target.n), *end = target.s + target.n;

	value[0] = '\0';
	while (at && !value[0]) {
		const char *s = at + 1, *and = memchr(s, '&', (size_t)(end - s));
		size_t n = (size_t)((and? and : end) - s);

		if (n > named && n - named <= 512 && !memcmp(s, key, named) && s[named] == '=')
			snprintf(value, 512, "%.*s", (int)(n - named - 1), s + named + 1);
		at = and;
	}
	dt_http_unescape(value);
}

bool dt_route_local_open(struct dt_route_text t)
{
	return dt_route_is(path_of(t), "/health");
}

static bool by_hand(struct dt_route_client *c, const struct dt_route_head *h, struct dt_route_text t,
		    bool admin)
{
	bool post = dt_route_is(h->method, "POST"), on = dt_route_is(t, "/route/drain");
	char url[512];

	if (t.n < 7 || memcmp(t.s, "/route/", 7))
		return false;
	if (!admin) {
		dt_route_reply_error(c, 403, "not_allowed", 0, "",
				     "this route requires a key with admin=yes");
		return true;
	}
	if (post && (on || dt_route_is(t, "/route/undrain"))) {
		query_value(h->target, "server", url);
		drain(c, url, on);
	} else if (!post && dt_route_is(t, "/route/servers")) {
		servers(c);
	} else {
		dt_route_reply_error(c, 404, "not_found", 0, "", "unknown route");
	}
	return true;
}

/* Answers requests to POST-only paths that use another method; true: it has answered. */
static bool needs_post(struct dt_route_client *c, const struct dt_route_head *h)
{
	static const char *const paths[] = {"/v1/completions", "/v1/chat/completions",
					    "/completion",     "/completions",
					    "/infill",	       "/v1/responses",
					    "/v1/messages",    "/v1/messages/count_tokens",
					    "/v1/embeddings",  "/v1/rerank",
					    "/v2/rerank",      "/rerank",
					    "/v1/score",       "/score",
					    "/v1/classify",    "/tokenize",
					    "/detokenize",     "/apply-template"};

	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
		if (dt_route_is(path_of(h->target), paths[i])) {
			dt_route_reply_error(c, 405, "method_not_allowed", 0, "Allow: POST\r\n",
					     "this route only accepts POST");
			return true;
		}
	return false;
}

/* Takes one byte of a target, with its escape decoded as a server does; -1: there is none. */
static int next_byte(struct dt_route_text *t)
{
	char byte[3] = "";
	int n = 1, value;

	if (t->n == 0)
		return -1;
	value = (unsigned char)*t->s;
	if (t->n > 2 && value == '%' && isxdigit((unsigned char)t->s[1]) &&
	    isxdigit((unsigned char)t->s[2])) {
		memcpy(byte, t->s + 1, 2);
		value = (int)strtol(byte, NULL, 16);
		n = 3;
	}
	t->s += n;
	t->n -= (size_t)n;
	return value;
}

/* Whether the target's path is `path` or below it. An escaped zero ends it for some servers. */
static bool is_below(struct dt_route_text t, const char *path)
{
	int c = 0;

	while (*path && (c = next_byte(&t)) == *path)
		path++;
	if (*path)
		return false;
	c = next_byte(&t);
	return c <= 0 || c == '/' || c == '?';
}

bool dt_route_of_one_server(struct dt_route_text t)
{
	static const char *const paths[] = {
		"/v1/files", "/v1/batches", "/v1/load_lora_adapter", "/v1/unload_lora_adapter",
		"/v1/role",  "/slots"};

	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
		if (is_below(t, paths[i]))
			return true;
	return false;
}

bool dt_route_local(struct dt_route_client *c, const struct dt_route_head *h, int tenant, bool admin)
{
	static const struct {
		const char *path;
		void (*answer)(struct dt_route_client *c);
		bool admin;
	} routes[] = {{"/health", health, false}, {"/metrics", metrics, true}, {"/v1/models", models, false}};
	const struct dt_route_text path = path_of(h->target);
	bool get = dt_route_is(h->method, "GET") || dt_route_is(h->method, "HEAD");

	for (size_t i = 0; i < sizeof(routes) / sizeof(*routes); i++) {
		if (!dt_route_is(path, routes[i].path))
			continue;
		if (!get)
			dt_route_reply_error(c, 405, "method_not_allowed", 0, "Allow: GET, HEAD\r\n",
					     "this route only accepts GET");
		else if (routes[i].admin && !admin)
			dt_route_reply_error(c, 403, "not_allowed", 0, "",
					     "this route requires a key with admin=yes");
		else
			routes[i].answer(c);
		return true;
	}
	if (get && path.n > sizeof(ONE_MODEL) - 1 && !memcmp(path.s, ONE_MODEL, sizeof(ONE_MODEL) - 1)) {
		model(c, (struct dt_route_text){path.s + sizeof(ONE_MODEL) - 1,
						path.n - (sizeof(ONE_MODEL) - 1)});
		return true;
	}
	return by_hand(c, h, path, admin) || (!dt_route_is(h->method, "POST") && needs_post(c, h));
}
/* SPDX-License-Identifier: Apache-2.0 */
