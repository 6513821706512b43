/*
 * A libnccl.so.2 without cards: the calls that comm/nccl.c makes, on the emulated card's memory
 * (kernels/cuda/emulate) of ranks on this machine, through a shared file. As with the real one a call only
 * queues: a thread of each communicator does the work, in order, and the stream knows when it is done. Sums
 * are taken in f64 and rounded once.
 *
 * DT_FAKE_NCCL="MODE RANK N": on that rank of the job the Nth call that moves data (from 0) goes wrong.
 *   error   the call returns ncclSystemError
 *   async   it is never done, and ncclCommGetAsyncError says ncclRemoteError
 *   hang    it is never done, and nobody says anything
 * DT_FAKE_NCCL_VERSION: what ncclGetVersion says.
 */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The emulation's, in the program that loads this. */
void dt_emu_stream_begin(void *stream);
void dt_emu_stream_end(void *stream);
void dt_emu_device_memory(int open);

#define API	  __attribute__((visibility("default")))
#define CHUNK	  ((size_t)64 << 10)
#define RANKS_MAX 16

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, REMOTE_ERROR = 6 };
enum { INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16, TYPES };
enum { SUM, PROD, MAX, MIN, AVG };

struct id {
	char path[128];
};

/* One way between two ranks: one chunk at a time. */
struct box {
	_Atomic int full;
	size_t n;
	char data[CHUNK];
};

struct shared {
	_Atomic int joined, left;
	_Atomic uint64_t arrived[RANKS_MAX];
	char slot[RANKS_MAX][CHUNK];
	struct box box[]; /* [size * size]: from, to */
};

enum kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };

struct job {
	enum kind kind;
	const char *src;
	char *dst;
	size_t n;
	int type, op, root;
	void *stream;
	enum { RIGHT, HANG, ASYNC } fate;
	struct job *with; /* the others of its group */
	struct job *next;
	size_t at; /* of a message */
	struct comm *comm;
};

struct comm {
	int rank, size;
	uint64_t round;
	struct shared *s;
	size_t bytes;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct job *first, **last;
	bool closing;
	_Atomic bool aborted;
	_Atomic int error;
};

static _Thread_local int depth;
static _Thread_local struct job *group;
static _Atomic int calls, made;

