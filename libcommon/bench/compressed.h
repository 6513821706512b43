/* Compressed all-reduces (comm/compress.h) timed beside plain ones. */
#ifndef DT_BENCH_COMPRESSED_H
#define DT_BENCH_COMPRESSED_H

#include "comm/compress.h"

struct dt_bench_compressed {
	enum dt_compress_kind kind;
	size_t bytes;			     /* of the tensor */
	double time_s, codec_s;		     /* a call on the slowest rank; of it computing */
	double plain_s;			     /* the caller's: the plain call of the same size */
	double wire_bytes, plain_wire_bytes; /* sent by a rank */
	double break_even; /* bytes a second of a link below which compressing pays; 0: never */
};

/* Collective: the mean of three calls on bytes / 4 random numbers. */
int dt_bench_compressed(struct dt_comm *c, const struct dt_compress_opts *o, size_t bytes, double plain_s,
			struct dt_bench_compressed *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
