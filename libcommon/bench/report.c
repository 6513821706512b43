/* The benchmark's results as text. */
#include "bench/report.h"

#include "base/opt.h"
#include "base/units.h"

#include <string.h>

/* Type names of nccl-tests, in the order of enum dt_dtype. */
static const char *const nccl_type[DT_DTYPE_N] = {"float", "bfloat16", "half",	 "double", "int32",
						  "int64", "uint8",    "uint16", "int8"};

/* Type names of dt's programs, in the same order. */
static const char *const type_name[DT_DTYPE_N] = {"fp32",  "bf16",  "fp16",   "fp64", "int32",
						  "int64", "uint8", "uint16", "int8"};

int dt_bench_type_parse(const char *s)
{
	int t = dt_dtype_parse(s);

	for (int i = 0; i < DT_DTYPE_N && t < 0; i++)
		if (!strcmp(s, nccl_type[i]) || !strcmp(s, type_name[i]))
			t = i;
	return t;
}

const char *dt_bench_type_name(enum dt_dtype t)
{
	return type_name[t];
}

static const char *kind_name(enum dt_bench_kind k, char buf[32])
{
	return dt_opt_choice_name(DT_BENCH_CHOICES, (int)k, buf, 32);
}

void dt_bench_print_title(FILE *f, const struct dt_bench_run_info *i, enum dt_bench_kind k)
{
	char name[32];

	fprintf(f, "# %s over %d rank%s on %d machine%s, transport %s%s%s\n#\n", kind_name(k, name),
		i->world.size, i->world.size == 1 ? "" : "s", i->world.nodes, i->world.nodes == 1 ? "" : "s",
		i->transport, i->registered ? ", registered buffers" : "", i->cold ? ", cold buffers" : "");
}

/* Column headings for out of place or in place; unit: the second line, with the units. */
static void print_side_head(FILE *f, const struct dt_bench_run_info *i, bool unit)
{
	fprintf(f, "  %9s  %6s  %6s  %6s", unit ? "(us)" : "time", unit ? "(GB/s)" : "algbw",
		unit ? "(GB/s)" : "busbw", unit ? "" : "#wrong");
	if (i->stats)
		fputs(unit ? "      (us)      (us)      (us)      (us)    (%)"
			   : "       min      mean       p50       p99  bound",
		      f);
	if (i->compare)
		fputs(unit ? "       (us)                " : "   MPI time   ratio    most", f);
}

void dt_bench_print_head(FILE *f, const struct dt_bench_run_info *i)
{
	int side = 31 + (i->stats ? 47 : 0) + (i->compare ? 27 : 0);

	fprintf(f, "# %10s  %12s  %8s  %6s  %6s  %*s  %*s\n", "", "", "", "", "", side,
		"out-of-place           ", side, "in-place             ");
	for (int unit = 0; unit < 2; unit++) {
		fprintf(f, "# %10s  %12s  %8s  %6s  %6s", unit ? "(B)" : "size",
			unit ? "(elements)" : "count", unit ? "" : "type", unit ? "" : "redop",
			unit ? "" : "root");
		print_side_head(f, i, unit);
		print_side_head(f, i, unit);
		fputc('\n', f);
	}
}

