#include "rl/child.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 1024 }; /* running ones that dt_child_end_all knows */

static pid_t running[MOST]; /* 0: none */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Replaces the first entry `from`. The caller holds the lock. */
static void enter(pid_t from, pid_t to)
{
	for (int i = 0; i < MOST; i++)
		if (running[i] == from) {
			running[i] = to;
			return;
		}
}

void dt_child_end_all(void)
{
	pthread_mutex_lock(&lock); /* for good: nothing starts again */
	for (int i = 0; i < MOST; i++)
		if (running[i])
			kill(-running[i], SIGKILL);
}

int dt_child_start(struct dt_child *c, const char *command, struct dt_err *err)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return dt_err_sys(err, -errno, "cannot start '%s'", command);
	pthread_mutex_lock(&lock);
	c->pid = fork();
	if (c->pid > 0) {
		setpgid(c->pid, c->pid);
		enter(0, c->pid);
	}
	if (c->pid != 0)
		pthread_mutex_unlock(&lock);
	if (c->pid < 0) {
		c->pid = 0;
		close(pair[0]);
		close(pair[1]);
		return dt_err_sys(err, -errno, "cannot start '%s'", command);
	}
	if (c->pid == 0) {
		setpgid(0, 0);
		signal(SIGPIPE, SIG_DFL);
		if (dup2(pair[1], 0) < 0 || dup2(pair[1], 1) < 0)
			_exit(127);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	close(pair[1]);
	c->fd = pair[0];
	if (fcntl(c->fd, F_SETFL, O_NONBLOCK) < 0)
		return dt_err_sys(err, -errno, "cannot start '%s'", command);
	return 0;
}

void dt_child_stop(struct dt_child *c)
{
	if (!c->pid)
		return;
	pthread_mutex_lock(&lock);
	enter(c->pid, 0);
	pthread_mutex_unlock(&lock);
	kill(-c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	close(c->fd);
	c->pid = 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
