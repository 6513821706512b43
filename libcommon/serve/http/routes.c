/* The routes: parse a body, queue a reply. */
#include "base/progress.h"
#include "serve/api/label.h"
#include "serve/api/messages.h"
#include "serve/api/native.h"
#include "serve/api/rank.h"
#include "serve/api/responses.h"
#include "serve/api/tokenize.h"
#include "serve/http/priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static enum MHD_Result fail(struct dt_http_req *q, int status, const char *msg)
{
	struct dt_api_error e;

	dt_api_fail(&e, status, status < 500 ? "invalid_request_error" : "server_error", NULL, "%s", msg);
	return dt_http_reply_error(q, &e);
}

static enum MHD_Result health(struct dt_http_req *q)
{
	static const char *const name[] = {"ok", "draining", "stuck", "failed"};
	const enum dt_engine_state s = q->classify ? dt_classify_state(q->classify)
				       : q->engine ? dt_engine_state(q->engine)
						   : DT_ENGINE_READY;
	const bool loaded = q->engine || q->classify;
	const char *status = loaded ? name[s] : "loading";

	if (s == DT_ENGINE_FAILED) {
		struct dt_err err;

		if (q->classify)
			dt_classify_failure(q->classify, &err);
		else
			dt_engine_failure(q->engine, &err);
		return dt_http_reply_json(q, 503,
					  json_pack("{s:s, s:s}", "status", status, "error", err.msg));
	}
	return dt_http_reply_json(q, loaded && s == DT_ENGINE_READY ? 200 : 503,
				  json_pack("{s:s, s:s*}", "status", status, "role",
					    q->params->role == DT_ROLE_NONE
						    ? NULL
						    : dt_http_role_name(atomic_load(&q->http->role))));
}

static enum MHD_Result version(struct dt_http_req *q)
{
	return dt_http_reply_json(q, 200, json_pack("{s:s}", "version", DT_VERSION));
}

static enum MHD_Result metrics(struct dt_http_req *q)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = q->classify ? NULL : open_memstream(&text, &n);

	if (q->classify)
		return dt_http_classify_metrics(q);
	if (!f)
		return fail(q, 500, "out of memory");
	dt_metrics_write(dt_engine_metrics(q->engine), q->params->model_name, f);
	if (dt_engine_params(q->engine)->adapters)
		dt_adapters_write(dt_engine_params(q->engine)->adapters, f);
	if (fclose(f) == EOF) {
		free(text);
		return fail(q, 500, "out of memory");
	}
	return dt_http_reply_text(q, 200, "text/plain; version=0.0.4; charset=utf-8", text, n);
}

/* Server properties needed to parse this client's body. */
static struct dt_api_model api_model(const struct dt_http_req *q)
{
	struct dt_api_model m = {.engine = dt_engine_params(q->engine),
				 .name = q->params->model_name,
				 .chat = q->chat,
				 .defaults = q->params->defaults,
				 .tenant = q->tenant};

	while (getrandom(&m.seed, sizeof(m.seed), 0) != sizeof(m.seed))
		continue;
	return m;
}

static enum MHD_Result tokenize(struct dt_http_req *q)
{
	struct dt_api_model m = api_model(q);
	struct dt_tokens t = {0};
	struct dt_api_error e;
	json_t *body = dt_http_body(q, &e), *v = NULL;
	int rc = body ? dt_tokenize_parse(body, &m, &t, &e) : -EINVAL;

	json_decref(body);
	if (rc == 0 && !dt_http_take(q, dt_tokenize_cost(&t)))
		rc = dt_http_no_memory(&e);
	if (rc == 0)
		v = dt_tokenize_json(&t, &m);
	free(t.ids);
	return rc < 0 ? dt_http_reply_error(q, &e) : dt_http_reply_json(q, 200, v);
}

/* Answers a request that needs only the body, not the engine. */
static enum MHD_Result at_once(struct dt_http_req *q,
			       int (*of)(const json_t *body, const struct dt_api_model *m, json_t **ret,
					 struct dt_api_error *e))
{
	struct dt_api_model m = api_model(q);
	struct dt_api_error e;
	json_t *body = dt_http_body(q, &e), *v = NULL;
	int rc = body ? of(body, &m, &v, &e) : -EINVAL;

	json_decref(body);
	return rc < 0 ? dt_http_reply_error(q, &e) : dt_http_reply_json(q, 200, v);
}

static enum MHD_Result detokenize(struct dt_http_req *q)
{
	return at_once(q, dt_detokenize);
}

static enum MHD_Result apply_template(struct dt_http_req *q)
{
	return at_once(q, dt_api_apply_template);
}

/* Frees the body. The caller has freed its parsed values, or they stay charged with completion.asked. */
static void body_done(struct dt_http_req *q)
{
	free(q->body);
	q->body = NULL;
	q->n = q->cap = 0;
	if (!q->completion.asked)
		dt_http_give_back(q);
}

