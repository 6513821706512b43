/*
 * Messages of one tag arrive in the order they were sent, although the receiver is interrupted anywhere, also
 * while it looks for a message. On two ranks.
 */
#include "tests/mpi/exact.h"

#include <signal.h>
#include <sys/time.h>
#include <time.h>

enum { TAG = 7, BURST = 3 };
#define SECONDS 2.0

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Long enough for the sender to post several messages. */
static void pause_here(int sig)
{
	const struct timespec t = {0, 100000};

	nanosleep(&t, NULL);
}

static void interrupt_often(void)
{
	const struct itimerval every = {{0, 150}, {0, 150}};
	struct sigaction a = {.sa_handler = pause_here, .sa_flags = SA_RESTART};

	sigaction(SIGALRM, &a, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
}

static void stop_interrupts(void)
{
	const struct itimerval never = {{0, 0}, {0, 0}};

	setitimer(ITIMER_REAL, &never, NULL);
}

/* Bursts with a pause between them, so that the receiver often looks before a message is there. */
static uint64_t send_numbers(struct dt_comm *c)
{
	const double end = now() + SECONDS;
	uint64_t n = 0, last = 0;

	while (now() < end) {
		const double begin = now();

		for (int i = 0; i < BURST; i++, n++)
			OK(dt_send(c, &n, sizeof(n), DT_U8, 1, TAG, "numbers", &err));
		while (now() - begin < 4e-6)
			;
	}
	last = UINT64_MAX;
	OK(dt_send(c, &last, sizeof(last), DT_U8, 1, TAG, "numbers", &err));
	return n;
}

static uint64_t receive_numbers(struct dt_comm *c)
{
	uint64_t n = 0, got;

	interrupt_often();
	for (;; n++) {
		OK(dt_recv(c, &got, sizeof(got), DT_U8, 0, TAG, "numbers", &err));
		if (got == UINT64_MAX)
			break;
		if (got != n) {
			fprintf(stderr, "message %llu arrived as number %llu\n", (unsigned long long)got,
				(unsigned long long)n);
			dt_world_abort(w, 1);
		}
	}
	stop_interrupts();
	return n;
}

int main(void)
{
	struct dt_log log = {.f = stderr, .name = "test_message_order", .rank = -1};
	struct dt_world_opts o = {.timeout_s = 60};
	struct dt_world_info info;
	struct dt_comm *c;
	uint64_t n, sent;

	OK(dt_world_open(&w, &o, &log, &err));
	dt_world_info(w, &info);
	me = info.rank;
	np = info.size;
	if (np != 2)
		dt_world_abort(w, 1);
	OK(dt_comm_create(&c, w, "all", 0, 0, &err));
	sent = n = me ? receive_numbers(c) : send_numbers(c);
	OK(dt_broadcast(c, &sent, sizeof(sent), DT_U8, 0, "sent", &err));
	if (sent != n)
		dt_world_abort(w, 1);
	if (me)
		printf("%llu messages\n", (unsigned long long)n);
	dt_comm_free(c);
	dt_world_finalize(w);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
