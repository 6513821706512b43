/*
 * Times and checks collectives, with the conventions of nccl-tests (its PERFORMANCE.md derives busbw).
 *
 * A size is the bytes S of algbw = S / time: count * esize for all-reduce, broadcast, reduce and send-recv;
 * count * esize * ranks for all-gather, reduce-scatter, all-to-all, gather and scatter. Inputs are small
 * integers that repeat with a prime period, so that every result is exact in every type and a misplaced piece
 * is detected.
 */
#ifndef DT_BENCH_COLLECTIVE_H
#define DT_BENCH_COLLECTIVE_H

#include "comm/comm.h"

enum dt_bench_kind {
	DT_BENCH_ALL_REDUCE,
	DT_BENCH_ALL_GATHER,
	DT_BENCH_REDUCE_SCATTER,
	DT_BENCH_BROADCAST,
	DT_BENCH_ALL_TO_ALL,
	DT_BENCH_REDUCE,
	DT_BENCH_GATHER,
	DT_BENCH_SCATTER,
	DT_BENCH_SEND_RECV, /* every rank to the next one */
	DT_BENCH_BARRIER,
	DT_BENCH_N,
};
#define DT_BENCH_CHOICES                                                                                     \
	"all-reduce|all-gather|reduce-scatter|broadcast|all-to-all|reduce|gather|scatter|send-recv|barrier"

struct dt_bench_opts {
	enum dt_bench_kind kind;
	enum dt_dtype t;
	enum dt_redop op;
	int root;
	int iters, warmup;
	bool check, cold; /* cold: walk through buffers larger than the last-level cache */
	bool registered;  /* registered buffers (dt_buffer_alloc) */
	bool compare;	  /* alternate with a plain MPI call; a barrier precedes each */
	bool apart;	  /* a barrier before each call, so that calls do not overlap */
	size_t cache;	  /* bytes of the last-level cache; 0: ask the system */
};

struct dt_bench_result {
	size_t bytes, count;
	double time_s; /* per call, on the slowest rank: the mean; with compare or apart the median */
	double mean_s, p50_s, p99_s, max_s; /* over calls, each timed on its slowest rank */
	double min_s;			    /* fastest call per rank, maximum over ranks; <= time_s */
	double algbw_gbs, busbw_gbs;
	double bound_fraction; /* share of the machine's copy bandwidth; 0: fits in the caches, or unknown */
	int64_t wrong;	       /* wrong elements over all ranks; -1: not checked */
	double mpi_s;	       /* with compare: plain MPI's median, alternating with p50_s; otherwise 0 */
	double copy_s;	       /* to copy the bytes a call reads and writes, all ranks at once; 0: unknown */
};

/* When each rank arrives at the calls of a run. */
struct dt_bench_skew {
	int ranks;
	int64_t calls;
	double *sum_s, *max_s; /* [ranks]: delay after the first rank */
	int64_t *last;	       /* [ranks]: number of calls at which it was the last */
	double offset_s;       /* add to this rank's clock to get rank 0's */
};
/* Collective. Compares clocks if ranks are on several machines. */
int dt_bench_skew_init(struct dt_bench_skew *s, struct dt_comm *c, struct dt_err *err);
void dt_bench_skew_release(struct dt_bench_skew *s);

/* busbw / algbw */
double dt_bench_bus_factor(enum dt_bench_kind k, int ranks);
/*
 * Bytes that a call with S = 1 must read and write if all ranks are on one machine; data read by several
 * ranks counts once.
 */
double dt_bench_traffic(enum dt_bench_kind k, int ranks, bool in_place);
/* Whether the collective is measured both out of place and in place. */
bool dt_bench_has_in_place(enum dt_bench_kind k);
bool dt_bench_reduces(enum dt_bench_kind k);
bool dt_bench_has_root(enum dt_bench_kind k);

struct dt_bench; /* buffers */
int dt_bench_open(struct dt_bench **ret, struct dt_comm *c, const struct dt_bench_opts *o, size_t max_bytes,
		  struct dt_err *err);
/* Collective. Rounds bytes down to whole elements per rank, at least one. copy_gbs is from dt_bench_copy;
 * skew may be NULL. */
int dt_bench_run(struct dt_bench *b, size_t bytes, bool in_place, double copy_gbs, struct dt_bench_skew *skew,
		 struct dt_bench_result *ret, struct dt_err *err);
void dt_bench_close(struct dt_bench *b);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
