/*
 * Worlds whose ranks leave and come, without a launcher: a process alone, and children that join it by its
 * board, die, and make room for others.
 */
#include "comm/comm.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { CHILDREN = 3, TIMEOUT = 60 };

static struct dt_log quiet = {.rank = -1};

struct child {
	pid_t pid;
	int go; /* where the board is, written here, lets it join; "again": make a new world; "die" */
};

/* The sum over all ranks of what each gives; negative: a rank is lost. */
static double sum(struct dt_world *w, double mine)
{
	struct dt_comm *c = NULL;
	struct dt_err err = {0};
	int rc = dt_comm_create(&c, w, "all", 0, 0, &err);

	if (rc == 0)
		rc = dt_all_reduce(c, &mine, NULL, 1, DT_F64, DT_SUM, "sum", &err);
	dt_comm_free(c);
	return rc < 0 ? -1 : mine;
}

/* Joins, adds in 10 each time the ranks make a new world, and dies when it is told to. */
static void live(int go)
{
	struct dt_world_opts o = {.timeout_s = TIMEOUT, .elastic = true};
	struct dt_err err = {0};
	struct dt_world *w;
	char at[64] = "", word[8] = "";

	alarm(2 * TIMEOUT);
	if (read(go, at, sizeof(at) - 1) <= 0)
		_exit(1);
	o.join = at;
	if (dt_world_open(&w, &o, &quiet, &err) < 0) {
		fprintf(stderr, "%s\n", err.msg);
		_exit(1);
	}
	if (!dt_world_joined(w))
		_exit(1);
	sum(w, 10); /* the parent looks at it: here another one may have died since */
	while (read(go, word, sizeof(word) - 1) == 5 && !strcmp(word, "again")) {
		if (dt_world_reform(w, &err) < 0)
			_exit(1);
		sum(w, 10);
	}
	raise(SIGKILL);
}

static struct child fork_one(void)
{
	struct child c;
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	c.pid = fork();
	assert_true(c.pid >= 0);
	if (c.pid == 0) {
		close(ends[1]);
		live(ends[0]);
	}
	close(ends[0]);
	c.go = ends[1];
	return c;
}

/* Lets it join, and waits until it is about to. */
static void call(struct child *c, const struct dt_world *w, int waiting)
{
	char at[64];
	int n = snprintf(at, sizeof(at), "%d:%d", (int)getpid(), dt_world_epoch(w).board);

	assert_int_equal(write(c->go, at, (size_t)n), n);
	for (int i = 0; dt_world_waiting(w) < waiting; i++) {
		assert_true(i < TIMEOUT * 1000);
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
}

static void reform(struct dt_world *w, int size)
{
	struct dt_world_info info;
	struct dt_err err = {0};

	if (dt_world_reform(w, &err) < 0)
		fail_msg("%s", err.msg);
	dt_world_info(w, &info);
	assert_int_equal(info.size, size);
	assert_int_equal(info.rank, 0);
	assert_int_equal(dt_world_waiting(w), 0);
	assert_true(sum(w, 1) == 1 + 10 * (size - 1));
}

static void say(const struct child *c, const char *word)
{
	assert_int_equal(write(c->go, word, strlen(word)), strlen(word));
}

static void kill_one(const struct child *c)
{
	int status;

	say(c, "die");
	assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void test_join(void **state)
{
	struct dt_world_opts o = {.timeout_s = TIMEOUT, .elastic = true};
	struct child c[CHILDREN];
	struct dt_err err = {0};
	struct dt_world *w;

	for (int i = 0; i < CHILDREN; i++) /* before this process has threads */
		c[i] = fork_one();
	if (dt_world_open(&w, &o, &quiet, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(dt_world_epoch(w).epoch, 1);
	assert_false(dt_world_joined(w));
	call(&c[0], w, 1);
	reform(w, 2);
	assert_int_equal(dt_world_epoch(w).epoch, 2);
	/* One that waits while a rank dies is in the world of those that are left. */
	call(&c[1], w, 1);
	kill_one(&c[0]);
	assert_true(dt_world_lost(w));
	assert_non_null(strstr(dt_world_broken(w), "has died"));
	reform(w, 2);
	assert_int_equal(dt_world_epoch(w).epoch, 3);
	call(&c[2], w, 1);
	say(&c[1], "again");
	reform(w, 3);
	/* Two at once. */
	kill_one(&c[1]);
	kill_one(&c[2]);
	assert_true(dt_world_lost(w));
	reform(w, 1);
	dt_world_finalize(w);
}

/* A process that came too late, or to nowhere. */
static void test_no_job(void **state)
{
	struct dt_world_opts o = {.timeout_s = TIMEOUT, .elastic = true};
	struct dt_err err = {0};
	struct dt_world *w, *other;
	char at[64];

	o.join = "x";
	assert_int_equal(dt_world_open(&w, &o, &quiet, &err), -EINVAL);
	snprintf(at, sizeof(at), "%d:%d", (int)getpid(), 1023);
	o.join = at;
	assert_int_equal(dt_world_open(&w, &o, &quiet, &err), -ENOENT);
	o.join = NULL;
	if (dt_world_open(&w, &o, &quiet, &err) < 0)
		fail_msg("%s", err.msg);
	snprintf(at, sizeof(at), "%d:%d", (int)getpid(), dup(dt_world_epoch(w).board));
	dt_world_finalize(w);
	o.join = at;
	assert_int_equal(dt_world_open(&other, &o, &quiet, &err), -ESRCH);
	assert_non_null(strstr(err.msg, "has ended"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_join),
		cmocka_unit_test(test_no_job),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
