/*
 * Lower levels of the prefix cache: evicted blocks go to host memory, computed blocks are written to a folder
 * in the background, and missing ones may be requested from a prefill server. A request whose prompt
 * continues in one of these is held back from the scheduler until its blocks have been loaded; they are
 * published in the pool as if they had been computed here. Then it is admitted like any other. No pool blocks
 * are held for it in the meantime, and whatever does not arrive is computed.
 */
#include "base/progress.h"
#include "serve/engine/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ENOUGH 0.5 /* seconds for measuring how fast tokens are computed */
#define WEIGHT 0.1 /* of a new measurement in the moving average */

static const int32_t *tokens_of(const struct dt_engine *e, int32_t b)
{
	return e->pool->tokens + (size_t)b * (size_t)e->pool->block_size;
}

/* ---- out of the pool ---- */

/* Queues block b for writing to the folder. false: all write buffers are in use. */
static bool write_out(struct dt_engine *e, int32_t b, bool wait)
{
	struct dt_engine_beyond *y = &e->beyond;
	struct dt_kvkey key;
	void *to;

	if (!y->io || y->broken || y->written[b] || !dt_kvpool_published(e->pool, b, &key))
		return true;
	to = dt_kvio_buffer(y->io, wait);
	if (!to)
		return false;
	y->written[b] = true;
	y->broken = e->p.model.read_block(e->p.model.m, b, to) < 0;
	if (y->broken) /* a rank was lost: the next step reports it */
		dt_kvio_drop(y->io, to);
	else
		dt_kvio_write(y->io, to, key, tokens_of(e, b));
	return true;
}

static void published(void *arg, int32_t b)
{
	struct dt_engine *e = arg;

	if (e->beyond.written)
		e->beyond.written[b] = false;
	if (!write_out(e, b, false))
		e->beyond.behind = true;
}

static void evicted(void *arg, int32_t b)
{
	struct dt_engine *e = arg;
	struct dt_kvkey key;
	void *to;

	(void)write_out(e, b, false); /* the last chance before eviction */
	if (!e->beyond.host || !dt_kvpool_published(e->pool, b, &key) ||
	    dt_kvhost_find(e->beyond.host, key, tokens_of(e, b)))
		return;
	to = dt_kvhost_room(e->beyond.host, key, tokens_of(e, b));
	if (e->p.model.read_block(e->p.model.m, b, to) < 0)
		dt_kvhost_forget(e->beyond.host, key, tokens_of(e, b));
}

void dt_engine_beyond_write(struct dt_engine *e, bool all)
{
	if (!e->beyond.io || e->gate.failed) /* only this thread sets it */
		return;
	e->beyond.behind = false;
	for (int32_t b = 0; b < e->pool->nblocks; b++)
		if (!write_out(e, b, all)) {
			e->beyond.behind = true;
			return;
		}
}

bool dt_engine_beyond_due(struct dt_engine *e)
{
	return e->beyond.behind && dt_kvio_has_room(e->beyond.io);
}

/* ---- into the pool ---- */

/* Whether reading a block in read_s seconds is faster than computing it. */
static bool pays(const struct dt_engine *e, double read_s)
{
	return e->p.kv_always || e->beyond.token_s == 0 || read_s < e->beyond.token_s * e->pool->block_size;
}

void dt_engine_beyond_measured(struct dt_engine *e, int tokens, double seconds)
{
	double each = seconds / tokens, *mean = &e->beyond.token_s;

	*mean = *mean > 0 ? (1 - WEIGHT) * *mean + WEIGHT * each : each;
}

/* Prompt tokens of r that may come from a cache: all but the last, whose logits are needed. */
static int findable(const struct dt_serve_req *r)
{
	return r->seq.known - 1;
}

/* Publishes the next block of r with the contents of `from`. 0, or why it was not stored. */
static int put(struct dt_engine *e, struct dt_serve_req *r, struct dt_kvplace *at, const void *from)
{
	int32_t b;
	int rc = dt_kvpool_adopt(e->pool, at, r->seq.salt, r->tokens, &b);

	if (rc <= 0)
		return rc;
	if (e->beyond.written)
		e->beyond.written[b] = r->read != NULL;
	rc = e->p.model.write_block(e->p.model.m, b, from);
	if (rc < 0) /* its rows are not valid */
		dt_kvpool_disown(e->pool, b);
	else
		e->beyond.hits += e->pool->block_size;
	return rc;
}

