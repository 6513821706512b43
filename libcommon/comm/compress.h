/*
 * Compressed all-reduces of f32, for links so slow that computing is cheaper than sending. A rank adds the
 * compression error to its next input (error feedback), so over many steps nothing is lost: sum of results =
 * sum of inputs - the error kept at the end. Every rank gets the same bits.
 *
 * bf16      half the bytes; no feedback, rounding is small and to either side
 * int8      blocks of 256 codes and a scale: each rank adds up its part of the blocks and sends codes of the
 *           sum, whose error it keeps too (Tang et al., DoubleSqueeze, ICML 2019)
 * powersgd  two thin factors (Vogels et al., PowerSGD, NeurIPS 2019, algorithm 1, warm start)
 * top-k     the largest entries (Lin et al., Deep Gradient Compression, 2018, without momentum correction)
 * one-bit   signs and a mean magnitude a block (Seide et al., 1-Bit SGD, Interspeech 2014)
 *
 * Tensors that lie in one buffer go together: as many messages as for one. Inputs must be finite.
 */
#ifndef DT_COMM_COMPRESS_H
#define DT_COMM_COMPRESS_H

#include "comm/comm.h"
#include "plan/compress.h"

struct dt_compress; /* the state of some tensors */

/*
 * n parts of a buffer that do not overlap, in its order, fewer than 2^31 elements together (-EINVAL). kept:
 * as many elements as the buffer has, which the caller has cleared or filled; work: dt_compress_work's bytes.
 * Both NULL: they are allocated. The same call on every rank.
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
/* powersgd: the right factor of part i, [cols, rank], alike on all ranks; the next call begins there. */
float *dt_compress_factor(struct dt_compress *z, int i, struct dt_compress_shape *ret);

/*
 * Bytes a second of a link below which compressing pays: plain sends 2 (p - 1) / p n bytes, compressed
 * wire_bytes after computing for codec_s. 0: it never does.
 */
double dt_compress_break_even(double plain_bytes, double wire_bytes, double codec_s);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
