/* Times compressed all-reduces (comm/compress.h) next to plain ones. */
#ifndef DT_BENCH_COMPRESSED_H
#define DT_BENCH_COMPRESSED_H

#include "comm/compress.h"

struct dt_bench_compressed {
	enum dt_compress_kind kind;
	size_t bytes;			     /* of the tensor */
	double time_s, codec_s;		     /* per call on the slowest rank; of that, computation */
	double plain_s;			     /* passed in: the plain call of the same size */
	double wire_bytes, plain_wire_bytes; /* sent per rank */
	double break_even; /* link bandwidth in bytes/s below which compression pays; 0: never */
};

/* Collective. Mean of three calls on bytes / 4 random numbers. */
int dt_bench_compressed(struct dt_comm *c, const struct dt_compress_opts *o, size_t bytes, double plain_s,
			struct dt_bench_compressed *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
