/*
 * Parses what the router needs of a request: model, session, prefix hashes of the prompt, and whether it must
 * ask for usage.
 */
#include "base/json.h"
#include "route/priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL, STREAM, STREAM_OPTIONS, CHOICES, MAX_TOKENS, MAX_COMPLETION, MAX_OUTPUT, PARTS };
enum { TOOLS = PARTS, SYSTEM, INSTRUCTIONS, MESSAGES, PROMPT, INPUT, N };

/* NULL: absent, or not JSON. */
static json_t *load(struct dt_route_text t)
{
	return t.s ? json_loadb(t.s, t.n, JSON_DECODE_ANY, NULL) : NULL;
}

static json_t *small(struct dt_route_text t)
{
	return t.n < 4096 ? load(t) : NULL;
}

/* Whether dt-serve takes the router's own members of a body: other routes refuse unknown keys. */
static bool takes_members(const char *target)
{
	static const char *const path[] = {
		"/v1/completions", "/v1/chat/completions", "/completion",  "/completions",
		"/infill",	   "/v1/responses",	   "/v1/messages", "/v1/embeddings"};
	const size_t n = strcspn(target, "?");
	bool takes = false;

	for (size_t i = 0; i < sizeof(path) / sizeof(*path); i++)
		takes |= strlen(path[i]) == n && !strncmp(target, path[i], n);
	return takes;
}

static void hash_prompt(struct dt_route_x *x, const struct dt_route_member *m)
{
	struct dt_prefix_chain *c = &x->r->chain;
	size_t bytes = 0;
	uint64_t salt = x->model ? dt_prefix_hash(1, x->model, strlen(x->model)) : 1;

	/* no salt by tenant: the servers see all tenants under one key, and so share caches between them */
	dt_prefix_begin(c, dt_prefix_hash(salt, x->target, strlen(x->target)));
	for (int i = PARTS; i < N; i++)
		if (m[i].value.s) {
			dt_prefix_add(c, m[i].value.s, m[i].value.n);
			bytes += m[i].value.n;
		}
	x->guess = (double)(bytes ? bytes : dt_route_buf_size(&x->body)) / 4;
	if (c->n == 0)
		return;
	x->hash = malloc((size_t)c->n * sizeof(*x->hash));
	if (x->hash)
		memcpy(x->hash, c->hash, (size_t)c->n * sizeof(*x->hash));
	x->nhash = x->hash ? c->n : 0;
	x->mark_share = (double)DT_PREFIX_BLOCK / (double)bytes;
}

/*
 * Chooses one of a name's models, by hash of the session or else of the tenant, so that each stays with one
 * model (A/B tests).
 */
static const char *choose_model(struct dt_route_x *x, const struct dt_route_name *n)
{
	double sum = 0, at;
	uint64_t key = x->session;

	if (!key && x->tenant + 1 < x->r->ntenants) {
		const char *name = x->r->tenant[x->tenant].name;

		key = dt_prefix_hash(3, name, strlen(name));
	}
	key = key ? dt_prefix_hash(key, n->name, strlen(n->name))
		  : dt_prefix_hash(x->r->id_salt, x->id, strlen(x->id));
	for (int i = 0; i < n->nto; i++)
		sum += n->to[i].weight;
	at = (double)(dt_prefix_hash(key, "", 0) >> 11) * 0x1p-53 * sum;
	for (int i = 0; i < n->nto; i++) {
		if (at < n->to[i].weight)
			return n->to[i].model;
		at -= n->to[i].weight;
	}
	return n->to[n->nto - 1].model;
}

const struct dt_route_name *dt_route_x_name(struct dt_route_x *x)
{
	const struct dt_route_conf *c = &x->r->conf;

	for (int i = 0; x->asked && i < c->nnames; i++)
		if (!strcmp(c->name[i].name, x->asked))
			return &c->name[i];
	return NULL;
}

/* Replaces a member's value in the body, or inserts the member at the front if it is absent. */
static int splice(struct dt_route_x *x, const struct dt_route_member *m, const char *with)
{
	struct dt_route_buf *to = &x->edit, from = to->n ? *to : x->body;
	const char *s = dt_route_buf_data(&from);
	size_t size = dt_route_buf_size(&from), at, skip;
	struct dt_route_buf made = {0};
	struct dt_route_member look = {.name = m->name};
	int rc;

	if (dt_route_members(s, size, &look, 1))
		return -1;
	at = look.value.s ? (size_t)(look.value.s - s) : (size_t)((const char *)memchr(s, '{', size) - s) + 1;
	skip = look.value.s ? look.value.n : 0;
	rc = dt_route_buf_add(&made, s, at);
	if (!look.value.s) {
		rc |= dt_route_buf_add(&made, "\"", 1) | dt_route_buf_add(&made, m->name, strlen(m->name));
		rc |= dt_route_buf_add(&made, "\":", 2);
	}
	rc |= dt_route_buf_add(&made, with, strlen(with));
	if (!look.value.s)
		rc |= dt_route_buf_add(&made, ",", 1);
	rc |= dt_route_buf_add(&made, s + at + skip, size - at - skip);
	dt_route_buf_release(to);
	*to = made;
	return rc;
}

