/* A worker that stands still in the middle of a message is ended and started anew. */
#include "base/progress.h"
#include "rl/crew.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { BYTES = 100, HALF = 50 };

/* The first one stops behind half of its message, as for a SIGSTOP; the next one sends it whole. */
static int work(void *arg, int number, int fd, struct dt_err *err)
{
	_Atomic int *starts = arg;
	static const char text[BYTES] = "said";
	struct dt_wire w = {.kind = 1, .bytes = BYTES};
	const bool first = atomic_fetch_add(starts, 1) == 0;
	char wait;

	if (send(fd, &w, sizeof(w), 0) != sizeof(w) || send(fd, text, first ? HALF : BYTES, 0) < 0)
		return -EPIPE;
	if (first)
		raise(SIGSTOP);
	return read(fd, &wait, 1) < 0 ? -EPIPE : 0;
}

static int next(struct dt_crew *c, enum dt_crew_event *ret, struct dt_wire *w, struct dt_err *err)
{
	int number, rc;

	do
		rc = dt_crew_wait(c, -1, ret, &number, w, err);
	while (rc == -EAGAIN);
	return rc;
}

static void ignore(int s)
{
}

/* Sends this process a signal every 50 ms, which must not lengthen any wait. */
static timer_t signal_often(void)
{
	struct sigevent how = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	const struct itimerspec when = {{.tv_nsec = 50000000}, {.tv_nsec = 50000000}};
	const struct sigaction act = {.sa_handler = ignore, .sa_flags = SA_RESTART};
	timer_t timer;

	assert_int_equal(sigaction(SIGUSR1, &act, NULL), 0);
	assert_int_equal(timer_create(CLOCK_MONOTONIC, &how, &timer), 0);
	assert_int_equal(timer_settime(timer, 0, &when, NULL), 0);
	return timer;
}

static void half_a_message(bool signals)
{
	_Atomic int *starts =
		mmap(NULL, sizeof(*starts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const struct dt_crew_opts o = {.n = 1, .work = work, .arg = starts, .patience = 0.5};
	enum dt_crew_event what;
	struct dt_err err = {0};
	struct dt_crew *c;
	struct dt_wire w;
	char text[BYTES];
	double began;
	timer_t timer;

	assert_ptr_not_equal(starts, MAP_FAILED);
	alarm(20); /* without a bound it waits for ever */
	assert_int_equal(dt_crew_open(&c, &o, &err), 0);
	assert_int_equal(next(c, &what, &w, &err), 0);
	assert_int_equal(what, DT_CREW_SAYS);
	if (signals)
		timer = signal_often();
	began = dt_now();
	assert_int_equal(dt_crew_body(c, 0, text, BYTES, &err), 0);
	assert_true(dt_now() - began >= 0.4);
	if (signals)
		timer_delete(timer);
	assert_int_equal(next(c, &what, &w, &err), 0);
	assert_int_equal(what, DT_CREW_ANEW);
	assert_int_equal(next(c, &what, &w, &err), 0);
	assert_int_equal(what, DT_CREW_SAYS);
	assert_int_equal(dt_crew_body(c, 0, text, BYTES, &err), 1);
	assert_string_equal(text, "said");
	assert_int_equal(dt_crew_restarts(c), 1);
	dt_crew_close(c);
	munmap((void *)starts, sizeof(*starts));
}

static void test_half_a_message(void **state)
{
	half_a_message(false);
}

static void test_half_a_message_among_signals(void **state)
{
	half_a_message(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_half_a_message),
		cmocka_unit_test(test_half_a_message_among_signals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
