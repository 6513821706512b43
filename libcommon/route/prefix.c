#include "route/prefix.h"

#include <stdlib.h>
#include <string.h>

#define NONE	 UINT32_MAX
#define WORDS	 (DT_PREFIX_SERVERS / 64)
#define BELIEVED 60.f /* seconds for which an exact server is assumed to have what was sent to it */

struct entry {
	uint64_t hash;
	uint64_t seen[WORDS];  /* one bit a server: the block was sent to it */
	uint64_t sure[WORDS];  /* one bit a server: it has reported the block as stored */
	uint32_t newer, older; /* LRU list; free entries are linked by `older` */
	float used;
};

struct dt_prefix {
	struct entry *entry; /* [cap] */
	uint32_t *slot;	     /* [nslot] entry + 1; 0: free. Linear probing, at most half full */
	uint32_t cap, nslot, n, newest, oldest, free;
	double age, start;
	void (*dropped)(void *arg, uint64_t hash);
	void *arg;
	uint64_t exact[WORDS]; /* servers that report their cache events */
};

struct dt_prefix *dt_prefix_new(uint32_t cap, double age)
{
	struct dt_prefix *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->cap = cap;
	for (p->nslot = 64; p->nslot < 2 * cap;)
		p->nslot *= 2;
	p->entry = calloc(cap, sizeof(*p->entry));
	p->slot = calloc(p->nslot, sizeof(*p->slot));
	p->age = age;
	p->newest = p->oldest = p->free = NONE;
	p->start = -1;
	if (!p->entry || !p->slot) {
		dt_prefix_free(p);
		return NULL;
	}
	return p;
}

void dt_prefix_free(struct dt_prefix *p)
{
	if (p) {
		free(p->entry);
		free(p->slot);
	}
	free(p);
}

void dt_prefix_watch(struct dt_prefix *p, void (*dropped)(void *arg, uint64_t hash), void *arg)
{
	p->dropped = dropped;
	p->arg = arg;
}

uint32_t dt_prefix_blocks(const struct dt_prefix *p)
{
	return p->n;
}

/* ---- hashes ---- */

static uint64_t mix(uint64_t h, uint64_t v)
{
	__uint128_t m = (__uint128_t)(h ^ v) * 0x9e3779b97f4a7c15u;

	return (uint64_t)(m >> 64) ^ (uint64_t)m ^ (h << 1 | h >> 63);
}

uint64_t dt_prefix_hash(uint64_t h, const void *data, size_t n)
{
	const unsigned char *s = data;
	uint64_t v;

	for (; n >= 8; s += 8, n -= 8) {
		memcpy(&v, s, 8);
		h = mix(h, v);
	}
	v = 0;
	memcpy(&v, s, n);
	return mix(mix(h, v), n + 1);
}

void dt_prefix_begin(struct dt_prefix_chain *c, uint64_t salt)
{
	c->n = 0;
	c->nrest = 0;
	c->state = mix(0x2545f4914f6cdd1du, salt);
}

static void block(struct dt_prefix_chain *c, const unsigned char *s)
{
	if (c->n == DT_PREFIX_DEEPEST)
		return;
	c->state = dt_prefix_hash(c->state, s, DT_PREFIX_BLOCK);
	c->hash[c->n++] = c->state ? c->state : 1;
}

void dt_prefix_add(struct dt_prefix_chain *c, const void *data, size_t n)
{
	const unsigned char *s = data;

	while (n > 0 && c->n < DT_PREFIX_DEEPEST) {
		size_t take = DT_PREFIX_BLOCK - c->nrest;

		if (c->nrest == 0 && n >= DT_PREFIX_BLOCK) {
			block(c, s);
			take = DT_PREFIX_BLOCK;
		} else {
			take = n < take ? n : take;
			memcpy(c->rest + c->nrest, s, take);
			c->nrest += take;
			if (c->nrest == DT_PREFIX_BLOCK) {
				block(c, c->rest);
				c->nrest = 0;
			}
		}
		s += take;
		n -= take;
	}
}

/* ---- the table ---- */

static uint32_t home(const struct dt_prefix *p, uint64_t hash)
{
	return (uint32_t)(mix(hash, 0x51ed27) >> 20) & (p->nslot - 1);
}

/* The slot of this hash, or the free slot where it would go. */
static uint32_t slot_of(const struct dt_prefix *p, uint64_t hash)
{
	uint32_t i = home(p, hash);

	while (p->slot[i] && p->entry[p->slot[i] - 1].hash != hash)
		i = (i + 1) & (p->nslot - 1);
	return i;
}

static void unlink_entry(struct dt_prefix *p, uint32_t e)
{
	struct entry *v = &p->entry[e];

	if (v->newer != NONE)
		p->entry[v->newer].older = v->older;
	else
		p->newest = v->older;
	if (v->older != NONE)
		p->entry[v->older].newer = v->newer;
	else
		p->oldest = v->newer;
}

static void link_newest(struct dt_prefix *p, uint32_t e)
{
	struct entry *v = &p->entry[e];

	v->newer = NONE;
	v->older = p->newest;
	if (p->newest != NONE)
		p->entry[p->newest].newer = e;
	else
		p->oldest = e;
	p->newest = e;
}