typedef int parse_fn(const json_t *, const struct dt_api_model *, struct dt_completion *,
		     struct dt_api_error *);

int dt_http_submit(struct dt_http_req *q, struct dt_api_error *e)
{
	struct dt_completion *c = &q->completion;
	struct dt_err err;
	int rc;

	if (!c->call->out && atomic_load(&q->http->role) == DT_ROLE_PREFILL) {
		rc = dt_api_fail(e, 503, "server_error", "role",
				 "this server only computes prompts for others: its role is prefill");
		e->retry_after = 1;
		return rc;
	}
	c->call->deadline = dt_now() + q->params->request_timeout;
	dt_http_watch(q, c->call); /* submission may wait for the adapter */
	rc = dt_engine_submit(q->engine, c->call, &err);
	if (rc == 0)
		return 0;
	dt_http_watch(q, NULL);
	return dt_api_fail_submit(e, rc, &err, c->call->retry_after);
}

/* Parses the body and submits its call; watches the connection from then on. -EINVAL with e filled. */
static int begin(struct dt_http_req *q, parse_fn *parse, struct dt_api_error *e)
{
	struct dt_api_model m = api_model(q);
	struct dt_completion *c = &q->completion;
	json_t *body = dt_http_body(q, e);
	struct dt_http_marks marks;
	int peer, rc;

	if (!body)
		return -EINVAL;
	rc = dt_http_marks(body, &marks, e);
	if (rc == 0)
		rc = dt_http_peer(q, body, &peer, e);
	if (rc == 0)
		rc = parse(body, &m, c, e);
	json_decref(body);
	body_done(q);
	if (rc < 0) {
		free(marks.mark);
		return rc;
	}
	dt_http_marks_give(&marks, c);
	if (dt_http_too_large(q, e) < 0 || dt_http_charge_images(q, e) < 0 || dt_http_charge_stream(q, e) < 0)
		return -EINVAL;
	c->call->peer = peer;
	return dt_http_submit(q, e);
}

/* Charges the memory of the reply before it is built; false with e filled. */
static bool has_room(struct dt_http_req *q, struct dt_api_error *e)
{
	size_t hidden = (size_t)dt_engine_params(q->engine)->model.hidden;

	if (dt_http_take(q, dt_completion_cost(&q->completion, hidden)))
		return true;
	dt_http_no_memory(e);
	return false;
}

static enum MHD_Result complete(struct dt_http_req *q, parse_fn *parse)
{
	struct dt_api_error e;
	json_t *v;

	if (begin(q, parse, &e) < 0)
		return dt_http_reply_error(q, &e);
	if (q->completion.stream)
		return dt_sse_init(&q->sse, &q->completion) < 0 ? fail(q, 500, "out of memory")
								: dt_http_reply_stream(q);
	dt_call_wait_done(q->completion.call);
	if (!has_room(q, &e))
		return dt_http_reply_error(q, &e);
	v = q->completion.messages    ? dt_messages_json(&q->completion, &e)
	    : q->completion.responses ? dt_responses_json(&q->completion, &e)
	    : q->completion.native    ? dt_native_json(&q->completion, &e)
				      : dt_completion_json(&q->completion, &e);
	return v ? dt_http_reply_json(q, 200, v) : dt_http_reply_error(q, &e);
}

static enum MHD_Result completions(struct dt_http_req *q)
{
	return complete(q, dt_completion_parse);
}

static enum MHD_Result native(struct dt_http_req *q)
{
	return complete(q, dt_native_parse);
}

static enum MHD_Result infill(struct dt_http_req *q)
{
	return complete(q, dt_infill_parse);
}

static enum MHD_Result chat(struct dt_http_req *q)
{
	return complete(q, dt_chat_parse);
}

static enum MHD_Result messages(struct dt_http_req *q)
{
	return complete(q, dt_messages_parse);
}

static enum MHD_Result responses(struct dt_http_req *q)
{
	return complete(q, dt_responses_parse);
}

static enum MHD_Result count_tokens(struct dt_http_req *q)
{
	return at_once(q, dt_messages_count);
}

static enum MHD_Result embeddings(struct dt_http_req *q)
{
	struct dt_api_error e;
	json_t *v;

	if (begin(q, dt_embedding_parse, &e) < 0)
		return dt_http_reply_error(q, &e);
	dt_call_wait_done(q->completion.call);
	if (!has_room(q, &e))
		return dt_http_reply_error(q, &e);
	v = dt_embedding_json(&q->completion, (size_t)dt_engine_params(q->engine)->model.hidden, &e);
	return v ? dt_http_reply_json(q, 200, v) : dt_http_reply_error(q, &e);
}

/* Ranks texts by similarity to a query. */
static enum MHD_Result rank(struct dt_http_req *q)
{
	struct dt_api_model m = api_model(q);
	size_t hidden = (size_t)m.engine->model.hidden;
	struct dt_rank r = {0};
	struct dt_api_error e;
	json_t *body = dt_http_body(q, &e), *v = NULL;
	bool score = strstr(q->path, "score") != NULL;
	int rc = -EINVAL;

