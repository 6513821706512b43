/*
 * Messages between ranks of one machine. Every ordered pair of ranks has a channel in shared memory: a ring
 * of slots, one message each, so the receiver finds messages in the order they were sent.
 *
 * The payload of a small message is in its slot. A larger message is copied once: by the receiver from a
 * registered source, or by the sender into a registered destination. With neither registered it is copied
 * through the channel's two staging buffers, one message at a time.
 *
 *   sender      POSTED ................ (PUSH: copies, DONE) .................. PULL, STAGE: frees the slot
 *   receiver            PULL | PUSH | STAGE ... (PULL, STAGE: copies, DONE) ... PUSH: frees the slot
 *
 * At most SLOTS messages between two ranks can wait to be received; further ones wait in the sender.
 */
#include "comm/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SLOTS  32
#define INLINE ((size_t)2048)
#define CHUNK  ((size_t)64 << 10)
#define WORK   ((size_t)1 << 20) /* bytes copied before other operations are stepped */
#define STREAM ((size_t)4 << 20) /* larger messages are copied with non-temporal stores */

enum slot_state { FREE, POSTED, PULL, PUSH, STAGE, DONE };

struct slot {
	_Alignas(128) _Atomic int state;
	_Atomic uint64_t ticket; /* number of messages sent before it */
	uint64_t group;
	int tag;
	size_t bytes;
	struct dt_comm_offer src, dst;
	_Alignas(128) _Atomic uint64_t wrote;
	_Alignas(128) _Atomic uint64_t read; /* chunks of a staged message */
	_Alignas(128) char data[INLINE];
};

struct channel {
	_Alignas(128) _Atomic uint64_t posted;
	uint64_t staging; /* ticket + 1 of the message being staged; written by the sender alone */
	struct slot slot[SLOTS];
	_Alignas(128) char buf[2][CHUNK];
};

struct dt_comm_chans {
	struct channel *c; /* [local_size][local_size]: from, to */
	size_t bytes;
	int n, me;
	uint64_t *next; /* [local_size]: tickets given to messages to that rank */
};

int dt_comm_chans_open(struct dt_world *w, struct dt_err *err)
{
	struct dt_comm_chans *k = calloc(1, sizeof(*k));
	size_t n = (size_t)w->info.local_size;
	void *base;
	int rc;

	if (k)
		k->next = calloc(n, sizeof(*k->next));
	if (!k || !k->next) {
		free(k);
		return dt_err_sys(err, -ENOMEM, "channels of %zu ranks", n);
	}
	k->bytes = n * n * sizeof(struct channel);
	rc = dt_comm_shared_map(w, w->node, w->node_ranks, (int)n, k->bytes, &base, err);
	if (rc) {
		free(k->next);
		free(k);
		return rc;
	}
	k->c = base;
	k->n = (int)n;
	k->me = w->info.local_rank;
	w->chans = k;
	return 0;
}

void dt_comm_chans_close(struct dt_world *w)
{
	if (!w->chans)
		return;
	munmap(w->chans->c, w->chans->bytes);
	free(w->chans->next);
	free(w->chans);
	w->chans = NULL;
}

static struct channel *channel(const struct dt_comm_req *r, bool out)
{
	struct dt_comm_chans *k = r->c->w->chans;
	int peer = r->c->local[r->op.root];

	return &k->c[out ? k->me * k->n + peer : peer * k->n + k->me];
}

static size_t bytes_of(const struct dt_comm_req *r)
{
	return r->op.n * (size_t)dt_dtype_size(r->op.t);
}

static int get(const struct slot *s)
{
	return atomic_load_explicit(&s->state, memory_order_acquire);
}

static void set(struct slot *s, int state)
{
	atomic_store_explicit(&s->state, state, memory_order_release);
}

static uint64_t ticket(const struct slot *s)
{
	return atomic_load_explicit(&s->ticket, memory_order_relaxed);
}

static struct dt_comm_chan_state *state(const struct dt_comm_req *r)
{
	return r->state;
}

/* Copies the next WORK bytes; returns whether the message is complete. */
static bool copy(struct dt_comm_req *r, char *dst, const char *src, size_t bytes)
{
	size_t m = bytes - state(r)->moved < WORK ? bytes - state(r)->moved : WORK;

	if (bytes >= STREAM)
		dt_comm_copy_stream(dst + state(r)->moved, src + state(r)->moved, m);
	else
		memcpy(dst + state(r)->moved, src + state(r)->moved, m);
	state(r)->moved += m;
	return state(r)->moved == bytes;
}

static int post(struct dt_comm_req *r, struct channel *c, struct slot *s)
{
	size_t bytes = bytes_of(r);

	/* posted in the order of sending, even if a later slot is free earlier */
	if (atomic_load_explicit(&c->posted, memory_order_relaxed) != state(r)->ticket || get(s) != FREE)
		return 0;
	atomic_store_explicit(&s->ticket, state(r)->ticket, memory_order_relaxed);
	s->group = r->c->id;
	s->tag = r->op.tag;
	s->bytes = bytes;
	s->src.region = -1;
	atomic_store_explicit(&s->wrote, 0, memory_order_relaxed);
	atomic_store_explicit(&s->read, 0, memory_order_relaxed);
	if (bytes > INLINE)
		s->src = dt_comm_region_find(r->c->w, r->op.src, bytes);
	else if (bytes)
		memcpy(s->data, r->op.src, bytes);
	set(s, POSTED);
	atomic_store_explicit(&c->posted, state(r)->ticket + 1, memory_order_release);
	state(r)->slot = (int)(state(r)->ticket % SLOTS);
	return bytes <= INLINE;
}

