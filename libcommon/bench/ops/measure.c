#include "bench/ops/measure.h"

#include "base/order.h"
#include "base/progress.h"
#include "bench/ops/operate.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 3, REPEATS = 64 };

#define COLD_MIB 96.0 /* window of ops over all parameters, which are rarely in a cache */
#define SLOW_S	 0.1  /* points slower than this are not repeated */

/* Median time of a point, over about `seconds`. before: its time in the previous round, 0 in the first. */
static int time_point(struct dt_bench_bed *b, enum dt_timed op, const int64_t n[3], double seconds,
		      double before, double *ret)
{
	double t[REPEATS], start;
	int i = 0, rc = 0;

	if (before < SLOW_S) /* fills caches that are kept per shape */
		rc = dt_bench_operate(b, op, n);
	start = dt_now();
	while (rc >= 0 && i < REPEATS && (i < 1 || dt_now() - start < seconds)) {
		double t0 = dt_now();

		rc = dt_bench_operate(b, op, n);
		t[i++] = dt_now() - t0;
	}
	if (rc < 0)
		return rc;
	qsort(t, (size_t)i, sizeof(*t), dt_order_f64);
	*ret = t[i / 2];
	return 0;
}

struct shared {
	pthread_barrier_t barrier;
	int failed; /* errno of a process that failed */
	int points;
	double s[]; /* [processes][ROUNDS][points] */
};

static int points_of(const struct dt_op_mode *m)
{
	int n = 0;

	for (int op = 0; op < DT_T_N; op++)
		for (int type = 0; type < DT_OP_TYPES; type++)
			n += dt_grid_points(&m->g[op][type]);
	return n;
}

static size_t bytes_of_mib(double mib)
{
	return (size_t)(mib * (1 << 20));
}

/* Times every point once, at the same time as the other processes. */
static int one_round(struct dt_bench_bed *b, const struct dt_op_mode *m, struct shared *sh, double *s, int r,
		     double seconds, struct dt_progress *bar)
{
	static const enum dt_dtype types[DT_OP_TYPES] = {DT_F32, DT_BF16};
	size_t weights = b->w.window;
	int at = 0, rc = 0;

	for (int op = 0; op < DT_T_N && rc >= 0; op++)
		for (int type = 0; type < DT_OP_TYPES && rc >= 0; type++) {
			const struct dt_op_grid *g = &m->g[op][type];

			b->type = types[type];
			b->w.window = op >= DT_T_OPTIM0 ? bytes_of_mib(COLD_MIB) : weights;
			dt_bench_pool_fill(&b->out);
			dt_bench_pool_fill(&b->w);
			for (int i = 0; i < dt_grid_points(g) && rc >= 0; i++, at++) {
				int64_t n[3];

				dt_grid_sizes(g, i, n);
				pthread_barrier_wait(&sh->barrier);
				rc = time_point(b, op, n, seconds, r ? s[at] : 0,
						&s[(size_t)r * (size_t)sh->points + (size_t)at]);
				if (bar)
					dt_progress_set(bar, bar->done + 1);
			}
		}
	b->w.window = weights;
	return rc;
}

/*
 * One process. The rounds of a point are spread over time, so that a disturbance on the machine spoils only
 * one.
 */
static int work(const struct dt_op_mode *m, const struct dt_bench_ops_ask *ask, int number, struct shared *sh,
		double seconds, struct dt_progress *bar)
{
	struct dt_bench_bed b = {0};
	int rc = dt_bench_bed_init(&b, ask->cores / m->processes, bytes_of_mib(ask->window_mib),
				   bytes_of_mib(ask->weights_mib));

	for (int r = 0; r < ROUNDS && rc >= 0; r++)
		rc = one_round(&b, m, sh, &sh->s[number * ROUNDS * sh->points], r, seconds, bar);
	return rc;
}

static int wait_all(const pid_t *pid, int n, struct shared *sh)
{
	int left = n, status, rc = 0;

	while (left > 0) {
		pid_t done = waitpid(-1, &status, 0);
		bool mine = false;

		for (int i = 0; i < n; i++)
			mine |= pid[i] == done;
		if (done < 0 && errno == EINTR)
			continue;
		if (!mine)
			return -ECHILD;
		left--;
		if (status && rc == 0) { /* the others wait for it at the barrier */
			rc = sh->failed ? -sh->failed : -ECHILD;
			for (int i = 0; i < n; i++)
				if (pid[i] != done)
					kill(pid[i], SIGKILL);
		}
	}
	return rc;
}

