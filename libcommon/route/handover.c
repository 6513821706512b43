/*
 * Restart without dropped connections: the new process inherits the listening socket in the way systemd
 * passes it (LISTEN_FDS, LISTEN_PID). When it is ready, it ends the old process with SIGTERM.
 */
#include "route/priv.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_FD 3
#define HEIR_OF	 "DT_ROUTE_HEIR_OF"

int dt_route_passed_socket(void)
{
	const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
	bool ours = pid && n && atol(pid) == getpid() && atoi(n) >= 1;

	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	if (ours)
		fcntl(FIRST_FD, F_SETFD, FD_CLOEXEC);
	return ours ? FIRST_FD : -1;
}

static void become(struct dt_router *r)
{
	char text[32];
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	snprintf(text, sizeof(text), "%ld", (long)getppid());
	setenv(HEIR_OF, text, 1);
	snprintf(text, sizeof(text), "%ld", (long)getpid());
	setenv("LISTEN_PID", text, 1);
	setenv("LISTEN_FDS", "1", 1);
	if (r->fd != FIRST_FD)
		dup2(r->fd, FIRST_FD);
	else
		fcntl(FIRST_FD, F_SETFD, 0);
	execvp(r->p.argv[0], r->p.argv);
	_exit(127);
}

void dt_route_hand_over(struct dt_router *r)
{
	pid_t pid;

	if (r->draining || r->heir > 0)
		return;
	pid = fork();
	if (pid == 0)
		become(r);
	if (pid < 0) {
		dt_log_msg(r->p.log, "cannot start the new process: %s", strerror(errno));
		return;
	}
	r->heir = pid;
	dt_log_msg(r->p.log, "process %ld takes over the socket", (long)pid);
}

void dt_route_take_over(void)
{
	const char *of = getenv(HEIR_OF);

	if (of && atol(of) == getppid() && getppid() > 1)
		kill(getppid(), SIGTERM);
	unsetenv(HEIR_OF);
}
/* SPDX-License-Identifier: Apache-2.0 */