static void print_side(FILE *f, const struct dt_bench_run_info *i, const struct dt_bench_result *r)
{
	char wrong[24] = "N/A", bound[16] = "N/A", most[16] = "N/A";

	if (!r) {
		fprintf(f, "  %9s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
		if (i->stats)
			fprintf(f, " %9s %9s %9s %9s %6s", "N/A", "N/A", "N/A", "N/A", "N/A");
		if (i->compare)
			fprintf(f, "  %9s %7s %7s", "N/A", "N/A", "N/A");
		return;
	}
	if (r->wrong >= 0)
		snprintf(wrong, sizeof(wrong), "%lld", (long long)r->wrong);
	if (r->bound_fraction > 0)
		snprintf(bound, sizeof(bound), "%.0f", 100 * r->bound_fraction);
	if (r->copy_s > 0)
		snprintf(most, sizeof(most), "%.2f", r->mpi_s / r->copy_s);
	fprintf(f, "  %9.2f  %6.2f  %6.2f  %6s", r->time_s * 1e6, r->algbw_gbs, r->busbw_gbs, wrong);
	if (i->stats)
		fprintf(f, " %9.2f %9.2f %9.2f %9.2f %6s", r->min_s * 1e6, r->mean_s * 1e6, r->p50_s * 1e6,
			r->p99_s * 1e6, bound);
	if (i->compare)
		fprintf(f, "  %9.2f %7.2f %7s", r->mpi_s * 1e6, r->mpi_s / r->time_s, most);
}

void dt_bench_print_row(FILE *f, const struct dt_bench_run_info *i, enum dt_bench_kind k,
			const struct dt_bench_result *out, const struct dt_bench_result *in_place)
{
	char op[8];

	fprintf(f, "%12zu  %12zu  %8s  %6s  %6d", out->bytes, out->count, nccl_type[i->t],
		dt_bench_reduces(k) ? dt_opt_choice_name(DT_BENCH_OPS, (int)i->op, op, sizeof(op)) : "none",
		dt_bench_has_root(k) ? i->root : -1);
	print_side(f, i, out);
	print_side(f, i, in_place);
	fputc('\n', f);
}

void dt_bench_print_latency_head(FILE *f, const struct dt_bench_run_info *i, enum dt_bench_kind k)
{
	char name[32];

	fprintf(f, "# %s latency over %d rank%s, transport %s\n# %-10s %16s %16s %16s %12s\n",
		kind_name(k, name), i->world.size, i->world.size == 1 ? "" : "s", i->transport, "Size",
		"Avg Latency(us)", "Min Latency(us)", "Max Latency(us)", "Iterations");
}

void dt_bench_print_latency_row(FILE *f, const struct dt_bench_run_info *i, const struct dt_bench_result *r)
{
	fprintf(f, "%-12zu %16.2f %16.2f %16.2f %12lld\n", r->bytes, r->mean_s * 1e6, r->min_s * 1e6,
		r->max_s * 1e6, (long long)i->iters);
}

void dt_bench_print_compressed(FILE *f, const struct dt_bench_compressed *r)
{
	char name[16], size[32], faster[64] = "not faster on any link";

	if (r->break_even > 0)
		snprintf(faster, sizeof(faster), "faster on links below %.4g GB/s", r->break_even / 1e9);
	fprintf(f,
		"# %s of %s: %.2f us, of which %.2f us compute; uncompressed %.2f us; sends %.0f of %.0f "
		"bytes; %s\n",
		dt_opt_choice_name(DT_COMPRESS_CHOICES, (int)r->kind, name, sizeof(name)),
		dt_format_size(r->bytes, size, sizeof(size)), r->time_s * 1e6, r->codec_s * 1e6,
		r->plain_s * 1e6, r->wire_bytes, r->plain_wire_bytes, faster);
}

void dt_bench_print_totals(FILE *f, const struct dt_bench_totals *t)
{
	const struct dt_bench_skew *s = t->skew;

	fprintf(f, "# Out of bounds values : %lld %s\n", (long long)t->wrong, t->wrong ? "FAILED" : "OK");
	fprintf(f, "# Avg bus bandwidth    : %g\n", t->avg_busbw_gbs);
	fprintf(f, "# Copy bandwidth       : %.4g GB/s read and written by all ranks of a machine\n",
		t->copy_gbs);
	for (int i = 0; i < t->nlink; i++)
		fprintf(f, "# Link %-15s : latency %.3g us, bandwidth %.4g GB/s, fitted within %.0f%%\n",
			t->link[i].name, t->link[i].latency_s * 1e6, t->link[i].bandwidth_gbs,
			100 * t->link[i].error);
	for (int r = 0; r < s->ranks && s->calls; r++)
		fprintf(f,
			"# Rank %-15d : arrives %.1f us after the first (at most %.1f us), is last in %.0f%% "
			"of calls\n",
			r, s->sum_s[r] / (double)s->calls * 1e6, s->max_s[r] * 1e6,
			100 * (double)s->last[r] / (double)s->calls);
}
/* SPDX-License-Identifier: Apache-2.0 */
