/* The scratch of ops on images, and which convolutions are Winograd's. */
#include "kernels/batchnorm.h"
#include "kernels/class_loss.h"
#include "kernels/cpu/conv.h"
#include "kernels/cpu/groups.h"
#include "kernels/cpu/winograd.h"
#include "kernels/pool.h"

/* n vectors of `cols` f32. */
static size_t vectors(int64_t n, int64_t cols)
{
	return (size_t)(n * cols) * sizeof(float);
}

/* ---- convolutions ---- */

size_t dt_wino_bytes(int threads, const struct dt_conv *p)
{
	const int64_t c = dt_wino_groups(p->channels), k = dt_wino_groups(p->out),
		      most = (c > k ? c : k) * DT_WINO,
		      both = most +
			     16 * dt_wino_part(c, k * DT_WINO), /* pixels outside; weights or sums of their
							        * gradients */
		own = threads * dt_wino_share(most), each = dt_wino_tiles_sum(threads),
		      sums = 16 * (dt_wino_part(c, each) + dt_wino_part(k, each));

	return (size_t)(both + (own > sums ? own : sums)) * sizeof(float);
}

/*
 * Counts multiply-adds per tile, and per weight once for 8 images: 16 products, and transforms that cost as
 * much as 220 per channel (measured on Zen 3, mostly loads and stores); direct convolution takes 9 per output
 * pixel.
 */
bool dt_wino_takes(const struct dt_conv *p)
{
	const double h = (double)dt_window_out(p->height, p->kernel, p->stride, p->pad),
		     w = (double)dt_window_out(p->width, p->kernel, p->stride, p->pad),
		     tiles = (double)(((int64_t)h + 1) / 2 * (((int64_t)w + 1) / 2)),
		     c = (double)dt_wino_groups(p->channels) * DT_WINO,
		     k = (double)dt_wino_groups(p->out) * DT_WINO;

	return p->kernel == 3 && p->stride == 1 &&
	       tiles * (16 * c * k + 220 * (c + k)) + 100 * c * k / 8 <
		       9 * h * w * (double)p->channels * (double)p->out;
}

static size_t widened(enum dt_dtype t, int64_t n)
{
	return t == DT_F32 ? 0 : ((size_t)n * 4 + 63) / 64 * 64;
}

size_t dt_conv_wide_bytes(enum dt_dtype t, bool weights, const struct dt_conv *p)
{
	const int64_t h = dt_window_out(p->height, p->kernel, p->stride, p->pad),
		      w = dt_window_out(p->width, p->kernel, p->stride, p->pad);

	return widened(t, p->batch * p->height * p->width * p->channels) +
	       widened(weights ? DT_F32 : t, p->out * p->channels * p->kernel * p->kernel) +
	       widened(t, p->batch * h * w * p->out);
}

void dt_conv_scratch(const struct dt_scratch_on *on, enum dt_dtype t, bool weights, const struct dt_conv *p,
		     struct dt_scratch *s)
{
	const bool widens = dt_scratch_widens(on, t);

	if (widens)
		dt_scratch_raise(s, DT_SCRATCH_WIDE, dt_conv_wide_bytes(t, weights, p));
	if ((widens || t == DT_F32) && dt_wino_takes(p))
		dt_scratch_raise(s, DT_SCRATCH_PANELS, dt_wino_bytes(on->threads, p));
}

/* ---- batch norms ---- */

size_t dt_bn_stats_scratch(const struct dt_scratch_on *on, int64_t groups, int64_t rows, int64_t c)
{
	return vectors(groups * dt_bn_parts(rows).n * 2 + on->threads * 2, c);
}

size_t dt_bn_forward_scratch(const struct dt_scratch_on *on, int64_t c)
{
	return vectors(4, c);
}

size_t dt_bn_sums_scratch(const struct dt_scratch_on *on, int64_t rows, int64_t c)
{
	return vectors(2 * dt_bn_parts(rows).n, c);
}

size_t dt_bn_backward_scratch(const struct dt_scratch_on *on, int64_t c)
{
	return vectors(4, c);
}

/* ---- pooling, and the ends ---- */

size_t dt_pool_scratch(const struct dt_scratch_on *on, const struct dt_pooling *p)
{
	return vectors(on->threads * 2, p->channels);
}

size_t dt_pool_backward_scratch(const struct dt_scratch_on *on, const struct dt_pooling *p)
{
	return vectors(on->threads, (p->height * p->width + 1) * p->channels);
}

size_t dt_pixels_scratch(const struct dt_scratch_on *on, int64_t numel)
{
	return vectors(on->threads, numel);
}

size_t dt_class_loss_scratch(const struct dt_scratch_on *on, int64_t classes)
{
	return vectors(on->threads, classes);
}
/* SPDX-License-Identifier: Apache-2.0 */
