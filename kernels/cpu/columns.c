#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

static DT_SIMD void columns_part(char *y, enum dt_dtype ty, const char *x, enum dt_dtype tx, int64_t n,
				 bool add)
{
	float bx[DT_CHUNK], by[DT_CHUNK];
	const float *px = dt_load(bx, x, tx, n), *old = dt_load(by, y, ty, n);
	float *py = dt_stage(by, y, ty);

#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		py[j] = add ? old[j] + px[j] : px[j];
	dt_store(y, ty, py, n);
}

int dt_cpu_columns(struct dt_dev *dev, struct dt_tensor y, int64_t at, struct dt_tensor x, int64_t from,
		   int64_t n, bool add)
{
	const int64_t rows = dt_rows(y), wy = dt_cols(y), wx = dt_cols(x);

#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < n; j += DT_CHUNK)
			columns_part(dt_at(y, i * wy + at + j), y.dtype, dt_at(x, i * wx + from + j), x.dtype,
				     dt_min64(DT_CHUNK, n - j), add);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
