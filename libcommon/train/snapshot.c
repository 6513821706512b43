#include "train/snapshot.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct entry {
	const char *live;
	size_t bytes, left; /* left: bytes not written yet */
	size_t at;	    /* offset of its copy in room */
	bool moved;	    /* the copy is to be written */
};

struct snapshot {
	struct entry *e;
	int n;
	char *room;
	pthread_mutex_t lock; /* guards the fields below, and left and moved of the entries */
	pthread_cond_t changed;
	bool taking, ended;
	int in;		   /* the entry that the writer has a part of; -1: none */
	size_t part_bytes; /* bytes of that part */
	int last;	   /* the entry found last */
};

size_t piece_bytes(const struct dt_piece *p)
{
	size_t n = (size_t)dt_dtype_size(p->dtype);

	for (int d = 0; d < p->ndim; d++)
		n *= (size_t)p->shape[d];
	return n;
}

int snapshot_new(const struct dt_piece *p, int n, char *room, size_t bytes, struct snapshot **ret,
		 struct dt_err *err)
{
	struct snapshot *s = calloc(1, sizeof(*s));
	size_t at = 0;

	if (s)
		s->e = calloc((size_t)n + 1, sizeof(*s->e));
	if (!s || !s->e) {
		free(s);
		return dt_err_sys(err, -ENOMEM, "cannot copy the checkpoint");
	}
	for (int i = 0; i < n; i++) {
		size_t b = piece_bytes(&p[i]);

		s->e[i] = (struct entry){.live = p[i].data, .bytes = b, .left = b, .at = at};
		at += b;
	}
	if (at > bytes) {
		free(s->e);
		free(s);
		return dt_err_set(err, -ENOSPC, "the plan has no room for a checkpoint of %zu bytes", at);
	}
	s->n = n;
	s->room = room;
	s->in = -1;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	*ret = s;
	return 0;
}

void snapshot_free(struct snapshot *s)
{
	if (!s)
		return;
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->changed);
	free(s->e);
	free(s);
}

void snapshot_now(struct snapshot *s, int i)
{
	memcpy(s->room + s->e[i].at, s->e[i].live, s->e[i].bytes);
	s->e[i].moved = true;
}

/* Marks the writer's part as done. The caller holds the lock. */
static void part_done(struct snapshot *s)
{
	if (s->in >= 0)
		s->e[s->in].left -= s->part_bytes;
	s->in = -1;
	pthread_cond_broadcast(&s->changed);
}

/* The entry that contains an address; parts come in the order of entries. */
static int find(struct snapshot *s, const char *p)
{
	for (int k = 0; k < s->n; k++) {
		int i = (s->last + k) % s->n;

		if (p >= s->e[i].live && p < s->e[i].live + s->e[i].bytes)
			return s->last = i;
	}
	return -1;
}

int snapshot_fill(void *arg, const struct dt_piece *p, const void **ret_data, struct dt_err *err)
{
	struct snapshot *s = arg;
	const struct entry *e;
	int rc = 0;

	pthread_mutex_lock(&s->lock);
	part_done(s);
	while (s->taking)
		pthread_cond_wait(&s->changed, &s->lock);
	s->in = find(s, p->data);
	s->part_bytes = piece_bytes(p);
	if (s->in >= 0) {
		e = &s->e[s->in];
		*ret_data = e->moved ? s->room + e->at + ((const char *)p->data - e->live) : p->data;
	} else {
		rc = dt_err_set(err, -EINVAL, "'%s' is not in the snapshot", p->name);
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

void snapshot_end(struct snapshot *s)
{
	pthread_mutex_lock(&s->lock);
	part_done(s);
	s->ended = true;
	pthread_mutex_unlock(&s->lock);
}

/* While it copies, the writer keeps its current part and gets no other. */
size_t snapshot_take(struct snapshot *s)
{
	size_t copied = 0;
	bool begin;

	pthread_mutex_lock(&s->lock);
	begin = s->taking = !s->ended;
	pthread_mutex_unlock(&s->lock);
	if (!begin)
		return 0;
#pragma omp parallel for schedule(dynamic) reduction(+ : copied)
	for (int i = 0; i < s->n; i++) {
		struct entry *e = &s->e[i];
		bool need;

		pthread_mutex_lock(&s->lock);
		need = e->left && !e->moved;
		pthread_mutex_unlock(&s->lock);
		if (!need)
			continue;
		memcpy(s->room + e->at, e->live, e->bytes);
		copied += e->bytes;
	}
	pthread_mutex_lock(&s->lock);
	while (s->in >= 0 && !s->e[s->in].moved)
		pthread_cond_wait(&s->changed, &s->lock);
	for (int i = 0; i < s->n; i++)
		s->e[i].moved = true;
	s->taking = false;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	return copied;
}
/* SPDX-License-Identifier: Apache-2.0 */
