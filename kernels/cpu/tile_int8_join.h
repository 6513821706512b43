/* Converts the sums of tile_int8.h's products, for AVX-512: the same operations for VNNI and AMX. */
#ifndef DT_KERNELS_CPU_TILE_INT8_JOIN_H
#define DT_KERNELS_CPU_TILE_INT8_JOIN_H

#include "kernels/cpu/tile_int8.h"

#include <immintrin.h>

/* Joins the sums of a row's parts. With two parts the result fits 32 bits, and intermediate overflows
 * cancel. */
DT_INLINE __m512 dt_int8_joined(const __m512i *sum, const int parts, int32_t offset, int32_t last)
{
	const __m512i two = _mm512_add_epi32(_mm512_slli_epi32(sum[0], 8), sum[1]);
	const __m512 x = _mm512_cvtepi32_ps(_mm512_sub_epi32(two, _mm512_set1_epi32(offset)));

	if (parts == 2)
		return x;
	return _mm512_fmadd_ps(x, _mm512_set1_ps(256),
			       _mm512_cvtepi32_ps(_mm512_sub_epi32(sum[2], _mm512_set1_epi32(last))));
}

/* Scores of row i of q with sixteen keys, from their sums. */
DT_INLINE __m512 dt_int8_score(const __m512i *sum, const int parts, const struct dt_tile_bytes *q, int64_t i,
			       __m512 k_scale)
{
	return _mm512_mul_ps(dt_int8_joined(sum, parts, q->offset[0][i], q->offset[1][i]),
			     _mm512_mul_ps(_mm512_set1_ps(q->scale[i]), k_scale));
}

/* o + row i of w times sixteen elements of values. */
DT_INLINE __m512 dt_int8_add(__m512 o, const __m512i *sum, const int parts, const struct dt_tile_bytes *w,
			     int64_t i)
{
	return _mm512_fmadd_ps(dt_int8_joined(sum, parts, 0, 0), _mm512_set1_ps(w->scale[i]), o);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
