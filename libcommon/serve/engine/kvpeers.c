#include "serve/engine/kvpeers_priv.h"

#include "base/curl_lines.h"
#include "base/progress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROUTE	 "/v1/prefill"
#define DOWN_FOR 1.0 /* seconds for which a server is not asked after a failure */
#define LOOK_MS	 200 /* between checks for timeouts */

/* ---- the communication thread ---- */

/* Ends a get: nothing more will come. Call with the lock held. */
static void end(struct dt_kvget *g)
{
	struct dt_kvpeers *p = g->of;

	if (g->begun)
		curl_multi_remove_handle(p->multi, g->easy); /* closes the connection if it is still in use */
	g->begun = false;
	g->ended = true;
	g->peer->running--;
	p->counts.running--;
}

/* Marks the server as down for a while; logged once until it succeeds again. Call with the lock held. */
static void put_down(struct dt_kvget *g, const char *why)
{
	struct dt_kvpeer *peer = g->peer;

	peer->down_until = dt_now() + DOWN_FOR;
	if (!peer->down)
		dt_log_msg(g->of->p.log,
			   "'%s' does not compute prompts for this server: %s; they are computed here",
			   peer->name, why);
	peer->down = true;
}

/* The status, with the message of the error object if there is one. */
static const char *reason(const struct dt_kvget *g, long status, char *to, size_t room)
{
	const char *at = strstr(g->why, "\"message\"");

	at = at ? strchr(at + 9, '"') : NULL;
	if (at)
		snprintf(to, room, "%ld, %.*s", status, (int)strcspn(at + 1, "\""), at + 1);
	else
		snprintf(to, room, "status %ld", status);
	return to;
}

static void finish(struct dt_kvget *g, CURLcode code)
{
	struct dt_kvpeers *p = g->of;
	char text[DT_KVGET_REASON + 16];
	long status = 0;

	curl_easy_getinfo(g->easy, CURLINFO_RESPONSE_CODE, &status);
	pthread_mutex_lock(&p->mu);
	end(g);
	if (g->whole) {
		p->counts.seconds += dt_now() - g->began;
		if (g->peer->down)
			dt_log_msg(p->p.log, "'%s' computes prompts for this server again", g->peer->name);
		g->peer->down = false;
	} else {
		p->counts.failed++;
		put_down(g, g->failed				? g->why
			    : status && status != 200		? reason(g, status, text, sizeof(text))
			    : code == CURLE_OK || status == 200 ? "the answer ended early"
								: curl_easy_strerror(code));
	}
	pthread_mutex_unlock(&p->mu);
	p->wake(p->arg);
}

/* Makes newly received blocks visible; returns whether there are any. */
static bool tell(struct dt_kvpeers *p)
{
	struct dt_kvget *g;
	bool news = false;

	pthread_mutex_lock(&p->mu);
	TAILQ_FOREACH (g, &p->gets, in_list) {
		if (g->ready == g->seen)
			continue;
		p->counts.blocks += (uint64_t)(g->seen - g->ready);
		p->counts.shared += (uint64_t)g->shared;
		g->shared = 0;
		g->ready = g->seen;
		g->last = dt_now();
		news = true;
	}
	pthread_mutex_unlock(&p->mu);
	return news;
}

/* Starts new gets, ends late ones, frees closed ones. false: the thread shall end. */
static bool look(struct dt_kvpeers *p)
{
	struct dt_kvget *g, *next;
	const double now = dt_now();
	bool stop, news = false;

	pthread_mutex_lock(&p->mu);
	stop = p->stop;
	for (g = TAILQ_FIRST(&p->gets); g; g = next) {
		next = TAILQ_NEXT(g, in_list);
		if (!g->ended && !g->begun && !g->closed && !stop) {
			g->begun = true;
			curl_multi_add_handle(p->multi, g->easy);
		} else if (!g->ended && (g->closed || stop)) {
			end(g);
		} else if (!g->ended && now - g->last > p->p.timeout) {
			end(g);
			p->counts.failed++;
			put_down(g, "no block has come for too long");
			news = true;
		}
		if (g->ended && (g->closed || stop)) {
			TAILQ_REMOVE(&p->gets, g, in_list);
			p->used -= g->mem.bytes;
			dt_kvget_free(g);
		}
	}
	pthread_mutex_unlock(&p->mu);
	if (news)
		p->wake(p->arg);
	return !stop;
}

