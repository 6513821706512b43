/*
 * The board of an elastic world: an anonymous shared mapping with a slot for every process. A slot is written
 * by its process, but for its state, which any member sets to OUT. The members of an epoch are a list on the
 * board. Ranks are places in it.
 *
 * The next epoch begins when every member of this one has arrived or is out: the first to see that writes the
 * new list, under a lock that dies with its holder. A member that is lost between its arrival and the list is
 * found by the next exchange, and the epoch after it begins in the same way. A process that joins takes a
 * free slot, arrives for the next epoch, and is on its list; the members need not wait for it.
 *
 * The epoch is in every number that a rank publishes here, and all other memory that ranks share is made anew
 * for each epoch: what a process of an earlier epoch still writes nobody reads.
 */
#include "comm/elastic.h"
#include "comm/watchdog.h"

#include "base/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SLOTS	  256 /* processes at a time; the slot of one that has ended is used again */
#define STOPPED_S 1.0 /* after so long a process that stands still is lost */
#define LOOK_S	  0.02

#define MAGIC 0x64742d656c617333ull

enum { FREE, TAKEN /* being filled in */, JOINS, MEMBER, OUT, FINISHED };
enum { LEFT, DIED, STANDS }; /* why a process is out */

struct slot {
	_Alignas(128) _Atomic int state;
	_Atomic int pid, how;
	_Atomic uint64_t born;	  /* of the process, in ticks since boot: numbers of processes come again */
	_Atomic uint64_t arrived; /* the epoch it waits for */
	_Atomic uint64_t said;	  /* epoch << 32 | number of the exchange */
	char blob[2][DT_COMM_EXCHANGE_MAX];
};

/* The members of an epoch. The lists of two epochs take turns: the new one is whole when its epoch begins. */
struct list {
	int n, member[SLOTS];
};

struct board {
	uint64_t magic;
	char build[32]; /* of the first rank's program */
	_Atomic uint64_t epoch;
	_Atomic int decider;	/* slot + 1 of who writes the list; 0: nobody */
	_Atomic unsigned taken; /* slots so far: a process takes the one not used for longest */
	struct list list[2];
	struct slot slot[SLOTS];
};

struct dt_elastic {
	struct board *b;
	int fd, me, n, member[SLOTS];
	uint64_t epoch, said;
	atomic_bool breaking;
	double still[2][SLOTS]; /* since when a process stands still, as each of two threads has seen it */
};

/* The state letter and the start of a process; 0: it has ended. */
static char look_up(int pid, uint64_t *ret_born)
{
	char path[32], text[1024], state = 0, *p;
	unsigned long long born = 0;
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
	if (f)
		fclose(f);
	text[n] = '\0';
	p = strrchr(text, ')');
	if (!p ||
	    sscanf(p + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
		   &state, &born) != 2)
		return 0;
	*ret_born = born;
	return state == 'Z' || state == 'X' ? 0 : state;
}

/* Whether the process of slot i is lost: 0, or why. thread: 0 for the watchdog's, 1 for the rank's own. */
static int is_lost(struct dt_elastic *e, int thread, int i)
{
	struct slot *s = &e->b->slot[i];
	uint64_t born = 0;
	char run = look_up(atomic_load(&s->pid), &born);

	if (!run || born != atomic_load(&s->born))
		return DIED;
	if (run != 'T' && run != 't') {
		e->still[thread][i] = 0;
		return 0;
	}
	if (e->still[thread][i] <= 0)
		e->still[thread][i] = dt_now();
	return dt_now() - e->still[thread][i] > STOPPED_S ? STANDS : 0;
}

/* Whether slot i is out; it is voted out where it is lost. */
static bool vote(struct dt_elastic *e, int thread, int i)
{
	struct slot *s = &e->b->slot[i];
	int was = atomic_load(&s->state), how;

	if (was != MEMBER && was != JOINS)
		return was == OUT || was == FREE;
	how = is_lost(e, thread, i);
	if (!how)
		return false;
	atomic_store(&s->how, how);
	atomic_compare_exchange_strong(&s->state, &was, OUT);
	return true;
}

