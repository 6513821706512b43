/*
 * The watchdog: one thread per process. Ranks of one machine publish their current operation on a board in
 * shared memory (struct dt_comm_slot); ranks of other machines are queried over UDP, because MPI may be what
 * hangs. A rank is watched only while it is inside an operation, so slow computing never raises an alarm.
 *
 * When an operation exceeds the timeout, or a process of this machine has ended while this rank waits for it,
 * one rank of each machine writes a report and ends the job. If MPI_Abort hangs, the process exits without it
 * 3 s later.
 */
#include "comm/nccl.h"

#include "base/progress.h"

#include <errno.h>
#include <ifaddrs.h>
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
#include <unistd.h>

#define ADDRESSES 4
#define ASK_S	  1.0 /* seconds that other machines have to answer */
#define GRACE_S	  3
#define START_S	  60
#define NAMED	  24 /* ranks listed one by one in a line */

struct contact { /* where a rank's watchdog listens */
	uint32_t ip[ADDRESSES];
	uint16_t port;
};

/* State of a rank at the time of the report. */
struct state {
	bool known;
	char run; /* state letter of /proc: R, S, D, T ...; 0: ended */
	int rank, pid, phase;
	uint64_t arrived;
	struct dt_comm_where at;
};

struct datagram {
	uint64_t cookie[2];
	int kind; /* 0 question, 1 answer */
	int group;
	struct state s;
};

struct dt_comm_watch {
	pthread_t thread;
	int wake, udp;
	_Atomic bool stop, connected;
	double resumed; /* when this process last went on after standing still, by a signal or with its
			   machine */
	uint64_t cookie[2];
	struct contact *contact; /* [world size]; NULL on one machine */
	int *pidfd;		 /* [board_n], -1: none */
	bool *dead;		 /* [board_n] */
	struct state *state;	 /* [world size] */
};

static void *last_resort(void *arg)
{
	sleep(GRACE_S);
	_exit((int)(intptr_t)arg);
}

