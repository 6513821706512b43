/*
 * The watchdog: one thread per process. Ranks of one machine publish their current operation on a board in
 * shared memory (struct dt_comm_slot); ranks of other machines are queried over UDP, because MPI may be what
 * hangs. A rank is watched only while it is inside an operation, so slow computing never raises an alarm.
 *
 * When an operation exceeds the timeout, or a process of this machine has ended while this rank waits for it,
 * one rank of each machine writes a report and ends the job. If MPI_Abort hangs, the process exits without it
 * 3 s later.
 *
 * With linger_s rank 0 is not ended: its operations fail from then on, and its owner ends the job once others
 * have been told why (a server's clients).
 */
#include "comm/watchdog.h"
#include "comm/elastic.h"
#include "comm/nccl.h"

#include "base/progress.h"

#include <errno.h>
#include <ifaddrs.h>
#include <math.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define GRACE_S 3
#define START_S 60
#define LOSS_S	5.0 /* an NCCL error older than this is not a lost rank */

static void *last_resort(void *arg)
{
	sleep(GRACE_S);
	_exit((int)(intptr_t)arg);
}

void dt_comm_end_job(struct dt_world *w, int status)
{
	pthread_t t;
	int done = 0;

	if (w && w->elastic) { /* the other ranks continue */
		dt_comm_elastic_leave(w, false);
		_exit(status);
	}
	if (!w || !w->mpi)
		_exit(status);
	if (pthread_create(&t, NULL, last_resort, (void *)(intptr_t)status))
		_exit(status);
	dt_comm_nccl_abort(w);
	MPI_Finalized(&done);
	if (!done)
		MPI_Abort(MPI_COMM_WORLD, status);
	_exit(status);
}

/* Whether the operation cannot complete because a process of this machine has ended. */
static bool waits_for_dead(struct dt_world *w, const struct dt_comm_where *at)
{
	struct dt_comm_watch *k = w->watch;
	char name[16];
	int *ranks = NULL, n = 0;
	bool yes = false;

	for (int i = 0; i < w->board_n && !yes; i++) {
		if (!k->dead[i] || atomic_load(&w->board[i].phase) == DT_COMM_PHASE_FINISHED)
			continue;
		if (!ranks)
			n = dt_comm_watch_members(w, at, &ranks, name);
		for (int j = 0; j < n; j++)
			yes |= ranks[j] == (w->board_n > 1 ? w->node_ranks[i] : w->info.rank) &&
			       (at->peer < 0 || at->peer == ranks[j]);
	}
	free(ranks);
	return yes;
}

/* Checks the operations on the device, whatever the host is doing. */
static void check_cards(struct dt_world *w)
{
	char what[200], name[16];
	struct dt_comm_where at;
	int *ranks;

	if (!dt_comm_nccl_look(w, w->opts.timeout_s, &at, what)) {
		w->watch->wrong = 0;
		return;
	}
	if (w->elastic) { /* NCCL may notice a lost rank first, which does not end this rank */
		w->watch->wrong = w->watch->wrong > 0 ? w->watch->wrong : dt_now();
		if (atomic_load(&w->broken) || dt_now() - w->watch->wrong < LOSS_S)
			return;
	}
	if (atomic_exchange(&w->board[0].reporter, 1)) {
		sleep(GRACE_S);
		_exit(DT_EXIT_FAILED);
	}
	if (what[0]) {
		dt_comm_watch_members(w, &at, &ranks, name);
		free(ranks);
		dt_log_msg(w->log, "%s '%s' of group %s on rank %d: NCCL: %s",
			   dt_comm_op_name((enum dt_comm_op_kind)at.kind), at.what, name, w->info.rank, what);
	} else {
		dt_comm_watch_report(w, &at);
	}
	dt_comm_end_job(w, DT_EXIT_FAILED);
}

/* The other ranks wait for rank 0 to end the job. */
static void let_first_end(const struct dt_world *w)
{
	if (w->opts.linger_s > 0)
		nanosleep(
			&(struct timespec){(time_t)w->opts.linger_s, (long)(fmod(w->opts.linger_s, 1) * 1e9)},
			NULL);
}

