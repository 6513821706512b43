#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"
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

struct columns {
	struct dt_tensor y, x; /* from the first of the n columns on */
	int64_t n;
	bool add;
};

static void columns_some(void *arg, int t, int64_t first, int64_t last)
{
	const struct columns *a = arg;
	const int64_t wy = dt_cols(a->y), wx = dt_cols(a->x);

	for (int64_t i = first; i < last; i++)
		for (int64_t j = 0; j < a->n; j += DT_CHUNK)
			columns_part(dt_at(a->y, i * wy + j), a->y.dtype, dt_at(a->x, i * wx + j), a->x.dtype,
				     dt_min64(DT_CHUNK, a->n - j), a->add);
}

int dt_cpu_columns(struct dt_dev *dev, struct dt_tensor y, int64_t at, struct dt_tensor x, int64_t from,
		   int64_t n, bool add)
{
	struct columns a = {y, x, n, add};

	a.y.data = dt_at(y, at);
	a.x.data = dt_at(x, from);
	dt_cpu_rows(dev, dt_rows(y), n, columns_some, &a);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
