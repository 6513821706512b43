/* Worlds whose ranks leave and join: functions of comm.h and elastic.h over the board (elastic_seats.h). */
#include "comm/elastic_seats.h"
#include "comm/nccl.h"
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

#define LOOK_S 0.02 /* seconds between two checks that the others are alive */

/* Marks the world as broken: "rank 1 (process 123) has died". Only the first thread that finds it does. */
static void break_world(struct dt_world *w, int rank)
{
	const struct dt_seat *s = &w->elastic->b->seat[w->elastic->member[rank]];
	int how = atomic_load(&s->how);

	if (atomic_exchange(&w->elastic->breaking, true))
		return;
	snprintf(w->why, sizeof(w->why), "rank %d (process %d) %s", rank, atomic_load(&s->pid),
		 how == DT_SEAT_DIED	 ? "has died"
		 : how == DT_SEAT_STANDS ? "makes no progress"
					 : "has left");
	atomic_store(&w->broken, true);
	dt_comm_nccl_give_up(w);
}

static int map(struct dt_world *w, int fd, struct dt_err *err)
{
	struct dt_elastic *e = calloc(1, sizeof(*e));
	struct stat st;
	void *p = MAP_FAILED;

	if (e && fstat(fd, &st) == 0 && (size_t)st.st_size >= sizeof(struct dt_seats))
		p = mmap(NULL, sizeof(struct dt_seats), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		free(e);
		if (fd >= 0)
			close(fd);
		return dt_err_set(err, -EIO, "cannot map the memory that the ranks share");
	}
	e->b = p;
	e->fd = fd;
	w->elastic = e;
	return 0;
}

int dt_comm_elastic_open(struct dt_world *w, struct dt_err *err)
{
	struct {
		int pid, fd;
	} at = {(int)getpid(), -1};
	char path[64];
	int rc = 0, ok;

	if (w->info.nodes > 1)
		return dt_err_set(err, -ENOTSUP, "--elastic needs all ranks on one machine; these are on %d",
				  w->info.nodes);
	if (w->info.rank == 0) { /* sized before other processes can open it */
		at.fd = memfd_create("dt-board", MFD_CLOEXEC);
		if (at.fd >= 0 && ftruncate(at.fd, sizeof(struct dt_seats)) < 0) {
			close(at.fd);
			at.fd = -1;
		}
	}
	if (w->mpi)
		MPI_Bcast(&at, sizeof(at), MPI_BYTE, 0, w->world);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", at.pid, at.fd);
	rc = map(w, w->info.rank == 0 ? at.fd : open(path, O_RDWR | O_CLOEXEC), err);
	ok = rc == 0 && w->info.size <= DT_SEATS;
	if (ok) {
		struct dt_elastic *e = w->elastic;

		dt_seat_take(e, w->info.rank, DT_SEAT_MEMBER);
		e->epoch = 1;
		e->n = w->info.size;
		for (int i = 0; i < e->n; i++)
			e->member[i] = i;
		if (w->info.rank == 0)
			dt_seats_begin(e->b, e);
	}
	if (w->mpi) /* after this all seats are taken */
		MPI_Allreduce(MPI_IN_PLACE, &ok, 1, MPI_INT, MPI_MIN, w->world);
	return ok ? 0 : rc ? rc : dt_err_set(err, -ENOTSUP, "the ranks cannot share memory");
}

static int out_of_date(struct dt_err *err)
{
	return dt_err_set(err, -ESTALE, "the other ranks continued without this one");
}

/* Whether to give up the exchange. */
static int look(struct dt_world *w, struct dt_err *err)
{
	struct dt_elastic *e = w->elastic;

	if (dt_seats_out(e))
		return out_of_date(err);
	for (int r = 0; r < e->n; r++)
		if (r != w->info.rank && dt_seat_vote(e, 1, e->member[r])) {
			break_world(w, r);
			return dt_err_set(err, -ETIMEDOUT, "rank %d is lost", r);
		}
	return 0;
}

