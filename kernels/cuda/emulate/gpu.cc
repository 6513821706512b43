/*
 * gpu.h without a card. Every allocation ends (up to 16 bytes) at a page that is never mapped, begins as NaN
 * and is out of the host's reach outside launches and copies. What a copy to the host brings is there when
 * the stream has been waited for, by the host or by another stream, not before.
 *
 * With DT_EMULATED_COPIES=late, copies in streams that never clear anything, as a device's own does, happen
 * when somebody waits for them and not before: what they read or write without an order has changed then.
 * With =ordered such a stream must besides have waited for all kernels that were launched before.
 */
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/emulate/memory.h"
#include "kernels/cuda/emulate/record.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define HUGE ((size_t)2 << 20) /* such a page is one to mprotect, too, which is called twice a launch */

struct region {
	char *all, *map, *base; /* all: what is mapped, from the first huge page in it map on */
	size_t room, mapped, n;
	struct region *next;
};

struct late {
	void *to;
	void *from; /* a copy of its own; NULL: it has not been read */
	const void *source;
	size_t n;
	struct late *next;
};

struct stream {
	struct late *first, **last;
	uint64_t sent, arrived; /* of such copies */
	uint64_t begun, ended;	/* what libraries compute beside us in this stream: dt_emu_stream_begin */
	bool own;		/* it has cleared something */
	long seen;		/* kernels that were launched before what it has waited for */
};

struct event {
	struct stream *in;
	uint64_t begun, sent; /* of the stream when it was recorded */
	long launched;	      /* likewise */
	int asked;	      /* whether it is over */
};

static struct region *regions;
static int opened;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t streams = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t lists = PTHREAD_MUTEX_INITIALIZER; /* of copies that are late */

static struct region *region_of(const void *p, size_t n)
{
	for (struct region *r = regions; r; r = r->next)
		if ((const char *)p >= r->base && (const char *)p + n <= r->base + r->n)
			return r;
	return NULL;
}

bool dt_emu_is_device(const void *p, size_t n)
{
	return region_of(p, n) != NULL;
}

static void protect(struct region *r, int how)
{
	if (mprotect(r->map, r->mapped, how) < 0)
		dt_emu_die("mprotect failed");
}

void dt_emu_open_memory(bool open)
{
	pthread_mutex_lock(&lock);
	opened += open ? 1 : -1;
	if (opened == (open ? 1 : 0))
		for (struct region *r = regions; r; r = r->next)
			protect(r, open ? PROT_READ | PROT_WRITE : PROT_NONE);
	pthread_mutex_unlock(&lock);
}

void dt_emu_stream_begin(void *stream)
{
	pthread_mutex_lock(&streams);
	((struct stream *)stream)->begun++;
	pthread_mutex_unlock(&streams);
}

void dt_emu_stream_end(void *stream)
{
	pthread_mutex_lock(&streams);
	((struct stream *)stream)->ended++;
	pthread_cond_broadcast(&ended);
	pthread_mutex_unlock(&streams);
}

void dt_emu_device_memory(int open)
{
	dt_emu_open_memory(open != 0);
}

/* Until what others began in the stream up to then has ended. */
static void settle(struct stream *s, uint64_t begun)
{
	pthread_mutex_lock(&streams);
	while (s->ended < begun)
		pthread_cond_wait(&ended, &streams);
	pthread_mutex_unlock(&streams);
}

/* Copies of a stream that are late arrive, in order, up to this one. */
static void arrive(struct stream *s, uint64_t upto)
{
	pthread_mutex_lock(&lists);
	while (s->first && s->arrived < upto) {
		struct late *l = s->first;

		if (l->from) {
			memcpy(l->to, l->from, l->n);
		} else {
			dt_emu_open_memory(true);
			memmove(l->to, l->source, l->n);
			dt_emu_open_memory(false);
		}
		s->arrived++;
		s->first = l->next;
		if (!s->first)
			s->last = &s->first;
		free(l->from);
		free(l);
	}
	pthread_mutex_unlock(&lists);
}

