#include "base/scratch.h"
#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#ifdef DT_HAVE_URING
#include <liburing.h>
#endif

enum { PIECES = 8, WORKERS = 4 };
#define PIECE ((size_t)4 << 20) /* measured: 4 MiB pieces are 1.5 times as fast as 1 MiB */

struct request { /* the rest of a piece of a transfer */
	char *data;
	size_t n;
	uint64_t at;
	int slot;
	struct request *next; /* next in the workers' queue */
};

struct slot {
	bool write;
	int pending; /* pieces in flight */
	int rc;	     /* error of the first piece that failed */
	uint64_t at; /* its offset in the file */
	struct request piece[PIECES];
};

struct dt_scratch {
	int fd;
	char folder[PATH_MAX];
	char how[64];
	struct slot slot[DT_SCRATCH_SLOTS];
#ifdef DT_HAVE_URING
	struct io_uring ring;
	bool uring;
#endif
	/* for the worker threads, under the lock */
	pthread_t worker[WORKERS];
	int workers;
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	struct request *first, **last;
	bool closing;
};

/*
 * Accounts for n bytes moved of a piece, or for -errno. Returns whether the piece is finished; if not, submit
 * it again.
 */
static bool moved(struct dt_scratch *s, struct request *r, long n)
{
	struct slot *slot = &s->slot[r->slot];

	if (n == -EINTR || n == -EAGAIN)
		return false;
	if (n > 0 && (size_t)n < r->n) {
		n -= n % DT_SCRATCH_ALIGN; /* keeps the rest aligned */
		r->data += n;
		r->at += (uint64_t)n;
		r->n -= (size_t)n;
		if (n > 0)
			return false;
	}
	if (n <= 0 && slot->rc == 0) { /* nothing moved: end of the file, or no space on the disk */
		slot->rc = n < 0 ? (int)n : slot->write ? -ENOSPC : -EIO;
		slot->at = r->at;
	}
	slot->pending--;
	return true;
}

/* ---- threads ---- */

static void push(struct dt_scratch *s, struct request *r)
{
	r->next = NULL;
	*s->last = r;
	s->last = &r->next;
	pthread_cond_signal(&s->work);
}