static const size_t size_of[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

/* ---- numbers ---- */

static double half(uint16_t h)
{
	const int e = h >> 10 & 31, m = h & 1023;
	const double a = e == 31 ? (m ? __builtin_nan("") : __builtin_inf())
			 : e	 ? __builtin_ldexp(1024 + m, e - 25)
				 : __builtin_ldexp(m, -24);

	return h & 0x8000 ? -a : a;
}

/* To nearest even; what is too large becomes infinite. */
static uint16_t to_half(double v)
{
	const int sign = __builtin_signbit(v) ? 0x8000 : 0;
	const double a = __builtin_fabs(v);
	int e = 0, units;

	if (v != v)
		return 0x7e00;
	if (a >= 65520)
		return (uint16_t)(sign | 0x7c00);
	frexp(a, &e);
	e = a == 0 || e - 1 < -14 ? -14 : e - 1;
	units = (int)nearbyint(ldexp(a, 10 - e));
	return (uint16_t)(sign | (units + (e + 14) * 1024));
}

static double brain(uint16_t h)
{
	const uint32_t u = (uint32_t)h << 16;
	float f;

	memcpy(&f, &u, 4);
	return (double)f;
}

static uint16_t to_brain(double v)
{
	float f = (float)v;
	uint32_t u;

	memcpy(&u, &f, 4);
	if (f != f)
		return 0x7fc0;
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static double real(const char *p, int type)
{
	uint16_t h;
	double d;
	float f;

	switch (type) {
	case FLOAT16:
		memcpy(&h, p, 2);
		return half(h);
	case BFLOAT16:
		memcpy(&h, p, 2);
		return brain(h);
	case FLOAT32:
		memcpy(&f, p, 4);
		return (double)f;
	default:
		memcpy(&d, p, 8);
		return d;
	}
}

static void put_real(char *p, int type, double v)
{
	const uint16_t h = type == FLOAT16 ? to_half(v) : to_brain(v);
	const float f = (float)v;

	memcpy(p,
	       size_of[type] == 2 ? (const void *)&h
	       : type == FLOAT32  ? (const void *)&f
				  : (const void *)&v,
	       size_of[type]);
}

static int64_t whole(const char *p, int type)
{
	int64_t l = 0;
	int32_t i;

	switch (type) {
	case INT8:
		return *(const int8_t *)p;
	case UINT8:
		return *(const uint8_t *)p;
	case INT32:
		memcpy(&i, p, 4);
		return i;
	default:
		memcpy(&l, p, size_of[type]);
		return l;
	}
}

/* Element i of every rank's slot, put together. */
static void combine(const struct comm *c, char *to, size_t i, int type, int op)
{
	const size_t e = size_of[type];
	double d = 0;
	int64_t l = 0;

	for (int r = 0; r < c->size; r++) {
		const char *p = c->s->slot[r] + i * e;

		if (type >= FLOAT16) {
			const double v = real(p, type);

			d = r == 0 ? v : op == MAX ? (v > d ? v : d) : op == MIN ? (v < d ? v : d) : d + v;
		} else {
			const int64_t v = whole(p, type);

			l = r == 0	? v
			    : op == MAX ? (v > l ? v : l)
			    : op == MIN ? (v < l ? v : l)
					: (int64_t)((uint64_t)l + (uint64_t)v);
		}
	}
	if (type >= FLOAT16) {
		put_real(to + i * e, type, op == AVG ? d / c->size : d);
		return;
	}
	l = op == AVG ? l / c->size : l;
	memcpy(to + i * e, &l, e);
}

/* ---- the thread of a communicator ---- */

static bool meet(struct comm *c)
{
	const uint64_t n = ++c->round;

	atomic_store(&c->s->arrived[c->rank], n);
	for (int r = 0; r < c->size; r++)
		while (atomic_load(&c->s->arrived[r]) < n) {
			if (atomic_load(&c->aborted))
				return false;
			sched_yield();
		}
	return true;
}

/* From the card or to it. */
static void copy(void *to, const void *from, size_t n)
{
	dt_emu_device_memory(1);
	memcpy(to, from, n);
	dt_emu_device_memory(0);
}

/* [at, at + n) of what each rank gives, through the slots. */
static bool round_of(struct comm *c, const struct job *j, size_t at, size_t n, char *tmp)
{
	const size_t e = size_of[j->type], all = j->n * e;
	const bool reduces = j->kind == ALL_REDUCE || j->kind == REDUCE;
	bool ok;

	if (j->kind != BROADCAST || c->rank == j->root)
		copy(c->s->slot[c->rank], j->src + at, n);
	ok = meet(c);
	if (ok && reduces && (j->kind == ALL_REDUCE || c->rank == j->root)) {
		for (size_t i = 0; i < n / e; i++)
			combine(c, tmp, i, j->type, j->op);
		copy(j->dst + at, tmp, n);
	} else if (ok && j->kind == BROADCAST) {
		copy(j->dst + at, c->s->slot[j->root], n);
	} else if (ok && j->kind == ALL_GATHER) {
		for (int r = 0; r < c->size; r++)
			copy(j->dst + (size_t)r * all + at, c->s->slot[r], n);
	}
	return ok && meet(c);
}

static bool run_collective(struct comm *c, const struct job *j)
{
	const size_t e = size_of[j->type], all = j->n * e;
	const int blocks = j->kind == REDUCE_SCATTER ? c->size : 1;
	char *tmp = malloc(CHUNK);
	bool ok = tmp != NULL;

	for (int b = 0; b < blocks && ok; b++)
		for (size_t at = 0; at < all && ok; at += CHUNK) {
			const size_t n = all - at < CHUNK ? all - at : CHUNK;

			if (blocks == 1) {
				ok = round_of(c, j, at, n, tmp);
				continue;
			}
			copy(c->s->slot[c->rank], j->src + (size_t)b * all + at, n);
			ok = meet(c);
			for (size_t i = 0; ok && b == c->rank && i < n / e; i++)
				combine(c, tmp, i, j->type, j->op);
			if (ok && b == c->rank)
				copy(j->dst + at, tmp, n);
			ok = ok && meet(c);
		}
	free(tmp);
	return ok;
}

/* A chunk of a message if it can go; whether the whole has. */
static bool move(struct comm *c, struct job *j)
{
	const size_t all = j->n * size_of[j->type], n = all - j->at < CHUNK ? all - j->at : CHUNK;
	const int from = j->kind == SEND ? c->rank : j->root, to = j->kind == SEND ? j->root : c->rank;
	struct box *b = &c->s->box[from * c->size + to];

	if (j->at == all)
		return true;
	if (atomic_load(&b->full) != (j->kind == RECV))
		return false;
	if (j->kind == SEND) {
		copy(b->data, j->src + j->at, n);
		b->n = n;
	} else {
		if (b->n != n) {
			fprintf(stderr, "fake NCCL: a message of another size is received\n");
			abort();
		}
		copy(j->dst + j->at, b->data, n);
	}
	atomic_store(&b->full, j->kind == SEND);
	j->at += n;
	return j->at == all;
}

static bool run_messages(struct comm *c, struct job *j)
{
	for (bool open = true; open;) {
		open = false;
		for (struct job *k = j; k; k = k->with)
			open |= !move(c, k);
		if (open && atomic_load(&c->aborted))
			return false;
		if (open)
			sched_yield();
	}
	return true;
}

/* Of an aborted communicator the kernels end, and streams go on. */
static void *end_all(struct comm *c)
{
	pthread_mutex_lock(&c->lock);
	for (struct job *j = c->first; j; j = j->next)
		dt_emu_stream_end(j->stream);
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

static void *work(void *arg)
{
	struct comm *c = arg;

	for (;;) {
		struct job *j;
		bool ok;

		pthread_mutex_lock(&c->lock);
		while (!c->first && !c->closing)
			pthread_cond_wait(&c->more, &c->lock);
		j = c->first;
		pthread_mutex_unlock(&c->lock);
		if (!j)
			return NULL;
		if (j->fate == ASYNC)
			atomic_store(&c->error, REMOTE_ERROR);
		while (j->fate != RIGHT && !atomic_load(&c->aborted))
			usleep(1000);
		ok = !atomic_load(&c->aborted) &&
		     (j->kind == SEND || j->kind == RECV ? run_messages(c, j) : run_collective(c, j));
		if (!ok)
			return end_all(c);
		dt_emu_stream_end(j->stream);
		pthread_mutex_lock(&c->lock);
		c->first = j->next;
		if (!c->first)
			c->last = &c->first;
		pthread_mutex_unlock(&c->lock);
		while (j) {
			struct job *with = j->with;

			free(j);
			j = with;
		}
	}
}

static void enqueue(struct comm *c, struct job *j)
{
	dt_emu_stream_begin(j->stream);
	pthread_mutex_lock(&c->lock);
	*c->last = j;
	c->last = &j->next;
	pthread_cond_signal(&c->more);
	pthread_mutex_unlock(&c->lock);
}

static int queue(struct job job)
{
	const char *s = getenv("DT_FAKE_NCCL"), *rank = getenv("OMPI_COMM_WORLD_RANK");
	const int call = atomic_fetch_add(&calls, 1);
	struct comm *c = job.comm;
	struct job *j;
	char mode[8] = "";
	int who, n;

	if (!job.stream || job.type < 0 || job.type >= TYPES || job.root < 0 || job.root >= c->size)
		return INVALID_ARGUMENT;
	if (s && rank && sscanf(s, "%7s %d %d", mode, &who, &n) == 3 && who == atoi(rank) && n == call) {
		if (!strcmp(mode, "error"))
			return SYSTEM_ERROR;
		job.fate = !strcmp(mode, "async") ? ASYNC : HANG;
	}
	j = malloc(sizeof(*j));
	if (!j)
		return SYSTEM_ERROR;
	*j = job;
	if (depth > 0 && (job.kind == SEND || job.kind == RECV)) {
		j->with = group;
		group = j;
	} else {
		enqueue(c, j);
	}
	return SUCCESS;
}

/* ---- the interface ---- */

API int ncclGetVersion(int *version)
{
	const char *s = getenv("DT_FAKE_NCCL_VERSION");

	*version = s ? atoi(s) : 22800;
	return SUCCESS;
}

API const char *ncclGetErrorString(int r)
{
	return r == SYSTEM_ERROR       ? "unhandled system error (fake)"
	       : r == REMOTE_ERROR     ? "remote process exited or there was a network error (fake)"
	       : r == INVALID_ARGUMENT ? "invalid argument (fake)"
				       : "no error";
}

API int ncclGetUniqueId(struct id *id)
{
	const char *dir = getenv("TMPDIR");

	memset(id, 0, sizeof(*id));
	snprintf(id->path, sizeof(id->path), "%s/dt-fake-nccl-%d-%d",
		 dir && *dir && strlen(dir) < 80 ? dir : "/tmp", (int)getpid(), atomic_fetch_add(&made, 1));
	return SUCCESS;
}

API int ncclCommInitRank(struct comm **ret, int size, struct id id, int rank)
{
	struct comm *c = calloc(1, sizeof(*c));
	int fd;

	if (!c || size < 1 || size > RANKS_MAX || rank < 0 || rank >= size)
		return INVALID_ARGUMENT;
	c->rank = rank;
	c->size = size;
	c->bytes = sizeof(struct shared) + (size_t)(size * size) * sizeof(struct box);
	fd = open(id.path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)c->bytes))
		return SYSTEM_ERROR;
	c->s = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (c->s == MAP_FAILED)
		return SYSTEM_ERROR;
	atomic_fetch_add(&c->s->joined, 1);
	while (atomic_load(&c->s->joined) < size)
		usleep(500);
	if (rank == 0)
		unlink(id.path);
	c->last = &c->first;
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->more, NULL);
	if (pthread_create(&c->thread, NULL, work, c))
		return SYSTEM_ERROR;
	*ret = c;
	return SUCCESS;
}

