/* Creates and frees the state of a request. */
#include "route/priv.h"

#include "base/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- creation ---- */

static void set_id(struct dt_route_x *x, const struct dt_route_head *h)
{
	struct dt_route_text given = dt_route_header(h, "x-request-id");
	bool ok = given.n > 0 && given.n < sizeof(x->id);

	for (size_t i = 0; i < given.n && ok; i++)
		ok = given.s[i] > 0x20 && given.s[i] < 0x7f && given.s[i] != '"';
	if (ok)
		snprintf(x->id, sizeof(x->id), "%.*s", (int)given.n, given.s);
	else
		snprintf(x->id, sizeof(x->id), "req-%016llx%08llx", (unsigned long long)x->r->id_salt,
			 (unsigned long long)x->r->next_id++);
}

/* Whether a header has a client's key. Anthropic's clients use the second. */
static bool is_key(struct dt_route_text name)
{
	return dt_route_is(name, "authorization") || dt_route_is(name, "x-api-key");
}

static void add_header(struct dt_route_buf *to, struct dt_route_text name, struct dt_route_text v)
{
	dt_route_buf_add(to, name.s, name.n);
	dt_route_buf_add(to, ": ", 2);
	dt_route_buf_add(to, v.s, v.n);
	dt_route_buf_add(to, "\r\n", 2);
}

static void copy_headers(struct dt_route_x *x, const struct dt_route_head *h)
{
	for (int i = 0; i < h->n; i++) {
		struct dt_route_text name = h->header[i].name, v = h->header[i].value;

		if (is_key(name) && x->r->conf.keys.nkeys == 0)
			add_header(&x->key, name, v);
		if (dt_route_hop_by_hop(h, name) || dt_route_is(name, "host") || is_key(name) ||
		    dt_route_is(name, "content-length") || dt_route_is(name, "expect") ||
		    dt_route_is(name, "x-request-id"))
			continue;
		add_header(&x->head, name, v);
	}
	dt_route_buf_add(&x->head, "X-Request-Id: ", 14);
	dt_route_buf_add(&x->head, x->id, strlen(x->id));
	dt_route_buf_add(&x->head, "\r\n", 2);
}

struct dt_route_x *dt_route_x_new(struct dt_router *r, struct dt_route_client *c,
				  const struct dt_route_head *h, int tenant)
{
	struct dt_route_x *x = calloc(1, sizeof(*x));
	struct dt_route_text session = dt_route_header(h, "x-session-id");

	if (!x)
		return NULL;
	x->r = r;
	x->client = c;
	x->tenant = tenant;
	x->begun = dt_now();
	x->target = strndup(h->target.s, h->target.n);
	x->counts = r->conf.books || (tenant < r->ntenants && r->tenant[tenant].tokens.rate > 0);
	if (session.n > 0)
		x->session = dt_prefix_hash(5, session.s, session.n) | 1;
	set_id(x, h);
	copy_headers(x, h);
	TAILQ_INSERT_TAIL(&r->all, x, in_all);
	r->nall++;
	if (!x->target) {
		dt_route_x_free(x);
		return NULL;
	}
	return x;
}

void dt_route_x_count(struct dt_route_x *x)
{
	const int64_t holds = (int64_t)(x->body.n + x->edit.n + x->held.n + dt_route_buf_size(&x->event));

	x->r->memory += holds - x->holds;
	x->holds = holds;
}

void dt_route_x_free(struct dt_route_x *x)
{
	struct dt_router *r = x->r;

	for (int i = 0; i < 2; i++)
		if (x->line[i]) {
			struct dt_route_line *l = x->line[i];

			x->line[i] = NULL;
			dt_route_line_leave(l, -1);
			dt_route_line_close(l);
		}
	if (x->state == DT_X_QUEUED) {
		TAILQ_REMOVE(&r->queue, x, in_list);
		r->tenant[x->tenant].waiting--;
		r->nqueue--;
	}
	if (x->timer_set)
		event_del(&x->timer);
	TAILQ_REMOVE(&r->all, x, in_all);
	r->nall--;
	r->memory -= x->holds;
	if (x->client)
		x->client->x = NULL;
	dt_route_buf_release(&x->head);
	dt_route_buf_release(&x->key);
	dt_route_buf_release(&x->body);
	dt_route_buf_release(&x->edit);
	dt_route_buf_release(&x->answer_head);
	dt_route_buf_release(&x->held);
	dt_route_buf_release(&x->event);
	free(x->target);
	free(x->asked);
	free(x->model);
	free(x->hash);
	x->state = DT_X_OVER;
	dt_route_discard(r, &x->garbage);
}
/* SPDX-License-Identifier: Apache-2.0 */