/* Loads consecutive blocks of r from host memory; -1: the budget is used up. */
static int from_host(struct dt_engine *e, struct dt_serve_req *r, struct dt_kvplace *at, int *budget)
{
	const int size = e->pool->block_size, n = findable(r) / size;

	while (e->beyond.host && at->n < n) {
		const int32_t *ids = r->tokens + (size_t)at->n * (size_t)size;
		const void *from = dt_kvhost_find(e->beyond.host, dt_kvkey_next(at->key, ids, size), ids);

		if (!from)
			return 0;
		if (*budget == 0)
			return -1;
		if (put(e, r, at, from) < 0)
			return 0;
		--*budget;
	}
	return 0;
}

static const void *next_block(const struct dt_serve_req *r, bool *ended)
{
	return r->read ? dt_kvread_next(r->read, ended) : dt_kvget_next(r->get, ended);
}

static void take_block(struct dt_serve_req *r)
{
	r->read_next++;
	if (r->read)
		dt_kvread_take(r->read);
	else
		dt_kvget_take(r->get);
}

/* Takes the blocks that the disk or another server has delivered; returns whether to wait for more. */
static bool from_elsewhere(struct dt_engine *e, struct dt_serve_req *r, struct dt_kvplace *at, int *budget)
{
	double most = e->beyond.token_s * (findable(r) - r->read_from * e->pool->block_size);
	bool ended = false;
	const void *from;

	while ((from = next_block(r, &ended))) {
		if (r->read_next < at->n) { /* another request has computed it in the meantime */
			take_block(r);
			continue;
		}
		if (*budget == 0)
			return true;
		if (r->read_next > at->n || put(e, r, at, from) < 0)
			return false;
		take_block(r);
		--*budget;
	}
	if (ended || r->get) /* kvpeers has its own timeout */
		return !ended;
	return e->p.kv_always || most == 0 || dt_now() - r->t_held < most;
}

static void let_go(struct dt_engine *e, struct dt_serve_req *r)
{
	dt_kvread_close(r->read);
	dt_kvget_close(r->get);
	r->read = NULL;
	r->get = NULL;
	e->beyond.held -= r->held;
	r->held = false;
}

void dt_engine_beyond_retire(struct dt_engine *e, struct dt_serve_req *r)
{
	let_go(e, r);
}

/* Starts reading the blocks behind `at` from the folder; returns whether there is something to wait for. */
static bool read_disk(struct dt_engine *e, struct dt_serve_req *r, const struct dt_kvplace *at, int n)
{
	const size_t first = (size_t)at->n * (size_t)e->pool->block_size;

	if (r->looked_up || !e->beyond.io || at->n >= n || !pays(e, dt_kvio_counts(e->beyond.io).read_s))
		return false;
	r->looked_up = true;
	r->read = dt_kvio_read(e->beyond.io, at->key, r->tokens + first, n - at->n);
	return r->read != NULL;
}

/* Asks a prefill server, once, to compute the missing blocks if there are enough of them. */
static bool ask_peer(struct dt_engine *e, struct dt_serve_req *r, const struct dt_kvplace *at, int n)
{
	const struct dt_served_adapter *a = r->call->adapter;
	const struct dt_kvask ask = {.peer = r->call->peer,
				     .tenant = r->call->tenant,
				     .salt = r->call->salt,
				     .adapter = a ? a->name : NULL,
				     .sum = a ? a->sum : 0,
				     .tokens = r->tokens,
				     .from = at->n,
				     .to = n};

	if (r->asked || !e->beyond.peers || at->n >= n)
		return false;
	r->asked = true;
	r->get = dt_kvpeers_get(e->beyond.peers, &ask);
	return r->get != NULL;
}

/* Continues with a held request; returns whether it is ready to enter the scheduler. */
static bool bring(struct dt_engine *e, struct dt_serve_req *r, int *budget)
{
	const int n = findable(r) / e->pool->block_size;
	struct dt_kvplace at;

	if (r->seq.leader)
		return !dt_serve_req_of(r->seq.leader)->held;
	at = dt_kvpool_seek(e->pool, r->seq.salt, r->tokens, findable(r));
	if ((r->read || r->get) && from_elsewhere(e, r, &at, budget))
		return false;
	if (r->get)
		return true;
	dt_kvread_close(r->read);
	r->read = NULL;
	if (from_host(e, r, &at, budget) < 0)
		return false;
	r->read_from = r->read_next = at.n;
	r->t_held = dt_now();
	return !read_disk(e, r, &at, n) && !ask_peer(e, r, &at, n);
}

/* Whether r may find blocks outside the pool, or waits for a leader that may. */
static bool may_find(struct dt_engine *e, const struct dt_serve_req *r)
{
	const struct dt_engine_beyond *y = &e->beyond;

	if (!y->io && !y->host && !y->peers)
		return false;
	if (r->seq.leader)
		return dt_serve_req_of(r->seq.leader)->held;
	return r->seq.tokens && r->seq.score_end == 0 && findable(r) >= e->pool->block_size;
}

