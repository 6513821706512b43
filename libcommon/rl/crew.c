#include "rl/crew.h"

#include "base/io.h"
#include "base/progress.h"
#include "base/signals.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAIT_MS = 200 };

#define PATIENCE 5.0 /* seconds for processes to exit by themselves */

struct member {
	pid_t pid;
	int fd;
	bool gone;    /* found dead, not restarted yet */
	int failures; /* since its last delivery */
};

struct dt_crew {
	struct dt_crew_opts o;
	struct member *m; /* [o.n] */
	struct pollfd *p; /* [o.n + 1] */
	int at;		  /* the member checked first */
	int64_t restarts;
	char why[200]; /* the last message of one that ended; empty: none */
};

/* ---- messages ---- */

static int send_all(int fd, const void *data, size_t n, struct dt_err *err)
{
	for (size_t done = 0; done < n;) {
		ssize_t k = send(fd, (const char *)data + done, n - done, MSG_NOSIGNAL);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return dt_err_sys(err, errno == ECONNRESET ? -EPIPE : -errno,
					  "cannot send a message");
		done += (size_t)k;
	}
	return 0;
}

int dt_wire_send(int fd, struct dt_wire *w, const struct dt_part *p, int n, struct dt_err *err)
{
	int rc;

	w->bytes = 0;
	for (int i = 0; i < n; i++)
		w->bytes += p[i].bytes;
	rc = send_all(fd, w, sizeof(*w), err);
	for (int i = 0; i < n && rc == 0; i++)
		rc = send_all(fd, p[i].data, p[i].bytes, err);
	return rc;
}

int dt_wire_body(int fd, void *to, size_t bytes, struct dt_err *err)
{
	const ssize_t got = dt_read_all(fd, to, bytes, -1);

	if (got < 0 && got != -ECONNRESET)
		return dt_err_sys(err, (int)got, "cannot read a message");
	if (got < 0 || (size_t)got < bytes)
		return dt_err_set(err, -EPIPE, "the other process has ended");
	return 0;
}

int dt_wire_head(int fd, struct dt_wire *w, struct dt_err *err)
{
	return dt_wire_body(fd, w, sizeof(*w), err);
}

/* ---- processes ---- */

/* Runs in the new process only. */
static void be_member(struct dt_crew *c, int number, int fd, pid_t parent)
{
	static const int which[] = {SIGINT, SIGTERM, SIGHUP};
	struct dt_err err = {0};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dt_signals_ignore(which, sizeof(which) / sizeof(which[0])); /* the learner ends it */
	if (getppid() != parent)
		_exit(1);
	for (int i = 0; i < c->o.n; i++)
		if (c->m[i].pid && i != number)
			close(c->m[i].fd);
	if (c->o.work(c->o.arg, number, fd, &err) < 0 && err.code != -EPIPE) {
		struct dt_wire w = {0};
		struct dt_part p = {err.msg, strlen(err.msg)};

		dt_wire_send(fd, &w, &p, 1, &err);
		_exit(1);
	}
	_exit(0);
}

static bool is_lost(int rc)
{
	return rc == -EPIPE || rc == -EAGAIN;
}

static int start(struct dt_crew *c, int number, struct dt_err *err)
{
	struct member *m = &c->m[number];
	const pid_t parent = getpid();
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return dt_err_sys(err, -errno, "cannot start an actor");
	fflush(NULL);
	m->pid = fork();
	if (m->pid < 0) {
		m->pid = 0;
		close(pair[0]);
		close(pair[1]);
		return dt_err_sys(err, -errno, "cannot start an actor");
	}
	if (m->pid == 0) {
		close(pair[0]);
		be_member(c, number, pair[1], parent);
	}
	close(pair[1]);
	m->fd = pair[0];
	m->gone = false;
	return 0;
}

/* Returns the status of waitpid. */
static int stop(struct member *m)
{
	int status = 0;

	if (!m->pid)
		return 0;
	close(m->fd);
	kill(m->pid, SIGKILL);
	while (waitpid(m->pid, &status, 0) < 0 && errno == EINTR)
		;
	m->pid = 0;
	return status;
}

int dt_crew_open(struct dt_crew **ret, const struct dt_crew_opts *o, struct dt_err *err)
{
	struct dt_crew *c = calloc(1, sizeof(*c));
	int rc = 0;

	if (!c)
		return dt_err_sys(err, -ENOMEM, "cannot start actors");
	c->o = *o;
	c->m = calloc((size_t)o->n, sizeof(*c->m));
	c->p = calloc((size_t)o->n + 1, sizeof(*c->p));
	if (!c->m || !c->p)
		rc = dt_err_sys(err, -ENOMEM, "cannot start actors");
	for (int i = 0; i < o->n && rc == 0; i++)
		rc = start(c, i, err);
	if (rc < 0)
		dt_crew_close(c);
	else
		*ret = c;
	return rc;
}

static bool any_runs(const struct dt_crew *c)
{
	siginfo_t s;

	for (int i = 0; i < c->o.n && c->m; i++) {
		s.si_pid = 0;
		if (c->m[i].pid && waitid(P_PID, (id_t)c->m[i].pid, &s, WEXITED | WNOHANG | WNOWAIT) == 0 &&
		    !s.si_pid)
			return true;
	}
	return false;
}