static void check(struct dt_world *w)
{
	struct dt_comm_slot *me = atomic_load(&w->me);
	struct dt_comm_where at = dt_comm_watch_where(me), again;
	bool late, connected = atomic_load(&w->watch->connected), answers;
	double most = w->opts.timeout_s, start_s = w->opts.start_s;

	answers = connected && w->opts.linger_s > 0 && w->info.rank == 0;
	if (at.kind == DT_COMM_NONE || atomic_load(&w->broken))
		return;
	if (connected && !answers)
		most += w->opts.linger_s;
	if (!connected) /* starting programs takes long on a busy machine */
		most = start_s > 0 ? start_s : most > START_S ? most : START_S;
	late = dt_now() - (at.since > w->watch->resumed ? at.since : w->watch->resumed) > most;
	if (!late && !(connected && !w->elastic && waits_for_dead(w, &at)))
		return;
	if (connected && !answers)
		let_first_end(w);
	again = dt_comm_watch_where(me); /* it may have completed meanwhile */
	if (again.kind != at.kind || again.seq != at.seq || again.since != at.since)
		return;
	if (!connected) {
		dt_log_msg(w->log, "start-up (%s): not all ranks have come after %.3g s; started by %s",
			   at.what, dt_now() - at.since, w->launch.by);
		dt_comm_end_job(w, DT_EXIT_FAILED);
	}
	if (answers) {
		dt_comm_watch_report(w, &at);
		atomic_store(&w->broken, true);
		return;
	}
	if (atomic_exchange(&w->board[0].reporter, 1)) { /* another rank of this machine writes the report */
		sleep(GRACE_S);
		_exit(DT_EXIT_FAILED);
	}
	dt_comm_watch_report(w, &at);
	dt_comm_end_job(w, DT_EXIT_FAILED);
}

/* Notes the processes of this machine that have ended. */
static void find_dead(struct dt_world *w, const struct pollfd *p)
{
	struct dt_comm_watch *k = w->watch;
	uint64_t born;

	for (int i = 0; i < w->board_n; i++) {
		if (k->dead[i] || &w->board[i] == atomic_load(&w->me))
			continue;
		if (k->pidfd[i] >= 0 ? p[i].revents != 0
				     : dt_comm_process(atomic_load(&w->board[i].pid), &born) == 0) {
			k->dead[i] = true;
			if (k->pidfd[i] >= 0)
				close(k->pidfd[i]);
			k->pidfd[i] = -1;
		}
	}
}

static void *watch_main(void *arg)
{
	struct dt_world *w = arg;
	struct dt_comm_watch *k = w->watch;
	int tick = (int)(w->opts.timeout_s * 50), most = 2;
	struct pollfd *p = calloc(2, sizeof(*p));

	tick = tick < 10 ? 10 : tick > 200 ? 200 : tick;
	tick = w->opts.elastic && tick > 100 ? 100 : tick;
	while (p && !atomic_load(&k->stop)) {
		double before = dt_now();
		bool connected = atomic_load(&k->connected);
		int n = connected ? 2 + w->board_n : 2;

		if (n > most) {
			free(p);
			p = calloc((size_t)n, sizeof(*p));
			most = n;
			continue;
		}
		p[0] = (struct pollfd){.fd = k->wake, .events = POLLIN};
		p[1] = (struct pollfd){.fd = connected ? k->udp : -1, .events = POLLIN};
		for (int i = 0; i < n - 2; i++)
			p[2 + i] = (struct pollfd){.fd = k->pidfd[i], .events = POLLIN};
		poll(p, (nfds_t)n, tick);
		if (dt_now() - before > tick / 1e3 + 1)
			k->resumed = dt_now(); /* the process was suspended: not late */
		if (p[0].revents) {
			uint64_t v;
			ssize_t got = read(k->wake, &v, sizeof(v));

			(void)got;
		}
		if (atomic_load(&k->stop))
			break;
		if (connected) {
			if (k->udp >= 0)
				dt_comm_watch_receive(w);
			find_dead(w, p + 2);
			if (w->elastic)
				dt_comm_elastic_watch(w);
		}
		check_cards(w);
		check(w);
	}
	free(p);
	return NULL;
}