/* The world is broken: "rank 1 (process 123) has died". By the first thread that finds it. */
static void break_world(struct dt_world *w, int rank)
{
	const struct slot *s = &w->elastic->b->slot[w->elastic->member[rank]];
	int how = atomic_load(&s->how);

	if (atomic_exchange(&w->elastic->breaking, true))
		return;
	snprintf(w->why, sizeof(w->why), "rank %d (process %d) %s", rank, atomic_load(&s->pid),
		 how == DIED	 ? "has died"
		 : how == STANDS ? "stands still"
				 : "has left");
	atomic_store(&w->broken, true);
}

static int map(struct dt_world *w, int fd, struct dt_err *err)
{
	struct dt_elastic *e = calloc(1, sizeof(*e));
	struct stat st;
	void *p = MAP_FAILED;

	if (e && fstat(fd, &st) == 0 && (size_t)st.st_size >= sizeof(struct board))
		p = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		free(e);
		if (fd >= 0)
			close(fd);
		return dt_err_set(err, -EIO, "cannot map the board of the job's ranks");
	}
	e->b = p;
	e->fd = fd;
	w->elastic = e;
	return 0;
}

static void take_slot(struct dt_elastic *e, int i, int state)
{
	struct slot *s = &e->b->slot[i];
	uint64_t born = 0;

	look_up((int)getpid(), &born);
	e->me = i;
	atomic_store(&s->born, born);
	atomic_store(&s->pid, (int)getpid());
	atomic_store(&s->arrived, 0);
	atomic_store(&s->said, 0);
	atomic_store(&s->state, state);
}

static void build_name(char buf[32])
{
	snprintf(buf, 32, "%s/%zu/%zu", DT_VERSION, sizeof(struct dt_comm_slot), sizeof(struct board));
}

/* What the first rank writes before others read it. */
static void write_board(struct board *b, const struct dt_elastic *e)
{
	struct list *l = &b->list[1];

	l->n = e->n;
	memcpy(l->member, e->member, sizeof(l->member));
	build_name(b->build);
	b->magic = MAGIC;
	atomic_store(&b->taken, (unsigned)e->n);
	atomic_store(&b->epoch, 1);
}

int dt_comm_elastic_open(struct dt_world *w, struct dt_err *err)
{
	struct {
		int pid, fd;
	} at = {(int)getpid(), -1};
	char path[64];
	int rc = 0, ok;

	if (w->info.nodes > 1)
		return dt_err_set(err, -ENOTSUP, "--elastic wants all ranks on one machine, these are on %d",
				  w->info.nodes);
	if (w->info.rank == 0) { /* of its size before anybody else can open it */
		at.fd = memfd_create("dt-board", MFD_CLOEXEC);
		if (at.fd >= 0 && ftruncate(at.fd, sizeof(struct board)) < 0) {
			close(at.fd);
			at.fd = -1;
		}
	}
	if (w->mpi)
		MPI_Bcast(&at, sizeof(at), MPI_BYTE, 0, w->world);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", at.pid, at.fd);
	rc = map(w, w->info.rank == 0 ? at.fd : open(path, O_RDWR | O_CLOEXEC), err);
	ok = rc == 0 && w->info.size <= SLOTS;
	if (ok) {
		struct dt_elastic *e = w->elastic;

		take_slot(e, w->info.rank, MEMBER);
		e->epoch = 1;
		e->n = w->info.size;
		for (int i = 0; i < e->n; i++)
			e->member[i] = i;
		if (w->info.rank == 0)
			write_board(e->b, e);
	}
	if (w->mpi) /* after this all slots are taken */
		MPI_Allreduce(MPI_IN_PLACE, &ok, 1, MPI_INT, MPI_MIN, w->world);
	return ok ? 0 : rc ? rc : dt_err_set(err, -ENOTSUP, "the ranks cannot share a board");
}

/* Whether this process is no member any more; its slot may be another's by now. */
static bool is_out(const struct dt_elastic *e)
{
	const struct slot *me = &e->b->slot[e->me];

	return atomic_load(&me->state) == OUT || atomic_load(&me->pid) != (int)getpid();
}

static int out_of_date(struct dt_err *err)
{
	return dt_err_set(err, -ESTALE, "the other ranks went on without this one");
}

