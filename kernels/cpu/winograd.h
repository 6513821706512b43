/*
 * Convolutions of 3 x 3 windows that move by one pixel, by Winograd's minimal filtering F(2 x 2, 3 x 3) in
 * f32 (Lavin and Gray 2015, "Fast Algorithms for Convolutional Neural Networks"): for 2 x 2 pixels of a
 * result 16 multiplications where sums over the window take 36. With B, G and A of that paper, d a tile of 4
 * x 4 pixels of x, g a window, e a tile of 2 x 2 pixels of dy:
 *
 *   y  = A^T [sum over channels of (G g G^T) (B^T d B)] A
 *   dg = G^T [sum over tiles of (A e A^T) (B^T d B)] G
 *
 * where what is in brackets is by element: 16 products of matrices. The gradient by data is y of dy and of
 * windows turned by half a circle. A, B and G have no numbers but 0, 1 and 1/2, so that errors are those of
 * sums over the window but for a small factor (tests/kernels/test_winograd.c).
 *
 * What is transformed lies in 16 parts, one for each of the 4 x 4 elements, and there in groups of DT_WINO
 * channels: at[part * stride + (group * count + i) * DT_WINO + lane], where i is one of `count` tiles, or of
 * channels that a window reads. Lanes past the last channel are zero.
 *
 * Sums over channels and over tiles are each one chain in ascending order: bits depend neither on the number
 * of threads nor, for y and dx, on that of images.
 */
#ifndef DT_KERNELS_CPU_WINOGRAD_H
#define DT_KERNELS_CPU_WINOGRAD_H

#include "kernels/cpu/conv.h"

enum { DT_WINO = 16 };

struct dt_wino_parts {
	float *at;
	int64_t stride, count;
};

struct dt_wino_out {	   /* a tile of y, and what is added to it */
	float *y[4];	   /* NULL: outside of the image */
	const float *bias; /* [channels], or NULL */
	bool adds, relu;   /* to what y holds */
};

/*
 * Of one part and group: c[r, j] = (accumulate ? c[r, j] : 0) + sum over k of a[r, k] b[k, j], j < DT_WINO.
 */
struct dt_wino_mul {
	float *c;			/* [rows, DT_WINO] */
	const float *a, *b;		/* b [chunks words, DT_WINO] */
	int64_t rows, chunks, words;	/* k runs over chunks of words */
	int64_t a_row, a_word, a_chunk; /* strides of a */
	bool accumulate;
};

/* Windows as they lie: that of channels o of the result and i of what is read at w[o * out + i * in]. */
struct dt_wino_windows {
	const float *w;
	int64_t outs, ins; /* channels */
	int64_t out, in;   /* strides */
	bool turned;
};

/* One object for each instruction set (meson.build). */
struct dt_wino_lanes {
	/* 4 x 4 pixels of x, row by row, become tile i of `to`; 2 x 2 of dy. */
	void (*image)(const struct dt_wino_parts *to, int64_t i, const float *const px[16], int64_t channels);
	void (*grad)(const struct dt_wino_parts *to, int64_t i, const float *const px[4], int64_t channels);
	/* Windows of channels [group DT_WINO, ...) of the result become group `group` of `to`. */
	void (*windows)(const struct dt_wino_parts *to, int64_t group, const struct dt_wino_windows *w);
	/*
	 * Tile i of `from`, whose first group is that of channel `first`, becomes channels [first, last) of
	 * y.
	 */
	void (*result)(const struct dt_wino_parts *from, int64_t i, const struct dt_wino_out *out,
		       int64_t first, int64_t last);
	/*
	 * Row i of a group of `from` becomes the gradients of `channels` windows, one behind the other at dw.
	 */
	void (*window_grad)(const struct dt_wino_parts *from, int64_t group, int64_t i, float *dw,
			    int64_t channels, bool accumulate);
	void (*mul)(const struct dt_wino_mul *m);
};
extern const struct dt_wino_lanes dt_wino_plain, dt_wino_v3, dt_wino_v4;

/*
 * Whether that is cheaper than sums over the window: 3 x 3, a stride of 1, channels enough. Not asked of a
 * batch, whose size must not change an image's result.
 */
bool dt_wino_takes(const struct dt_conv *p);
/* Bytes of `room` below, 64-byte aligned, contents undefined. */
size_t dt_wino_bytes(const struct dt_dev *dev, const struct dt_conv *p);
/*
 * conv_forward and conv_bias, conv_backward, conv_weights of conv.h; any shape with a kernel of 3 and a
 * stride of 1.
 */
void dt_wino_forward(struct dt_dev *dev, float *room, const struct dt_conv_operands *o, bool adds, bool relu,
		     const struct dt_conv *p);
void dt_wino_backward(struct dt_dev *dev, float *room, const struct dt_conv_operands *o,
		      const struct dt_conv *p);
void dt_wino_weights(struct dt_dev *dev, float *room, const struct dt_conv_operands *o,
		     const struct dt_conv *p);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
