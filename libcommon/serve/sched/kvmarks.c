#include "serve/sched/kvmarks.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct node {
	uint64_t mark;
	uint32_t next; /* of its block, or of the free ones: number + 1, 0: none */
};

struct dt_kvmarks {
	pthread_mutex_t mu;
	uint64_t epoch, seq; /* seq: events so far */
	int nblocks;
	uint32_t *head;	   /* [nblocks] first node + 1; only the writer changes it */
	struct node *node; /* [cap] */
	uint32_t nnodes, cap, free, held;
	struct dt_kvmark_event *log; /* [nlog] event number i at i % nlog */
	size_t nlog;
};

struct dt_kvmarks *dt_kvmarks_new(int nblocks, size_t nlog)
{
	struct dt_kvmarks *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	pthread_mutex_init(&m->mu, NULL);
	m->nblocks = nblocks;
	m->nlog = nlog;
	m->head = calloc((size_t)nblocks, sizeof(*m->head));
	m->log = calloc(nlog, sizeof(*m->log));
	while (getrandom(&m->epoch, sizeof(m->epoch), 0) != sizeof(m->epoch) || m->epoch == 0)
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
	free(m->log);
	free(m);
}

static void tell(struct dt_kvmarks *m, uint64_t mark, bool stored)
{
	m->log[m->seq++ % m->nlog] = (struct dt_kvmark_event){mark, stored};
}

/* A free node + 1; 0: out of memory. */
static uint32_t take_node(struct dt_kvmarks *m)
{
	uint32_t at = m->free, cap = m->cap ? 2 * m->cap : 256;
	struct node *more;

	if (at) {
		m->free = m->node[at - 1].next;
		return at;
	}
	if (m->nnodes == m->cap) {
		more = realloc(m->node, cap * sizeof(*more));
		if (!more)
			return 0;
		m->node = more;
		m->cap = cap;
	}
	return ++m->nnodes;
}

void dt_kvmarks_put(struct dt_kvmarks *m, int32_t block, uint64_t mark)
{
	uint32_t at;

	for (at = m->head[block]; at; at = m->node[at - 1].next)
		if (m->node[at - 1].mark == mark)
			return;
	pthread_mutex_lock(&m->mu);
	at = take_node(m);
	if (at) { /* without memory it is not told, and only that */
		m->node[at - 1] = (struct node){mark, m->head[block]};
		m->head[block] = at;
		m->held++;
		tell(m, mark, true);
	}
	pthread_mutex_unlock(&m->mu);
}

void dt_kvmarks_drop(struct dt_kvmarks *m, int32_t block)
{
	if (!m->head[block])
		return;
	pthread_mutex_lock(&m->mu);
	while (m->head[block]) {
		uint32_t at = m->head[block];
		struct node *k = &m->node[at - 1];

		tell(m, k->mark, false);
		m->head[block] = k->next;
		k->next = m->free;
		m->free = at;
		m->held--;
	}
	pthread_mutex_unlock(&m->mu);
}

/* All that lie on blocks; e has room for them. */
static size_t snapshot(const struct dt_kvmarks *m, struct dt_kvmark_event *e)
{
	size_t n = 0;

	for (int b = 0; b < m->nblocks; b++)
		for (uint32_t at = m->head[b]; at; at = m->node[at - 1].next)
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