/* Copies chunks into the staging buffers that the receiver has emptied. */
static void stage_out(struct dt_comm_req *r, struct channel *c, struct slot *s)
{
	uint64_t k = atomic_load_explicit(&s->wrote, memory_order_relaxed);

	if (c->staging && c->staging != state(r)->ticket + 1)
		return;
	c->staging = state(r)->ticket + 1;
	for (; k * CHUNK < s->bytes && k - atomic_load_explicit(&s->read, memory_order_acquire) < 2; k++) {
		size_t m = s->bytes - k * CHUNK < CHUNK ? s->bytes - k * CHUNK : CHUNK;

		memcpy(c->buf[k & 1], (const char *)r->op.src + k * CHUNK, m);
		atomic_store_explicit(&s->wrote, k + 1, memory_order_release);
	}
}

static int step_send(struct dt_comm_req *r, struct dt_err *err)
{
	struct channel *c = channel(r, true);
	struct slot *s = &c->slot[state(r)->ticket % SLOTS];
	char *dst;
	int rc;

	if (state(r)->slot < 0)
		return post(r, c, s);
	switch (get(s)) {
	case PUSH:
		rc = dt_comm_region_reach(r->c->w, r->c->local[r->op.root], &s->dst, &dst, err);
		if (rc)
			return rc;
		if (!copy(r, dst, r->op.src, s->bytes))
			return 0;
		set(s, DONE); /* the receiver frees it */
		return 1;
	case STAGE:
		stage_out(r, c, s);
		return 0;
	case DONE:
		if (c->staging == state(r)->ticket + 1)
			c->staging = 0;
		set(s, FREE);
		return 1;
	default:
		return 0;
	}
}

/* Whether no earlier receive waits for the same sender and tag: those match first. */
static bool is_first(const struct dt_comm_req *r)
{
	for (const struct dt_comm_req *q = r->c->head; q && q != r; q = q->next)
		if (q->op.kind == DT_COMM_RECV && q->t == r->t && state(q)->slot < 0 &&
		    q->op.root == r->op.root && q->op.tag == r->op.tag)
			return false;
	return true;
}

static int match(struct dt_comm_req *r, struct channel *c, struct dt_err *err)
{
	uint64_t posted = atomic_load_explicit(&c->posted, memory_order_acquire);
	size_t room = bytes_of(r);
	struct slot *s;
	int best = -1;

	if (posted == state(r)->seen || !is_first(r))
		return 0;
	state(r)->seen = posted;
	for (int i = 0; i < SLOTS; i++) {
		s = &c->slot[i];
		/* One posted since may follow one whose slot was still free when it was looked at. */
		if (get(s) == POSTED && ticket(s) < posted && s->group == r->c->id && s->tag == r->op.tag &&
		    (best < 0 || ticket(s) < ticket(&c->slot[best])))
			best = i;
	}
	if (best < 0)
		return 0;
	s = &c->slot[best];
	if (s->bytes > room)
		return dt_err_set(err, -EMSGSIZE, "receive '%s': a message of %zu bytes for a buffer of %zu",
				  r->op.what, s->bytes, room);
	state(r)->slot = best;
	if (s->bytes <= INLINE) {
		if (s->bytes)
			memcpy(r->op.dst, s->data, s->bytes);
		set(s, FREE);
		return 1;
	}
	s->dst.region = -1;
	if (s->src.region < 0)
		s->dst = dt_comm_region_find(r->c->w, r->op.dst, s->bytes);
	set(s, s->src.region >= 0 ? PULL : s->dst.region >= 0 ? PUSH : STAGE);
	return 0;
}

static int step_recv(struct dt_comm_req *r, struct dt_err *err)
{
	struct channel *c = channel(r, false);
	struct slot *s;
	char *src;
	int rc;

	if (state(r)->slot < 0) {
		rc = match(r, c, err);
		if (rc || state(r)->slot < 0)
			return rc;
	}
	s = &c->slot[state(r)->slot];
	switch (get(s)) {
	case PULL:
		rc = dt_comm_region_reach(r->c->w, r->c->local[r->op.root], &s->src, &src, err);
		if (rc)
			return rc;
		if (!copy(r, r->op.dst, src, s->bytes))
			return 0;
		set(s, DONE); /* the sender frees it */
		return 1;
	case STAGE:
		for (uint64_t k = state(r)->moved / CHUNK;
		     k < atomic_load_explicit(&s->wrote, memory_order_acquire); k++) {
			size_t m = s->bytes - state(r)->moved < CHUNK ? s->bytes - state(r)->moved : CHUNK;

			memcpy((char *)r->op.dst + state(r)->moved, c->buf[k & 1], m);
			state(r)->moved += m;
			atomic_store_explicit(&s->read, k + 1, memory_order_release);
		}
		if (state(r)->moved < s->bytes)
			return 0;
		set(s, DONE);
		return 1;
	case DONE: /* pushed */
		set(s, FREE);
		return 1;
	default:
		return 0;
	}
}

static int chan_start(struct dt_comm_req *r, struct dt_err *err)
{
	struct dt_comm_chans *k = r->c->w->chans;

	state(r)->slot = -1;
	if (r->op.kind == DT_COMM_SEND)
		state(r)->ticket = k->next[r->c->local[r->op.root]]++;
	return 0;
}

static int chan_step(struct dt_comm_req *r, struct dt_err *err)
{
	return r->op.kind == DT_COMM_SEND ? step_send(r, err) : step_recv(r, err);
}

static size_t chan_progress(const struct dt_comm_req *r)
{
	return state(r)->moved;
}

const struct dt_comm_transport dt_comm_transport_chan = {
	.name = "chan",
	.state = sizeof(struct dt_comm_chan_state),
	.start = chan_start,
	.step = chan_step,
	.progress = chan_progress,
};
/* SPDX-License-Identifier: Apache-2.0 */
