/*
 * How fast each op runs, as a ratio to what this machine can do in the same run: the square-matmul rate for
 * products and attention, the copy rate for ops bound by memory.
 *
 *   build/bench/kernels [--check FLOORS] [THREADS [SECONDS [OP]]]
 *
 * With one thread the clock is that thread's processor time, so that a busy machine disturbs it little.
 * --check exits 3 where a ratio is below its floor. A line of FLOORS is an instruction set as the first line
 * of the output names it, op, shape, type and ratio, with tabs between them. bench/kernels.floors holds those
 * of one thread; run by hand, never by tests.
 */
#include "kernels.h"

#include "base/table.h"

#include "base/progress.h"

#include <errno.h>
#include <math.h>
#include <omp.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

enum { LARGE = 2 << 20 };

struct dt_dev *dev;
const struct dt_ops *ops;
double seconds = 0.3, peak[2], copy_rate;
static const char *only;
static struct dt_table *table;

static struct floor {
	char row[160]; /* op, shape and type, separated by tabs */
	double least;
	bool met;
} floors[256];
static int floor_count, below;

/* Reads the lines of path for this machine's instruction set. Returns 0, or 1 after a message. */
static int read_floors(const char *path)
{
	const size_t isa = strlen(dt_dev_isa(dev));
	char line[256], *tab;
	FILE *f = fopen(path, "r");
	int number = 0;

	if (!f) {
		fprintf(stderr, "kernels: %s: %s\n", path, strerror(errno));
		return 1;
	}
	while (fgets(line, sizeof line, f)) {
		struct floor *to = &floors[floor_count];
		char *end;

		number++;
		if (*line == '#' || strncmp(line, dt_dev_isa(dev), isa) || line[isa] != '\t')
			continue;
		tab = strrchr(line, '\t');
		to->least = strtod(tab + 1, &end);
		if (floor_count == 255 || tab <= line + isa || end == tab + 1 || *end != '\n' ||
		    tab - line - (long)isa > (long)sizeof to->row) {
			fprintf(stderr, "kernels: %s:%d: not a floor, or too many\n", path, number);
			fclose(f);
			return 1;
		}
		*tab = 0;
		snprintf(to->row, sizeof to->row, "%s", line + isa + 1);
		floor_count++;
	}
	fclose(f);
	if (!floor_count)
		fprintf(stderr, "kernels: %s: no floors for %s\n", path, dt_dev_isa(dev));
	return !floor_count;
}

static void check_floor(const char *op, const char *shape, const char *type, double ratio)
{
	char key[160];

	snprintf(key, sizeof key, "%s\t%s\t%s", op, shape, type);
	for (int i = 0; i < floor_count; i++)
		if (!strcmp(floors[i].row, key)) {
			floors[i].met = true;
			if (ratio >= floors[i].least)
				continue;
			fprintf(stderr, "kernels: %s, %s, %s: %.2f is below its floor of %.2f\n", op, shape,
				type, ratio, floors[i].least);
			below++;
		}
}

