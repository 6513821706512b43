/* See team.h. */
#include "kernels/cpu/team.h"

#include <limits.h>
#include <linux/futex.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 255, SPINS = 5000, SPINS_CROWDED = 100, SPINS_LONG = 100000 };

static struct {
	/*
	 * The line that threads wait for, with what they then read of a region. turn counts regions in its
	 * upper bits and has the number of threads in the low 8, so that a thread that has no part in a
	 * region reads nothing else, which may be changing.
	 */
	_Alignas(64) atomic_uint turn;
	atomic_uint sleepers; /* threads that sleep until turn changes */
	void (*fn)(void *arg, int t, int n);
	void *arg;
	/* The line that the caller waits for. */
	_Alignas(64) atomic_uint left;
	atomic_uint asleep; /* the caller sleeps until left is 0 */
	/* dt_cpu_meet */
	_Alignas(64) atomic_uint here;
	_Alignas(64) atomic_uint round;

	_Alignas(64) atomic_int spins;
	atomic_flag busy; /* held for a region */
	int threads;	  /* created, the caller counted; 0: none */
	bool none;	  /* there can be no team */
} team = {.busy = ATOMIC_FLAG_INIT};

/* Threads of the region that this thread is in; 0: none, or one by OpenMP. */
static _Thread_local int of_team;

/* What dt_cpu_ahead left to prefetch. */
static _Thread_local const char *ahead, *ahead_end;

void dt_cpu_ahead(const void *p, int64_t n)
{
	ahead = p;
	ahead_end = ahead + n;
}

/* Passes a moment of waiting: with a prefetch, as memory is idle while threads wait. */
static void relax(void)
{
	if (ahead < ahead_end) {
		dt_prefetch_ahead(ahead);
		dt_prefetch_ahead(ahead + 64);
		ahead += 128;
		return;
	}
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static void futex(atomic_uint *word, int op, unsigned v)
{
	syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, v, NULL, NULL, 0);
}

/* Spins until *word is not `was`; false: it still is after that. */
static bool spin(atomic_uint *word, unsigned was)
{
	const int spins = atomic_load_explicit(&team.spins, memory_order_relaxed);

	for (int i = 0; i <= spins; i++) {
		if (atomic_load_explicit(word, memory_order_acquire) != was)
			return true;
		relax();
	}
	return false;
}

/* The next turn after `seen`. Either this sees a new turn before it sleeps, or begin sees a sleeper. */
static unsigned next_turn(unsigned seen)
{
	if (!spin(&team.turn, seen)) {
		atomic_fetch_add(&team.sleepers, 1);
		while (atomic_load(&team.turn) == seen)
			futex(&team.turn, FUTEX_WAIT, seen);
		atomic_fetch_sub(&team.sleepers, 1);
	}
	return atomic_load_explicit(&team.turn, memory_order_acquire);
}

static void *work(void *arg)
{
	const int t = (int)(intptr_t)arg;
	unsigned seen = 0;

	for (;;) {
		int n;

		seen = next_turn(seen);
		n = (int)(seen & MOST);
		if (t >= n)
			continue;
		of_team = n;
		team.fn(team.arg, t, n);
		of_team = 0;
		if (atomic_fetch_sub(&team.left, 1) == 1 && atomic_load(&team.asleep))
			futex(&team.left, FUTEX_WAKE, 1);
	}
	return NULL;
}

/* In the child of a fork there are no other threads. The parent may have been within a region. */
static void forget(void)
{
	team.threads = 0;
	atomic_store(&team.turn, 0);
	atomic_store(&team.sleepers, 0);
	atomic_store(&team.asleep, 0);
	atomic_store(&team.here, 0);
	atomic_flag_clear(&team.busy);
}

static int processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/*
 * How long to spin, as libgomp reads it from the environment. Negative: OpenMP's threads spin for long or for
 * ever after each region, and would take the processors from the team.
 */
static int spins_wanted(void)
{
	const char *count = getenv("GOMP_SPINCOUNT"), *policy = getenv("OMP_WAIT_POLICY");
#ifdef __clang__ /* libomp: 200 ms by default */
	const char *time = getenv("KMP_BLOCKTIME");

	if (!time || strcmp(time, "0") != 0)
		return -1;
#endif
	if (count) {
		char *end;
		const long n = strtol(count, &end, 10);

		/* "infinite", or with a suffix: k, m, g, t */
		return end == count || *end || n < 0 || n > SPINS_LONG ? -1 : (int)n;
	}
	return !policy ? SPINS : (*policy | 32) == 'p' ? 0 : -1;
}

