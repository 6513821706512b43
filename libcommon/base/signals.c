#include "base/signals.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static sigset_t caught; /* signals of the handler thread */
static void (*to)(int);
static volatile sig_atomic_t ending;

static void arrive(int sig)
{
	if (sig != SIGUSR2)
		ending = 1;
	to(sig);
}

static void *take(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static void unblock(void)
{
	pthread_sigmask(SIG_UNBLOCK, &caught, NULL);
}

void dt_signals_catch(const int *which, size_t n, void (*handler)(int))
{
	struct sigaction sa = {.sa_handler = arrive, .sa_flags = SA_RESTART};
	sigset_t others, before;
	pthread_t t;

	to = handler;
	sigemptyset(&caught);
	sigfillset(&others);
	for (size_t i = 0; i < n; i++) {
		sigaddset(&caught, which[i]);
		sigdelset(&others, which[i]);
		sigaction(which[i], &sa, NULL);
	}
	pthread_sigmask(SIG_SETMASK, &others, &before);
	if (pthread_create(&t, NULL, take, NULL) == 0) {
		pthread_detach(t);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		pthread_sigmask(SIG_BLOCK, &caught, NULL);
		pthread_atfork(NULL, NULL, unblock);
	} else {
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
}

bool dt_signals_ending(void)
{
	return ending;
}

static char temporary[PATH_MAX];

static void remove_and_end(int sig)
{
	unlink(temporary);
	signal(sig, SIG_DFL);
	raise(sig);
}

void dt_signals_remove(const char *path)
{
	static const int which[] = {SIGINT, SIGTERM, SIGHUP};
	const size_t n = sizeof(which) / sizeof(which[0]);

	snprintf(temporary, sizeof(temporary), "%s", path ? path : "");
	for (size_t i = 0; i < n && path; i++)
		if (signal(which[i], remove_and_end) == SIG_IGN) /* under nohup(1), or in the background */
			signal(which[i], SIG_IGN);
}

void dt_signals_ignore(const int *which, size_t n)
{
	for (size_t i = 0; i < n; i++)
		signal(which[i], SIG_IGN);
}
/* SPDX-License-Identifier: Apache-2.0 */