double now(void)
{
	struct timespec t;

	clock_gettime(dev->nthreads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void *memory(size_t n)
{
	const size_t align = n < LARGE ? 64 : LARGE, whole = (n + align - 1) / align * align;
	void *p = aligned_alloc(align, whole);

	if (!p)
		exit(1);
	if (align == LARGE)
		madvise(p, whole, MADV_HUGEPAGE);
	memset(p, 0, n);
	return p;
}

struct dt_tensor tensor(enum dt_dtype t, int64_t r, int64_t c)
{
	struct dt_tensor x = dt_t2(memory((size_t)(r * c * dt_dtype_size(t))), t, r, c);

	for (int64_t i = 0; i < r * c; i++) {
		float v = (float)((i * 2654435761u >> 12) % 2001) * 1e-3f - 1;

		if (t == DT_F32)
			((float *)x.data)[i] = v;
		else
			((uint16_t *)x.data)[i] = dt_f32_to_bf16(v);
	}
	return x;
}

bool wanted(const char *op)
{
	return !only || strstr(op, only) || strstr(only, op);
}

void row_of(const char *op, const char *shape, const char *type, double time, double rate, const char *unit,
	    double ceiling)
{
	check_floor(op, shape, type, rate / ceiling);
	dt_table_cell(table, "%s", op);
	dt_table_cell(table, "%s", shape);
	dt_table_cell(table, "%s", type);
	dt_table_cell(table, "%.3f", time * 1e3);
	dt_table_cell(table, "%.1f %s", rate * 1e-9, unit);
	dt_table_cell(table, "%.2f", rate / ceiling);
}

void row(const char *op, const char *shape, enum dt_dtype t, double time, double flop, double bytes)
{
	row_of(op, shape, dt_dtype_name(t), time, flop ? flop / time : bytes / time,
	       flop ? "GFLOP/s" : "GB/s", flop ? peak[t] : copy_rate);
}

/* By the same clock as the ops: with one thread, its processor time. */
static double measure_copy(void)
{
	const size_t n = (size_t)192 << 20;
	char *m;
	double best;

	if (dev->nthreads > 1)
		return dt_dev_copy_rate(dev, seconds);
	m = memory(2 * n);
	TIME(best, (memcpy(m + n, m, n), 0));
	free(m);
	return 2. * (double)n / best;
}

/*
 * Seconds for a cache line to go from one core to another: of two threads that write it in turn. Virtual
 * processors that share an L3 in one run may not in the next, and ops whose threads read each other's results
 * depend on it. Compare only runs that agree in this.
 */
static double measure_line(void)
{
	enum { TURNS = 2000, TRIES = 50 };
	static _Alignas(64) atomic_int turn;
	const double first = dt_now();
	double best = INFINITY;

	for (int i = 0; i < TRIES && dt_now() - first < 1; i++) {
		const double begin = dt_now();

		atomic_store(&turn, 0);
#pragma omp parallel num_threads(2)
		for (int n = omp_get_thread_num(); omp_get_num_threads() == 2 && n < TURNS; n += 2) {
			while (atomic_load(&turn) != n)
				;
			atomic_store(&turn, n + 1);
		}
		best = fmin(best, (dt_now() - begin) / TURNS);
	}
	return best;
}

int main(int argc, char **argv)
{
	const char *path = argc > 2 && !strcmp(argv[1], "--check") ? argv[2] : NULL;

	if (path) {
		argc -= 2;
		argv += 2;
	} else if (argc > 1 && argv[1][0] == '-') {
		fprintf(stderr, "usage: kernels [--check FLOORS] [THREADS [SECONDS [OP]]]\n");
		return 2;
	}
	if (argc > 1 && strspn(argv[1], "0123456789") != strlen(argv[1])) {
		fprintf(stderr, "kernels: the number of threads is not '%s'\n", argv[1]);
		return 2;
	}
	if (dt_dev_open(&dev, DT_DEV_CPU, 0, argc > 1 ? atoi(argv[1]) : 0) < 0)
		return 1;
	ops = dev->ops;
	seconds = argc > 2 ? atof(argv[2]) : seconds;
	only = argc > 3 ? argv[3] : NULL;
	if (path && read_floors(path))
		return 1;
	table = dt_table_new("op|shape|type|>time ms|>rate|>of peak");
	for (int t = 0; t < 2; t++) {
		struct dt_tensor a = tensor((enum dt_dtype)t, 1024, 1024),
				 c = tensor((enum dt_dtype)t, 1024, 1024);
		double best;

		TIME(best, ops->matmul(dev, c, a, false, a, false, DT_NONE, false));
		peak[t] = 2. * 1024 * 1024 * 1024 / best;
		free(a.data);
		free(c.data);
	}
	copy_rate = measure_copy();
	printf("%s, %d threads: f32 %.0f GFLOP/s, bf16 %.0f GFLOP/s (1024 cubed), copy %.1f GB/s\n",
	       dt_dev_isa(dev), dev->nthreads, peak[0] * 1e-9, peak[1] * 1e-9, copy_rate * 1e-9);
	if (dev->nthreads > 1)
		printf("a line between cores %.0f ns\n", measure_line() * 1e9);
	for (int t = 0; t < 2; t++) {
		matmuls((enum dt_dtype)t);
		convolutions((enum dt_dtype)t);
		experts((enum dt_dtype)t);
		attention((enum dt_dtype)t);
		state_space((enum dt_dtype)t);
		norms((enum dt_dtype)t);
		streams((enum dt_dtype)t);
		losses((enum dt_dtype)t);
	}
	eight_bits();
	long_contexts();
	if (wanted("optim"))
		optimizers();
	embedding();
	weights();
	encoders();
	dt_table_print(table, stdout);
	dt_table_free(table);
	dt_dev_close(dev);
	for (int i = 0; i < floor_count; i++)
		if (!only && !floors[i].met) {
			fprintf(stderr, "kernels: no such row: %s\n", floors[i].row);
			return 1;
		}
	return below ? 3 : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