static bool create(int n)
{
	static bool registered;
	pthread_attr_t attr;
	sigset_t all, was;
	const int spins = spins_wanted();

	if (!team.threads) {
		team.none = spins < 0 || omp_get_proc_bind() != omp_proc_bind_false ||
			    (!registered && pthread_atfork(NULL, NULL, forget) != 0);
		registered = true;
		team.threads = 1;
	}
	atomic_store(&team.spins, n > processors() && spins > SPINS_CROWDED ? SPINS_CROWDED : spins);
	if (team.none || pthread_attr_init(&attr) != 0)
		return false;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was); /* signals never interrupt a thread that computes */
	for (pthread_t id; !team.none && team.threads < n; team.threads++)
		team.none = pthread_create(&id, &attr, work, (void *)(intptr_t)team.threads) != 0;
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	pthread_attr_destroy(&attr);
	return !team.none;
}

static void begin(int n)
{
	const unsigned turn = atomic_load_explicit(&team.turn, memory_order_relaxed);

	atomic_store_explicit(&team.left, (unsigned)n - 1, memory_order_relaxed);
	atomic_store(&team.turn, ((turn | MOST) + 1) | (unsigned)n);
	if (atomic_load(&team.sleepers))
		futex(&team.turn, FUTEX_WAKE, INT_MAX);
}

static void end(void)
{
	unsigned left;

	while ((left = atomic_load_explicit(&team.left, memory_order_acquire)) > 0 && spin(&team.left, left))
		continue;
	if (!left)
		return;
	atomic_store(&team.asleep, 1);
	while ((left = atomic_load(&team.left)) > 0)
		futex(&team.left, FUTEX_WAIT, left);
	atomic_store(&team.asleep, 0);
}

static bool run(int n, void (*fn)(void *arg, int t, int n), void *arg)
{
	if (n > MOST || atomic_flag_test_and_set_explicit(&team.busy, memory_order_acquire))
		return false;
	if ((team.none || n > team.threads) && !create(n)) {
		atomic_flag_clear_explicit(&team.busy, memory_order_release);
		return false;
	}
	team.fn = fn;
	team.arg = arg;
	of_team = n;
	begin(n);
	fn(arg, 0, n);
	end();
	of_team = 0;
	atomic_flag_clear_explicit(&team.busy, memory_order_release);
	return true;
}

void dt_cpu_together(int n, bool by_team, void (*fn)(void *arg, int t, int n), void *arg)
{
	const int was = of_team;

	/* A region within another has one thread, as with OpenMP, which takes 2 us to find that out. */
	if (n <= 1 || was || omp_in_parallel()) {
		of_team = 1;
		fn(arg, 0, 1);
		of_team = was;
	} else if (!by_team || !run(n, fn, arg)) {
#pragma omp parallel num_threads(n)
		fn(arg, omp_get_thread_num(), omp_get_num_threads());
	}
}

struct rows {
	int64_t n;
	void (*fn)(void *arg, int t, int64_t first, int64_t last);
	void *arg;
};

static void some_rows(void *arg, int t, int n)
{
	const struct rows *a = arg;

	a->fn(a->arg, t, a->n * t / n, a->n * (t + 1) / n);
}

void dt_cpu_rows(struct dt_dev *dev, int64_t rows, int64_t each,
		 void (*fn)(void *arg, int t, int64_t first, int64_t last), void *arg)
{
	dt_cpu_together(rows > 1 && rows * each > DT_SERIAL ? dev->nthreads : 1, dev->steps, some_rows,
			&(struct rows){rows, fn, arg});
}

void dt_cpu_meet(void)
{
	const unsigned n = (unsigned)of_team, round = atomic_load_explicit(&team.round, memory_order_relaxed);

	if (!n) {
#pragma omp barrier
		return;
	}
	if (n == 1)
		return;
	if (atomic_fetch_add(&team.here, 1) + 1 == n) {
		atomic_store_explicit(&team.here, 0, memory_order_relaxed);
		atomic_fetch_add(&team.round, 1);
		return;
	}
	while (!spin(&team.round, round))
		sched_yield();
}
/* SPDX-License-Identifier: Apache-2.0 */
