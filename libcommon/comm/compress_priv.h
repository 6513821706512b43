/* Shared by the methods of compress.c alone. */
#ifndef DT_COMM_COMPRESS_PRIV_H
#define DT_COMM_COMPRESS_PRIV_H

#include "base/progress.h"
#include "comm/compress.h"

struct dt_compress {
	struct dt_comm *c;
	struct dt_compress_opts o;
	struct dt_compress_part *part;
	int nparts, rank, ranks;
	struct dt_compress_work w;
	float *kept; /* compression errors, by element of the buffer */
	char *work;
	char *own; /* malloc'd memory of kept and work, if the caller passed none; else NULL */
};

static inline float *dt_compress_floats(const struct dt_compress *z, size_t at)
{
	return (float *)(z->work + at);
}

/* A method sends x + kept in compressed form, stores the error in kept, and the sum over all ranks in x. */
typedef int dt_compress_method(struct dt_compress *z, float *x, const char *what, double *net_s,
			       struct dt_err *err);
dt_compress_method dt_compress_powersgd, dt_compress_top_k, dt_compress_one_bit, dt_compress_int8;

/* Fills column k of a factor q [cols, rank] of a part of n elements, the same on all ranks. */
void dt_compress_draw(const struct dt_compress_shape *s, size_t n, float *q, size_t k);

/* All-gathers the compressed data of all ranks. */
static inline int dt_compress_gather(struct dt_compress *z, const char *what, double *net_s,
				     struct dt_err *err)
{
	double t0 = dt_now();
	int rc = dt_all_gather(z->c, z->work + z->w.all, z->work + z->w.mine, z->w.mine_bytes, DT_U8, what,
			       err);

	*net_s += dt_now() - t0;
	return rc;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
