/*
 * Prints benchmark results as text and JSON. Text goes to the caller's stream; lines other than results begin
 * with '#', as in nccl-tests.
 */
#ifndef DT_BENCH_REPORT_H
#define DT_BENCH_REPORT_H

#include "base/json.h"
#include "bench/compressed.h"
#include "bench/links.h"
#include "bench/predict.h"

#include <stdio.h>

#define DT_BENCH_OPS "sum|max|min|avg" /* in the order of enum dt_redop */

/* A type by dt's name ("bf16") or by that of nccl-tests ("bfloat16"); -1: neither. */
int dt_bench_type_parse(const char *s);
/* "bf16" */
const char *dt_bench_type_name(enum dt_dtype t);

/* Common to all results of a run. */
struct dt_bench_run_info {
	const char *program;
	struct dt_world_info world;
	const char *transport;
	enum dt_dtype t;
	enum dt_redop op;
	int root;
	int64_t iters;
	bool registered, cold;
	bool stats, compare;		  /* optional columns */
	const struct dt_bench_topo *topo; /* measured network for predictions; NULL: none */
};

/* Printed after the rows. */
struct dt_bench_totals {
	int64_t wrong;
	double avg_busbw_gbs, copy_gbs;
	const struct dt_bench_link *link;
	int nlink;
	const struct dt_bench_skew *skew; /* calls 0: not measured */
	bool interrupted;
};

/* "# all-reduce over 2 ranks on 1 machine, transport shm, registered buffers" */
void dt_bench_print_title(FILE *f, const struct dt_bench_run_info *i, enum dt_bench_kind k);
/* Heading with the columns of nccl-tests: out of place, then in place. in_place NULL: not available. */
void dt_bench_print_head(FILE *f, const struct dt_bench_run_info *i);
void dt_bench_print_row(FILE *f, const struct dt_bench_run_info *i, enum dt_bench_kind k,
			const struct dt_bench_result *out, const struct dt_bench_result *in_place);
/* Heading with the columns of the OSU micro-benchmarks. */
void dt_bench_print_latency_head(FILE *f, const struct dt_bench_run_info *i, enum dt_bench_kind k);
void dt_bench_print_latency_row(FILE *f, const struct dt_bench_run_info *i, const struct dt_bench_result *r);

/*
 * Table of sizes by algorithms: a column per algorithm of the set (bit 1 << a), each cell the time of a call,
 * '*' marks the fastest of a row, '!' wrong results. At most 78 columns wide. time_s [DT_ALG_N]: negative:
 * not measured. label replaces the size; NULL: none.
 */
void dt_bench_print_algorithms_head(FILE *f, unsigned algorithms);
void dt_bench_print_algorithms_row(FILE *f, unsigned algorithms, size_t bytes, const char *label,
				   const double *time_s, const int64_t *wrong);

/* One line: the predicted time of each algorithm with step lists, and the algorithm in use. */
void dt_bench_print_predictions(FILE *f, const struct dt_bench_run_info *i, enum dt_bench_kind k,
				const struct dt_bench_result *r, enum dt_alg used);
/* Predicted time of algorithm a; -1: it has no step lists (DIRECT, MPI), or no costs were measured. */
double dt_bench_predicted(const struct dt_bench_run_info *i, enum dt_bench_kind k, enum dt_alg a,
			  const struct dt_bench_result *r);
void dt_bench_print_compressed(FILE *f, const struct dt_bench_compressed *r);
void dt_bench_print_totals(FILE *f, const struct dt_bench_totals *t);

/* NULL: out of memory. */
json_t *dt_bench_result_json(const struct dt_bench_run_info *i, enum dt_bench_kind k, bool in_place,
			     enum dt_alg used, const struct dt_bench_result *r);
json_t *dt_bench_compressed_json(const struct dt_bench_compressed *r);
/* The whole report. The caller keeps its references to results and compression, which may be NULL. */
json_t *dt_bench_report_json(const struct dt_bench_run_info *i, const struct dt_bench_totals *t,
			     json_t *results, json_t *compression);

/*
 * Simulates every requested algorithm (AUTO: all) on a described network. time_s [DT_ALG_N]: negative if the
 * collective does not have the algorithm.
 */
int dt_bench_simulate_all(const struct dt_bench_topo *t, enum dt_bench_kind k, size_t bytes,
			  enum dt_dtype type, enum dt_alg only, double *time_s, struct dt_err *err);
/* Appends an object for each algorithm that has a time. */
void dt_bench_simulated_json(const struct dt_bench_topo *t, enum dt_bench_kind k, size_t bytes,
			     const double *time_s, json_t *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