static void *peers_main(void *arg)
{
	struct dt_kvpeers *p = arg;
	int n;

	while (look(p)) {
		const CURLMsg *m;

		curl_multi_perform(p->multi, &n);
		if (tell(p))
			p->wake(p->arg);
		while ((m = curl_multi_info_read(p->multi, &n))) {
			char *g = NULL;

			if (m->msg != CURLMSG_DONE)
				continue;
			curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &g);
			finish((struct dt_kvget *)(void *)g, m->data.result);
		}
		curl_multi_poll(p->multi, NULL, 0, LOOK_MS, NULL);
	}
	return NULL;
}

/* ---- other threads ---- */

static size_t without_slash(const char *url)
{
	size_t n = strlen(url);

	while (n > 0 && url[n - 1] == '/')
		n--;
	return n;
}

static int add_peer(const struct dt_kvpeers *p, struct dt_kvpeer *peer, const char *url, struct dt_err *err)
{
	const int nheads = p->p.nkeys > 0 ? p->p.nkeys : 1;
	const size_t n = without_slash(url);

	peer->name = url;
	if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
		return dt_err_set(err, -EINVAL,
				  "'%s' is not the URL of a server, for example http://10.0.0.1:8000", url);
	if (asprintf(&peer->url, "%.*s" ROUTE, (int)n, url) < 0)
		peer->url = NULL;
	peer->head = calloc((size_t)nheads, sizeof(*peer->head));
	if (!peer->url || !peer->head)
		return dt_err_sys(err, -ENOMEM, "cannot send requests to '%s'", url);
	for (int i = 0; i < nheads; i++)
		if (!dt_curl_line(&peer->head[i], "Content-Type: application/json") ||
		    !dt_curl_line(&peer->head[i], "Expect:") ||
		    (p->p.nkeys > 0 && !dt_curl_bearer(&peer->head[i], p->p.key[i])))
			return dt_err_sys(err, -ENOMEM, "cannot send requests to '%s'", url);
	return 0;
}

int dt_kvpeers_open(struct dt_kvpeers **ret, const struct dt_kvpeers_params *params, void (*wake)(void *arg),
		    void *arg, struct dt_err *err)
{
	struct dt_kvpeers *p = calloc(1, sizeof(*p));
	int rc = p ? 0 : -ENOMEM;

	if (rc < 0)
		return dt_err_sys(err, rc, "cannot send requests to other servers");
	p->p = *params;
	p->wake = wake;
	p->arg = arg;
	TAILQ_INIT(&p->gets);
	pthread_mutex_init(&p->mu, NULL);
	curl_global_init(CURL_GLOBAL_DEFAULT);
	p->multi = curl_multi_init();
	p->peer = calloc((size_t)params->n, sizeof(*p->peer));
	if (!p->multi || !p->peer)
		rc = dt_err_sys(err, -ENOMEM, "cannot send requests to other servers");
	for (int i = 0; i < params->n && rc == 0; i++)
		rc = add_peer(p, &p->peer[i], params->url[i], err);
	if (rc == 0 && (rc = -pthread_create(&p->thread, NULL, peers_main, p)) < 0)
		dt_err_sys(err, rc, "cannot start the thread that sends requests to other servers");
	p->started = rc == 0;
	if (rc < 0)
		dt_kvpeers_close(p);
	else
		*ret = p;
	return rc;
}

