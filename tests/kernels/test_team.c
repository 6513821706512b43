/* kernels/cpu/team.h: every thread runs once, what it wrote is seen, and nobody waits for ever. */
#include "kernels/cpu/team.h"

#include "check.h"

#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 5 };

struct job {
	int n;
	bool meet;	  /* threads wait for each other, then read what the others wrote */
	int asleep;	  /* this thread sleeps a while; -1: none */
	int ms;		  /* how long */
	int ran[MOST];	  /* how often each thread ran */
	int seen[MOST];	  /* with meet: the sum of ran, added up */
	int inner;	  /* threads of an inner region */
	atomic_int wrong; /* calls with another n, or t outside */
};

static void count_inner(void *arg, int t, int n)
{
	struct job *j = arg;

	(void)t;
	j->inner += n;
}

static void run_job(void *arg, int t, int n)
{
	struct job *j = arg;

	if (n != j->n || t < 0 || t >= n)
		atomic_fetch_add(&j->wrong, 1);
	if (t == j->asleep)
		usleep(1000u * (unsigned)j->ms);
	j->ran[t]++;
	if (!j->meet)
		return;
	dt_cpu_meet();
	for (int i = 0; i < n; i++)
		j->seen[t] += j->ran[i];
	dt_cpu_meet(); /* before the next region changes ran */
}

static struct job job_of(int n, bool meet)
{
	return (struct job){.n = n, .meet = meet, .asleep = -1, .ms = 3};
}

/* Runs the job `times` times and checks what each thread did. */
static void check_job(struct job *j, bool brief, int times)
{
	int all = 0;

	for (int i = 0; i < times; i++) {
		dt_cpu_together(j->n, brief, run_job, j);
		all += j->n * (i + 1);
	}
	assert_int_equal(atomic_load(&j->wrong), 0);
	for (int t = 0; t < MOST; t++) {
		assert_int_equal(j->ran[t], t < j->n ? times : 0);
		assert_int_equal(j->seen[t], t < j->n && j->meet ? all : 0);
	}
}

static void every_thread_runs_once(void **state)
{
	static const int threads[] = {1, 2, 3, 2, MOST, 1, 4};

	(void)state;
	for (int brief = 0; brief < 2; brief++)
		for (size_t i = 0; i < sizeof(threads) / sizeof(*threads); i++)
			for (int meet = 0; meet < 2; meet++) {
				struct job j = job_of(threads[i], meet);

				check_job(&j, brief, threads[i] > 2 ? 20 : 2000);
			}
}

/* With what meson.build sets for this test. */
static bool openmp_spins_long(void)
{
	const char *spins = getenv("GOMP_SPINCOUNT");

	return spins && (!strcmp(spins, "infinite") || !strcmp(spins, "100m"));
}

static void note_openmp(void *arg, int t, int n)
{
	if (t == 0)
		*(bool *)arg = n > 1 && omp_in_parallel();
}

static void openmp_does_the_work_if_its_threads_spin_long(void **state)
{
	bool openmp = false;

	(void)state;
#ifdef __clang__
	skip(); /* libomp has its own setting */
#endif
	dt_cpu_together(2, true, note_openmp, &openmp);
	assert_int_equal(openmp, openmp_spins_long());
	dt_cpu_together(2, false, note_openmp, &openmp);
	assert_true(openmp);
}

static void threads_that_sleep_are_woken(void **state)
{
	(void)state;
	for (int asleep = 0; asleep < 3; asleep++) {
		struct job j = job_of(3, asleep == 1);

		j.asleep = asleep; /* the others wait longer than they spin */
		check_job(&j, true, 5);
	}
	for (int i = 0; i < 5; i++) {
		struct job j = job_of(3, true);

		usleep(3000); /* longer than the team spins */
		check_job(&j, true, 3);
	}
}

static void nest(void *arg, int t, int n)
{
	struct job *j = arg;

	(void)n;
	if (t == n - 1)
		dt_cpu_together(4, true, count_inner, j);
}

static void a_region_within_a_region_has_one_thread(void **state)
{
	(void)state;
	for (int n = 1; n < 4; n++) {
		struct job j = job_of(n, false);

		dt_cpu_together(n, true, nest, &j);
		assert_int_equal(j.inner, 1);
	}
}

