/*
 * Encodes weights to a block format, or decodes them, one block per thread, with the CPU's source of each
 * format, compiled here without contraction too, so that the bits are the same.
 */
#include "kernels/cuda/kernel.h"

extern "C" {
#include "kernels/format/search.h"
#include "kernels/quant_grid.h"
}

namespace q8_0
{
#include "kernels/format/q8_0.c"
}
namespace q4_0
{
#include "kernels/format/q4_0.c"
}
namespace q4_1
{
#include "kernels/format/q4_1.c"
}
namespace q5_0
{
#include "kernels/format/q5_0.c"
}
namespace q5_1
{
#include "kernels/format/q5_1.c"
}
namespace iq4_nl
{
#include "kernels/format/iq4_nl.c"
}
namespace iq4_xs
{
#include "kernels/format/iq4_xs.c"
}
namespace iq3_s
{
#include "kernels/format/iq3_s.c"
}
namespace iq3_xxs
{
#include "kernels/format/iq3_xxs.c"
}
namespace iq2_s
{
#include "kernels/format/iq2_s.c"
}
namespace iq2_xs
{
#include "kernels/format/iq2_xs.c"
}
namespace iq2_xxs
{
#include "kernels/format/iq2_xxs.c"
}
namespace mxfp4
{
#include "kernels/format/mxfp4.c"
}
namespace q2_k
{
#include "kernels/format/q2_k.c"
}
namespace q3_k
{
#include "kernels/format/q3_k.c"
}
namespace q6_k
{
#include "kernels/format/q6_k.c"
}
namespace k_min
{
#include "kernels/format/k_min.c"
}
/* q4_k and q5_k differ in the bytes of fifth bits. */
#define K_MIN(name, high)                                                                                    \
	namespace name                                                                                       \
	{                                                                                                    \
	DT_DEVICE void encode(const struct dt_format_traits *, const float *x, int64_t n, uint8_t *out)      \
	{                                                                                                    \
		k_min::search(high, x, n, NULL, out);                                                        \
	}                                                                                                    \
	DT_DEVICE void decode(const struct dt_format_traits *, const uint8_t *s, int64_t n, float *y)        \
	{                                                                                                    \
		k_min::decode_of(s, n, high, y);                                                             \
	}                                                                                                    \
	}
K_MIN(q4_k, 0)
K_MIN(q5_k, 32)

#define LARGEST 256 /* elements per block; no format takes as many bytes */

struct rounding {
	void *w;
	int type, block, bytes; /* elements and bytes of a block */
	int64_t blocks;
	const uint8_t *from; /* the encoded input */
};

/* Replaces w's blocks by what `make` stores in x. */
template <class F> DT_DEVICE void each_block(const struct rounding &r, F make)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < r.blocks; i += step) {
		uint8_t bytes[LARGEST];
		float x[LARGEST];

		make(i, x, bytes);
		for (int k = 0; k < r.block; k++)
			dt_st1(r.w, r.type, i * r.block + k, x[k]);
	}
}

#define BLOCK_KERNELS(NAME, name)                                                                            \
	__global__ void __launch_bounds__(64) round_##name##_kernel(struct rounding r)                       \
	{                                                                                                    \
		each_block(r, [&](int64_t i, float *x, uint8_t *bytes) {                                     \
			for (int k = 0; k < r.block; k++)                                                    \
				x[k] = dt_ld1(r.w, r.type, i * r.block + k);                                 \
			name::encode(NULL, x, r.block, bytes);                                               \
			name::decode(NULL, bytes, r.block, x);                                               \
		});                                                                                          \
	}                                                                                                    \
	__global__ void __launch_bounds__(64) read_##name##_kernel(struct rounding r)                        \
	{                                                                                                    \
		each_block(r, [&](int64_t i, float *x, uint8_t *bytes) {                                     \
			for (int k = 0; k < r.bytes; k++)                                                    \
				bytes[k] = r.from[i * r.bytes + k];                                          \
			name::decode(NULL, bytes, r.block, x);                                               \
		});                                                                                          \
	}
DT_BLOCK_FORMATS(BLOCK_KERNELS)

static int blocks(struct dt_dev *dev, struct dt_tensor w, enum dt_format f, const uint8_t *from)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const struct dt_format_info *info = dt_format_info(f);
	const struct rounding r = {w.data, w.dtype, info->block, info->bytes, dt_numel(w) / info->block,
				   from};

	if (!c)
		return -ENODEV;
	if (info->block > LARGEST || info->bytes > LARGEST)
		return -EINVAL;
	switch (f) {
#define ROUND(NAME, name)                                                                                    \
	case DT_FMT_##NAME:                                                                                  \
		return from ? DT_LAUNCH(c, read_##name##_kernel, dt_blocks(c, r.blocks, 64), 64, 0, r)       \
			    : DT_LAUNCH(c, round_##name##_kernel, dt_blocks(c, r.blocks, 64), 64, 0, r);
		DT_BLOCK_FORMATS(ROUND)
	default:
		return -EINVAL;
	}
}

int dt_cuda_round_blocks(struct dt_dev *dev, struct dt_tensor w, enum dt_format f)
{
	return blocks(dev, w, f, NULL);
}

int dt_cuda_read_blocks(struct dt_dev *dev, struct dt_tensor y, enum dt_format f, const uint8_t *from)
{
	return blocks(dev, y, f, from);
}
/* SPDX-License-Identifier: Apache-2.0 */
