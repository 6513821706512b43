/*
 * Shared by optim.cu and optim_blocks.cu: one launch processes many parts of a list. Its blocks are
 * distributed over the chunks of all parts, so that a large part gets as many as it would alone, and a small
 * one costs one chunk.
 */
#ifndef DT_KERNELS_CUDA_OPTIM_H
#define DT_KERNELS_CUDA_OPTIM_H

#include "kernels/cuda/kernel.h"

enum { DT_LAUNCH_BYTES = 4096 }; /* maximum bytes of a launch's arguments */

struct dt_step_part {
	void *copy, *p, *g, *s1, *s2; /* s1, s2 NULL: the rule has no such state */
	int64_t n, first;	      /* elements; index of its first chunk in the launch */
	float lr, decay, trust;
	uint8_t tcopy, tg;
	bool by_8; /* elements can be moved 8 at a time */
};

/*
 * Takes parts of l from *at on, at most `most` and skipping empty ones, into ret; advances *at past them.
 * *ret_chunks: their number of chunks. Returns the number of parts.
 */
static inline int dt_take_parts(const struct dt_optim_parts *l, int *at, int most, int64_t chunk, int states,
				struct dt_step_part *ret, int64_t *ret_chunks)
{
	int n = 0;

	*ret_chunks = 0;
	for (; *at < l->n && n < most; ++*at) {
		const struct dt_optim_part *q = &l->part[*at];
		const int64_t numel = dt_numel(q->p);
		void *s1 = states > 0 ? q->s1.data : NULL, *s2 = states > 1 ? q->s2.data : NULL;

		if (!numel)
			continue;
		ret[n++] = {q->copy.data,
			    q->p.data,
			    q->g.data,
			    s1,
			    s2,
			    numel,
			    *ret_chunks,
			    q->lr,
			    q->weight_decay,
			    q->trust,
			    (uint8_t)q->copy.dtype,
			    (uint8_t)q->g.dtype,
			    dt_by_8(8, q->copy.data, q->p.data, q->g.data, s1, s2)};
		*ret_chunks += dt_ceil_div(numel, chunk);
	}
	return n;
}

int dt_cuda_optim_blocks(const struct dt_cuda *c, const struct dt_optim *o, const struct dt_optim_parts *l);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