bool dt_engine_beyond_hold(struct dt_engine *e, struct dt_serve_req *r)
{
	int idle;

	if (!may_find(e, r))
		return false;
	if (!r->seq.leader) {
		e->beyond.queries += findable(r);
		if (dt_kvpool_match(e->pool, r->seq.salt, r->tokens, findable(r), &idle) ==
		    findable(r) / e->pool->block_size)
			return false;
	}
	r->held = true;
	e->beyond.held++;
	return true;
}

static void count(struct dt_engine *e)
{
	const struct dt_engine_beyond *y = &e->beyond;
	struct dt_beyond_counts c = {
		.queries = y->queries, .hits = y->hits, .compute_s = y->token_s * e->pool->block_size};

	if (!y->io && !y->host && !y->peers)
		return;
	if (y->host)
		c.host_blocks = dt_kvhost_used(y->host);
	if (y->io)
		c.disk = dt_kvio_counts(y->io);
	if (y->peers) {
		c.asks = true;
		c.peers = dt_kvpeers_counts(y->peers);
	}
	dt_metrics_beyond(&e->metrics, &c);
}

void dt_engine_beyond_bring(struct dt_engine *e)
{
	/* While others decode: at most as many blocks as one step could have computed. */
	int budget = e->sched.nrunning > 0 ? e->p.max_tokens / e->pool->block_size + 1 : INT32_MAX;
	struct dt_serve_req *r, *next;

	for (r = e->beyond.held > 0 ? TAILQ_FIRST(&e->live) : NULL; r; r = next) {
		next = TAILQ_NEXT(r, in_list);
		if (!r->held || !bring(e, r, &budget))
			continue;
		let_go(e, r);
		dt_engine_enter(e, r);
	}
	count(e);
}

/* ---- opening and closing ---- */

static void wake(void *arg)
{
	struct dt_engine *e = arg;

	pthread_mutex_lock(&e->gate.mu);
	pthread_cond_signal(&e->gate.work);
	pthread_mutex_unlock(&e->gate.mu);
}

int dt_engine_beyond_open(struct dt_engine *e, struct dt_err *err)
{
	struct dt_engine_beyond *y = &e->beyond;
	int rc = 0;

	if (!e->p.kv_host && !e->p.kv_disk && !e->p.peers)
		return 0;
	if (e->p.kv_host)
		rc = dt_kvhost_open(&y->host, e->p.kv_host, e->p.model.block_bytes, e->p.block_size, err);
	if (rc == 0 && e->p.kv_disk) {
		y->written = calloc((size_t)e->p.blocks, sizeof(*y->written));
		rc = y->written ? dt_kvio_open(&y->io, e->p.kv_disk, wake, e, err)
				: dt_err_sys(err, -ENOMEM, "cannot start the engine");
	}
	if (rc == 0 && e->p.peers)
		rc = dt_kvpeers_open(&y->peers, e->p.peers, wake, e, err);
	e->pool->watch = (struct dt_kvwatch){.arg = e, .published = published, .evicted = evicted};
	return rc;
}

void dt_engine_beyond_close(struct dt_engine *e)
{
	dt_kvio_close(e->beyond.io);
	dt_kvpeers_close(e->beyond.peers);
	dt_kvhost_close(e->beyond.host);
	free(e->beyond.written);
}

/*
 * Measures how long a block of tokens takes to compute, in blocks that are still free; the first pass is a
 * warm-up.
 */
void dt_engine_beyond_measure(struct dt_engine *e)
{
	struct dt_engine_buffers *s = e->step;
	int n = e->p.block_size;
	struct dt_err err;
	double t0, took = 0;

	n = n < e->p.max_tokens ? n : e->p.max_tokens;
	n = n < e->p.max_len ? n : e->p.max_len;
	if ((!e->beyond.io && !e->beyond.host) || e->p.kv_always)
		return;
	for (int i = 0; i < n; i++) {
		s->ids[i] = 0;
		s->pos[i] = i;
		s->slot[i] = i;
	}
	s->q_start[0] = 0;
	s->q_start[1] = s->kv_len[0] = n;
	s->table[0] = 0;
	s->batch.nseq = s->batch.max_blocks = 1;
	s->batch.ntokens = n;
	s->batch.nwant = 0;
	s->batch.draw = NULL;
	for (int i = 0; i < 2 && took < ENOUGH; i++) {
		t0 = dt_now();
		if (e->p.model.forward(e->p.model.m, &s->batch, e->out.logits, &err) < 0)
			return; /* a request will report it */
		took = dt_now() - t0;
	}
	e->beyond.token_s = took / n;
}
/* SPDX-License-Identifier: Apache-2.0 */
