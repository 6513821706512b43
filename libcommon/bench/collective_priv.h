/* Shared by collective.c and time.c. */
#ifndef DT_BENCH_COLLECTIVE_PRIV_H
#define DT_BENCH_COLLECTIVE_PRIV_H

#include "bench/collective.h"

struct dt_bench {
	struct dt_comm *c;
	struct dt_world_info info;
	int rank, size; /* in c */
	struct dt_bench_opts o;
	size_t e, region; /* element size; bytes of each buffer */
	char *buf[4];	  /* two for our calls, two for plain MPI */
	char *src, *dst;  /* the pair in use */
	char *table;
	bool compared; /* offset_s is valid: add it to this rank's clock to get rank 0's */
	double offset_s;
	double *times, *worst; /* [3][iters]: ours, MPI's, arrivals; [2][iters]: maxima over ranks */
};

bool dt_bench_per_rank(enum dt_bench_kind k);
/* Bytes of the last-level cache: `given`, or if that is 0 the system's value. */
size_t dt_bench_cache_bytes(size_t given);
void dt_bench_prepare(struct dt_bench *b, size_t n, bool in_place);
int64_t dt_bench_wrong(struct dt_bench *b, size_t n, bool in_place);
int dt_bench_call(struct dt_bench *b, size_t n, bool in_place, size_t offset, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
