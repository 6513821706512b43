#include "kernels/cpu/cpu.h"
#include "kernels/cpu/groups.h"

static DT_SIMD void colsum_group(float *part, struct dt_tensor x, int64_t first, int64_t last)
{
	const int64_t n = dt_cols(x);
	float b[DT_CHUNK];

	for (int64_t c = 0; c < n; c += DT_CHUNK) {
		const int64_t w = dt_min64(DT_CHUNK, n - c);

		memset(part + c, 0, (size_t)w * sizeof *part);
		for (int64_t r = first; r < last; r++) {
			const float *p = dt_load(b, dt_at(x, r * n + c), x.dtype, w);

#pragma omp simd
			for (int64_t j = 0; j < w; j++)
				part[c + j] += p[j];
		}
	}
}

int dt_cpu_colsum(struct dt_dev *dev, struct dt_tensor out, struct dt_tensor x)
{
	const int64_t rows = dt_rows(x), n = dt_cols(x);
	const struct dt_groups g = dt_groups(rows);
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	float *part;

	part = dt_cpu_scratch(dev, dt_colsum_scratch(&on, rows, n));
	if (!part)
		return -ENOMEM;
#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t i = 0; i < g.n; i++)
		colsum_group(part + i * n, x, i * g.rows, dt_min64(rows, (i + 1) * g.rows));
	dt_groups_add(dev, out.data, part, n, g.n, n);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
