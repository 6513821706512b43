/* base/cond.h: timed waits, also where the wall clock is set back in the middle of one. */
#include "base/cond.h"

#include "base/beat.h"
#include "base/progress.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/*
 * In place of libc's: the wall clock is an hour ahead. To a wait that computes its end from it, that is a
 * clock which is set back by an hour as soon as it was read.
 */
int clock_gettime(clockid_t id, struct timespec *t)
{
	const int rc = (int)syscall(SYS_clock_gettime, id, t);

	if (id == CLOCK_REALTIME)
		t->tv_sec += 3600;
	return rc;
}

static void test_waits(void **state)
{
	pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
	double from, took;
	pthread_cond_t c;

	dt_cond_init_monotonic(&c);
	pthread_mutex_lock(&mu);
	from = dt_now();
	while (dt_cond_wait_s(&c, &mu, 0.05) == 0) /* a spurious wake is none that timed out */
		continue;
	took = dt_now() - from;
	assert_true(took >= 0.049 && took < 30);
	from = dt_now();
	assert_int_equal(dt_cond_wait_until(&c, &mu, from - 1), -ETIMEDOUT);
	assert_int_equal(dt_cond_wait_s(&c, &mu, -1.5), -ETIMEDOUT);
	assert_true(dt_now() - from < 30);
	pthread_mutex_unlock(&mu);
	pthread_cond_destroy(&c);
	pthread_mutex_destroy(&mu);
}

/* The supervisor counts a rank as lost that it does not hear for some seconds. */
static void test_heartbeats_go_on(void **state)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const struct timeval patience = {.tv_sec = 20};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t n = sizeof(a);
	struct dt_beat b;
	char to[128];

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
	snprintf(to, sizeof(to), "%u:%032d:1:127.0.0.1", ntohs(a.sin_port), 0);
	setenv(DT_BEAT_ENV, to, 1);
	dt_beat_open(0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(recv(fd, &b, sizeof(b), 0), sizeof(b));
	dt_beat_close(0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waits),
		cmocka_unit_test(test_heartbeats_go_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