/* Empties a slot and moves up the entries that it had displaced. */
static void clear_slot(struct dt_prefix *p, uint32_t i)
{
	uint32_t mask = p->nslot - 1;

	for (uint32_t j = i;;) {
		uint32_t at;

		p->slot[i] = 0;
		do {
			j = (j + 1) & mask;
			if (!p->slot[j])
				return;
			at = home(p, p->entry[p->slot[j] - 1].hash);
		} while (((j - at) & mask) < ((j - i) & mask)); /* its home slot is behind i: it stays */
		p->slot[i] = p->slot[j];
		i = j;
	}
}

static void drop_entry(struct dt_prefix *p, uint32_t e)
{
	unlink_entry(p, e);
	clear_slot(p, slot_of(p, p->entry[e].hash));
	p->entry[e].older = p->free;
	p->free = e;
	p->n--;
}

/* The entry of this hash; created if there is none. */
static uint32_t touch(struct dt_prefix *p, uint64_t hash)
{
	uint32_t i = slot_of(p, hash), e;

	if (p->slot[i]) {
		unlink_entry(p, p->slot[i] - 1);
		link_newest(p, p->slot[i] - 1);
		return p->slot[i] - 1;
	}
	if (p->n == p->cap) {
		if (p->dropped)
			p->dropped(p->arg, p->entry[p->oldest].hash);
		drop_entry(p, p->oldest);
		i = slot_of(p, hash);
	}
	if (p->free != NONE) {
		e = p->free;
		p->free = p->entry[e].older;
	} else {
		e = p->n;
	}
	p->n++;
	p->slot[i] = e + 1;
	p->entry[e] = (struct entry){.hash = hash};
	link_newest(p, e);
	return e;
}

/* Seconds since the first use, which fit a float. */
static float clock_of(struct dt_prefix *p, double now)
{
	if (p->start < 0)
		p->start = now;
	return (float)(now - p->start);
}

/* The servers of word w that have this block; used: seconds since its last use. */
static uint64_t there(const struct dt_prefix *p, const struct entry *v, float used, int w)
{
	uint64_t exact = p->exact[w];

	return (used <= p->age ? v->seen[w] & ~exact : 0) |
	       (exact & (v->sure[w] | (used <= BELIEVED ? v->seen[w] : 0)));
}

int dt_prefix_match(struct dt_prefix *p, const uint64_t *hash, int n, double now, int *depth)
{
	float t = clock_of(p, now);
	uint64_t alive[WORDS];
	int i = 0, deepest = 0;

	memset(alive, 0xff, sizeof(alive));
	memset(depth, 0, DT_PREFIX_SERVERS * sizeof(*depth));
	for (; i <= n; i++) {
		uint32_t s = i < n ? p->slot[slot_of(p, hash[i])] : 0;
		const struct entry *v = s ? &p->entry[s - 1] : NULL;
		uint64_t any = 0;

		for (int w = 0; w < WORDS; w++) {
			uint64_t kept = v ? alive[w] & there(p, v, t - v->used, w) : 0;

			for (uint64_t lost = i > 0 ? alive[w] & ~kept : 0; lost; lost &= lost - 1) {
				depth[w * 64 + __builtin_ctzll(lost)] = i;
				deepest = i;
			}
			alive[w] = kept;
			any |= kept;
		}
		if (!any)
			break;
	}
	return deepest;
}

void dt_prefix_insert(struct dt_prefix *p, const uint64_t *hash, int n, int server, double now)
{
	float t = clock_of(p, now);

	for (int i = n - 1; i >= 0; i--) { /* in reverse: the beginning must be the newest */
		struct entry *v = &p->entry[touch(p, hash[i])];

		v->seen[server / 64] |= (uint64_t)1 << server % 64;
		v->used = t;
	}
}

/* Removes the server from the entry; drops the entry if it has no server left. */
static void take_from(struct dt_prefix *p, uint32_t e, int server)
{
	struct entry *v = &p->entry[e];
	uint64_t any = 0, bit = (uint64_t)1 << server % 64;

	v->seen[server / 64] &= ~bit;
	v->sure[server / 64] &= ~bit;
	for (int w = 0; w < WORDS; w++)
		any |= v->seen[w] | v->sure[w];
	if (!any)
		drop_entry(p, e);
}

void dt_prefix_exact(struct dt_prefix *p, int server, bool on)
{
	uint64_t bit = (uint64_t)1 << server % 64;

	p->exact[server / 64] = on ? p->exact[server / 64] | bit : p->exact[server / 64] & ~bit;
}

void dt_prefix_store(struct dt_prefix *p, uint64_t hash, int server, double now)
{
	struct entry *v = &p->entry[touch(p, hash)];

	v->seen[server / 64] |= (uint64_t)1 << server % 64;
	v->sure[server / 64] |= (uint64_t)1 << server % 64;
	v->used = clock_of(p, now);
}

void dt_prefix_remove(struct dt_prefix *p, uint64_t hash, int server)
{
	uint32_t i = slot_of(p, hash);

	if (p->slot[i])
		take_from(p, p->slot[i] - 1, server);
}

void dt_prefix_forget(struct dt_prefix *p, int server)
{
	for (uint32_t e = p->oldest, next; e != NONE; e = next) {
		next = p->entry[e].newer;
		take_from(p, e, server);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