void dt_comm_end_job(struct dt_world *w, int status)
{
	pthread_t t;
	int done = 0;

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

/* The state letter of a process, 0 when there is none. A zombie is gone. */
static char process_state(int pid)
{
	char path[64], text[512], *p;
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	p = strrchr(text, ')'); /* the name in parentheses may hold anything */
	if (!p || p[1] != ' ')
		return 0;
	return p[2] == 'Z' || p[2] == 'X' ? 0 : p[2];
}

static struct dt_comm_where read_where(const struct dt_comm_slot *s)
{
	struct dt_comm_where at;
	uint32_t v;

	for (int tries = 0; tries < 1000; tries++) {
		v = atomic_load_explicit(&s->version, memory_order_acquire);
		at = s->at;
		atomic_thread_fence(memory_order_acquire);
		if (!(v & 1) && v == atomic_load_explicit(&s->version, memory_order_relaxed))
			return at;
	}
	return (struct dt_comm_where){0}; /* changing that fast, it is not stuck */
}

static struct state board_state(const struct dt_world *w, int i, int group)
{
	const struct dt_comm_slot *s = &w->board[i];
	struct state st = {.known = true, .rank = w->board_n > 1 ? w->node_ranks[i] : w->info.rank};

	st.pid = atomic_load(&s->pid);
	st.phase = atomic_load(&s->phase);
	st.run = st.pid ? process_state(st.pid) : '?';
	st.arrived = group >= 0 ? atomic_load(&s->arrived[group]) : 0;
	st.at = read_where(s);
	st.at.what[sizeof(st.at.what) - 1] = '\0';
	return st;
}

static void answer(struct dt_world *w, const struct datagram *q, const struct sockaddr_in *to)
{
	for (int i = 0; i < w->board_n; i++) {
		struct datagram d = *q;

		d.kind = 1;
		d.s = board_state(w, i, q->group);
		sendto(w->watch->udp, &d, sizeof(d), MSG_DONTWAIT, (const struct sockaddr *)to, sizeof(*to));
	}
}

/* Reads incoming datagrams: answers questions, stores answers. */
static void receive(struct dt_world *w)
{
	struct dt_comm_watch *k = w->watch;
	struct sockaddr_in from;
	struct datagram d;

	for (;;) {
		socklen_t len = sizeof(from);
		ssize_t n = recvfrom(k->udp, &d, sizeof(d), MSG_DONTWAIT, (struct sockaddr *)&from, &len);

		if (n < 0)
			return;
		if (n != sizeof(d) || memcmp(d.cookie, k->cookie, sizeof(d.cookie)) || d.group < -1 ||
		    d.group >= DT_COMM_GROUPS_MAX)
			continue;
		if (d.kind == 0) {
			answer(w, &d, &from);
		} else if (d.s.rank >= 0 && d.s.rank < w->info.size) {
			d.s.at.what[sizeof(d.s.at.what) - 1] = '\0';
			if (d.s.at.kind >= 0 && d.s.at.kind <= DT_COMM_FINISH)
				k->state[d.s.rank] = d.s;
		}
	}
}

static bool on_board(const struct dt_world *w, int rank)
{
	if (w->board_n == 1)
		return rank == w->info.rank;
	for (int i = 0; i < w->board_n; i++)
		if (w->node_ranks[i] == rank)
			return true;
	return false;
}

/*
 * Fills k->state as far as possible. Every process of a machine is queried, because some may be stopped.
 */
static void collect(struct dt_world *w, int group)
{
	struct dt_comm_watch *k = w->watch;
	struct datagram q = {.kind = 0, .group = group};
	double until = dt_now() + ASK_S;
	bool missing;

	memset(k->state, 0, (size_t)w->info.size * sizeof(*k->state));
	for (int i = 0; i < w->board_n; i++) {
		struct state s = board_state(w, i, group);

		k->state[s.rank] = s;
	}
	if (!k->contact)
		return;
	memcpy(q.cookie, k->cookie, sizeof(q.cookie));
	for (int r = 0; r < w->info.size; r++)
		for (int a = 0; a < ADDRESSES && !on_board(w, r); a++) {
			struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = k->contact[r].port};

			to.sin_addr.s_addr = k->contact[r].ip[a];
			if (k->contact[r].ip[a])
				sendto(k->udp, &q, sizeof(q), MSG_DONTWAIT, (struct sockaddr *)&to,
				       sizeof(to));
		}
	do {
		struct pollfd p = {.fd = k->udp, .events = POLLIN};

		poll(&p, 1, 20);
		receive(w);
		missing = false;
		for (int r = 0; r < w->info.size; r++)
			missing |= !k->state[r].known;
	} while (missing && dt_now() < until);
}