static int send(struct stream *s, void *to, const void *source, size_t n, bool read)
{
	struct late *l = (struct late *)calloc(1, sizeof *l);

	if (!l || (read && !(l->from = malloc(n))))
		dt_emu_die("no memory for a copy");
	if (read)
		memcpy(l->from, source, n);
	l->to = to;
	l->source = source;
	l->n = n;
	pthread_mutex_lock(&lists);
	*s->last = l;
	s->last = &l->next;
	s->sent++;
	pthread_mutex_unlock(&lists);
	return 0;
}

/* DT_EMULATED_COPIES, see above. */
static bool is_late(const struct stream *s)
{
	return getenv("DT_EMULATED_COPIES") && !s->own;
}

static bool is_ordered(const struct stream *s)
{
	return !is_late(s) || strcmp(getenv("DT_EMULATED_COPIES"), "ordered") || s->seen == dt_emu_launches();
}

/* DT_EMULATED_CARDS: how many there are, one if it is not set. */
int dt_gpu_count(void)
{
	const char *s = getenv("DT_EMULATED_CARDS");
	const int n = s ? atoi(s) : 1;

	return n > 0 ? n : -ENODEV;
}

/* DT_EMULATED_SM: what they say they can do, 90 if it is not set. */
int dt_gpu_info(int index, struct dt_gpu_info *ret)
{
	const char *s = getenv("DT_EMULATED_SM");
	const int sm = s ? atoi(s) : 90;

	if (index < 0 || index >= dt_gpu_count())
		return -ENODEV;
	*ret = (struct dt_gpu_info){"emulated", sm / 10, sm % 10, 4, (size_t)4 << 30, {0}};
	snprintf((char *)ret->id, sizeof ret->id, "card %d", index);
	return 0;
}

int dt_gpu_use(int index)
{
	return index < 0 || index >= dt_gpu_count() ? -ENODEV : 0;
}

int dt_gpu_memory(size_t *ret_free, size_t *ret_total)
{
	*ret_total = *ret_free = (size_t)4 << 30;
	for (struct region *r = regions; r; r = r->next)
		*ret_free -= r->n < *ret_free ? r->n : *ret_free;
	return 0;
}

bool dt_gpu_emulated(void)
{
	return true;
}

int dt_gpu_alloc(void **ret, size_t n)
{
	const size_t room = (n + 15) / 16 * 16, mapped = (room + PAGE - 1) / PAGE * PAGE + !room * PAGE;
	const size_t all = mapped + PAGE + (mapped < HUGE ? 0 : HUGE);
	struct region *r = (struct region *)calloc(1, sizeof *r);
	char *map = (char *)mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (!r || map == MAP_FAILED) {
		free(r);
		return -ENOMEM;
	}
	r->all = map;
	r->room = all;
	if (mapped >= HUGE) {
		map += -(uintptr_t)map % HUGE;
		madvise(map, mapped / HUGE * HUGE, MADV_HUGEPAGE);
	}
	r->map = map;
	r->base = map + mapped - room;
	r->mapped = mapped;
	r->n = n;
	protect(r, PROT_READ | PROT_WRITE);
	memset(map, 0xff, mapped);
	pthread_mutex_lock(&lock);
	if (!opened)
		protect(r, PROT_NONE);
	r->next = regions;
	regions = r;
	pthread_mutex_unlock(&lock);
	*ret = r->base;
	return 0;
}

void dt_gpu_free(void *p)
{
	struct region **at = &regions, *r;

	if (!p)
		return;
	pthread_mutex_lock(&lock);
	while (*at && (*at)->base != p)
		at = &(*at)->next;
	r = *at;
	if (!r)
		dt_emu_die("freed what was never allocated");
	*at = r->next;
	pthread_mutex_unlock(&lock);
	protect(r, PROT_READ | PROT_WRITE);
	for (const char *c = r->map; c < r->map + r->mapped; c++)
		if ((c < r->base || c >= r->base + r->n) && *c != (char)0xff)
			dt_emu_die("a kernel wrote beside an allocation");
	munmap(r->all, r->room);
	free(r);
}

int dt_gpu_host_alloc(void **ret, size_t n)
{
	*ret = aligned_alloc(64, (n + 63) / 64 * 64 + !n * 64);
	return *ret ? 0 : -ENOMEM;
}

void dt_gpu_host_free(void *p)
{
	free(p);
}