void dt_kvpeers_close(struct dt_kvpeers *p)
{
	if (!p)
		return;
	if (p->started) {
		pthread_mutex_lock(&p->mu);
		p->stop = true;
		pthread_mutex_unlock(&p->mu);
		curl_multi_wakeup(p->multi);
		pthread_join(p->thread, NULL);
	}
	for (int i = 0; p->peer && i < p->p.n; i++) {
		for (int k = 0; p->peer[i].head && k < (p->p.nkeys > 0 ? p->p.nkeys : 1); k++)
			curl_slist_free_all(p->peer[i].head[k]);
		free(p->peer[i].head);
		free(p->peer[i].url);
	}
	free(p->peer);
	curl_multi_cleanup(p->multi);
	curl_global_cleanup();
	pthread_mutex_destroy(&p->mu);
	free(p);
}

struct dt_kvpeers_counts dt_kvpeers_counts(struct dt_kvpeers *p)
{
	struct dt_kvpeers_counts c;

	pthread_mutex_lock(&p->mu);
	c = p->counts;
	pthread_mutex_unlock(&p->mu);
	return c;
}

int dt_kvpeers_find(const struct dt_kvpeers_params *p, const char *url)
{
	const size_t n = without_slash(url);

	for (int i = 0; i < p->n; i++)
		if (without_slash(p->url[i]) == n && !memcmp(p->url[i], url, n))
			return i + 1;
	return 0;
}

/*
 * The named server if it is up, else the one with the fewest gets; of equal ones, the one that was asked
 * least. Call with the lock held.
 */
static struct dt_kvpeer *choose(struct dt_kvpeers *p, int named)
{
	struct dt_kvpeer *best = NULL;
	const double now = dt_now();

	if (named > 0 && named <= p->p.n && p->peer[named - 1].down_until <= now)
		return &p->peer[named - 1];
	for (int i = 0; i < p->p.n; i++) {
		struct dt_kvpeer *o = &p->peer[i];

		if (o->down_until <= now && (!best || o->running < best->running ||
					     (o->running == best->running && o->asked < best->asked)))
			best = o;
	}
	return best;
}

struct dt_kvget *dt_kvpeers_get(struct dt_kvpeers *p, const struct dt_kvask *a)
{
	struct dt_kvask ask = *a;
	struct dt_kvget *g = NULL;
	struct dt_kvpeer *peer;
	uint64_t room;

	pthread_mutex_lock(&p->mu);
	peer = choose(p, ask.peer);
	room = p->p.memory > p->used ? p->p.memory - p->used : 0;
	room = room > DT_KVSHARE_HEAD ? (room - DT_KVSHARE_HEAD) / p->p.block_bytes : 0;
	if ((uint64_t)(ask.to - ask.from) > room) /* the rest is computed here */
		ask.to = ask.from + (int)room;
	if (peer && ask.to > ask.from && (int64_t)(ask.to - ask.from) * p->p.block_size >= p->p.least)
		g = dt_kvget_new(p, peer, &ask);
	if (g) {
		p->used += g->mem.bytes;
		peer->running++;
		peer->asked++;
		p->counts.asked++;
		p->counts.running++;
		TAILQ_INSERT_TAIL(&p->gets, g, in_list);
	}
	pthread_mutex_unlock(&p->mu);
	if (g)
		curl_multi_wakeup(p->multi);
	return g;
}

const void *dt_kvget_next(struct dt_kvget *g, bool *ended)
{
	int ready, at;

	pthread_mutex_lock(&g->of->mu);
	ready = g->ready;
	at = g->taken;
	*ended = at == ready && g->ended;
	pthread_mutex_unlock(&g->of->mu);
	return at < ready ? dt_kvshare_data(&g->mem) + (size_t)at * g->block_bytes : NULL;
}

void dt_kvget_take(struct dt_kvget *g)
{
	pthread_mutex_lock(&g->of->mu);
	g->taken++;
	pthread_mutex_unlock(&g->of->mu);
}

void dt_kvget_close(struct dt_kvget *g)
{
	struct dt_kvpeers *p;

	if (!g)
		return;
	p = g->of;
	pthread_mutex_lock(&p->mu);
	g->closed = true;
	pthread_mutex_unlock(&p->mu);
	curl_multi_wakeup(p->multi);
}
/* SPDX-License-Identifier: Apache-2.0 */