static void append(char *s, size_t room, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void append(char *s, size_t room, const char *fmt, ...)
{
	size_t n = strlen(s);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(s + n, room - n, fmt, ap);
	va_end(ap);
}

static bool gone(const struct state *s)
{
	return s->known && s->pid && !s->run && s->phase != DT_COMM_PHASE_FINISHED;
}

/* Whether this rank keeps the operation from completing. */
static bool absent(const struct dt_comm_where *at, const struct state *s, int rank)
{
	if (!s->known || gone(s) || s->run == 'T')
		return true;
	if (at->kind == DT_COMM_SEND || at->kind == DT_COMM_RECV)
		return rank == at->peer;
	if (at->group < 0)
		return s->at.kind != at->kind || strcmp(s->at.what, at->what);
	return s->arrived < at->seq;
}

/* "all-reduce 'grads' of group dp", "receive 'x' from rank 2 in group pp", "start-up (MPI_Init)" */
static void describe(char *s, size_t room, const struct dt_comm_where *at, const char *group)
{
	const char *name = dt_comm_op_name((enum dt_comm_op_kind)at->kind);

	if (at->group < 0)
		append(s, room, "%s (%s)", name, at->what);
	else if (at->peer >= 0)
		append(s, room, "%s '%s' %s rank %d in group %s", name, at->what,
		       at->kind == DT_COMM_SEND ? "to" : "from", at->peer, group);
	else
		append(s, room, "%s '%s' of group %s", name, at->what, group);
}

static void log_state(const struct dt_world *w, int rank, const struct state *s,
		      const struct dt_comm_where *at)
{
	char doing[128] = "";

	if (!s->known) {
		dt_log_msg(w->log, "  rank %d: its machine did not answer", rank);
		return;
	}
	if (gone(s)) {
		dt_log_msg(w->log, "  rank %d: died (process %d is gone)", rank, s->pid);
		return;
	}
	if (s->at.kind == DT_COMM_NONE)
		append(doing, sizeof(doing),
		       s->phase == DT_COMM_PHASE_FINISHED ? "finished" : "outside any operation");
	else
		append(doing, sizeof(doing), "in %s '%s'", dt_comm_op_name((enum dt_comm_op_kind)s->at.kind),
		       s->at.what);
	if (at->group >= 0 && at->peer < 0)
		append(doing, sizeof(doing), ", has entered %llu of %llu collectives of this group",
		       (unsigned long long)s->arrived, (unsigned long long)at->seq);
	dt_log_msg(w->log, "  rank %d: process %d is %s, %s", rank, s->pid,
		   s->run == 'T' ? "stopped (a signal or a debugger)" : "running", doing);
}

/* Members of the group of at; the whole world during start-up. Returns their number; *ret is to be freed. */
static int members(struct dt_world *w, const struct dt_comm_where *at, int **ret, char name[16])
{
	int n = 0;

	pthread_mutex_lock(&w->lock);
	if (at->group >= 0 && w->comm[at->group]) {
		const struct dt_comm *c = w->comm[at->group];

		*ret = calloc((size_t)c->size, sizeof(int));
		memcpy(name, c->name, 16);
		for (n = 0; *ret && n < c->size; n++)
			(*ret)[n] = c->ranks[n];
	} else {
		*ret = calloc((size_t)w->info.size, sizeof(int));
		snprintf(name, 16, "world");
		for (n = 0; *ret && n < w->info.size; n++)
			(*ret)[n] = n;
	}
	pthread_mutex_unlock(&w->lock);
	return n;
}

static void report(struct dt_world *w, const struct dt_comm_where *at)
{
	struct dt_comm_watch *k = w->watch;
	char line[900] = "", name[16], late[512] = "", dead[256] = "";
	int *ranks, n = members(w, at, &ranks, name), nlate = 0, ndead = 0, shown = 0;

	collect(w, at->group);
	for (int i = 0; i < n; i++) {
		const struct state *s = &k->state[ranks[i]];

		if (gone(s) && ++ndead <= NAMED)
			append(dead, sizeof(dead), " %d", ranks[i]);
		else if (!gone(s) && absent(at, s, ranks[i]) && ++nlate <= NAMED)
			append(late, sizeof(late), " %d", ranks[i]);
	}
	if (ndead > NAMED)
		append(dead, sizeof(dead), " and %d more", ndead - NAMED);
	if (nlate > NAMED)
		append(late, sizeof(late), " and %d more", nlate - NAMED);
	describe(line, sizeof(line), at, name);
	if (ndead)
		append(line, sizeof(line), ": rank%s%s died", ndead > 1 ? "s" : "", dead);
	else if (at->peer >= 0)
		append(line, sizeof(line), ": not completed after %.3g s", dt_now() - at->since);
	else if (nlate)
		append(line, sizeof(line), ": rank%s%s %s not arrived after %.3g s", nlate > 1 ? "s" : "",
		       late, nlate > 1 ? "have" : "has", dt_now() - at->since);
	else
		append(line, sizeof(line), ": every rank has arrived, but it has not completed after %.3g s",
		       dt_now() - at->since);
	dt_log_msg(w->log, "%s", line);
	for (int i = 0; i < n && shown < 8; i++)
		if (absent(at, &k->state[ranks[i]], ranks[i])) {
			log_state(w, ranks[i], &k->state[ranks[i]], at);
			shown++;
		}
	free(ranks);
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
			n = members(w, at, &ranks, name);
		for (int j = 0; j < n; j++)
			yes |= ranks[j] == (w->board_n > 1 ? w->node_ranks[i] : w->info.rank) &&
			       (at->peer < 0 || at->peer == ranks[j]);
	}
	free(ranks);
	return yes;
}

