/* Signals are taken by a thread of their own: none that computes, none that is started later. */
#include "base/signals.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const int which[] = {SIGUSR1, SIGUSR2};
static atomic_int taken[2], here; /* by a thread that computes */
static _Thread_local bool computes;

static void on_signal(int sig)
{
	atomic_fetch_add(&taken[sig == SIGUSR2], 1);
	if (computes)
		atomic_fetch_add(&here, 1);
}

static void *later(void *arg)
{
	computes = true;
	while (!atomic_load((atomic_bool *)arg))
		;
	return NULL;
}

static void wait_for(int i, int n)
{
	for (int t = 0; t < 10000 && atomic_load(&taken[i]) < n; t++)
		usleep(1000);
	assert_int_equal(atomic_load(&taken[i]), n);
}

static void test_apart(void **state)
{
	atomic_bool end = false;
	pthread_t t[3];

	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&t[i], NULL, later, &end), 0);
	for (int i = 0; i < 200; i++) {
		assert_int_equal(kill(getpid(), which[i % 2]), 0);
		wait_for(i % 2, i / 2 + 1);
	}
	end = true;
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(atomic_load(&here), 0);
}

/* What a forked process executes expects its signals open. */
static void test_fork(void **state)
{
	sigset_t now;
	int status = 0;
	pid_t pid;

	sigprocmask(SIG_SETMASK, NULL, &now);
	assert_true(sigismember(&now, SIGUSR1) && sigismember(&now, SIGUSR2) && !sigismember(&now, SIGTERM));
	pid = fork();
	if (pid == 0) {
		sigprocmask(SIG_SETMASK, NULL, &now);
		_exit(sigismember(&now, SIGUSR1) || sigismember(&now, SIGUSR2));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	pid = fork();
	if (pid == 0) {
		dt_signals_ignore(which, 2);
		raise(SIGUSR1);
		_exit(atomic_load(&taken[0]) != 100);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A signal that ends the program removes its temporary; one that is ignored does not. */
static void test_remove(void **state)
{
	static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
	const char *name = "signals.tmp";

	for (int i = 0; i < 3; i++) {
		int status = 0;
		FILE *f = fopen(name, "w");
		pid_t pid;

		assert_non_null(f);
		fclose(f);
		pid = fork();
		if (pid == 0) {
			signal(ends[(i + 1) % 3], SIG_IGN);
			signal(ends[i], SIG_DFL);
			dt_signals_remove(name);
			raise(ends[(i + 1) % 3]);
			raise(access(name, F_OK) == 0 ? ends[i] : SIGKILL);
			_exit(1);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == ends[i]);
		assert_int_equal(access(name, F_OK), -1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_apart),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_remove),
	};

	computes = true;
	dt_signals_catch(which, 2, on_signal);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
