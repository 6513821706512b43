/*
 * What the products with weights in blocks share (quant.h, kernels/cpu/quant.h): the job, and what the bytes
 * of a panel mean.
 */
#ifndef DT_KERNELS_CUDA_PACKED_H
#define DT_KERNELS_CUDA_PACKED_H

#include "kernels/cuda/kernel.h"

/* A block of a row of x. */
struct xblock {
	float scale, sum;
};

struct quant {
	const uint8_t *w;
	size_t panel_bytes;
	int format, quants, scales, supers, offset;
	int64_t rows, blocks, m, ld, first;
	const int8_t *q;	/* [m, 32 blocks] */
	const struct xblock *x; /* [m, blocks] */
	void *y;
	const void *bias;
	int ty, tb;
};

DT_DEVICE uint32_t word_at(const void *p)
{
	dt_touch(p, 4);
	return *(const uint32_t *)p;
}

struct four {
	uint32_t w[4];
};

DT_DEVICE struct four four_at(const void *p)
{
	dt_touch(p, 16);
	const uint4 u = *(const uint4 *)p;
	const struct four f = {{u.x, u.y, u.z, u.w}};

	return f;
}

/* Four bytes 0 .. 255 less an offset of up to 128, as signed bytes. */
DT_DEVICE uint32_t less(uint32_t a, int offset)
{
	return ((a | 0x80808080u) - (uint32_t)offset * 0x01010101u) ^ 0x80808080u;
}

DT_DEVICE float half_at(const uint8_t *p)
{
	dt_touch(p, 2);
	return dt_f16_wide(*(const uint16_t *)p);
}

/*
 * What the integer sums of a block are multiplied by, in row r of its panel; f[1]: the minimum, or of the
 * second half. s: the block's scales, u: the supers of the eight blocks around it (kernels/cpu/quant.h).
 */
DT_DEVICE void factors(int format, const uint8_t *s, const uint8_t *u, int r, float f[2])
{
	f[1] = 0;
	if (format == DT_FMT_Q4_K) {
		f[0] = half_at(u + 2 * r) * (float)s[r];
		f[1] = -half_at(u + 32 + 2 * r) * (float)s[16 + r];
	} else if (format == DT_FMT_Q6_K) {
		f[0] = half_at(u + 2 * r) * (float)(int8_t)s[r];
		f[1] = half_at(u + 2 * r) * (float)(int8_t)s[16 + r];
	} else {
		f[0] = half_at(s + 2 * r);
		f[1] = format == DT_FMT_Q4_1 ? half_at(s + 32 + 2 * r) : 0;
	}
}

DT_DEVICE void four_halves(const uint8_t *p, float (&f)[4])
{
	dt_touch(p, 8);
	const uint2 w = *(const uint2 *)p;

	f[0] = dt_f16_wide((uint16_t)w.x);
	f[1] = dt_f16_wide((uint16_t)(w.x >> 16));
	f[2] = dt_f16_wide((uint16_t)w.y);
	f[3] = dt_f16_wide((uint16_t)(w.y >> 16));
}

/* The same of rows 4 quad .. + 3. */
DT_DEVICE void four_factors(int format, const uint8_t *s, const uint8_t *u, int quad, float (&f)[4][2])
{
	const bool k = format == DT_FMT_Q4_K || format == DT_FMT_Q6_K;
	float d[4], m[4] = {0, 0, 0, 0};
	uint32_t a = 0, b = 0;

	four_halves((k ? u : s) + 8 * quad, d);
	if (format == DT_FMT_Q4_1 || format == DT_FMT_Q4_K)
		four_halves((k ? u : s) + 32 + 8 * quad, m);
	if (k) {
		a = word_at(s + 4 * quad);
		b = word_at(s + 16 + 4 * quad);
	}
	DT_UNROLL
	for (int i = 0; i < 4; i++) {
		const uint8_t ai = (uint8_t)(a >> 8 * i), bi = (uint8_t)(b >> 8 * i);

		f[i][0] = format == DT_FMT_Q4_K	  ? d[i] * (float)ai
			  : format == DT_FMT_Q6_K ? d[i] * (float)(int8_t)ai
						  : d[i];
		f[i][1] = format == DT_FMT_Q4_K	  ? -m[i] * (float)bi
			  : format == DT_FMT_Q6_K ? d[i] * (float)(int8_t)bi
						  : m[i];
	}
}

/* Where a panel keeps the scales of block b, and its supers. */
DT_DEVICE const uint8_t *scales_of(const struct quant &a, const uint8_t *panel, int64_t b)
{
	return panel + a.blocks * a.quants + b * a.scales;
}

DT_DEVICE const uint8_t *supers_of(const struct quant &a, const uint8_t *panel, int64_t b)
{
	return panel + a.blocks * (a.quants + a.scales) + b / 8 * a.supers;
}

#define DT_TILED 16 /* rows of x and more: dt_quant_tiles */

/* packed_tiles.cu: all rows of x, on tensor cores. The same bits as the products of few rows. */
int dt_quant_tiles(const struct dt_cuda *c, const struct quant &a);

#endif