int dt_comm_watch_start(struct dt_world *w, struct dt_err *err)
{
	struct dt_comm_watch *k;
	sigset_t all, old;
	int rc;

	if (w->opts.timeout_s <= 0)
		return 0;
	k = calloc(1, sizeof(*k));
	if (!k)
		return dt_err_sys(err, -ENOMEM, "watchdog");
	k->udp = -1;
	k->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (k->wake < 0) {
		rc = dt_err_sys(err, -errno, "watchdog");
		free(k);
		return rc;
	}
	w->watch = k;
	sigfillset(&all); /* signals are for the program's own threads */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = -pthread_create(&k->thread, NULL, watch_main, w);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc) {
		close(k->wake);
		free(k);
		w->watch = NULL;
		return dt_err_sys(err, rc, "watchdog thread");
	}
	return 0;
}

/* Opens a UDP socket and lists the addresses it can be reached at. */
static void listen_here(struct dt_comm_watch *k, struct dt_comm_contact *c)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof(at);
	struct ifaddrs *list = NULL;
	int n = 0;

	k->udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (k->udp < 0 || bind(k->udp, (struct sockaddr *)&at, sizeof(at)) ||
	    getsockname(k->udp, (struct sockaddr *)&at, &len))
		return;
	c->port = at.sin_port;
	if (getifaddrs(&list))
		return;
	for (struct ifaddrs *i = list; i && n < DT_COMM_ADDRESSES; i = i->ifa_next)
		if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) &&
		    !(i->ifa_flags & IFF_LOOPBACK))
			c->ip[n++] = ((struct sockaddr_in *)i->ifa_addr)->sin_addr.s_addr;
	if (!n) /* no network: fine if the "machines" are parts of one */
		c->ip[0] = htonl(INADDR_LOOPBACK);
	freeifaddrs(list);
}

int dt_comm_watch_connect(struct dt_world *w, struct dt_err *err)
{
	struct dt_comm_watch *k = w->watch;
	struct dt_comm_contact mine = {{0}, 0};
	int rc = 0;

	if (k) {
		k->state = calloc((size_t)w->info.size, sizeof(*k->state));
		k->pidfd = calloc((size_t)w->board_n, sizeof(*k->pidfd));
		k->dead = calloc((size_t)w->board_n, sizeof(*k->dead));
		if (!k->state || !k->pidfd || !k->dead)
			return dt_err_sys(err, -ENOMEM, "watchdog");
	}
	/* after this every process of the machine is on the board */
	rc = w->elastic ? dt_comm_exchange(w, NULL, 0, NULL, err) : MPI_Barrier(w->node);
	if (w->elastic && rc)
		return rc;
	if (!rc && k && w->board_n < w->info.size) {
		k->contact = calloc((size_t)w->info.size, sizeof(*k->contact));
		if (!k->contact)
			return dt_err_sys(err, -ENOMEM, "watchdog");
		listen_here(k, &mine);
		if (getrandom(k->cookie, sizeof(k->cookie), 0) < 0)
			return dt_err_sys(err, -errno, "random numbers");
		rc = MPI_Bcast(k->cookie, sizeof(k->cookie), MPI_BYTE, 0, w->world);
		if (!rc)
			rc = MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, k->contact, sizeof(mine), MPI_BYTE,
					   w->world);
	}
	if (!rc && !w->elastic)
		rc = MPI_Barrier(w->world);
	if (rc)
		return dt_comm_mpi_error(err, rc, "cannot meet the other ranks");
	for (int i = 0; k && i < w->board_n; i++) {
		bool me = &w->board[i] == atomic_load(&w->me);

		k->pidfd[i] = me ? -1 : (int)syscall(SYS_pidfd_open, atomic_load(&w->board[i].pid), 0);
	}
	if (k)
		atomic_store(&k->connected, true);
	return 0;
}

void dt_comm_watch_stop(struct dt_world *w)
{
	struct dt_comm_watch *k = w->watch;
	uint64_t one = 1;
	ssize_t n;

	if (!k)
		return;
	atomic_store(&k->stop, true);
	n = write(k->wake, &one, sizeof(one));
	(void)n;
	pthread_join(k->thread, NULL);
	for (int i = 0; k->pidfd && i < w->board_n; i++)
		if (k->pidfd[i] >= 0)
			close(k->pidfd[i]);
	if (k->udp >= 0)
		close(k->udp);
	close(k->wake);
	free(k->contact);
	free(k->pidfd);
	free(k->dead);
	free(k->state);
	free(k);
	w->watch = NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
