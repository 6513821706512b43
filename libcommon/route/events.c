/*
 * Exact cache index: dt-serve reports which marks of earlier requests were stored in its cache or removed
 * (GET /kv/events, polled); the marks are the hashes of the prefix index. For a server without this route,
 * the index contains only what was sent to it.
 */
#include "base/progress.h"
#include "route/priv.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MANY 16 /* number of servers above which each is polled less often */

static void apply(struct dt_route_server *s, const json_t *event, double now)
{
	const char *type = json_string_value(json_object_get(event, "type"));
	const json_t *names = json_object_get(event, "names");
	bool stored = type && !strcmp(type, "BlockStored");

	if (!stored && (!type || strcmp(type, "BlockRemoved")))
		return;
	for (size_t i = 0; i < json_array_size(names); i++) {
		const char *name = json_string_value(json_array_get(names, i));
		uint64_t hash = name ? strtoull(name, NULL, 16) : 0;

		if (hash && stored)
			dt_prefix_store(s->r->prefix, hash, s->number, now);
		else if (hash)
			dt_prefix_remove(s->r->prefix, hash, s->number);
	}
}

static void on_events(void *arg, int status, const char *body, size_t n)
{
	struct dt_route_server *s = arg;
	json_t *o = status == 200 && s->r->prefix ? json_loadb(body, n, 0, NULL) : NULL;
	const char *next = json_string_value(json_object_get(o, "next"));
	const json_t *events = json_object_get(o, "events");
	double now = dt_now();
	int more = s->r->balance.n / MANY;

	s->asking = NULL;
	s->next_events = now + s->r->conf.events_interval * (more > 1 ? more : 1);
	if (!next || strlen(next) >= sizeof(s->events_at)) { /* no such route, or the connection was lost */
		dt_route_events_stop(s);
		s->next_events = now + (status ? s->r->conf.health_interval * MANY : 1);
		json_decref(o);
		return;
	}
	if (!s->tells || json_is_true(json_object_get(o, "cleared")))
		dt_prefix_forget(s->r->prefix, s->number);
	s->tells = true;
	dt_prefix_exact(s->r->prefix, s->number, true);
	snprintf(s->events_at, sizeof(s->events_at), "%s", next);
	for (size_t i = 0; i < json_array_size(events); i++)
		apply(s, json_array_get(events, i), now);
	json_decref(o);
}

void dt_route_events_stop(struct dt_route_server *s)
{
	if (s->asking)
		dt_route_fetch_cancel(s->asking);
	s->asking = NULL;
	if (s->tells && s->r->prefix)
		dt_prefix_exact(s->r->prefix, s->number, false);
	s->tells = false;
	s->next_events = 0;
	*s->events_at = '\0';
}

void dt_route_events_tick(struct dt_route_server *s, double now)
{
	char path[100];

	if (!s->r->balance.prefix || s->r->conf.events_interval == 0) {
		dt_route_events_stop(s);
		return;
	}
	if (!s->up || s->gone || s->role == DT_ROUTE_PREFILLS || s->asking || now < s->next_events)
		return;
	for (const char *c = s->events_at; *c; c++) /* it becomes part of our request */
		if (!strchr("0123456789abcdef.", *c))
			*s->events_at = '\0';
	snprintf(path, sizeof(path), "/kv/events%s%s", *s->events_at ? "?after=" : "", s->events_at);
	s->asking = dt_route_fetch(s->r, &s->conf, path, s->r->conf.health_timeout, on_events, s);
	if (!s->asking)
		s->next_events = now + 1;
}

/* Writes the member kv_marks of a body, with a trailing comma; `text` has room for x->nhash marks. */
size_t dt_route_events_marks(const struct dt_route_x *x, char *text)
{
	static const char digit[] = "0123456789abcdef";
	char *at = text + sprintf(text, "\"kv_marks\":{\"share\":%.9f,\"names\":\"", x->mark_share);

	for (int i = 0; i < x->nhash; i++)
		for (int k = 60; k >= 0; k -= 4)
			*at++ = digit[x->hash[i] >> k & 15];
	memcpy(at, "\"},", 3);
	return (size_t)(at + 3 - text);
}
/* SPDX-License-Identifier: Apache-2.0 */