static int end(struct comm *c)
{
	pthread_mutex_lock(&c->lock);
	c->closing = true;
	pthread_cond_signal(&c->more);
	pthread_mutex_unlock(&c->lock);
	pthread_join(c->thread, NULL);
	munmap(c->s, c->bytes);
	pthread_mutex_destroy(&c->lock);
	pthread_cond_destroy(&c->more);
	free(c);
	return SUCCESS;
}

API int ncclCommDestroy(struct comm *c)
{
	return end(c);
}

API int ncclCommAbort(struct comm *c)
{
	atomic_store(&c->aborted, true);
	fprintf(stderr, "fake NCCL: aborted\n");
	return end(c);
}

API int ncclCommGetAsyncError(struct comm *c, int *ret)
{
	*ret = atomic_load(&c->error);
	return SUCCESS;
}

API int ncclAllReduce(const void *src, void *dst, size_t n, int type, int op, struct comm *c, void *stream)
{
	return queue((struct job){ALL_REDUCE, src, dst, n, type, op, 0, stream, .comm = c});
}

API int ncclReduce(const void *src, void *dst, size_t n, int type, int op, int root, struct comm *c,
		   void *stream)
{
	return queue((struct job){REDUCE, src, dst, n, type, op, root, stream, .comm = c});
}

