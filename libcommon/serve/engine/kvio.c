#include "serve/engine/kvio.h"

#include "base/progress.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define BUFFER_BYTES ((size_t)64 << 20) /* max bytes of blocks in transit, in each direction */
#define MOST	     1024		/* max buffers, in each direction */

struct buffer {
	char *data; /* NULL: not allocated yet */
	struct dt_kvkey key;
	int32_t *tokens;
	STAILQ_ENTRY(buffer) in_list;
};
STAILQ_HEAD(buffers, buffer);

struct dt_kvread {
	struct dt_kvio *io;
	struct dt_kvkey key; /* of the block read last */
	int32_t *tokens;     /* [n, block_size] */
	int n, at;	     /* blocks, and how many of them were processed */
	struct buffers ready;
	bool ended, closed; /* ended: no more blocks follow; closed: the reader has left */
	TAILQ_ENTRY(dt_kvread) in_list;
};

struct dt_kvio {
	struct dt_kvdisk *disk;
	size_t bytes;
	int block_size;
	void (*wake)(void *arg);
	void *arg;
	pthread_t thread;
	pthread_mutex_t mu;
	pthread_cond_t work, room; /* work: for the I/O thread; room: for dt_kvio_buffer */
	/* guarded by mu */
	struct buffer *all; /* [2 n], the first n are for writing */
	int n;
	struct buffers to_fill, to_write, to_read; /* free to fill, to be written, free to read into */
	TAILQ_HEAD(, dt_kvread) reads;
	struct dt_kvio_counts counts;
	bool short_of_room, stop;
};

static struct buffer *buffer_of(struct dt_kvio *io, const void *data)
{
	int i = 0;

	while (io->all[i].data != data)
		i++;
	return &io->all[i];
}

/* Takes a buffer from the list and allocates its memory; NULL: there is none. Call with the lock held. */
static struct buffer *take(struct dt_kvio *io, struct buffers *l)
{
	struct buffer *b = STAILQ_FIRST(l);

	if (b && !b->data)
		b->data = malloc(io->bytes);
	if (b && !b->tokens)
		b->tokens = malloc((size_t)io->block_size * sizeof(*b->tokens));
	if (!b || !b->data || !b->tokens)
		return NULL;
	STAILQ_REMOVE_HEAD(l, in_list);
	return b;
}

/* ---- the I/O thread ---- */

static void free_read(struct dt_kvread *r)
{
	struct dt_kvio *io = r->io;

	STAILQ_CONCAT(&io->to_read, &r->ready);
	free(r->tokens);
	free(r);
}

/* Removes r from the list, and frees it if the reader has left. Call with the lock held. */
static void end(struct dt_kvread *r)
{
	TAILQ_REMOVE(&r->io->reads, r, in_list);
	r->ended = true;
	if (r->closed)
		free_read(r);
}

/* Reads the next block of r into b. Call with the lock held; it is released while reading. */
static void read_one(struct dt_kvio *io, struct dt_kvread *r, struct buffer *b)
{
	const int32_t *ids = r->tokens + (size_t)r->at * (size_t)io->block_size;
	struct dt_kvkey key = dt_kvkey_next(r->key, ids, io->block_size);
	double took = dt_now();
	int rc;

	pthread_mutex_unlock(&io->mu);
	rc = dt_kvdisk_get(io->disk, key, ids, b->data);
	took = dt_now() - took;
	pthread_mutex_lock(&io->mu);
	if (rc < 0) {
		STAILQ_INSERT_TAIL(&io->to_read, b, in_list);
		io->counts.failed += rc != -ENOENT;
		end(r);
		return;
	}
	io->counts.read++;
	io->counts.read_s = io->counts.read_s > 0 ? 0.9 * io->counts.read_s + 0.1 * took : took;
	STAILQ_INSERT_TAIL(&r->ready, b, in_list);
	r->key = key;
	if (++r->at == r->n || r->closed)
		end(r);
}

