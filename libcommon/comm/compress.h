/*
 * Compressed all-reduces of f32, for links so slow that computing is cheaper than sending. A rank adds the
 * compression error to its next input (error feedback), so over many steps nothing is lost: sum of results =
 * sum of inputs - the error kept at the end. Every rank gets the same bits.
 *
 * bf16      half the bytes; no feedback, rounding is small and to either side
 * int8      blocks of 256 codes and a scale: each rank sums its part of the blocks and sends the sum in codes
 *           too, with error feedback as well (Tang et al., DoubleSqueeze, ICML 2019)
 * powersgd  two thin factors (Vogels et al., PowerSGD, NeurIPS 2019, algorithm 1, warm start)
 * top-k     the largest entries (Lin et al., Deep Gradient Compression, 2018, without momentum correction)
 * one-bit   signs and a mean magnitude a block (Seide et al., 1-Bit SGD, Interspeech 2014)
 *
 * Tensors in one buffer are compressed together, with as many messages as for one tensor. Inputs must be
 * finite.
 */
#ifndef DT_COMM_COMPRESS_H
#define DT_COMM_COMPRESS_H

#include "comm/comm.h"
#include "plan/compress.h"

struct dt_compress; /* the state of some tensors */

/*
 * part [n]: parts of a buffer, not overlapping, in its order, together fewer than 2^31 elements (-EINVAL).
 * kept: the errors, one element for each of the buffer, initialized by the caller; work: as many bytes as
 * dt_compress_work says. If both are NULL they are allocated. The same call on every rank.
 */
int dt_compress_open_parts(struct dt_compress **ret, struct dt_comm *c, const struct dt_compress_opts *o,
			   const struct dt_compress_part *part, int n, float *kept, void *work,
			   struct dt_err *err);
/* One tensor of n elements. */
int dt_compress_open(struct dt_compress **ret, struct dt_comm *c, const struct dt_compress_opts *o, size_t n,
		     struct dt_err *err);
void dt_compress_close(struct dt_compress *z);
/* In place; op is DT_SUM or DT_AVG. Adds the seconds spent computing to *codec_s (may be NULL). */
int dt_compress_all_reduce(struct dt_compress *z, float *x, enum dt_redop op, const char *what,
			   double *codec_s, struct dt_err *err);
/* Bytes a rank sends for one call, by ring algorithms. */
double dt_compress_wire_bytes(const struct dt_compress *z);
/* The error that this rank adds to its next input, by element of the buffer; NULL for bf16. */
const float *dt_compress_kept(const struct dt_compress *z);
/*
 * powersgd: the right factor Q of part i, [cols, rank], the same on all ranks; the next call starts from it.
 */
float *dt_compress_factor(struct dt_compress *z, int i, struct dt_compress_shape *ret);

/*
 * The link bandwidth, bytes/s, below which compression pays off: without it plain_bytes are sent (2 (p - 1) /
 * p n for a ring), with it wire_bytes, after codec_s seconds of computing. 0: it never pays off.
 */
double dt_compress_break_even(double plain_bytes, double wire_bytes, double codec_s);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