int dt_comm_exchange(struct dt_world *w, const void *mine, size_t bytes, void *all, struct dt_err *err)
{
	struct dt_elastic *e = w->elastic;
	struct dt_seat *me = &e->b->seat[e->me];
	uint64_t number = e->epoch << 32 | ++e->said;
	double next = dt_now() + LOOK_S;
	int rc;

	if (bytes)
		memcpy(me->blob[e->said & 1], mine, bytes);
	atomic_store_explicit(&me->said, number, memory_order_release);
	for (int r = 0, n = 0; r < e->n; r++) {
		struct dt_seat *s = &e->b->seat[e->member[r]];

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

	if (dt_seats_out(e)) {
		dt_log_msg(w->log, "the other ranks continued without this one, which leaves");
		_exit(DT_EXIT_FAILED);
	}
	if (dt_now() - w->watch->resumed < DT_SEAT_STOPPED_S) { /* this process was stopped itself */
		memset(e->still[0], 0, sizeof(e->still[0]));
		return;
	}
	for (int r = 0; r < e->n && !atomic_load(&w->broken); r++) {
		if (r == w->info.rank || !dt_seat_vote(e, 0, e->member[r]))
			continue;
		break_world(w, r);
	}
}

/* ---- the next epoch ---- */

/* Waits for the epoch after this one. */
static int wait_for_all(struct dt_world *w, uint64_t next, struct dt_err *err)
{
	struct dt_elastic *e = w->elastic;
	double end = dt_now() + (w->opts.timeout_s > 0 ? w->opts.timeout_s : 60);

	atomic_store(&e->b->seat[e->me].arrived, next);
	while (atomic_load(&e->b->epoch) < next) {
		if (dt_seats_out(e))
			return out_of_date(err);
		if (dt_seats_here(e, next))
			dt_seats_decide(e, next);
		nanosleep(&(struct timespec){0, 500000}, NULL);
		if (dt_now() > end)
			return dt_err_set(err, -ETIME, "the remaining ranks have not met");
	}
	return 0;
}

/* Waits for an epoch whose member list has this process: the next one, or a later one. */
static int wait_to_join(struct dt_elastic *e, uint64_t *ret_next, struct dt_err *err)
{
	struct dt_seat *me = &e->b->seat[e->me];
	uint64_t next = 0;

	for (double look = dt_now() + LOOK_S; atomic_load(&me->state) == DT_SEAT_JOINS;) {
		uint64_t now = atomic_load(&e->b->epoch);

		if (now >= next) { /* that epoch began without this process */
			next = now + 1;
			atomic_store(&me->arrived, next);
		}
		nanosleep(&(struct timespec){0, 500000}, NULL);
		if (dt_now() < look)
			continue;
		if (!dt_seats_anybody(e)) {
			atomic_store(&me->state, DT_SEAT_OUT);
			return dt_err_set(err, -ESRCH, "the job to join has ended");
		}
		look = dt_now() + LOOK_S;
	}
	*ret_next = next;
	return 0;
}

/* Arrives, and returns when the next epoch has begun and its list is known. */
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

/* Sets this process's rank, the rank tables of the new epoch, and the board of its ranks. */
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

/* Maps the board with descriptor FD of process PID; at: "PID:FD". */
static int find_board(struct dt_world *w, const char *at, struct dt_err *err)
{
	char path[64], build[32], rest;
	int pid, board, fd, rc;

	if (sscanf(at, "%d:%d%c", &pid, &board, &rest) != 2)
		return dt_err_set(err, -EINVAL, "'%s' is not PID:FD of a job's shared memory", at);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, board);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return dt_err_sys(err, -errno, "cannot reach the job of process %d", pid);
	rc = map(w, fd, err);
	dt_seats_build(build);
	if (rc == 0 &&
	    (w->elastic->b->magic != DT_SEATS_MAGIC || strncmp(w->elastic->b->build, build, sizeof(build))))
		return dt_err_set(err, -EINVAL, "process %d runs another build of dt", pid);
	return rc;
}

int dt_comm_elastic_join(struct dt_world *w, const char *at, struct dt_err *err)
{
	int rc = find_board(w, at, err);

	for (int n = 0; n < DT_SEATS && rc == 0; n++) {
		int none = DT_SEAT_FREE, i = (int)(atomic_fetch_add(&w->elastic->b->taken, 1) % DT_SEATS);

		if (!atomic_compare_exchange_strong(&w->elastic->b->seat[i].state, &none, DT_SEAT_TAKEN))
			continue;
		dt_seat_take(w->elastic, i, DT_SEAT_JOINS);
		return dt_world_reform(w, err);
	}
	return rc ? rc : dt_err_set(err, -ENOSPC, "the job already has %d processes", DT_SEATS);
}

int dt_world_waiting(const struct dt_world *w)
{
	const struct dt_elastic *e = w->elastic;
	int n = 0;

	for (int i = 0; e && i < DT_SEATS; i++)
		n += atomic_load(&e->b->seat[i].state) == DT_SEAT_JOINS &&
		     atomic_load(&e->b->seat[i].arrived) == e->epoch + 1;
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
		if (rc != -ETIMEDOUT) /* else another rank was lost meanwhile */
			return rc;
	}
}

bool dt_world_lost(struct dt_world *w)
{
	double end = dt_now() + DT_SEAT_STOPPED_S + 0.5;

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

	atomic_store(&e->b->seat[e->me].state, finished ? DT_SEAT_FINISHED : DT_SEAT_OUT);
	/* A stopped process would keep its launcher from exiting. */
	for (int i = 0; finished && i < DT_SEATS; i++) {
		int pid = atomic_load(&e->b->seat[i].pid), is = atomic_load(&e->b->seat[i].state);

		if ((is == DT_SEAT_OUT || is == DT_SEAT_JOINS) &&
		    dt_comm_process_stopped(dt_comm_process(pid, &born)) &&
		    born == atomic_load(&e->b->seat[i].born))
			kill(pid, SIGKILL);
	}
}

void dt_comm_elastic_close(struct dt_world *w)
{
	if (!w->elastic)
		return;
	munmap(w->elastic->b, sizeof(struct dt_seats));
	close(w->elastic->fd);
	free(w->elastic);
	w->elastic = NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