static void write_one(struct dt_kvio *io, struct buffer *b)
{
	int rc;

	pthread_mutex_unlock(&io->mu);
	rc = dt_kvdisk_put(io->disk, b->key, b->tokens, b->data);
	pthread_mutex_lock(&io->mu);
	io->counts.written += rc == 0;
	io->counts.failed += rc < 0;
	STAILQ_INSERT_TAIL(&io->to_fill, b, in_list);
	pthread_cond_signal(&io->room);
}

static void *io_main(void *arg)
{
	struct dt_kvio *io = arg;

	pthread_mutex_lock(&io->mu);
	for (;;) {
		struct dt_kvread *r = TAILQ_FIRST(&io->reads);
		struct buffer *b = r && !r->closed ? take(io, &io->to_read) : NULL;
		bool tell = true;

		if (r && r->closed) {
			end(r);
			tell = false;
		} else if (b) {
			read_one(io, r, b);
		} else if ((b = STAILQ_FIRST(&io->to_write))) {
			STAILQ_REMOVE_HEAD(&io->to_write, in_list);
			write_one(io, b);
			tell = io->short_of_room;
		} else if (io->stop) {
			break;
		} else {
			pthread_cond_wait(&io->work, &io->mu);
			continue;
		}
		if (tell) {
			pthread_mutex_unlock(&io->mu);
			io->wake(io->arg);
			pthread_mutex_lock(&io->mu);
		}
	}
	pthread_mutex_unlock(&io->mu);
	return NULL;
}

/* ---- other threads ---- */

int dt_kvio_open(struct dt_kvio **ret, struct dt_kvdisk *d, void (*wake)(void *arg), void *arg,
		 struct dt_err *err)
{
	const struct dt_kvdisk_params *p = dt_kvdisk_params(d);
	struct dt_kvio *io = calloc(1, sizeof(*io));
	size_t n = BUFFER_BYTES / p->block_bytes;
	int rc;

	n = n < 4 ? 4 : n < MOST ? n : MOST;
	if (io)
		io->all = calloc(2 * n, sizeof(*io->all));
	if (!io || !io->all) {
		free(io);
		return dt_err_sys(err, -ENOMEM, "cannot read and write blocks");
	}
	io->disk = d;
	io->bytes = p->block_bytes;
	io->block_size = p->block_size;
	io->wake = wake;
	io->arg = arg;
	io->n = (int)n;
	io->counts.read_s = dt_kvdisk_read_s(d);
	STAILQ_INIT(&io->to_fill);
	STAILQ_INIT(&io->to_write);
	STAILQ_INIT(&io->to_read);
	TAILQ_INIT(&io->reads);
	for (size_t i = 0; i < n; i++) {
		STAILQ_INSERT_TAIL(&io->to_fill, &io->all[i], in_list);
		STAILQ_INSERT_TAIL(&io->to_read, &io->all[n + i], in_list);
	}
	pthread_mutex_init(&io->mu, NULL);
	pthread_cond_init(&io->work, NULL);
	pthread_cond_init(&io->room, NULL);
	rc = -pthread_create(&io->thread, NULL, io_main, io);
	if (rc < 0) {
		free(io->all);
		free(io);
		return dt_err_sys(err, rc, "cannot start the thread that reads and writes blocks");
	}
	*ret = io;
	return 0;
}

void dt_kvio_close(struct dt_kvio *io)
{
	if (!io)
		return;
	pthread_mutex_lock(&io->mu);
	io->stop = true;
	pthread_cond_signal(&io->work);
	pthread_mutex_unlock(&io->mu);
	pthread_join(io->thread, NULL);
	pthread_mutex_destroy(&io->mu);
	pthread_cond_destroy(&io->work);
	pthread_cond_destroy(&io->room);
	for (int i = 0; i < 2 * io->n; i++) {
		free(io->all[i].data);
		free(io->all[i].tokens);
	}
	free(io->all);
	free(io);
}