/* Whether the exchange must be given up. */
static int look(struct dt_world *w, struct dt_err *err)
{
	struct dt_elastic *e = w->elastic;

	if (is_out(e))
		return out_of_date(err);
	for (int r = 0; r < e->n; r++)
		if (r != w->info.rank && vote(e, 1, e->member[r])) {
			break_world(w, r);
			return dt_err_set(err, -ETIMEDOUT, "rank %d is lost", r);
		}
	return 0;
}

int dt_comm_exchange(struct dt_world *w, const void *mine, size_t bytes, void *all, struct dt_err *err)
{
	struct dt_elastic *e = w->elastic;
	struct slot *me = &e->b->slot[e->me];
	uint64_t number = e->epoch << 32 | ++e->said;
	double next = dt_now() + LOOK_S;
	int rc;

	if (bytes)
		memcpy(me->blob[e->said & 1], mine, bytes);
	atomic_store_explicit(&me->said, number, memory_order_release);
	for (int r = 0, n = 0; r < e->n; r++) {
		struct slot *s = &e->b->slot[e->member[r]];

		while (atomic_load_explicit(&s->said, memory_order_acquire) < number) {
			if (++n % 64)
				sched_yield();
			else
				nanosleep(&(struct timespec){0, 100000}, NULL);
			if (n % 64 || dt_now() < next)
				continue;
			if ((rc = look(w, err)) < 0)
				return rc;
			next = dt_now() + LOOK_S;
		}
		if (bytes && all)
			memcpy((char *)all + (size_t)r * bytes, s->blob[e->said & 1], bytes);
	}
	return 0;
}

void dt_comm_elastic_watch(struct dt_world *w)
{
	struct dt_elastic *e = w->elastic;

	if (is_out(e)) {
		dt_log_msg(w->log, "the other ranks went on without this one, which leaves");
		_exit(DT_EXIT_FAILED);
	}
	if (dt_now() - w->watch->resumed < STOPPED_S) { /* this process stood still itself */
		memset(e->still[0], 0, sizeof(e->still[0]));
		return;
	}
	for (int r = 0; r < e->n && !atomic_load(&w->broken); r++) {
		if (r == w->info.rank || !vote(e, 0, e->member[r]))
			continue;
		break_world(w, r);
	}
}

/* ---- the next epoch ---- */

/* Whether every process that is to be a member of it has arrived. */
static bool all_here(struct dt_elastic *e, uint64_t next)
{
	bool all = true;

	for (int i = 0; i < SLOTS; i++) {
		struct slot *s = &e->b->slot[i];

		if (atomic_load(&s->state) == MEMBER && atomic_load(&s->arrived) < next && !vote(e, 1, i))
			all = false;
	}
	return all;
}

static bool is_on(const struct list *l, int slot)
{
	for (int r = 0; r < l->n; r++)
		if (l->member[r] == slot)
			return true;
	return false;
}

/*
 * Those that are left, in their order, then those that join. A slot whose process has ended is free then:
 * every member has arrived, so nobody reads the old list any more.
 */
static void write_list(struct dt_elastic *e, uint64_t next)
{
	const struct list *old = &e->b->list[(next - 1) & 1];
	struct list *l = &e->b->list[next & 1];
	struct slot *slot = e->b->slot;

	l->n = 0;
	for (int r = 0; r < old->n; r++)
		if (atomic_load(&slot[old->member[r]].state) == MEMBER)
			l->member[l->n++] = old->member[r];
	for (int i = 0; i < SLOTS; i++) {
		int was = atomic_load(&slot[i].state);

		if (was == OUT && is_lost(e, 1, i) == DIED)
			atomic_compare_exchange_strong(&slot[i].state, &was, FREE);
		/* A member that was on no list: who wrote it was lost before its epoch began. */
		if ((was != JOINS && was != MEMBER) || atomic_load(&slot[i].arrived) != next ||
		    is_on(old, i) || vote(e, 1, i))
			continue;
		if (was == MEMBER || atomic_compare_exchange_strong(&slot[i].state, &was, MEMBER))
			l->member[l->n++] = i;
	}
	atomic_store(&e->b->epoch, next);
}

