#include "serve/sched/kvmarks.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct node {
	uint64_t mark;
	uint32_t next; /* next in the list of its block, or of free nodes: index + 1, 0: none */
	uint32_t same; /* next in its bucket, likewise */
};

struct dt_kvmarks {
	pthread_mutex_t mu;
	uint64_t epoch, seq; /* seq: number of events so far */
	uint64_t key;	     /* secret, so that nobody can fill one bucket on purpose */
	size_t nblocks;
	uint32_t *head;	   /* [nblocks] index of the first node + 1; changed by the writer only */
	struct node *node; /* [cap] */
	uint32_t *bucket;  /* [cap], a power of two: index + 1 of the first node of each bucket */
	uint32_t nnodes, cap, free, held;
	struct dt_kvmark_event *log; /* [nlog] event number i is at i % nlog */
	size_t nlog;
};

struct dt_kvmarks *dt_kvmarks_new(size_t nblocks, size_t nlog)
{
	struct dt_kvmarks *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	pthread_mutex_init(&m->mu, NULL);
	m->nblocks = nblocks;
	m->nlog = nlog;
	m->head = calloc(nblocks, sizeof(*m->head));
	m->log = calloc(nlog, sizeof(*m->log));
	while (getrandom(&m->epoch, sizeof(m->epoch), 0) != sizeof(m->epoch) || m->epoch == 0)
		continue;
	while (getrandom(&m->key, sizeof(m->key), 0) != sizeof(m->key))
		continue;
	if (!m->head || !m->log) {
		dt_kvmarks_free(m);
		return NULL;
	}
	return m;
}

void dt_kvmarks_free(struct dt_kvmarks *m)
{
	if (!m)
		return;
	pthread_mutex_destroy(&m->mu);
	free(m->head);
	free(m->node);
	free(m->bucket);
	free(m->log);
	free(m);
}

static void tell(struct dt_kvmarks *m, uint64_t mark, bool stored)
{
	m->log[m->seq++ % m->nlog] = (struct dt_kvmark_event){mark, stored};
}

/* The bucket of a mark, by the finaliser of MurmurHash3. */
static uint32_t *bucket_of(const struct dt_kvmarks *m, uint64_t mark)
{
	uint64_t x = mark ^ m->key;

	x = (x ^ x >> 33) * 0xff51afd7ed558ccdULL;
	x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ULL;
	return &m->bucket[(x ^ x >> 33) & (m->cap - 1)];
}

/* Index + 1 of the first node with this mark; 0: none. */
static uint32_t find(const struct dt_kvmarks *m, uint64_t mark)
{
	uint32_t at = *bucket_of(m, mark);

	while (at && m->node[at - 1].mark != mark)
		at = m->node[at - 1].same;
	return at;
}

/* Doubles the capacity for nodes; call when all are used. */
static int grow(struct dt_kvmarks *m)
{
	uint32_t cap = m->cap ? 2 * m->cap : 256, *bucket = calloc(cap, sizeof(*bucket));
	struct node *more = bucket ? realloc(m->node, cap * sizeof(*more)) : NULL;

	if (!more) {
		free(bucket);
		return -ENOMEM;
	}
	free(m->bucket);
	m->node = more;
	m->bucket = bucket;
	m->cap = cap;
	for (uint32_t i = 0; i < m->nnodes; i++) {
		uint32_t *first = bucket_of(m, m->node[i].mark);

		m->node[i].same = *first;
		*first = i + 1;
	}
	return 0;
}

/* Index + 1 of a free node; 0: out of memory. */
static uint32_t take_node(struct dt_kvmarks *m)
{
	uint32_t at = m->free;

	if (at) {
		m->free = m->node[at - 1].next;
		return at;
	}
	if (m->nnodes == m->cap && grow(m) < 0)
		return 0;
	return ++m->nnodes;
}

void dt_kvmarks_put(struct dt_kvmarks *m, size_t block, uint64_t mark)
{
	uint32_t at, *first;

	for (at = m->head[block]; at; at = m->node[at - 1].next)
		if (m->node[at - 1].mark == mark)
			return;
	pthread_mutex_lock(&m->mu);
	at = take_node(m);
	if (at) { /* out of memory: the mark is just not reported */
		first = bucket_of(m, mark);
		if (!find(m, mark))
			tell(m, mark, true);
		m->node[at - 1] = (struct node){mark, m->head[block], *first};
		m->head[block] = *first = at;
		m->held++;
	}
	pthread_mutex_unlock(&m->mu);
}

void dt_kvmarks_drop(struct dt_kvmarks *m, size_t block)
{
	if (!m->head[block])
		return;
	pthread_mutex_lock(&m->mu);
	while (m->head[block]) {
		uint32_t at = m->head[block], *link;
		struct node *k = &m->node[at - 1];

		for (link = bucket_of(m, k->mark); *link != at;)
			link = &m->node[*link - 1].same;
		*link = k->same;
		if (!find(m, k->mark))
			tell(m, k->mark, false);
		m->head[block] = k->next;
		k->next = m->free;
		m->free = at;
		m->held--;
	}
	pthread_mutex_unlock(&m->mu);
}

/* Writes all marks that are on blocks to e, each once; e has room for them. */
static size_t snapshot(const struct dt_kvmarks *m, struct dt_kvmark_event *e)
{
	size_t n = 0;

	for (size_t b = 0; b < m->nblocks; b++)
		for (uint32_t at = m->head[b]; at; at = m->node[at - 1].next)
			if (find(m, m->node[at - 1].mark) == at)
				e[n++] = (struct dt_kvmark_event){m->node[at - 1].mark, true};
	return n;
}

int dt_kvmarks_read(struct dt_kvmarks *m, uint64_t epoch, uint64_t after, struct dt_kvmark_event **ret,
		    size_t *ret_n, uint64_t *ret_epoch, uint64_t *ret_seq, bool *ret_cleared)
{
	struct dt_kvmark_event *e;
	bool cleared;
	size_t n;

	pthread_mutex_lock(&m->mu);
	cleared = epoch != m->epoch || after > m->seq || m->seq - after > m->nlog;
	n = cleared ? m->held : (size_t)(m->seq - after);
	e = malloc((n + 1) * sizeof(*e));
	if (e && cleared)
		n = snapshot(m, e);
	for (size_t i = 0; e && !cleared && i < n; i++)
		e[i] = m->log[(after + i) % m->nlog];
	*ret_epoch = m->epoch;
	*ret_seq = m->seq;
	pthread_mutex_unlock(&m->mu);
	if (!e)
		return -ENOMEM;
	*ret_cleared = cleared;
	*ret = e;
	*ret_n = n;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