static void *work(void *arg)
{
	struct dt_scratch *s = arg;

	pthread_mutex_lock(&s->lock);
	while (!s->closing) {
		struct request *r = s->first;
		long n;

		if (!r) {
			pthread_cond_wait(&s->work, &s->lock);
			continue;
		}
		s->first = r->next;
		if (!s->first)
			s->last = &s->first;
		pthread_mutex_unlock(&s->lock);
		n = s->slot[r->slot].write ? pwrite(s->fd, r->data, r->n, (off_t)r->at)
					   : pread(s->fd, r->data, r->n, (off_t)r->at);
		n = n < 0 ? -errno : n;
		pthread_mutex_lock(&s->lock);
		if (!moved(s, r, n))
			push(s, r);
		else if (s->slot[r->slot].pending == 0)
			pthread_cond_broadcast(&s->done);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static int open_workers(struct dt_scratch *s)
{
	sigset_t all, old;
	int rc = 0;

	/* Workers take no signals. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (; s->workers < WORKERS && rc == 0; s->workers += rc == 0)
		rc = pthread_create(&s->worker[s->workers], NULL, work, s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return s->workers ? 0 : -rc;
}

static void close_workers(struct dt_scratch *s)
{
	pthread_mutex_lock(&s->lock);
	s->closing = true;
	pthread_cond_broadcast(&s->work);
	pthread_mutex_unlock(&s->lock);
	for (int i = 0; i < s->workers; i++)
		pthread_join(s->worker[i], NULL);
}

/* ---- io_uring ---- */

#ifdef DT_HAVE_URING
static void submit(struct dt_scratch *s, struct request *r)
{
	struct io_uring_sqe *e = io_uring_get_sqe(&s->ring); /* the ring has an entry for every piece */

	if (s->slot[r->slot].write)
		io_uring_prep_write(e, s->fd, r->data, (unsigned)r->n, r->at);
	else
		io_uring_prep_read(e, s->fd, r->data, (unsigned)r->n, r->at);
	io_uring_sqe_set_data(e, r);
	while (io_uring_submit(&s->ring) == -EINTR)
		;
}

/* Handles completions until the slot is idle; look: only those that are there already. */
static int reap(struct dt_scratch *s, struct slot *slot, bool look)
{
	while (slot->pending) {
		struct io_uring_cqe *e;
		struct request *r;
		int rc = look ? io_uring_peek_cqe(&s->ring, &e) : io_uring_wait_cqe(&s->ring, &e);
		long n;

		if (rc == -EINTR)
			continue;
		if (rc < 0)
			return rc;
		r = io_uring_cqe_get_data(e);
		n = e->res;
		io_uring_cqe_seen(&s->ring, e);
		if (!moved(s, r, n))
			submit(s, r);
	}
	return 0;
}
#endif

/* ---- both ---- */

static bool by_ring(const struct dt_scratch *s)
{
#ifdef DT_HAVE_URING
	return s->uring;
#else
	return false;
#endif
}

static void start(struct dt_scratch *s, int k, bool write, void *data, size_t n, uint64_t at)
{
	struct slot *slot = &s->slot[k];
	size_t part = n / PIECES / DT_SCRATCH_ALIGN * DT_SCRATCH_ALIGN + DT_SCRATCH_ALIGN;

	part = part > PIECE ? part : PIECE;
	pthread_mutex_lock(&s->lock);
	slot->write = write;
	slot->rc = 0;
	for (size_t i = 0; i < n; i += part) {
		struct request *r = &slot->piece[slot->pending++];

		*r = (struct request){(char *)data + i, n - i < part ? n - i : part, at + i, k, NULL};
	}
	for (int i = 0, all = slot->pending; i < all; i++) {
#ifdef DT_HAVE_URING
		if (by_ring(s)) {
			submit(s, &slot->piece[i]);
			continue;
		}
#endif
		push(s, &slot->piece[i]);
	}
	pthread_mutex_unlock(&s->lock);
}

void dt_scratch_read(struct dt_scratch *s, int slot, void *to, size_t n, uint64_t at)
{
	start(s, slot, false, to, n, at);
}

void dt_scratch_write(struct dt_scratch *s, int slot, const void *from, size_t n, uint64_t at)
{
	start(s, slot, true, (void *)from, n, at);
}

int dt_scratch_wait(struct dt_scratch *s, int k, struct dt_err *err)
{
	struct slot *slot = &s->slot[k];
	int rc = 0;

#ifdef DT_HAVE_URING
	if (by_ring(s))
		rc = reap(s, slot, false);
#endif
	if (!by_ring(s)) {
		pthread_mutex_lock(&s->lock);
		while (slot->pending)
			pthread_cond_wait(&s->done, &s->lock);
		pthread_mutex_unlock(&s->lock);
	}
	rc = rc < 0 ? rc : slot->rc;
	slot->rc = 0;
	if (rc < 0)
		return dt_err_sys(err, rc, "cannot %s byte %llu of the file in '%s'",
				  slot->write ? "write" : "read", (unsigned long long)slot->at, s->folder);
	return 0;
}

bool dt_scratch_done(struct dt_scratch *s, int k)
{
	bool done;

#ifdef DT_HAVE_URING
	if (by_ring(s)) {
		int rc = reap(s, &s->slot[k], true);

		/* on an error dt_scratch_wait returns at once and reports it */
		return s->slot[k].pending == 0 || (rc < 0 && rc != -EAGAIN);
	}
#endif
	pthread_mutex_lock(&s->lock);
	done = s->slot[k].pending == 0;
	pthread_mutex_unlock(&s->lock);
	return done;
}

int dt_scratch_free(const char *folder, uint64_t *ret, struct dt_err *err)
{
	struct statvfs v;

	if (statvfs(folder, &v) < 0)
		return dt_err_sys(err, -errno, "cannot use the folder '%s'", folder);
	*ret = (uint64_t)v.f_bavail * v.f_frsize;
	return 0;
}

/* Opens an unnamed file in the folder. */
static int open_file(struct dt_scratch *s, bool *ret_direct, struct dt_err *err)
{
	char path[PATH_MAX + 32];
	struct stat st;
	int rc;

	rc = stat(s->folder, &st) < 0 ? -errno : S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
	if (rc < 0)
		return dt_err_sys(err, rc, "cannot use the folder '%s'", s->folder);
	snprintf(path, sizeof(path), "%s/dt-scratch-XXXXXX", s->folder);
	*ret_direct = true;
	s->fd = mkostemp(path, O_CLOEXEC | O_DIRECT);
	if (s->fd < 0 && errno == EINVAL) {
		/* The failed open may have created the file. */
		unlink(path);
		snprintf(path, sizeof(path), "%s/dt-scratch-XXXXXX", s->folder);
		*ret_direct = false;
		s->fd = mkostemp(path, O_CLOEXEC);
	}
	rc = s->fd < 0 ? -errno : 0;
	if (rc == 0 && unlink(path) < 0)
		rc = -errno;
	return rc < 0 ? dt_err_sys(err, rc, "cannot make a file in '%s'", s->folder) : 0;
}

static int reserve(struct dt_scratch *s, uint64_t bytes, struct dt_err *err)
{
	char size[32];
	uint64_t room = 0;
	int rc = dt_scratch_free(s->folder, &room, err);

	if (rc < 0)
		return rc;
	/* ext4 allocates all free space before it fails, and meanwhile other programs see a full disk */
	rc = bytes > room ? -ENOSPC : bytes && fallocate(s->fd, 0, 0, (off_t)bytes) < 0 ? -errno : 0;
	if (rc == -EOPNOTSUPP)
		rc = ftruncate(s->fd, (off_t)bytes) < 0 ? -errno : 0;
	return rc < 0 ? dt_err_sys(err, rc, "cannot reserve %s in '%s'",
				   dt_format_size(bytes, size, sizeof(size)), s->folder)
		      : 0;
}

/* Chooses io_uring or worker threads. */
static int open_engine(struct dt_scratch *s, bool threads, bool direct, struct dt_err *err)
{
	int rc = 0;

#ifdef DT_HAVE_URING
	s->uring = !threads && io_uring_queue_init(PIECES * DT_SCRATCH_SLOTS, &s->ring, 0) == 0;
#endif
	if (!by_ring(s))
		rc = open_workers(s);
	snprintf(s->how, sizeof(s->how), "%s, %s the page cache", by_ring(s) ? "io_uring" : "threads",
		 direct ? "past" : "through");
	return rc < 0 ? dt_err_sys(err, rc, "cannot start threads for the file in '%s'", s->folder) : 0;
}

int dt_scratch_open(const char *folder, uint64_t bytes, bool threads, struct dt_scratch **ret,
		    struct dt_err *err)
{
	struct dt_scratch *s = calloc(1, sizeof(*s));
	bool direct = false;
	int rc;

	if (!s)
		return dt_err_sys(err, -ENOMEM, "cannot use the folder '%s'", folder);
	s->fd = -1;
	s->last = &s->first;
	snprintf(s->folder, sizeof(s->folder), "%s", folder);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->work, NULL);
	pthread_cond_init(&s->done, NULL);
	rc = open_file(s, &direct, err);
	if (rc == 0)
		rc = reserve(s, bytes, err);
	if (rc == 0)
		rc = open_engine(s, threads, direct, err);
	if (rc < 0)
		dt_scratch_close(s);
	else
		*ret = s;
	return rc;
}

void dt_scratch_close(struct dt_scratch *s)
{
	if (!s)
		return;
	for (int k = 0; k < DT_SCRATCH_SLOTS; k++)
		dt_scratch_wait(s, k, NULL);
#ifdef DT_HAVE_URING
	if (s->uring)
		io_uring_queue_exit(&s->ring);
#endif
	close_workers(s);
	if (s->fd >= 0)
		close(s->fd);
	pthread_cond_destroy(&s->done);
	pthread_cond_destroy(&s->work);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

const char *dt_scratch_how(const struct dt_scratch *s)
{
	return s->how;
}

int dt_scratch_fd(const struct dt_scratch *s)
{
	return s->fd;
}
/* SPDX-License-Identifier: Apache-2.0 */