/* Takes the lock, also from a holder that is lost, and writes the list unless somebody has. */
static void decide(struct dt_elastic *e, uint64_t next)
{
	int holder = 0;
	if (!atomic_compare_exchange_strong(&e->b->decider, &holder, e->me + 1) &&
	    !(vote(e, 1, holder - 1) && atomic_compare_exchange_strong(&e->b->decider, &holder, e->me + 1)))
		return;
	if (atomic_load(&e->b->epoch) < next && all_here(e, next))
		write_list(e, next);
	atomic_store(&e->b->decider, 0);
}

/* Waits for the epoch after this one. */
static int wait_for_all(struct dt_world *w, uint64_t next, struct dt_err *err)
{
	struct dt_elastic *e = w->elastic;
	double end = dt_now() + (w->opts.timeout_s > 0 ? w->opts.timeout_s : 60);

	atomic_store(&e->b->slot[e->me].arrived, next);
	while (atomic_load(&e->b->epoch) < next) {
		if (is_out(e))
			return out_of_date(err);
		if (all_here(e, next))
			decide(e, next);
		nanosleep(&(struct timespec){0, 500000}, NULL);
		if (dt_now() > end)
			return dt_err_set(err, -ETIME, "the ranks that are left have not come together");
	}
	return 0;
}

/* Whether the job has a member. */
static bool anybody(struct dt_elastic *e)
{
	for (int i = 0; i < SLOTS; i++)
		if (atomic_load(&e->b->slot[i].state) == MEMBER && !is_lost(e, 1, i))
			return true;
	return false;
}

/* Waits for an epoch whose list has this process: the next one, or one after that. */
static int wait_to_join(struct dt_elastic *e, uint64_t *ret_next, struct dt_err *err)
{
	struct slot *me = &e->b->slot[e->me];
	uint64_t next = 0;

	for (double look = dt_now() + LOOK_S; atomic_load(&me->state) == JOINS;) {
		uint64_t now = atomic_load(&e->b->epoch);

		if (now >= next) { /* it began without this one */
			next = now + 1;
			atomic_store(&me->arrived, next);
		}
		nanosleep(&(struct timespec){0, 500000}, NULL);
		if (dt_now() < look)
			continue;
		if (!anybody(e)) {
			atomic_store(&me->state, OUT);
			return dt_err_set(err, -ESRCH, "the job to join has ended");
		}
		look = dt_now() + LOOK_S;
	}
	*ret_next = next;
	return 0;
}

/* Arrives, and leaves with the list of the epoch that has begun. */
static int arrive(struct dt_world *w, struct dt_err *err)
{
	struct dt_elastic *e = w->elastic;
	uint64_t next = e->epoch + 1;
	int rc;

	memset(e->still[1], 0, sizeof(e->still[1]));
	rc = e->epoch ? 0 : wait_to_join(e, &next, err);
	if (rc == 0)
		rc = wait_for_all(w, next, err);
	if (rc < 0)
		return rc;
	e->epoch = next;
	e->said = 0;
	e->n = e->b->list[next & 1].n;
	memcpy(e->member, e->b->list[next & 1].member, sizeof(e->member));
	return 0;
}

/* This process's number and the tables of ranks in the epoch that has begun, and the board of its ranks. */
static int enter(struct dt_world *w, struct dt_err *err)
{
	struct dt_elastic *e = w->elastic;
	int rc;

	w->info = (struct dt_world_info){.size = e->n, .local_size = e->n, .nodes = 1};
	for (int r = 0; r < e->n; r++)
		if (e->member[r] == e->me)
			w->info.rank = w->info.local_rank = r;
	free(w->node_of);
	free(w->node_ranks);
	w->node_of = calloc((size_t)e->n, sizeof(int));
	w->node_ranks = calloc((size_t)e->n, sizeof(int));
	if (!w->node_of || !w->node_ranks)
		return dt_err_sys(err, -ENOMEM, "table of %d ranks", e->n);
	for (int r = 0; r < e->n; r++)
		w->node_ranks[r] = r;
	dt_comm_count_processors(w);
	w->groups = e->epoch << 32;
	w->why[0] = '\0';
	atomic_store(&w->broken, false);
	atomic_store(&e->breaking, false);
	rc = dt_comm_watch_start(w, err);
	if (!rc)
		rc = dt_comm_board_open(w, err);
	if (!rc)
		rc = dt_comm_watch_connect(w, err);
	if (!rc)
		dt_comm_slot_leave(w);
	return rc;
}