/* Per point the median over rounds, averaged over the processes. */
static void put_times(struct dt_op_mode *m, const struct shared *sh)
{
	int at = 0;

	for (int op = 0; op < DT_T_N; op++)
		for (int type = 0; type < DT_OP_TYPES; type++)
			for (int i = 0; i < dt_grid_points(&m->g[op][type]); i++, at++)
				for (int k = 0; k < m->processes; k++) {
					double t[ROUNDS];

					for (int r = 0; r < ROUNDS; r++)
						t[r] = sh->s[(k * ROUNDS + r) * sh->points + at];
					qsort(t, ROUNDS, sizeof(*t), dt_order_f64);
					m->g[op][type].s[i] += t[ROUNDS / 2] / m->processes;
				}
}

/* Runs in the new process only. It ends with the program, also when that is killed. */
static void be_process(const struct dt_op_mode *m, const struct dt_bench_ops_ask *ask, int number,
		       struct shared *sh, double seconds, struct dt_progress *bar, pid_t parent)
{
	int rc;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	rc = work(m, ask, number, sh, seconds, bar);
	if (rc < 0)
		sh->failed = -rc;
	_exit(rc < 0);
}

/* Measures one mode. */
static int run_mode(struct dt_op_mode *m, const struct dt_bench_ops_ask *ask, double seconds,
		    struct dt_err *err)
{
	int points = points_of(m), n = m->processes, rc = 0;
	size_t bytes = sizeof(struct shared) + sizeof(double) * (size_t)(n * ROUNDS * points);
	struct shared *sh = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid[DT_BENCH_MAX_CORES], parent = getpid();
	pthread_barrierattr_t attr;
	struct dt_progress bar;
	char label[32];

	if (sh == MAP_FAILED)
		return dt_err_sys(err, -errno, "cannot measure");
	sh->points = points;
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&sh->barrier, &attr, (unsigned)n);
	snprintf(label, sizeof(label), "%d x %d cores", n, ask->cores / n);
	dt_progress_start(&bar, ask->progress, label, (uint64_t)points * ROUNDS, false);
	for (int i = 0; i < n && rc == 0; i++) {
		pid[i] = fork();
		if (pid[i] == 0)
			be_process(m, ask, i, sh, seconds / points / ROUNDS,
				   i || !ask->progress ? NULL : &bar, parent);
		if (pid[i] < 0) {
			rc = -errno;
			for (int k = 0; k < i; k++)
				kill(pid[k], SIGKILL);
			wait_all(pid, i, sh);
		}
	}
	rc = rc < 0 ? rc : wait_all(pid, n, sh);
	dt_progress_end(&bar);
	if (rc == 0)
		put_times(m, sh);
	munmap(sh, bytes);
	return rc < 0 ? dt_err_sys(err, rc, "cannot measure on %d processes", n) : 0;
}

static int cores_here(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* Modes: one process with all cores, one process per core, and on larger machines one in between. */
static void choose_modes(struct dt_op_times *t)
{
	int middle;

	t->mode[t->nmode++].processes = 1;
	for (middle = 1; middle * middle * 4 <= t->cores; middle *= 2)
		;
	if (middle > 1)
		t->mode[t->nmode++].processes = middle;
	if (t->cores > 1)
		t->mode[t->nmode++].processes = t->cores;
}

static int name_isa(struct dt_op_times *t, struct dt_err *err)
{
	struct dt_dev *dev;
	int rc = dt_dev_open(&dev, DT_DEV_CPU, 0, 1);

	if (rc < 0)
		return dt_err_sys(err, rc, "cannot open the processor as a device");
	snprintf(t->isa, sizeof(t->isa), "%s", dt_dev_isa(dev));
	dt_dev_close(dev);
	return 0;
}

/* -EINVAL: more cores than available, whose processes would wait for each other. */
int dt_bench_ops(const struct dt_bench_ops_ask *asked, struct dt_op_times *ret, struct dt_err *err)
{
	struct dt_bench_ops_ask ask = *asked;
	struct dt_op_times *t = ret;
	int rc;

	*t = (struct dt_op_times){0};
	if (!ask.cores)
		ask.cores = cores_here();
	if (ask.cores > cores_here())
		return dt_err_set(err, -EINVAL, "--cores %d: this process may run on %d", ask.cores,
				  cores_here());
	if (ask.cores > DT_BENCH_MAX_CORES)
		ask.cores = DT_BENCH_MAX_CORES;
	t->cores = ask.cores;
	choose_modes(t);
	/* With little time only small sizes: a single try of a large one takes seconds. */
	rc = dt_op_times_init(t, ask.seconds < 5 ? 3 : ask.seconds < 20 ? 1 : 0, err);
	for (int i = 0; i < t->nmode && rc == 0; i++)
		rc = run_mode(&t->mode[i], &ask, ask.seconds / t->nmode, err);
	return rc < 0 ? rc : name_isa(t, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