static int set_model(struct dt_route_x *x, const struct dt_route_member *m)
{
	json_t *v = json_string(x->model);
	char *text = v ? json_dumps(v, JSON_ENCODE_ANY) : NULL;
	int rc = text ? splice(x, m, text) : -1;

	free(text);
	json_decref(v);
	return rc;
}

/* said: the body's model name. A shadow copy already has its model. */
static const char *name_model(struct dt_route_x *x, const char *said, const struct dt_route_member *m)
{
	const struct dt_route_name *name;

	if (!x->model) {
		x->asked = strdup(said);
		name = dt_route_x_name(x);
		x->model = x->asked ? strdup(name ? choose_model(x, name) : x->asked) : NULL;
	}
	if (!x->model || !x->asked || (strcmp(x->model, said) && set_model(x, m) < 0))
		return "out of memory";
	return NULL;
}

/*
 * Accounting and limits need the usage at the end of a stream; if the client did not ask for it, the router
 * does. null counts as absent. The size of the value does not matter: servers parse all of it.
 */
static int ask_usage(struct dt_route_x *x, const struct dt_route_member *m)
{
	json_t *o = load(m->value);
	char *text;
	int rc = 0;

	if (json_is_null(o)) {
		json_decref(o);
		o = NULL;
	} else if (m->value.s && !json_is_object(o)) {
		json_decref(o); /* left for the server to refuse */
		return 0;
	}
	if (!json_is_true(json_object_get(o, "include_usage"))) {
		o = o ? o : json_object();
		json_object_set_new(o, "include_usage", json_true());
		text = json_dumps(o, JSON_COMPACT);
		rc = text ? splice(x, m, text) : -1;
		free(text);
		x->stripped = true;
	}
	json_decref(o);
	return rc;
}

/* The integer value of a member; `otherwise` if it is absent or out of range. */
static double count_of(const struct dt_route_member *m, double otherwise)
{
	json_t *v = small(m->value);
	double n = json_is_integer(v) ? (double)json_integer_value(v) : -1;

	json_decref(v);
	return n >= 0 && n < 1e7 ? n : otherwise;
}

/* Sets the tokens to charge in advance, and the most tokens that the request itself allows. */
static void estimate(struct dt_route_x *x, const struct dt_route_member *m)
{
	double said = -1;

	for (int i = MAX_TOKENS; i <= MAX_OUTPUT; i++)
		said = count_of(&m[i], said);
	if (said > 0)
		said *= fmax(count_of(&m[CHOICES], 1), 1);
	x->asks = x->guess + fmax(said, 0);
	x->quota = x->guess + (said >= 0 ? said : x->r->balance.answer);
}

const char *dt_route_x_read(struct dt_route_x *x)
{
	struct dt_route_member m[N] = {{"model"},
				       {"stream"},
				       {"stream_options"},
				       {"n"},
				       {"max_tokens"},
				       {"max_completion_tokens"},
				       {"max_output_tokens"},
				       {"tools"},
				       {"system"},
				       {"instructions"},
				       {"messages"},
				       {"prompt"},
				       {"input"}};
	const char *why = dt_route_members(dt_route_buf_data(&x->body), dt_route_buf_size(&x->body), m, N);
	json_t *v;
	bool openai =
		!strncmp(x->target, "/v1/completions", 15) || !strncmp(x->target, "/v1/chat/completions", 20);

	if (why)
		return why;
	v = small(m[MODEL].value);
	if (json_is_string(v))
		why = name_model(x, json_string_value(v), &m[MODEL]);
	else if (m[MODEL].value.s && !json_is_null(v)) /* null counts as absent */
		why = "'model' is not a string";
	json_decref(v);
	if (why)
		return why;
	x->cached = takes_members(x->target);
	hash_prompt(x, m);
	estimate(x, m);
	v = small(m[STREAM].value);
	x->stream = json_is_true(v);
	json_decref(v);
	if (x->stream && openai && x->counts && ask_usage(x, &m[STREAM_OPTIONS]) < 0)
		return "out of memory";
	return NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
