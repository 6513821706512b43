/*
 * 3 x 3 convolutions with stride 1 by Winograd's minimal filtering F(2 x 2, 3 x 3) in f32 (Lavin and Gray
 * 2015, "Fast Algorithms for Convolutional Neural Networks"): 16 multiplications per 2 x 2 output pixels,
 * where direct convolution takes 36. With B, G and A of that paper, d a tile of 4 x 4 pixels of x, g a 3 x 3
 * kernel, e a tile of 2 x 2 pixels of dy:
 *
 *   y  = A^T [sum over channels of (G g G^T) (B^T d B)] A
 *   dg = G^T [sum over tiles of (A e A^T) (B^T d B)] G
 *
 * where products in brackets are elementwise: 16 matrix products. The data gradient is y computed from dy and
 * kernels rotated by 180 degrees. A, B and G have only the entries 0, 1 and 1/2 (up to sign), so that errors
 * are within a small factor of those of direct convolution (tests/kernels/test_winograd.c).
 *
 * Transformed data is stored in 16 parts, one per 4 x 4 element, each in groups of DT_WINO channels:
 * at[part * stride + (group * count + i) * DT_WINO + lane], where i is one of `count` tiles, or of the input
 * channels of a kernel. Lanes past the last channel are zero.
 *
 * Sums over channels and over tiles are each one chain in ascending order: bits depend neither on the number
 * of threads nor, for y and dx, on the number of images.
 */
#ifndef DT_KERNELS_CPU_WINOGRAD_H
#define DT_KERNELS_CPU_WINOGRAD_H

#include "kernels/cpu/conv.h"

enum {
	DT_WINO = 16,
	DT_WINO_TILES = 48, /* tiles per block of a thread: a multiple of the rows in registers, for every
			     * ISA */
	DT_WINO_GROUPS = 4, /* groups of output channels per block */
};

struct dt_wino_parts {
	float *at;
	int64_t stride, count;
};

static inline int64_t dt_wino_groups(int64_t channels)
{
	return dt_ceil_div(channels, DT_WINO);
}

/* Floats of one of 16 parts of n groups. One line more than a power of two: otherwise writes to 16 parts at
 * once would share a set of L1. */
static inline int64_t dt_wino_part(int64_t n, int64_t count)
{
	return n * count * DT_WINO + DT_WINO;
}

/* Floats of a thread's block: tiles of `in` channels, and their sums. */
static inline int64_t dt_wino_share(int64_t in)
{
	return 16 * (dt_wino_part(dt_wino_groups(in), DT_WINO_TILES) +
		     dt_wino_part(DT_WINO_GROUPS, DT_WINO_TILES));
}

/* Tiles per block of all threads, for the weight gradient. */
static inline int64_t dt_wino_tiles_sum(int threads)
{
	return dt_min64(256, 64 * dt_ceil_div(threads, 2));
}

struct dt_wino_out {	   /* a tile of y, and what is added to it */
	float *y[4];	   /* NULL: outside the image */
	const float *bias; /* [channels], or NULL */
	bool adds, relu;   /* adds: to the contents of y */
};

/*
 * For one part and group: c[r, j] = (accumulate ? c[r, j] : 0) + sum over k of a[r, k] b[k, j], j < DT_WINO.
 */
struct dt_wino_mul {
	float *c;			/* [rows, DT_WINO] */
	const float *a, *b;		/* b [chunks words, DT_WINO] */
	int64_t rows, chunks, words;	/* k runs over chunks of words */
	int64_t a_row, a_word, a_chunk; /* strides of a */
	bool accumulate;
};

/* Kernels in their own layout: for output channel o and input channel i at w[o * out + i * in]. */
struct dt_wino_windows {
	const float *w;
	int64_t outs, ins; /* numbers of channels */
	int64_t out, in;   /* strides */
	bool turned;
};

/* One object per instruction set (meson.build). */
struct dt_wino_lanes {
	/* Transforms 4 x 4 pixels of x, or 2 x 2 of dy, row by row, to tile i of `to`. */
	void (*image)(const struct dt_wino_parts *to, int64_t i, const float *const px[16], int64_t channels);
	void (*grad)(const struct dt_wino_parts *to, int64_t i, const float *const px[4], int64_t channels);
	/* Transforms the kernels of output channels [group DT_WINO, ...) to group `group` of `to`. */
	void (*windows)(const struct dt_wino_parts *to, int64_t group, const struct dt_wino_windows *w);
	/*
	 * Transforms tile i of `from`, whose first group begins with channel `first`, back to channels
	 * [first, last) of y.
	 */
	void (*result)(const struct dt_wino_parts *from, int64_t i, const struct dt_wino_out *out,
		       int64_t first, int64_t last);
	/*
	 * Transforms row i of a group of `from` back to the gradients of `channels` kernels, contiguous at
	 * dw.
	 */
	void (*window_grad)(const struct dt_wino_parts *from, int64_t group, int64_t i, float *dw,
			    int64_t channels, bool accumulate);
	void (*mul)(const struct dt_wino_mul *m);
};
extern const struct dt_wino_lanes dt_wino_plain, dt_wino_v3, dt_wino_v4;

/*
 * Whether Winograd is cheaper than direct convolution: 3 x 3, stride 1, enough channels. Independent of the
 * batch size, which must not change an image's result.
 */
bool dt_wino_takes(const struct dt_conv *p);
/* Bytes of `room` below, which must be 64-byte aligned; contents undefined. */
size_t dt_wino_bytes(int threads, const struct dt_conv *p);
/* conv_forward and conv_bias, conv_backward, conv_weights of conv.h; any shape with kernel 3 and stride 1. */
void dt_wino_forward(struct dt_dev *dev, float *room, const struct dt_conv_operands *o, bool adds, bool relu,
		     const struct dt_conv *p);
void dt_wino_backward(struct dt_dev *dev, float *room, const struct dt_conv_operands *o,
		      const struct dt_conv *p);
void dt_wino_weights(struct dt_dev *dev, float *room, const struct dt_conv_operands *o,
		     const struct dt_conv *p);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
