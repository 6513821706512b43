#include "kernels/cpu/groups.h"

static DT_SIMD void add_columns(float *out, const float *part, int64_t stride, int64_t groups, int64_t n)
{
	for (int64_t i = 0; i < groups; i++) {
		const float *p = part + i * stride;

#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			out[j] += p[j];
	}
}

void dt_groups_add(struct dt_dev *dev, float *out, const float *part, int64_t stride, int64_t groups,
		   int64_t n)
{
#pragma omp parallel for num_threads(dev->nthreads) if (groups * n > 4 * DT_SERIAL)
	for (int64_t c = 0; c < n; c += 256)
		add_columns(out + c, part + c, stride, groups, dt_min64(256, n - c));
}
/* SPDX-License-Identifier: Apache-2.0 */
