/*
 * Loads without immediate use. dt_ld converts right after loading, in a branch on the type, so consecutive
 * loads wait for each other.
 */
#ifndef DT_KERNELS_CUDA_RAW_H
#define DT_KERNELS_CUDA_RAW_H

#include "kernels/cuda/kernel.h"

/* Eight elements in their stored type: a thread waits for the load only when it uses them. */
template <int T> struct dt_raw {
	uint4 u[T == DT_F32 ? 2 : 1];
};

template <int T> DT_DEVICE void dt_ask(dt_raw<T> &r, const void *p, int64_t i)
{
	const char *from = (const char *)p + i * (T == DT_F32 ? 4 : 2);

	DT_UNROLL
	for (int k = 0; k < (T == DT_F32 ? 2 : 1); k++) {
		dt_touch(from + k * 16, 16);
		r.u[k] = *(const uint4 *)(from + k * 16);
	}
}

template <int T> DT_DEVICE float dt_look(const dt_raw<T> &r, int k)
{
	const uint4 &u = r.u[T == DT_F32 ? k / 4 : 0];
	const int at = T == DT_F32 ? k % 4 : k / 2;
	const uint32_t w = at == 0 ? u.x : at == 1 ? u.y : at == 2 ? u.z : u.w;
	float f;

	if constexpr (T == DT_F32) {
		memcpy(&f, &w, 4);
		return f;
	}
	const uint16_t h = (uint16_t)(w >> (k % 2 * 16));

	return T == DT_BF16 ? dt_bf16_to_f32(h) : dt_f16_wide(h);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