struct parts {
	int row[3 * DT_SERIAL]; /* how often each row was in a part */
	atomic_int calls;
};

static void count_rows(void *arg, int t, int64_t first, int64_t last)
{
	struct parts *p = arg;

	atomic_fetch_add(&p->calls, t == 0 || t == 1 ? 1 : 100);
	for (int64_t r = first; r < last; r++)
		p->row[r]++;
}

static void rows_are_divided_if_they_are_many(void **state)
{
	static const int64_t rows[] = {0, 1, 2, 7, DT_SERIAL, DT_SERIAL + 1, 3 * DT_SERIAL};
	struct dt_dev *dev;

	(void)state;
	assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, 2), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		for (int64_t each = 1; each <= 2 * DT_SERIAL; each *= 2 * DT_SERIAL) {
			struct parts *p = calloc(1, sizeof(*p));

			dt_cpu_rows(dev, rows[i], each, count_rows, p);
			assert_int_equal(atomic_load(&p->calls),
					 rows[i] > 1 && rows[i] * each > DT_SERIAL ? 2 : 1);
			for (int64_t r = 0; r < 3 * DT_SERIAL; r++)
				assert_int_equal(p->row[r], r < rows[i]);
			free(p);
		}
	dt_dev_close(dev);
}

static void *run_many(void *arg)
{
	for (int i = 0; i < 300; i++) {
		struct job j = job_of(2 + i % 2, true);

		for (int k = 0; k < 3; k++)
			dt_cpu_together(j.n, true, run_job, &j);
		for (int t = 0; t < j.n; t++)
			if (j.ran[t] != 3 || atomic_load(&j.wrong))
				*(bool *)arg = true;
	}
	return NULL;
}

static void two_callers_at_once(void **state)
{
	pthread_t id[2];
	bool wrong[2] = {false, false};

	(void)state;
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&id[i], NULL, run_many, &wrong[i]), 0);
	for (int i = 0; i < 2; i++) {
		pthread_join(id[i], NULL);
		assert_false(wrong[i]);
	}
}

/* In a child: a region of its own, whose threads meet. */
static void run_in_child(void)
{
	struct job j = job_of(2, true);

	alarm(60);
	for (int i = 0; i < 10; i++)
		dt_cpu_together(2, true, run_job, &j);
	_exit(j.ran[0] == 10 && j.ran[1] == 10 ? 0 : 1);
}

static void *run_slow(void *arg)
{
	struct job *j = arg;

	dt_cpu_together(j->n, true, run_job, j);
	return NULL;
}

static void a_child_of_a_process_within_a_region_has_a_team_of_its_own(void **state)
{
	struct job j = job_of(3, true);
	pthread_t id;
	int status;
	pid_t child;

	(void)state;
	if (openmp_spins_long())
		skip(); /* OpenMP does the work, and libgomp has no threads in a child */
	j.asleep = 1;
	j.ms = 300;
	assert_int_equal(pthread_create(&id, NULL, run_slow, &j), 0);
	usleep(100000); /* two threads wait for the third */
	child = fork();
	if (child == 0)
		run_in_child();
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	pthread_join(id, NULL);
	for (int t = 0; t < j.n; t++)
		assert_int_equal(j.seen[t], 3);
}

static void a_child_has_a_team_of_its_own(void **state)
{
	struct job before = job_of(3, true), after;
	int status;
	pid_t child;

	(void)state;
	if (openmp_spins_long())
		skip(); /* OpenMP does the work, and libgomp has no threads in a child */
	check_job(&before, true, 10);
	child = fork();
	if (child == 0)
		run_in_child();
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	after = job_of(3, true);
	check_job(&after, true, 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_thread_runs_once),
		cmocka_unit_test(openmp_does_the_work_if_its_threads_spin_long),
		cmocka_unit_test(threads_that_sleep_are_woken),
		cmocka_unit_test(a_region_within_a_region_has_one_thread),
		cmocka_unit_test(rows_are_divided_if_they_are_many),
		cmocka_unit_test(two_callers_at_once),
		cmocka_unit_test(a_child_has_a_team_of_its_own),
		cmocka_unit_test(a_child_of_a_process_within_a_region_has_a_team_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