	if (body)
		rc = (score ? dt_score_parse : dt_rerank_parse)(body, &m, &q->completion, &r, &e);
	json_decref(body);
	body_done(q);
	if (rc == 0)
		rc = dt_http_submit(q, &e);
	if (rc == 0) {
		dt_call_wait_done(q->completion.call);
		v = has_room(q, &e) ? dt_rank_json(&r, &q->completion, hidden, &e) : NULL;
	}
	dt_rank_release(&r);
	return v ? dt_http_reply_json(q, 200, v) : dt_http_reply_error(q, &e);
}

/* Tells the class of images, or of texts. */
static enum MHD_Result classify(struct dt_http_req *q)
{
	struct dt_api_model m;
	struct dt_api_error e;
	json_t *v;

	if (q->classify)
		return dt_http_classify(q);
	m = api_model(q);
	if (begin(q, dt_label_parse, &e) < 0)
		return dt_http_reply_error(q, &e);
	dt_call_wait_done(q->completion.call);
	v = has_room(q, &e) ? dt_label_json(&q->completion, &m, &e) : NULL;
	return v ? dt_http_reply_json(q, 200, v) : dt_http_reply_error(q, &e);
}

static enum MHD_Result models(struct dt_http_req *q)
{
	return q->classify ? dt_http_classify_models(q) : dt_http_models(q);
}

static const struct dt_route routes[] = {
	{"GET", "/", dt_http_page, DT_ROUTE_OPEN | DT_ROUTE_EARLY},
	{"GET", "/slots", dt_http_slots},
	{"GET", "/props", dt_http_props},
	{"GET", "/kv/events", dt_http_events},
	{"GET", "/health", health, DT_ROUTE_OPEN | DT_ROUTE_SPARE | DT_ROUTE_EARLY | DT_ROUTE_ANY},
	{"GET", "/version", version, DT_ROUTE_EARLY | DT_ROUTE_ANY},
	{"GET", "/metrics", metrics, DT_ROUTE_ANY},
	{"GET", "/v1/models", models, DT_ROUTE_ANY},
	{"POST", "/v1/classify", classify, DT_ROUTE_ANY},
	{"POST", "/classify", classify, DT_ROUTE_ANY},
	{"GET", "/v1/models/", dt_http_model},
	{"POST", "/v1/prefill", dt_http_prefill},
	{"GET", "/v1/role", dt_http_role},
	{"POST", "/v1/role", dt_http_set_role},
	{"POST", "/v1/load_lora_adapter", dt_http_load_adapter},
	{"POST", "/v1/unload_lora_adapter", dt_http_unload_adapter},
	{"POST", "/v1/completions", completions},
	{"POST", "/v1/chat/completions", chat},
	{"POST", "/completion", native},
	{"POST", "/completions", native},
	{"POST", "/infill", infill},
	{"POST", "/v1/responses", responses},
	{"POST", "/v1/messages", messages},
	{"POST", "/v1/messages/count_tokens", count_tokens},
	{"POST", "/v1/embeddings", embeddings},
	{"POST", "/v1/rerank", rank},
	{"POST", "/v2/rerank", rank}, /* Cohere's */
	{"POST", "/rerank", rank},
	{"POST", "/v1/score", rank},
	{"POST", "/score", rank},
	{"POST", "/tokenize", tokenize},
	{"POST", "/detokenize", detokenize},
	{"POST", "/apply-template", apply_template},
};

static bool matches(const char *path, const char *route)
{
	size_t n = strlen(route);

	return n > 1 && route[n - 1] == '/' ? !strncmp(path, route, n) && path[n] : !strcmp(path, route);
}

/* "Allow" header of a path with these methods. */
static const char *allow(bool get, bool post, bool del)
{
	static const char *const text[] = {
		NULL,	  "GET, HEAD",	       "POST",	       "GET, HEAD, POST",
		"DELETE", "GET, HEAD, DELETE", "POST, DELETE", "GET, HEAD, POST, DELETE"};

	return text[get + 2 * post + 4 * del];
}

const struct dt_route *dt_route_find(const char *method, const char *path, const char **ret_allow)
{
	const char *asked = !strcmp(method, "HEAD") ? "GET" : method;
	const size_t n = sizeof(routes) / sizeof(*routes);
	const struct dt_route *found = NULL;
	bool get = false, post = false, del = false;

	for (size_t i = 0; i < n + DT_HTTP_FILE_ROUTES; i++) {
		const struct dt_route *r = i < n ? &routes[i] : &dt_http_file_routes[i - n];

		if (!matches(path, r->path))
			continue;
		get |= !strcmp(r->method, "GET");
		post |= !strcmp(r->method, "POST");
		del |= !strcmp(r->method, "DELETE");
		if (!strcmp(asked, r->method))
			found = r;
	}
	*ret_allow = allow(get, post, del);
	return found;
}
/* SPDX-License-Identifier: Apache-2.0 */