API int ncclBroadcast(const void *src, void *dst, size_t n, int type, int root, struct comm *c, void *stream)
{
	return queue((struct job){BROADCAST, src, dst, n, type, 0, root, stream, .comm = c});
}

API int ncclAllGather(const void *src, void *dst, size_t n, int type, struct comm *c, void *stream)
{
	return queue((struct job){ALL_GATHER, src, dst, n, type, 0, 0, stream, .comm = c});
}

/* In place only where NCCL has it: dst is this rank's block of src. */
API int ncclReduceScatter(const void *src, void *dst, size_t n, int type, int op, struct comm *c,
			  void *stream)
{
	const char *s = src, *d = dst;
	const size_t block = n * size_of[type];

	if (d < s + block * (size_t)c->size && d + block > s && d != s + block * (size_t)c->rank)
		return INVALID_ARGUMENT;
	return queue((struct job){REDUCE_SCATTER, src, dst, n, type, op, 0, stream, .comm = c});
}

API int ncclSend(const void *src, size_t n, int type, int peer, struct comm *c, void *stream)
{
	return queue((struct job){SEND, src, NULL, n, type, 0, peer, stream, .comm = c});
}

API int ncclRecv(void *dst, size_t n, int type, int peer, struct comm *c, void *stream)
{
	return queue((struct job){RECV, NULL, dst, n, type, 0, peer, stream, .comm = c});
}

API int ncclGroupStart(void)
{
	depth++;
	return SUCCESS;
}

API int ncclGroupEnd(void)
{
	if (--depth == 0 && group) {
		enqueue(group->comm, group);
		group = NULL;
	}
	return SUCCESS;
}
/* SPDX-License-Identifier: Apache-2.0 */
