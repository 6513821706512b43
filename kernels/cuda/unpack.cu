/*
 * One element per thread for the most common formats of frozen weights: neighbours read a block's scale from
 * the cache. The other formats use one block per thread (round_blocks.cu).
 */
#include "kernels/cuda/kernel.h"
#include "kernels/nf4.h"
#include "kernels/unpack.h"

struct unpack {
	void *y;
	const uint8_t *data, *scale, *nibble;
	int ty, kind;
	int64_t n, width, first, cols;
	float table[16];
};

DT_DEVICE float half_at(const uint8_t *p)
{
	return dt_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

DT_DEVICE float element(const struct unpack &p, int64_t i)
{
	if (p.kind == DT_BLOCKS_Q8_0) {
		const uint8_t *b = p.data + i / 32 * 34;

		return half_at(b) * (float)(int8_t)b[2 + i % 32];
	}
	if (p.kind == DT_BLOCKS_Q4_0) {
		const uint8_t *b = p.data + i / 32 * 18;
		const int j = (int)(i % 32), q = j < 16 ? b[2 + j] & 15 : b[2 + j - 16] >> 4;

		return half_at(b) * (float)(q - 8);
	}
	if (p.kind == DT_BLOCKS_Q4_K) {
		const uint8_t *b = p.data + i / 256 * 144, *s = b + 4;
		const int j = (int)(i % 256) / 32, l = (int)(i % 32);
		const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
		const int min = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6) << 4;
		const int q = b[16 + j / 2 * 32 + l] >> j % 2 * 4 & 15;
		const float product = half_at(b) * (float)scale * (float)q;

		return product - half_at(b + 2) * (float)min;
	}
	const float *code = (const float *)p.data;
	const int64_t there = p.first + i / p.width * p.cols + i % p.width;
	const float product = code[p.scale[i / 64]] * code[257 + there / 64 / 256];
	const uint8_t b = p.nibble[i / 2];

	return p.table[i % 2 ? b & 15 : b >> 4] * (product + code[256]);
}

__global__ void __launch_bounds__(256) unpack_kernel(struct unpack p)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += step)
		dt_st1(p.y, p.ty, i, element(p, i));
}

int dt_cuda_unpack(struct dt_dev *dev, struct dt_tensor y, const struct dt_blocks_part *part)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	struct unpack p = {y.data,
			   part->data,
			   part->data + dt_nf4_scales_at(part->whole),
			   part->data + dt_nf4_nibbles_at(dt_numel(y), part->whole),
			   y.dtype,
			   (int)part->kind,
			   dt_numel(y),
			   dt_cols(y),
			   part->first,
			   part->cols,
			   {}};

	if (!c)
		return -ENODEV;
	if (part->kind != DT_BLOCKS_Q8_0 && part->kind != DT_BLOCKS_Q4_0 && part->kind != DT_BLOCKS_Q4_K &&
	    part->kind != DT_BLOCKS_NF4)
		return dt_cuda_read_blocks(dev, y, dt_blocks_format(part->kind), part->data);
	for (int i = 0; i < 16; i++)
		p.table[i] = dt_nf4_table[i];
	return DT_LAUNCH(c, unpack_kernel, dt_blocks(c, p.n, 256), 256, 0, p);
}
/* SPDX-License-Identifier: Apache-2.0 */
