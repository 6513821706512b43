/*
 * Rows that each use one of several weights: those of weight e are first[e] .. first[e + 1]. The host does
 * not know these numbers, so it launches as many thread blocks as there may be tiles of M rows, and each
 * finds its own: tiles of e begin at first[e] / M + e, which leaves enough indices for all before it.
 */
#ifndef DT_KERNELS_CUDA_SORTED_H
#define DT_KERNELS_CUDA_SORTED_H

#include "kernels/cuda/kernel.h"

struct dt_sorted {
	const int32_t *first; /* [n + 1] */
	const void *const *of;
	int n; /* 0: all rows use one weight */
	int64_t rows;
	const int32_t *from; /* NULL: row i is row i of x; else row from[i] / used */
	int64_t used;
	int32_t *bad; /* set if from is out of range */
};

DT_DEVICE int64_t dt_sorted_row(const struct dt_sorted &s, int64_t i)
{
	if (!s.from)
		return i;
	dt_touch(s.from + i, 4);
	const int64_t c = s.from[i];

	if (c >= 0 && c < s.rows)
		return c / s.used;
	*s.bad = 1;
	return 0;
}

/* Checks once per launch whether first ascends from 0 and ends within the rows. */
DT_DEVICE void dt_sorted_look(const struct dt_sorted &s)
{
	if (blockIdx.x || blockIdx.y || blockIdx.z)
		return;
	for (int i = (int)threadIdx.x; i < s.n; i += (int)blockDim.x) {
		dt_touch(s.first + i + 1, 4);
		if (s.first[i + 1] < s.first[i] || s.first[i + 1] > s.rows || (i == 0 && s.first[0] != 0))
			*s.bad = 1;
	}
}

/* Number of tiles to launch. */
template <int M> int64_t dt_sorted_tiles(const struct dt_sorted &s)
{
	return M == 1 ? s.rows : s.rows / M + s.n;
}

/* The weight of tile t and its rows [*row, *end), at most M of that weight. -1: no such tile. */
template <int M>
DT_DEVICE int dt_sorted_find(const struct dt_sorted &s, int64_t t, int64_t *row, int64_t *end)
{
	int e = 0, last = s.n;

	while (last - e > 1) {
		const int mid = (e + last) / 2;

		dt_touch(s.first + mid, 4);
		if ((M == 1 ? (int64_t)s.first[mid] : s.first[mid] / M + mid) <= t)
			e = mid;
		else
			last = mid;
	}
	const int64_t first = s.first[e];

	*row = M == 1 ? t : first + (t - first / M - e) * M;
	*end = dt_min64(dt_min64(s.first[e + 1], s.rows), *row + M);
	return *row >= first && first >= 0 && *row < *end ? e : -1;
}

/* The same; also sets *w to the address of the weight. false: no tile t. */
template <int M>
DT_DEVICE bool dt_sorted_tile(const struct dt_sorted &s, int64_t t, int64_t *row, int64_t *end,
			      const void **w)
{
	const int e = dt_sorted_find<M>(s, t, row, end);

	if (e >= 0)
		*w = s.of[e];
	return e >= 0;
}

/*
 * matmul.cu: c [rows, n] = each row of a times its weight [n, columns of a], of a's type and 16-byte aligned.
 */
int dt_cuda_matmul_sorted(const struct dt_cuda *cu, struct dt_tensor c, struct dt_tensor a, int64_t n,
			  const struct dt_sorted &set);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