/* Maps the board that descriptor FD of process PID is; "PID:FD". */
static int find_board(struct dt_world *w, const char *at, struct dt_err *err)
{
	char path[64], build[32], rest;
	int pid, board, fd, rc;

	if (sscanf(at, "%d:%d%c", &pid, &board, &rest) != 2)
		return dt_err_set(err, -EINVAL, "'%s' does not say where the board of a job is", at);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, board);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return dt_err_sys(err, -errno, "cannot reach the job of process %d", pid);
	rc = map(w, fd, err);
	build_name(build);
	if (rc == 0 && (w->elastic->b->magic != MAGIC || strncmp(w->elastic->b->build, build, sizeof(build))))
		return dt_err_set(err, -EINVAL, "process %d runs another build of dt", pid);
	return rc;
}

int dt_comm_elastic_join(struct dt_world *w, const char *at, struct dt_err *err)
{
	int rc = find_board(w, at, err);

	for (int n = 0; n < SLOTS && rc == 0; n++) {
		int none = FREE, i = (int)(atomic_fetch_add(&w->elastic->b->taken, 1) % SLOTS);

		if (!atomic_compare_exchange_strong(&w->elastic->b->slot[i].state, &none, TAKEN))
			continue;
		take_slot(w->elastic, i, JOINS);
		return dt_world_reform(w, err);
	}
	return rc ? rc : dt_err_set(err, -ENOSPC, "the job has %d processes already", SLOTS);
}

int dt_world_waiting(const struct dt_world *w)
{
	const struct dt_elastic *e = w->elastic;
	int n = 0;

	for (int i = 0; e && i < SLOTS; i++)
		n += atomic_load(&e->b->slot[i].state) == JOINS &&
		     atomic_load(&e->b->slot[i].arrived) == e->epoch + 1;
	return n;
}

bool dt_world_joined(const struct dt_world *w)
{
	return w->opts.join != NULL;
}

int dt_world_reform(struct dt_world *w, struct dt_err *err)
{
	for (;;) {
		int rc;

		dt_comm_watch_stop(w);
		dt_comm_regions_release(w);
		dt_comm_chans_close(w);
		dt_comm_board_close(w);
		w->pending = 0;
		rc = arrive(w, err);
		if (rc < 0)
			return rc;
		rc = enter(w, err);
		if (rc != -ETIMEDOUT) /* else another one was lost meanwhile */
			return rc;
	}
}

bool dt_world_lost(struct dt_world *w)
{
	double end = dt_now() + STOPPED_S + 0.5;

	while (w->elastic && !atomic_load(&w->broken) && look(w, NULL) == 0 && dt_now() < end)
		nanosleep(&(struct timespec){0, 10000000}, NULL);
	return w->elastic && atomic_load(&w->broken);
}

struct dt_world_epoch dt_world_epoch(const struct dt_world *w)
{
	const struct dt_elastic *e = w->elastic;

	return e ? (struct dt_world_epoch){e->epoch, e->me, e->fd}
		 : (struct dt_world_epoch){0, w->info.rank, -1};
}

void dt_comm_elastic_leave(struct dt_world *w, bool finished)
{
	struct dt_elastic *e = w->elastic;
	uint64_t born = 0;

	atomic_store(&e->b->slot[e->me].state, finished ? FINISHED : OUT);
	/* One that was left standing would keep its launcher from ending. */
	for (int i = 0; finished && i < SLOTS; i++) {
		int pid = atomic_load(&e->b->slot[i].pid), is = atomic_load(&e->b->slot[i].state);

		if ((is == OUT || is == JOINS) && look_up(pid, &born) == 'T' &&
		    born == atomic_load(&e->b->slot[i].born))
			kill(pid, SIGKILL);
	}
}

void dt_comm_elastic_close(struct dt_world *w)
{
	if (!w->elastic)
		return;
	munmap(w->elastic->b, sizeof(struct board));
	close(w->elastic->fd);
	free(w->elastic);
	w->elastic = NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