int dt_gpu_copy(void *to, const void *from, size_t n, void *stream)
{
	struct stream *s = (struct stream *)stream;
	const bool in = dt_emu_is_device(to, n), out = dt_emu_is_device(from, n);

	if (!n)
		return 0;
	if (dt_emu_recording() && dt_emu_record_copy(to, from, 0, n))
		return 0;
	if (!in && !out) {
		fprintf(stderr, "emulated copy of %zu bytes: neither side is the card's\n", n);
		return -EIO;
	}
	settle(s, s->begun);
	if (!is_ordered(s))
		dt_emu_die("a copy in a queue that has not waited for kernels before it");
	if (is_late(s))
		return send(s, to, from, n, false);
	dt_emu_open_memory(true);
	if (in)
		memmove(to, from, n);
	else
		send(s, to, from, n, true);
	dt_emu_open_memory(false);
	return 0;
}

int dt_gpu_copy_rows(void *to, size_t to_step, const void *from, size_t from_step, size_t n, size_t rows,
		     void *stream)
{
	int rc = 0;

	for (size_t i = 0; i < rows && rc == 0; i++)
		rc = dt_gpu_copy((char *)to + i * to_step, (const char *)from + i * from_step, n, stream);
	return rc;
}

int dt_gpu_set(void *to, int byte, size_t n, void *stream)
{
	((struct stream *)stream)->own = true;
	if (dt_emu_recording() && dt_emu_record_copy(to, NULL, byte, n))
		return 0;
	if (n && !dt_emu_is_device(to, n))
		return -EIO;
	dt_emu_open_memory(true);
	memset(to, byte, n);
	dt_emu_open_memory(false);
	return 0;
}

int dt_gpu_stream_open(void **ret)
{
	struct stream *s = (struct stream *)calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->last = &s->first;
	*ret = s;
	return 0;
}

int dt_gpu_stream_sync(void *stream)
{
	struct stream *s = (struct stream *)stream;

	if (dt_emu_recording()) {
		fprintf(stderr, "emulated stream: waited for while it is recorded\n");
		return -EIO;
	}
	settle(s, s->begun);
	arrive(s, UINT64_MAX);
	return 0;
}

void dt_gpu_stream_close(void *stream)
{
	struct stream *s = (struct stream *)stream;

	while (s->first) { /* nobody waited for it: it never arrives */
		struct late *l = s->first;

		s->first = l->next;
		free(l->from);
		free(l);
	}
	free(s);
}

/*
 * An event is the stream it was last recorded in: all of our own work is done when its call returns, and what
 * libraries have begun there is waited for.
 */
int dt_gpu_event_open(void **ret)
{
	*ret = calloc(1, sizeof(struct event));
	return *ret ? 0 : -ENOMEM;
}

void dt_gpu_event_close(void *event)
{
	free(event);
}

int dt_gpu_event_record(void *event, void *stream)
{
	struct stream *s = (struct stream *)stream;

	*(struct event *)event =
		(struct event){s, s->begun, s->sent, s->own ? dt_emu_launches() : s->seen, 0};
	return 0;
}

int dt_gpu_event_wait(void *event, void *stream)
{
	const struct event *e = (const struct event *)event;
	struct stream *s = (struct stream *)stream;

	if (e->in && e->in != s) {
		settle(e->in, e->begun);
		arrive(e->in, e->sent);
		if (e->launched > s->seen)
			s->seen = e->launched;
	}
	return 0;
}

int dt_gpu_event_sync(void *event)
{
	const struct event *e = (const struct event *)event;

	if (!e->in)
		return 0;
	if (dt_emu_recording()) {
		fprintf(stderr, "emulated stream: waited for while it is recorded\n");
		return -EIO;
	}
	settle(e->in, e->begun);
	arrive(e->in, e->sent);
	return 0;
}

int dt_gpu_event_done(void *event)
{
	struct event *e = (struct event *)event;
	bool done;

	pthread_mutex_lock(&streams);
	done = !e->in || e->in->ended >= e->begun;
	pthread_mutex_unlock(&streams);
	if (done && e->in && e->in->arrived < e->sent && is_late(e->in) && e->asked++ < 2)
		return false; /* as a copy that takes its time */
	if (done && e->in)
		arrive(e->in, e->sent);
	return done;
}

int dt_gpu_event_ms(void *from, void *to, float *ret)
{
	(void)from;
	(void)to;
	*ret = 0; /* emulated time means nothing */
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