/* Operations on the card, whatever the host is doing. */
static void check_cards(struct dt_world *w)
{
	char what[200], name[16];
	struct dt_comm_where at;
	int *ranks;

	if (!dt_comm_nccl_look(w, w->opts.timeout_s, &at, what))
		return;
	if (atomic_exchange(&w->board[0].reporter, 1)) {
		sleep(GRACE_S);
		_exit(DT_EXIT_FAILED);
	}
	if (what[0]) {
		members(w, &at, &ranks, name);
		free(ranks);
		dt_log_msg(w->log, "%s '%s' of group %s on rank %d: NCCL: %s",
			   dt_comm_op_name((enum dt_comm_op_kind)at.kind), at.what, name, w->info.rank, what);
	} else {
		report(w, &at);
	}
	dt_comm_end_job(w, DT_EXIT_FAILED);
}

static void check(struct dt_world *w)
{
	struct dt_comm_slot *me = atomic_load(&w->me);
	struct dt_comm_where at = read_where(me), again;
	bool late, connected = atomic_load(&w->watch->connected);
	double most = w->opts.timeout_s, start_s = w->opts.start_s;

	if (at.kind == DT_COMM_NONE)
		return;
	if (!connected) /* loading programs takes its time on a busy machine */
		most = start_s > 0 ? start_s : most > START_S ? most : START_S;
	late = dt_now() - (at.since > w->watch->resumed ? at.since : w->watch->resumed) > most;
	if (!late && !(connected && waits_for_dead(w, &at)))
		return;
	again = read_where(me); /* it may have ended meanwhile */
	if (again.kind != at.kind || again.seq != at.seq || again.since != at.since)
		return;
	if (!connected) {
		dt_log_msg(w->log, "start-up (%s): not all ranks have come after %.3g s; started by %s",
			   at.what, dt_now() - at.since, w->launch.by);
		dt_comm_end_job(w, DT_EXIT_FAILED);
	}
	if (atomic_exchange(&w->board[0].reporter, 1)) { /* another rank of this machine is writing */
		sleep(GRACE_S);
		_exit(DT_EXIT_FAILED);
	}
	report(w, &at);
	dt_comm_end_job(w, DT_EXIT_FAILED);
}

/* Notes the processes of this machine that have ended. */
static void find_dead(struct dt_world *w, const struct pollfd *p)
{
	struct dt_comm_watch *k = w->watch;

	for (int i = 0; i < w->board_n; i++) {
		if (k->dead[i] || &w->board[i] == atomic_load(&w->me))
			continue;
		if (k->pidfd[i] >= 0 ? p[i].revents != 0
				     : process_state(atomic_load(&w->board[i].pid)) == 0) {
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
			k->resumed = dt_now(); /* a suspended job is not late */
		if (p[0].revents) {
			uint64_t v;
			ssize_t got = read(k->wake, &v, sizeof(v));

			(void)got;
		}
		if (atomic_load(&k->stop))
			break;
		if (connected) {
			if (k->udp >= 0)
				receive(w);
			find_dead(w, p + 2);
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

/* A socket of our own and the addresses it can be reached at. */
static void listen_here(struct dt_comm_watch *k, struct contact *c)
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
	for (struct ifaddrs *i = list; i && n < ADDRESSES; i = i->ifa_next)
		if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) &&
		    !(i->ifa_flags & IFF_LOOPBACK))
			c->ip[n++] = ((struct sockaddr_in *)i->ifa_addr)->sin_addr.s_addr;
	if (!n) /* no network at all: fine while the "machines" are parts of this one */
		c->ip[0] = htonl(INADDR_LOOPBACK);
	freeifaddrs(list);
}

int dt_comm_watch_connect(struct dt_world *w, struct dt_err *err)
{
	struct dt_comm_watch *k = w->watch;
	struct contact mine = {{0}, 0};
	int rc = 0;

	if (k) {
		k->state = calloc((size_t)w->info.size, sizeof(*k->state));
		k->pidfd = calloc((size_t)w->board_n, sizeof(*k->pidfd));
		k->dead = calloc((size_t)w->board_n, sizeof(*k->dead));
		if (!k->state || !k->pidfd || !k->dead)
			return dt_err_sys(err, -ENOMEM, "watchdog");
	}
	/* after this every process of the machine is on the board */
	rc = MPI_Barrier(w->node);
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
	if (!rc)
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
