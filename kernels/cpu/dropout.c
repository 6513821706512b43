#include "kernels/cpu/draws.h"

/* n elements, from number `first` of the stream on. */
static DT_SIMD void dropout_part(char *y, enum dt_dtype ty, const char *x, enum dt_dtype tx, int64_t n,
				 uint64_t first, const struct dt_dropout *p, bool add)
{
	float bx[DT_CHUNK], by[DT_CHUNK];
	const float *px = dt_load(bx, x, tx, n), *old = dt_load(by, y, ty, n);
	float *py = dt_stage(by, y, ty);
	uint32_t room[DT_DRAWS];
	const uint32_t *draw = dt_draws(room, &p->stream, first, n);

	for (int64_t j = 0; j < n; j++) {
		const float kept = draw[j] < p->below ? 0.f : px[j] * p->scale;

		py[j] = add ? old[j] + kept : kept;
	}
	dt_store(y, ty, py, n);
}

int dt_cpu_dropout(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const struct dt_dropout *p,
		   bool add)
{
	const int64_t rows = dt_rows(x), n = dt_cols(x);

#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < n; j += DT_CHUNK)
			dropout_part(dt_at(y, i * n + j), y.dtype, dt_at(x, i * n + j), x.dtype,
				     dt_min64(DT_CHUNK, n - j), dt_dropout_at(p, i) + (uint64_t)j, p, add);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
