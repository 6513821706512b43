#include "kernels/cpu/draws.h"

#include <math.h>

/* Returns whether an element was out of range. */
static DT_SIMD int fixed_chunk(int64_t *restrict sum, const float *restrict x, int64_t n)
{
	int out = 0;

	for (int64_t i = 0; i < n; i++) {
		const bool in = fabsf(x[i]) < DT_FIXED_LIMIT;

		out |= !in;
		sum[i] += in ? llrint((double)x[i] / DT_FIXED_UNIT) : 0;
	}
	return out;
}

int dt_cpu_fixed_add(struct dt_dev *dev, int *ret_out, struct dt_tensor sum, struct dt_tensor x)
{
	const int64_t n = dt_numel(x);
	int out = 0;

#pragma omp parallel for num_threads(dev->nthreads) reduction(| : out) if (n > DT_SERIAL)
	for (int64_t i = 0; i < n; i += DT_CHUNK)
		out |= fixed_chunk(dt_at(sum, i), dt_at(x, i), dt_min64(DT_CHUNK, n - i));
	*ret_out = out;
	return 0;
}

static DT_SIMD void join_chunk(int64_t *restrict sum, const int64_t *restrict other, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		sum[i] += other[i];
}

int dt_cpu_fixed_join(struct dt_dev *dev, struct dt_tensor sum, struct dt_tensor other)
{
	const int64_t n = dt_numel(sum);

#pragma omp parallel for num_threads(dev->nthreads) if (n > DT_SERIAL)
	for (int64_t i = 0; i < n; i += DT_CHUNK)
		join_chunk(dt_at(sum, i), dt_at(other, i), dt_min64(DT_CHUNK, n - i));
	return 0;
}

static DT_SIMD void get_chunk(float *restrict y, const int64_t *restrict sum, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		y[i] = (float)((double)sum[i] * DT_FIXED_UNIT);
}

int dt_cpu_fixed_get(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor sum)
{
	const int64_t n = dt_numel(y);

#pragma omp parallel for num_threads(dev->nthreads) if (n > DT_SERIAL)
	for (int64_t i = 0; i < n; i += DT_CHUNK)
		get_chunk(dt_at(y, i), dt_at(sum, i), dt_min64(DT_CHUNK, n - i));
	return 0;
}

static DT_SIMD void round_chunk(uint16_t *restrict y, const float *restrict x, int64_t n,
				const struct dt_philox_stream *s, uint64_t first)
{
	uint32_t room[DT_DRAWS];
	const uint32_t *draw = dt_draws(room, s, first, n);

	for (int64_t i = 0; i < n; i++)
		y[i] = dt_round_one(x[i], draw[i]);
}

int dt_cpu_round_random(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const struct dt_round *p)
{
	const int64_t n = dt_numel(y);

#pragma omp parallel for num_threads(dev->nthreads) if (n > DT_SERIAL)
	for (int64_t i = 0; i < n; i += DT_CHUNK)
		round_chunk(dt_at(y, i), dt_at(x, i), dt_min64(DT_CHUNK, n - i), &p->stream,
			    p->first + (uint64_t)i);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