void dt_crew_close(struct dt_crew *c)
{
	if (!c)
		return;
	for (int i = 0; i < c->o.n && c->m; i++) /* an actor whose socket closes ends what it has started */
		if (c->m[i].pid)
			shutdown(c->m[i].fd, SHUT_RDWR);
	for (double until = dt_now() + PATIENCE; any_runs(c) && dt_now() < until;)
		usleep(2000);
	for (int i = 0; i < c->o.n && c->m; i++)
		stop(&c->m[i]);
	free(c->m);
	free(c->p);
	free(c);
}

void dt_crew_kill(struct dt_crew *c, int number)
{
	kill(c->m[number].pid, SIGKILL);
}

int dt_crew_fd(const struct dt_crew *c, int number)
{
	return c->m[number].fd;
}

int64_t dt_crew_restarts(const struct dt_crew *c)
{
	return c->restarts;
}

static int restart(struct dt_crew *c, int number, struct dt_err *err)
{
	struct member *m = &c->m[number];
	const int status = stop(m);

	if (!c->why[0] && WIFSIGNALED(status))
		snprintf(c->why, sizeof(c->why), "killed by signal %d", WTERMSIG(status));
	else if (!c->why[0])
		snprintf(c->why, sizeof(c->why), "exited with status %d", WEXITSTATUS(status));
	if (++m->failures >= DT_CREW_MOST_FAILURES)
		return dt_err_set(err, -EIO, "actor %d ended %d times without a result; last reason: %s",
				  number, m->failures, c->why);
	c->restarts++;
	if (c->o.anew)
		c->o.anew(c->o.arg, number, c->why);
	c->why[0] = '\0';
	return start(c, number, err);
}

/*
 * -EAGAIN: the member has sent nothing for as long as it may stop in the middle of a message. Not a timeout
 * of the socket: each signal would start it again.
 */
static int receive(const struct dt_crew *c, int number, void *to, size_t bytes, struct dt_err *err)
{
	struct pollfd p = {.fd = c->m[number].fd, .events = POLLIN};
	double until = dt_now() + c->o.patience;

	if (c->o.patience <= 0)
		return dt_wire_body(p.fd, to, bytes, err);
	for (size_t done = 0; done < bytes;) {
		const double left = until - dt_now();
		ssize_t k;

		if (left <= 0)
			return dt_err_sys(err, -EAGAIN, "cannot read a message");
		if (poll(&p, 1, (int)fmin(ceil(left * 1e3), 1e6)) < 0 && errno != EINTR)
			return dt_err_sys(err, -errno, "cannot read a message");
		k = recv(p.fd, (char *)to + done, bytes - done, MSG_DONTWAIT);
		if (k < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (k < 0 && errno != ECONNRESET)
			return dt_err_sys(err, -errno, "cannot read a message");
		if (k <= 0)
			return dt_err_set(err, -EPIPE, "the other process has ended");
		done += (size_t)k;
		until = dt_now() + c->o.patience;
	}
	return 0;
}

/* Receives the head of a member's message. 0: the member is dead. */
static int head(struct dt_crew *c, int number, struct dt_wire *w, struct dt_err *err)
{
	struct dt_err own = {0};
	int rc = receive(c, number, w, sizeof(*w), &own);

	if (rc == 0 && w->kind)
		return 1;
	if (rc == 0) {
		size_t n = w->bytes < sizeof(c->why) ? (size_t)w->bytes : sizeof(c->why) - 1;

		c->why[0] = '\0';
		if (receive(c, number, c->why, n, &own) == 0)
			c->why[n] = '\0';
	}
	return rc == 0 || is_lost(rc) ? 0 : dt_err_set(err, rc, "actor %d: %s", number, own.msg);
}

int dt_crew_wait(struct dt_crew *c, int other, enum dt_crew_event *ret, int *ret_number, struct dt_wire *w,
		 struct dt_err *err)
{
	const int n = c->o.n;
	int rc, i;

	for (i = 0; i < n && !c->m[i].gone; i++)
		c->p[i] = (struct pollfd){.fd = c->m[i].fd, .events = POLLIN};
	if (i < n) { /* found dead before */
		*ret = DT_CREW_ANEW;
		*ret_number = i;
		return restart(c, i, err);
	}
	c->p[n] = (struct pollfd){.fd = other, .events = POLLIN};
	rc = poll(c->p, (nfds_t)n + 1, WAIT_MS);
	if (rc <= 0)
		return rc == 0 || errno == EINTR ? -EAGAIN
						 : dt_err_sys(err, -errno, "cannot wait for actors");
	if (c->p[n].revents) {
		*ret = DT_CREW_OTHER;
		return 0;
	}
	for (i = 0; !c->p[(c->at + i) % n].revents; i++) /* round robin: poll has found one */
		;
	*ret_number = (c->at + i) % n;
	c->at = (*ret_number + 1) % n;
	rc = head(c, *ret_number, w, err);
	*ret = rc > 0 ? DT_CREW_SAYS : DT_CREW_ANEW;
	return rc == 0 ? restart(c, *ret_number, err) : rc < 0 ? rc : 0;
}

int dt_crew_body(struct dt_crew *c, int number, void *to, size_t bytes, struct dt_err *err)
{
	struct dt_err own = {0};
	int rc = receive(c, number, to, bytes, &own);

	if (rc == 0)
		c->m[number].failures = 0;
	if (is_lost(rc))
		c->m[number].gone = true;
	return rc == 0 ? 1 : is_lost(rc) ? 0 : dt_err_set(err, rc, "actor %d: %s", number, own.msg);
}
/* SPDX-License-Identifier: Apache-2.0 */
