/* Tables that compare algorithms: measured, predicted, simulated. */
#include "bench/report.h"

#include "base/opt.h"

#include <math.h>
#include <string.h>

enum { CELL = 6 }; /* columns of a number; its mark takes one more */

/* Names of at most CELL columns, over two lines. */
static const char *const head[DT_ALG_N][2] = {
	[DT_ALG_DIRECT] = {"", "direct"},
	[DT_ALG_MPI] = {"", "mpi"},
	[DT_ALG_NAIVE] = {"", "naive"},
	[DT_ALG_PS] = {"", "ps"},
	[DT_ALG_RING] = {"", "ring"},
	[DT_ALG_DOUBLING] = {"doub-", "ling"},
	[DT_ALG_RABENSEIFNER] = {"raben-", "seifn."},
	[DT_ALG_TREE] = {"", "tree"},
	[DT_ALG_DOUBLE_TREE] = {"double", "tree"},
	[DT_ALG_TWO_LEVEL] = {"two-", "level"},
};

/* Microseconds in at most five columns; from 0.1 s on with a unit. */
static const char *format_time(double s, char buf[16])
{
	double us = s * 1e6;

	if (us < 99.995)
		snprintf(buf, 16, "%.2f", us);
	else if (us < 999.95)
		snprintf(buf, 16, "%.1f", us);
	else if (us < 99999.5)
		snprintf(buf, 16, "%.0f", us);
	else if (s < 0.9995)
		snprintf(buf, 16, "%.0fms", s * 1e3);
	else
		snprintf(buf, 16, s < 99.95 ? "%.1fs" : "%.0fs", s);
	return buf;
}

static void print_trimmed(FILE *f, char *row)
{
	size_t n = strlen(row);

	while (n && row[n - 1] == ' ')
		n--;
	fprintf(f, "%.*s\n", (int)n, row);
}

/* "64 KiB", "1000 B": whole numbers of the largest unit that divides it. */
static const char *format_bytes(size_t bytes, char buf[24])
{
	static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	int u = 0;

	for (; u < 4 && bytes && bytes % 1024 == 0; u++)
		bytes /= 1024;
	snprintf(buf, 24, "%zu %s", bytes, unit[u]);
	return buf;
}

void dt_bench_print_algorithms_head(FILE *f, unsigned algorithms)
{
	char row[16 + (CELL + 1) * DT_ALG_N];

	fprintf(f, "# time of a call in us, from one buffer to another; *: the fastest\n#\n");
	for (int line = 0; line < 2; line++) {
		int n = snprintf(row, sizeof(row), "#%8s ", line ? "size" : "");

		for (int a = 0; a < DT_ALG_N; a++)
			if (algorithms & 1u << a)
				n += snprintf(row + n, sizeof(row) - (size_t)n, "%*s ", CELL, head[a][line]);
		if (row[strspn(row, "# ")]) /* omit an empty first line */
			print_trimmed(f, row);
	}
}

void dt_bench_print_algorithms_row(FILE *f, unsigned algorithms, size_t bytes, const char *label,
				   const double *time_s, const int64_t *wrong)
{
	char size[24], cell[16], row[64 + (CELL + 1) * DT_ALG_N];
	double least = INFINITY;
	int n;

	for (int a = 0; a < DT_ALG_N; a++)
		if (algorithms & 1u << a && time_s[a] >= 0)
			least = fmin(least, time_s[a]);
	n = snprintf(row, sizeof(row), "%9s ", label ? label : format_bytes(bytes, size));
	for (int a = 0; a < DT_ALG_N; a++)
		if (algorithms & 1u << a)
			n += snprintf(row + n, sizeof(row) - (size_t)n, "%*s%c", CELL,
				      time_s[a] < 0 ? "-" : format_time(time_s[a], cell),
				      wrong && wrong[a] > 0 ? '!'
				      : time_s[a] == least  ? '*'
							    : ' ');
	print_trimmed(f, row);
}

double dt_bench_predicted(const struct dt_bench_run_info *i, enum dt_bench_kind k, enum dt_alg a,
			  const struct dt_bench_result *r)
{
	size_t e = (size_t)dt_dtype_size(i->t);
	double t;

	if (!i->topo || a <= DT_ALG_MPI || dt_bench_predict(i->topo, k, a, r->bytes / e, e, true, &t, NULL))
		return -1;
	return t;
}

void dt_bench_print_predictions(FILE *f, const struct dt_bench_run_info *i, enum dt_bench_kind k,
				const struct dt_bench_result *r, enum dt_alg used)
{
	char name[16];

	fprintf(f, "#");
	for (int a = DT_ALG_NAIVE; a < DT_ALG_N; a++) {
		double t = dt_bench_predicted(i, k, (enum dt_alg)a, r);

		if (t >= 0)
			fprintf(f, " %s %.4g us,", dt_alg_name((enum dt_alg)a, name), t * 1e6);
	}
	fprintf(f, " chosen: %s\n", dt_alg_name(used, name));
}

int dt_bench_simulate_all(const struct dt_bench_topo *t, enum dt_bench_kind k, size_t bytes,
			  enum dt_dtype type, enum dt_alg only, double *time_s, struct dt_err *err)
{
	size_t e = (size_t)dt_dtype_size(type), n = bytes / e ? bytes / e : 1;
	int rc = 0;

	for (int a = 0; a < DT_ALG_N && !rc; a++) {
		time_s[a] = -1;
		if (a == DT_ALG_TWO_LEVEL && only == DT_ALG_AUTO && t->ranks % t->node)
			continue; /* machines of unlike sizes cannot use it */
		if (a > DT_ALG_MPI && dt_bench_has_algorithm(k, (enum dt_alg)a) &&
		    (only == DT_ALG_AUTO || only == (enum dt_alg)a))
			rc = dt_bench_predict(t, k, (enum dt_alg)a, n, e, false, &time_s[a], err);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
