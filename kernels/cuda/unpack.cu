/* A thread an element: a block's scale is read by neighbours, from the cache. */
#include "kernels/cuda/kernel.h"
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
	static const float table[16] = {-1.0f,
					-0.6961928009986877f,
					-0.5250730514526367f,
					-0.39491748809814453f,
					-0.28444138169288635f,
					-0.18477343022823334f,
					-0.09105003625154495f,
					0.0f,
					0.07958029955625534f,
					0.16093020141124725f,
					0.24611230194568634f,
					0.33791524171829224f,
					0.44070982933044434f,
					0.5626170039176941f,
					0.7229568362236023f,
					1.0f};
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
	for (int i = 0; i < 16; i++)
		p.table[i] = table[i];
	return DT_LAUNCH(c, unpack_kernel, dt_blocks(c, p.n, 256), 256, 0, p);
}
/* SPDX-License-Identifier: Apache-2.0 */