struct dt_kvio_counts dt_kvio_counts(struct dt_kvio *io)
{
	struct dt_kvio_counts c;

	pthread_mutex_lock(&io->mu);
	c = io->counts;
	pthread_mutex_unlock(&io->mu);
	return c;
}

void *dt_kvio_buffer(struct dt_kvio *io, bool wait)
{
	struct buffer *b;

	pthread_mutex_lock(&io->mu);
	while (!(b = take(io, &io->to_fill)) && wait && STAILQ_EMPTY(&io->to_fill))
		pthread_cond_wait(&io->room, &io->mu);
	io->short_of_room = !b;
	pthread_mutex_unlock(&io->mu);
	return b ? b->data : NULL;
}

bool dt_kvio_has_room(struct dt_kvio *io)
{
	bool has;

	pthread_mutex_lock(&io->mu);
	has = io->short_of_room && !STAILQ_EMPTY(&io->to_fill);
	pthread_mutex_unlock(&io->mu);
	return has;
}

void dt_kvio_write(struct dt_kvio *io, void *buffer, struct dt_kvkey key, const int32_t *tokens)
{
	struct buffer *b;

	pthread_mutex_lock(&io->mu);
	b = buffer_of(io, buffer);
	b->key = key;
	memcpy(b->tokens, tokens, (size_t)io->block_size * sizeof(*tokens));
	STAILQ_INSERT_TAIL(&io->to_write, b, in_list);
	pthread_cond_signal(&io->work);
	pthread_mutex_unlock(&io->mu);
}

void dt_kvio_drop(struct dt_kvio *io, void *buffer)
{
	pthread_mutex_lock(&io->mu);
	STAILQ_INSERT_TAIL(&io->to_fill, buffer_of(io, buffer), in_list);
	pthread_mutex_unlock(&io->mu);
}

struct dt_kvread *dt_kvio_read(struct dt_kvio *io, struct dt_kvkey before, const int32_t *tokens, int n)
{
	const size_t bytes = (size_t)n * (size_t)io->block_size * sizeof(*tokens);
	struct dt_kvread *r = calloc(1, sizeof(*r));

	if (r)
		r->tokens = malloc(bytes);
	if (!r || !r->tokens) {
		free(r);
		return NULL;
	}
	memcpy(r->tokens, tokens, bytes);
	r->io = io;
	r->key = before;
	r->n = n;
	STAILQ_INIT(&r->ready);
	pthread_mutex_lock(&io->mu);
	TAILQ_INSERT_TAIL(&io->reads, r, in_list);
	pthread_cond_signal(&io->work);
	pthread_mutex_unlock(&io->mu);
	return r;
}

const void *dt_kvread_next(struct dt_kvread *r, bool *ended)
{
	const struct buffer *b;

	pthread_mutex_lock(&r->io->mu);
	b = STAILQ_FIRST(&r->ready);
	*ended = !b && r->ended;
	pthread_mutex_unlock(&r->io->mu);
	return b ? b->data : NULL;
}

void dt_kvread_take(struct dt_kvread *r)
{
	struct buffer *b;

	pthread_mutex_lock(&r->io->mu);
	b = STAILQ_FIRST(&r->ready);
	STAILQ_REMOVE_HEAD(&r->ready, in_list);
	STAILQ_INSERT_TAIL(&r->io->to_read, b, in_list);
	pthread_cond_signal(&r->io->work);
	pthread_mutex_unlock(&r->io->mu);
}

void dt_kvread_close(struct dt_kvread *r)
{
	struct dt_kvio *io;

	if (!r)
		return;
	io = r->io;
	pthread_mutex_lock(&io->mu);
	r->closed = true;
	if (r->ended)
		free_read(r);
	pthread_cond_signal(&io->work);
	pthread_mutex_unlock(&io->mu);
}
/* SPDX-License-Identifier: Apache-2.0 */
