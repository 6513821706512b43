/* Reductions and copies on this rank: what collectives are made of, and what the benchmark measures them
 * against. */
#ifndef DT_COMM_REDUCE_H
#define DT_COMM_REDUCE_H

#include "comm/comm.h"

/*
 * dst[i] = src[0][i] op src[1][i] op ... in that order, divided by p for DT_AVG. bf16 and f16 are added in
 * f32 and rounded once, to nearest even. Integers wrap; their average is rounded towards zero. dst may be one
 * of the sources.
 */
void dt_comm_reduce_many(void *dst, const void *const *src, int p, size_t n, enum dt_dtype t,
			 enum dt_redop op);
/* x[i] /= p, as the last step of DT_AVG. */
void dt_comm_reduce_divide(void *x, int p, size_t n, enum dt_dtype t);

/*
 * dt_comm_reduce_many of at most DT_COMM_REDUCE_BLOCK elements to ndst destinations, from byte offset at of
 * each on, with non-temporal stores; the same bits in each. No destination may be a source. Other ranks see
 * the result only after dt_comm_stream_fence().
 */
#define DT_COMM_REDUCE_BLOCK 1024
void dt_comm_reduce_stream(char *const *dst, int ndst, size_t at, const void *const *src, int p, size_t n,
			   enum dt_dtype t, enum dt_redop op);

/*
 * Largest memcpy, in bytes, that the C library does with ordinary stores when both sides are in the caches;
 * beyond it the destination is fetched from memory before it is overwritten.
 */
#define DT_COMM_COPY_BLOCK ((size_t)128 << 10)
/* memcpy with non-temporal stores. */
void dt_comm_copy_stream(void *dst, const void *src, size_t n);
/* The same without a fence: other ranks see the result only after dt_comm_stream_fence(). */
void dt_comm_copy_stream_open(void *dst, const void *src, size_t n);
void dt_comm_stream_fence(void);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
